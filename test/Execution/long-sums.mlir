// Rounding errors do not grow with the length of a sum: the bounds of --check grow with the number of parts of 128 terms
// only. If sums ran on through all keys or terms, the largest error would be about twice the bound.

// Groups of rows, also in the register blocks of AVX-512.
// RUN: saccade-run %s --check --entry=attention --arg=1x1x64x16:f32:1 --arg=1x1x4096x16:f32:2 --arg=1x1x4096x16:f32:=1 | FileCheck %s
// RUN: saccade-run %s --check --entry=attention --arg=1x1x64x16:f32:1 --arg=1x1x4096x16:f32:2 --arg=1x1x4096x16:f32:3 | FileCheck %s
// RUN: saccade-run %s --check --entry=attention --target=%{v4} --arg=1x1x64x16:f32:1 --arg=1x1x4096x16:f32:2 --arg=1x1x4096x16:f32:=1 | FileCheck %s

// Both operands packed by the task, the RHS packed before the tasks, and rows that share a set of the L1 cache.
// RUN: saccade-run %s --check --entry=matmul --arg=64x3072:f32:1 --arg=3072x64:f32:2 | FileCheck %s
// RUN: saccade-run %s --check --entry=matmul --arg=400x3000:f32:1 --arg=3000x64:f32:2 | FileCheck %s
// RUN: saccade-run %s --check --entry=matmul --arg=400x3072:f32:1 --arg=3072x64:f32:2 | FileCheck %s

// GPUs.
// RUN: saccade-run %s --check --entry=attention --device=ptxsim --target=sm_75 --arg=1x1x20x16:f32:1 --arg=1x1x4096x16:f32:2 --arg=1x1x4096x16:f32:=1 | FileCheck %s
// RUN: saccade-run %s --check --entry=attention --device=ptxsim --target=sm_75 --arg=1x1x20x16:f32:1 --arg=1x1x4096x16:f32:2 --arg=1x1x4096x16:f32:3 | FileCheck %s
// RUN: saccade-run %s --check --entry=matmul --device=ptxsim --target=sm_75 --arg=16x3072:f32:1 --arg=3072x16:f32:2 | FileCheck %s
// CHECK: agrees

func.func @attention(%q: tensor<?x?x?x16xf32>, %k: tensor<?x?x?x16xf32>, %v: tensor<?x?x?x16xf32>) -> tensor<?x?x?x16xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] : (tensor<?x?x?x16xf32>, tensor<?x?x?x16xf32>, tensor<?x?x?x16xf32>) -> tensor<?x?x?x16xf32>
  return %o : tensor<?x?x?x16xf32>
}

func.func @matmul(%x: tensor<?x?xf32>, %w: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %rows = tensor.dim %x, %c0 : tensor<?x?xf32>
  %columns = tensor.dim %w, %c1 : tensor<?x?xf32>
  %empty = tensor.empty(%rows, %columns) : tensor<?x?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %y = linalg.matmul ins(%x, %w : tensor<?x?xf32>, tensor<?x?xf32>) outs(%zeros : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}
