// Types of operands and results that tell different extents: heads of keys and an empty batch are in one type only.
// RUN: saccade-run %s --entry=mixed --check --arg=4x9x8:f32:1 --arg=2x9x8:f32:2 --arg=4x9x6:f32:3 --arg=4x9x8:f32:4 --out=%t.o.npy
// RUN: saccade-run %s --entry=mixed_gradient --check --arg=4x9x8:f32:1 --arg=2x9x8:f32:2 --arg=4x9x6:f32:3 --arg=4x9x8:f32:4 --arg=%t.o.npy --arg=4x9x6:f32:5
// RUN: saccade-run %s --entry=empty --check --arg=0x5x8:f32 --arg=0x5x8:f32 --arg=0x5x6:f32 --out=%t.o.npy
// RUN: saccade-run %s --entry=empty_gradient --check --arg=0x5x8:f32 --arg=0x5x8:f32 --arg=0x5x6:f32 --arg=%t.o.npy --arg=0x5x6:f32
func.func @mixed(%q: tensor<4x?x8xf32>, %k: tensor<2x?x8xf32>, %v: tensor<4x?x6xf32>, %e: tensor<?x?x8xf32>)
    -> tensor<?x?x6xf32> attributes {attn.gradient} {
  %o = attn.linear %q[h,s,d], %k[h,s,d], %v[h,s,d] causal l2norm(1.0e-6) erase(%e[h,s,d] : tensor<?x?x8xf32>)
      : (tensor<4x?x8xf32>, tensor<2x?x8xf32>, tensor<4x?x6xf32>) -> tensor<?x?x6xf32>
  return %o : tensor<?x?x6xf32>
}

func.func @empty(%q: tensor<?x?x8xf32>, %k: tensor<0x?x8xf32>, %v: tensor<?x?x6xf32>)
    -> tensor<0x?x6xf32> attributes {attn.gradient} {
  %o = attn.linear %q[b,s,d], %k[b,s,d], %v[b,s,d] causal
      : (tensor<?x?x8xf32>, tensor<0x?x8xf32>, tensor<?x?x6xf32>) -> tensor<0x?x6xf32>
  return %o : tensor<0x?x6xf32>
}

// A static length of 0: the final state is the initial one.
// RUN: saccade-run %s --entry=no_positions --check --arg=2x0x8:f32 --arg=2x0x64:f32 --arg=2x8x64:f32:1 --out=%t.o.npy --out=%t.s.npy
func.func @no_positions(%q: tensor<?x0x8xf32>, %v: tensor<?x0x64xf32>, %s: tensor<?x8x64xf32>) -> (tensor<?x0x64xf32>, tensor<?x8x64xf32>) {
  %o:2 = attn.linear %q[h,s,d], %q[h,s,d], %v[h,s,d] causal state(%s : tensor<?x8x64xf32>)
      : (tensor<?x0x8xf32>, tensor<?x0x8xf32>, tensor<?x0x64xf32>) -> (tensor<?x0x64xf32>, tensor<?x8x64xf32>)
  return %o#0, %o#1 : tensor<?x0x64xf32>, tensor<?x8x64xf32>
}
