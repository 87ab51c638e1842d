// An entry may have the name of a function that compiled code calls.
// RUN: saccade-compile %s -o %t.o && llvm-nm %t.o | FileCheck %s

// CHECK-DAG: T saccade_memcpy.shapes{{$}}
// CHECK-DAG: T saccade_memcpy{{$}}
// CHECK-DAG: T saccade_saccade_parallel_for{{$}}
// CHECK-DAG: U saccade_parallel_for{{$}}
// CHECK-DAG: T saccade_tanf{{$}}
// CHECK-DAG: U tanf{{$}}
func.func @saccade_parallel_for(%q: tensor<?x?x64xf32>) -> tensor<?x?x64xf32> {
  %o = attn.attention %q[b,s,d], %q[b,s,d], %q[b,s,d]
    : (tensor<?x?x64xf32>, tensor<?x?x64xf32>, tensor<?x?x64xf32>) -> tensor<?x?x64xf32>
  return %o : tensor<?x?x64xf32>
}

func.func @tanf(%x: tensor<?xf32>) -> tensor<?xf32> {
  %y = math.tan %x : tensor<?xf32>
  return %y : tensor<?xf32>
}

func.func @memcpy(%x: tensor<?xf32>) -> tensor<?xf32> {
  return %x : tensor<?xf32>
}

// The shape function of @f does not conflict with the entry @f_shapes.
func.func @"memcpy.shapes"(%x: tensor<?xf32>) -> tensor<?xf32> {
  return %x : tensor<?xf32>
}
