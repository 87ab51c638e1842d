// The transposed form of attn.linear, whose states decay by head, row or column, agrees with the recurrence of the
// reference. Lengths are one position, none, and several chunks of which the last is not full.

// RUN: saccade-run %s --entry=grouped --check --arg=2x2x70x8:f32:1 --arg=2x4x70x8:f32:2 --arg=2x4x70x12:f32:3 --arg=2x2x70:f32:4 --arg=2x2x8x12:f32:5
// RUN: saccade-run %s --entry=grouped --check --arg=2x2x1x8:f32:1 --arg=2x4x1x8:f32:2 --arg=2x4x1x12:f32:3 --arg=2x2x1:f32:4 --arg=2x2x8x12:f32:5
// RUN: saccade-run %s --entry=grouped --check --arg=2x2x0x8:f32:1 --arg=2x4x0x8:f32:2 --arg=2x4x0x12:f32:3 --arg=2x2x0:f32:4 --arg=2x2x8x12:f32:5
func.func @grouped(%q: tensor<2x2x?x8xf32>, %k: tensor<2x4x?x8xf32>, %v: tensor<2x4x?x12xf32>, %g: tensor<2x2x?xf32>, %s: tensor<2x2x8x12xf32>)
    -> (tensor<2x2x?x12xf32>, tensor<2x2x8x12xf32>) {
  %o, %t = attn.linear %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] causal transposed scale(0.5) decay(%g[b,h,s] : tensor<2x2x?xf32>) state(%s : tensor<2x2x8x12xf32>)
   : (tensor<2x2x?x8xf32>, tensor<2x4x?x8xf32>, tensor<2x4x?x12xf32>) -> (tensor<2x2x?x12xf32>, tensor<2x2x8x12xf32>)
  return %o, %t : tensor<2x2x?x12xf32>, tensor<2x2x8x12xf32>
}

// RUN: saccade-run %s --entry=rows --check --arg=2x2x70x8:f32:1 --arg=2x4x70x8:f32:2 --arg=2x4x70x12:f32:3 --arg=2x2x70x8:f32:4 --arg=2x2x8x12:f32:5
// RUN: saccade-run %s --entry=rows --check --arg=2x2x1x8:f32:1 --arg=2x4x1x8:f32:2 --arg=2x4x1x12:f32:3 --arg=2x2x1x8:f32:4 --arg=2x2x8x12:f32:5
// RUN: saccade-run %s --entry=rows --check --arg=2x2x0x8:f32:1 --arg=2x4x0x8:f32:2 --arg=2x4x0x12:f32:3 --arg=2x2x0x8:f32:4 --arg=2x2x8x12:f32:5
func.func @rows(%q: tensor<2x2x?x8xf32>, %k: tensor<2x4x?x8xf32>, %v: tensor<2x4x?x12xf32>, %g: tensor<2x2x?x8xf32>, %s: tensor<2x2x8x12xf32>)
    -> (tensor<2x2x?x12xf32>, tensor<2x2x8x12xf32>) {
  %o, %t = attn.linear %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] causal transposed decay(%g[b,h,s,d] : tensor<2x2x?x8xf32>) state(%s : tensor<2x2x8x12xf32>)
   : (tensor<2x2x?x8xf32>, tensor<2x4x?x8xf32>, tensor<2x4x?x12xf32>) -> (tensor<2x2x?x12xf32>, tensor<2x2x8x12xf32>)
  return %o, %t : tensor<2x2x?x12xf32>, tensor<2x2x8x12xf32>
}

