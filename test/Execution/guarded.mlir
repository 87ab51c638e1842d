// A window of 41 keys and tiles of 64: the first tile of a task reaches none of its later rows, so their state is cleared
// apart; the last tile is partial; query heads share KV heads. Scratch memory is NaN, and the captured table ends, or
// begins, at a page without access. Results of bf16 that are truncated, keys of another KV head, an accumulator that is
// not cleared or not rescaled, and a read of the element after the table each fail here.

// RUN: saccade-run %s --guard --check --arg=1x4x300x64:bf16:1 --arg=1x2x300x64:bf16:2 --arg=1x2x300x64:bf16:3 --arg=300:f32:4
// RUN: saccade-run %s --guard=begin --check --arg=1x4x300x64:bf16:1 --arg=1x2x300x64:bf16:2 --arg=1x2x300x64:bf16:3 --arg=300:f32:4
// RUN: saccade-run %s --target=v3 --guard --check --arg=1x4x300x64:bf16:1 --arg=1x2x300x64:bf16:2 --arg=1x2x300x64:bf16:3 --arg=300:f32:4

func.func @window(%q: tensor<?x?x?x64xbf16>, %k: tensor<?x?x?x64xbf16>, %v: tensor<?x?x?x64xbf16>, %t: tensor<?xf32>) -> tensor<?x?x?x64xbf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%t : tensor<?xf32>) mask window<40, 0>
    score(%s, %b, %h, %i, %j, %u) {
      %x = tensor.extract %u[%j] : tensor<?xf32>
      %r = arith.addf %s, %x : f32
      attn.yield %r : f32
    } {schedule = #attn.schedule<rows = 96, cols = 64>}
    : (tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>) -> tensor<?x?x?x64xbf16>
  return %o : tensor<?x?x?x64xbf16>
}
