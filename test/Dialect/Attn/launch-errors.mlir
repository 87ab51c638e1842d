// RUN: saccade-opt --split-input-file --verify-diagnostics %s

func.func @unknown_task(%n: index) {
  // expected-error @+1 {{task 'nowhere' is not a function of this module}}
  attn.launch @nowhere() count(%n)
  return
}

// -----

func.func private @task(%begin: index, %end: index, %scratch: memref<?xi8>)
func.func @too_many_captures(%n: index, %x: memref<8xf32>) {
  // expected-error @+1 {{task 'task' has 3 arguments, expected 4: (captures..., begin, end, scratch)}}
  attn.launch @task(%x) count(%n) : (memref<8xf32>)
  return
}

// -----

func.func private @task(%x: memref<4xf32>, %begin: index, %end: index, %scratch: memref<?xi8>)
func.func @capture_of_another_type(%n: index, %x: memref<8xf32>) {
  // expected-error @+1 {{task 'task' has argument 0 of type 'memref<4xf32>', expected 'memref<8xf32>'}}
  attn.launch @task(%x) count(%n) : (memref<8xf32>)
  return
}

// -----

func.func private @task(%begin: index, %end: index, %scratch: memref<?xi8>) -> index
func.func @task_with_results(%n: index) {
  // expected-error @+1 {{task 'task' has 1 results, expected none}}
  attn.launch @task() count(%n)
  return
}

// -----

func.func private @task(%begin: index, %end: index, %scratch: memref<?xi8>)
func.func @negative_scratch(%n: index) {
  // expected-error @+1 {{attribute 'scratch_bytes' failed to satisfy constraint}}
  "attn.launch"(%n) {task = @task, scratch_bytes = -1 : i64} : (index) -> ()
  return
}