// RUN: saccade-run %s --entry=columns --check --arg=2x2x70x8:f32:1 --arg=2x4x70x8:f32:2 --arg=2x4x70x12:f32:3 --arg=2x2x70x12:f32:4 --arg=2x2x8x12:f32:5
// RUN: saccade-run %s --entry=columns --check --arg=2x2x1x8:f32:1 --arg=2x4x1x8:f32:2 --arg=2x4x1x12:f32:3 --arg=2x2x1x12:f32:4 --arg=2x2x8x12:f32:5
// RUN: saccade-run %s --entry=columns --check --arg=2x2x0x8:f32:1 --arg=2x4x0x8:f32:2 --arg=2x4x0x12:f32:3 --arg=2x2x0x12:f32:4 --arg=2x2x8x12:f32:5
func.func @columns(%q: tensor<2x2x?x8xf32>, %k: tensor<2x4x?x8xf32>, %v: tensor<2x4x?x12xf32>, %g: tensor<2x2x?x12xf32>, %s: tensor<2x2x8x12xf32>)
    -> (tensor<2x2x?x12xf32>, tensor<2x2x8x12xf32>) {
  %o, %t = attn.linear %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] causal transposed decay_columns(%g[b,h,s,d] : tensor<2x2x?x12xf32>) state(%s : tensor<2x2x8x12xf32>)
   : (tensor<2x2x?x8xf32>, tensor<2x4x?x8xf32>, tensor<2x4x?x12xf32>) -> (tensor<2x2x?x12xf32>, tensor<2x2x8x12xf32>)
  return %o, %t : tensor<2x2x?x12xf32>, tensor<2x2x8x12xf32>
}

// RUN: saccade-run %s --entry=columns_forward --check --arg=2x4x70x8:f32:1 --arg=2x2x70x8:f32:2 --arg=2x2x70x12:f32:3 --arg=2x2x70x12:f32:4 --arg=2x2x8x12:f32:5
// RUN: saccade-run %s --entry=columns_forward --check --arg=2x4x1x8:f32:1 --arg=2x2x1x8:f32:2 --arg=2x2x1x12:f32:3 --arg=2x2x1x12:f32:4 --arg=2x2x8x12:f32:5
// RUN: saccade-run %s --entry=columns_forward --check --arg=2x4x0x8:f32:1 --arg=2x2x0x8:f32:2 --arg=2x2x0x12:f32:3 --arg=2x2x0x12:f32:4 --arg=2x2x8x12:f32:5
func.func @columns_forward(%q: tensor<2x4x?x8xf32>, %k: tensor<2x2x?x8xf32>, %v: tensor<2x2x?x12xf32>, %g: tensor<2x2x?x12xf32>, %s: tensor<2x2x8x12xf32>)
    -> (tensor<2x4x?x12xf32>, tensor<2x2x8x12xf32>) {
  %o, %t = attn.linear %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] causal decay_columns(%g[b,h,s,d] : tensor<2x2x?x12xf32>) state(%s : tensor<2x2x8x12xf32>)
   : (tensor<2x4x?x8xf32>, tensor<2x2x?x8xf32>, tensor<2x2x?x12xf32>) -> (tensor<2x4x?x12xf32>, tensor<2x2x8x12xf32>)
  return %o, %t : tensor<2x4x?x12xf32>, tensor<2x2x8x12xf32>
}

// RUN: saccade-run %s --entry=plain --check --arg=2x2x5x8:f32:1 --arg=2x4x70x8:f32:2 --arg=2x4x70x12:f32:3
// RUN: saccade-run %s --entry=plain --check --arg=2x2x5x8:f32:1 --arg=2x4x1x8:f32:2 --arg=2x4x1x12:f32:3
// RUN: saccade-run %s --entry=plain --check --arg=2x2x5x8:f32:1 --arg=2x4x0x8:f32:2 --arg=2x4x0x12:f32:3
func.func @plain(%q: tensor<2x2x?x8xf32>, %k: tensor<2x4x?x8xf32>, %v: tensor<2x4x?x12xf32>)
    -> (tensor<2x2x?x12xf32>, tensor<2x2x8x12xf32>) {
  %o, %t = attn.linear %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] transposed 
   : (tensor<2x2x?x8xf32>, tensor<2x4x?x8xf32>, tensor<2x4x?x12xf32>) -> (tensor<2x2x?x12xf32>, tensor<2x2x8x12xf32>)
  return %o, %t : tensor<2x2x?x12xf32>, tensor<2x2x8x12xf32>
}
