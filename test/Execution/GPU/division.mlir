// Regions are also evaluated for masked pairs: a division by 0 there must not make the pair visible.
// RUN: saccade-run %s --device=ptxsim --target=sm_80 --check --arg=40x64:f16:1
// RUN: saccade-run %s --check --arg=40x64:f16:1
func.func @reciprocal(%x: tensor<?x64xf16>) -> tensor<?x64xf16> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] mask(%b, %h, %i, %j) {
      %is = arith.cmpi ne, %i, %j : index
      attn.yield %is : i1
    } score(%s, %b, %h, %i, %j) {
      %eight = arith.constant 8 : index
      %d = arith.subi %i, %j : index
      %e = arith.divsi %eight, %d : index
      %i32 = arith.index_cast %e : index to i32
      %f = arith.sitofp %i32 : i32 to f32
      %r = arith.addf %s, %f : f32
      attn.yield %r : f32
    } : (tensor<?x64xf16>, tensor<?x64xf16>, tensor<?x64xf16>) -> tensor<?x64xf16>
  return %o : tensor<?x64xf16>
}
