// Dense constants are part of the device module, so kernels do not read memory of the host, which PtxSim would report.

// RUN: saccade-compile %s --target=sm_80 --emit=ptx -o - | FileCheck %s
// One copy for all kernels.
// CHECK-COUNT-1: .global .align {{[0-9]+}} .b8 {{[_a-z]*}}constant_24xf32
// CHECK-NOT: .global .align {{[0-9]+}} .b8 {{[_a-z]*}}constant_24xf32

// A table that a score and its gradient read, and one that a mask reads.
// RUN: saccade-run %s --entry=attend --arg=2x40x16:f32:1 --arg=2x24x16:f32:2 --arg=2x24x16:f32:3 --arg=0.5 --out=%t.o.npy --out=%t.l.npy --out=%t.r.npy
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --entry=attend --check --arg=2x40x16:f32:1 --arg=2x24x16:f32:2 --arg=2x24x16:f32:3 --arg=0.5
// RUN: saccade-run %s --device=ptxsim --target=sm_75 --entry=attend_gradient --check --arg=2x40x16:f32:1 --arg=2x24x16:f32:2 --arg=2x24x16:f32:3 --arg=0.5 --arg=%t.o.npy --arg=%t.l.npy --arg=%t.r.npy --arg=2x40x16:f32:4
func.func @attend(%q: tensor<2x?x16xf32>, %k: tensor<2x?x16xf32>, %v: tensor<2x?x16xf32>, %x: f32) -> tensor<2x?x16xf32>
    attributes {attn.gradient} {
  %table = arith.constant dense<[-2.0, 1.7, 1.3, 0.9, 0.5, 0.1, -0.3, -0.7, -1.1, -1.5, -1.9, 1.8, 1.4, 1.0, 0.6, 0.2, -0.2, -0.6, -1.0, -1.4, -1.8, 1.9, 1.5, 1.1]> : tensor<24xf32>
  %kept = arith.constant dense<[false, true, true, false, true, true, false, true, true, false, true, true, false, true, true, false, true, true, false, true, true, false, true, true]> : tensor<24xi1>
  %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] captures(%table, %kept, %x : tensor<24xf32>, tensor<24xi1>, f32)
    score(%s, %b, %h, %i, %j, %t, %m, %y) {
      %0 = tensor.extract %t[%j] : tensor<24xf32>
      %1 = arith.mulf %0, %y : f32
      %2 = arith.addf %s, %1 : f32
      attn.yield %2 : f32
    }
    mask(%b, %h, %i, %j, %t, %m, %y) {
      %0 = tensor.extract %m[%j] : tensor<24xi1>
      attn.yield %0 : i1
    } : (tensor<2x?x16xf32>, tensor<2x?x16xf32>, tensor<2x?x16xf32>) -> tensor<2x?x16xf32>
  return %o : tensor<2x?x16xf32>
}

// Weights of a matmul on tensor cores, a bias, and a constant that is a result.
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --entry=project --check --arg=70x16:f16:1
// RUN: saccade-run %s --device=ptxsim --target=sm_75 --entry=project --check --arg=70x16:f16:1
func.func @project(%x: tensor<?x16xf16>) -> (tensor<?x8xf16>, tensor<24xf32>) {
  %weights = arith.constant dense<[[-1.00, -0.45, 0.10, 0.65, -0.85, -0.30, 0.25, 0.80], [0.85, -0.65, -0.10, 0.45, 1.00, -0.50, 0.05, 0.60], [0.65, -0.85, -0.30, 0.25, 0.80, -0.70, -0.15, 0.40], [0.45, 1.00, -0.50, 0.05, 0.60, -0.90, -0.35, 0.20], [0.25, 0.80, -0.70, -0.15, 0.40, 0.95, -0.55, 0.00], [0.05, 0.60, -0.90, -0.35, 0.20, 0.75, -0.75, -0.20], [-0.15, 0.40, 0.95, -0.55, 0.00, 0.55, -0.95, -0.40], [-0.35, 0.20, 0.75, -0.75, -0.20, 0.35, 0.90, -0.60], [-0.55, 0.00, 0.55, -0.95, -0.40, 0.15, 0.70, -0.80], [-0.75, -0.20, 0.35, 0.90, -0.60, -0.05, 0.50, -1.00], [-0.95, -0.40, 0.15, 0.70, -0.80, -0.25, 0.30, 0.85], [0.90, -0.60, -0.05, 0.50, -1.00, -0.45, 0.10, 0.65], [0.70, -0.80, -0.25, 0.30, 0.85, -0.65, -0.10, 0.45], [0.50, -1.00, -0.45, 0.10, 0.65, -0.85, -0.30, 0.25], [0.30, 0.85, -0.65, -0.10, 0.45, 1.00, -0.50, 0.05], [0.10, 0.65, -0.85, -0.30, 0.25, 0.80, -0.70, -0.15]]> : tensor<16x8xf16>
  %bias = arith.constant dense<[1.0, 2.0, 3.0, -4.0, 5.0, 6.0, 7.0, 8.0]> : tensor<8xf16>
  %table = arith.constant dense<[-2.0, 1.7, 1.3, 0.9, 0.5, 0.1, -0.3, -0.7, -1.1, -1.5, -1.9, 1.8, 1.4, 1.0, 0.6, 0.2, -0.2, -0.6, -1.0, -1.4, -1.8, 1.9, 1.5, 1.1]> : tensor<24xf32>
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x16xf16>
  %empty = tensor.empty(%n) : tensor<?x8xf16>
  %start = linalg.broadcast ins(%bias : tensor<8xf16>) outs(%empty : tensor<?x8xf16>) dimensions = [0]
  %y = linalg.matmul ins(%x, %weights : tensor<?x16xf16>, tensor<16x8xf16>) outs(%start : tensor<?x8xf16>) -> tensor<?x8xf16>
  return %y, %table : tensor<?x8xf16>, tensor<24xf32>
}
