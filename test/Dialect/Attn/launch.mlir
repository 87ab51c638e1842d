// RUN: saccade-opt %s | saccade-opt | FileCheck %s

func.func private @task(%x: memref<8xf32>, %begin: index, %end: index, %scratch: memref<?xi8>)

// CHECK-LABEL: func.func @scratch_is_written_where_it_is_known(
// CHECK:         attn.launch @task(%[[X:.*]]) count(%[[N:.*]]) : (memref<8xf32>)
// CHECK:         attn.launch @task(%[[X]]) count(%[[N]]) scratch(4096) : (memref<8xf32>)
func.func @scratch_is_written_where_it_is_known(%x: memref<8xf32>, %n: index) {
  attn.launch @task(%x) count(%n) : (memref<8xf32>)
  attn.launch @task(%x) count(%n) scratch(4096) : (memref<8xf32>)
  return
}

// CHECK-LABEL: func.func @threads(
// CHECK-NEXT:    %[[N:.*]] = attn.threads
// CHECK-NEXT:    return %[[N]] : index
func.func @threads() -> index {
  %n = attn.threads
  return %n : index
}
