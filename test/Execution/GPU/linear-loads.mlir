// All threads load the decay of the first position of a chunk from shared memory. No barrier separates that from what the next
// op writes, which has no place in that memory. The simulator finds stores that are not ordered after loads.
// RUN: saccade-run %s --target=sm_80 --device=ptxsim --check --arg=1x64x1x24:bf16:1 --arg=1x64x1x24:bf16:2 --arg=1x64x2x32:bf16:3 --arg=1x64x2:f32:=-0.1 --arg=1x64x2:f32:=0.01 --arg=1x2x24x32:bf16:5
func.func @main(%q: tensor<1x64x1x24xbf16>, %k: tensor<1x64x1x24xbf16>, %v: tensor<1x64x2x32xbf16>, %g: tensor<1x64x2xf32>,
                %b: tensor<1x64x2xf32>, %s: tensor<1x2x24x32xbf16>) -> tensor<1x64x2x32xbf16> {
  %o = attn.linear %q[b,s,h,d], %k[b,s,h,d], %v[b,s,h,d] causal scale(0.5) decay(%g[b,s,h] : tensor<1x64x2xf32>)
      beta(%b[b,s,h] : tensor<1x64x2xf32>) state(%s : tensor<1x2x24x32xbf16>)
      : (tensor<1x64x1x24xbf16>, tensor<1x64x1x24xbf16>, tensor<1x64x2x32xbf16>) -> tensor<1x64x2x32xbf16>
  return %o : tensor<1x64x2x32xbf16>
}
