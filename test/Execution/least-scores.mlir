// Finite scores that overflow when they are multiplied by log2(e): a row of the least number has equal weights, as a softmax gives
// it, and masked keys stay hidden. On the tensor cores and without, over tiles and parts of the keys that are joined, where a
// weight is asked for with its sum, and with a sink.
// RUN: saccade-run %s --target=portable --check --entry=least --arg=7x16:f32:1 --arg=1500x16:f32:2 --arg=1500x16:f32:3 --arg=-3.4028234663852886e38
// RUN: saccade-run %s --target=v3 --check --entry=least --arg=7x16:f32:1 --arg=1500x16:f32:2 --arg=1500x16:f32:3 --arg=-3.4028234663852886e38
// RUN: saccade-run %s --check --entry=least --arg=7x16:f32:1 --arg=1500x16:f32:2 --arg=1500x16:f32:3 --arg=-3.4028234663852886e38
// RUN: saccade-run %s --check --entry=least --arg=7x16:f32:1 --arg=1500x16:f32:2 --arg=1500x16:f32:3 --arg=3.4028234663852886e38
// RUN: saccade-run %s --check --entry=least --arg=1x16:f32:1 --arg=20000x16:f32:2 --arg=20000x16:f32:3 --arg=-3.4028234663852886e38
// RUN: saccade-run %s --target=v4-bf16-expanded --check --entry=least_bf16 --arg=40x64:bf16:1 --arg=700x64:bf16:2 --arg=700x64:bf16:3 --arg=-3.4028234663852886e38
// RUN: saccade-run %s --check --entry=least_f64 --arg=7x16:f64:1 --arg=1500x16:f64:2 --arg=1500x16:f64:3 --arg=-1.7976931348623157e308
// RUN: saccade-run %s --check --entry=squared --arg=7x16:f32:1 --arg=700x16:f32:2 --arg=700x16:f32:3 --arg=-3.4028234663852886e38
// RUN: saccade-run %s --device=ptxsim --check --entry=least --arg=7x16:f32:1 --arg=200x16:f32:2 --arg=200x16:f32:3 --arg=-3.4028234663852886e38
// RUN: saccade-run %s --device=ptxsim --check --entry=least_f64 --arg=7x16:f64:1 --arg=70x16:f64:2 --arg=70x16:f64:3 --arg=-1.7976931348623157e308
// RUN: saccade-run %s --device=ptxsim --check --entry=least_f16 --arg=70x64:f16:1 --arg=330x64:f16:2 --arg=330x64:f16:3 --arg=-3.4028234663852886e38
// RUN: saccade-run %s --device=ptxsim --check --entry=least_f16 --arg=70x64:f16:1 --arg=330x64:f16:2 --arg=330x64:f16:3 --arg=3.4028234663852886e38
// RUN: saccade-run %s --device=ptxsim --target=sm_75 --check --entry=least_f16 --arg=70x64:f16:1 --arg=330x64:f16:2 --arg=330x64:f16:3 --arg=-3.4028234663852886e38
// RUN: saccade-run %s --device=ptxsim --check --explain --entry=least_f16 --arg=7x64:f16:1 --arg=1500x64:f16:2 --arg=1500x64:f16:3 --arg=-3.4028234663852886e38 | FileCheck %s
// RUN: saccade-run %s --device=ptxsim --check --entry=squared --arg=7x16:f32:1 --arg=70x16:f32:2 --arg=70x16:f32:3 --arg=-3.4028234663852886e38
// RUN: saccade-run %s --check --entry=sink --arg=7x16:f32:1 --arg=70x16:f32:2 --arg=70x16:f32:3 --arg=-3.4028234663852886e38
// CHECK: split-KV, ran

// Row i has the number in keys from 150 · i on.
func.func @least(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>, %v: tensor<?x16xf32>, %least: f32) -> tensor<?x16xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] captures(%least : f32)
    mask(%b, %h, %i, %j, %x) {
      %one = arith.constant 1 : index
      %two = arith.constant 2 : index
      %bit = arith.andi %j, %one : index
      %isOdd = arith.cmpi eq, %bit, %one : index
      %isLater = arith.cmpi uge, %i, %two : index
      %is = arith.ori %isOdd, %isLater : i1
      attn.yield %is : i1
    } score(%s, %b, %h, %i, %j, %x) {
      %step = arith.constant 150 : index
      %limit = arith.muli %i, %step : index
      %isLeast = arith.cmpi uge, %j, %limit : index
      %r = arith.select %isLeast, %x, %s : f32
      attn.yield %r : f32
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}

func.func @least_bf16(%q: tensor<?x64xbf16>, %k: tensor<?x64xbf16>, %v: tensor<?x64xbf16>, %least: f32) -> tensor<?x64xbf16> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] captures(%least : f32)
    mask(%b, %h, %i, %j, %x) {
      %one = arith.constant 1 : index
      %two = arith.constant 2 : index
      %bit = arith.andi %j, %one : index
      %isOdd = arith.cmpi eq, %bit, %one : index
      %isLater = arith.cmpi uge, %i, %two : index
      %is = arith.ori %isOdd, %isLater : i1
      attn.yield %is : i1
    } score(%s, %b, %h, %i, %j, %x) {
      %step = arith.constant 150 : index
      %limit = arith.muli %i, %step : index
      %isLeast = arith.cmpi uge, %j, %limit : index
      %r = arith.select %isLeast, %x, %s : f32
      attn.yield %r : f32
    } : (tensor<?x64xbf16>, tensor<?x64xbf16>, tensor<?x64xbf16>) -> tensor<?x64xbf16>
  return %o : tensor<?x64xbf16>
}

func.func @least_f16(%q: tensor<?x64xf16>, %k: tensor<?x64xf16>, %v: tensor<?x64xf16>, %least: f32) -> tensor<?x64xf16> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] captures(%least : f32)
    mask(%b, %h, %i, %j, %x) {
      %one = arith.constant 1 : index
      %two = arith.constant 2 : index
      %bit = arith.andi %j, %one : index
      %isOdd = arith.cmpi eq, %bit, %one : index
      %isLater = arith.cmpi uge, %i, %two : index
      %is = arith.ori %isOdd, %isLater : i1
      attn.yield %is : i1
    } score(%s, %b, %h, %i, %j, %x) {
      %step = arith.constant 150 : index
      %limit = arith.muli %i, %step : index
      %isLeast = arith.cmpi uge, %j, %limit : index
      %r = arith.select %isLeast, %x, %s : f32
      attn.yield %r : f32
    } : (tensor<?x64xf16>, tensor<?x64xf16>, tensor<?x64xf16>) -> tensor<?x64xf16>
  return %o : tensor<?x64xf16>
}

func.func @least_f64(%q: tensor<?x16xf64>, %k: tensor<?x16xf64>, %v: tensor<?x16xf64>, %least: f64) -> tensor<?x16xf64> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] captures(%least : f64)
    mask(%b, %h, %i, %j, %x) {
      %one = arith.constant 1 : index
      %two = arith.constant 2 : index
      %bit = arith.andi %j, %one : index
      %isOdd = arith.cmpi eq, %bit, %one : index
      %isLater = arith.cmpi uge, %i, %two : index
      %is = arith.ori %isOdd, %isLater : i1
      attn.yield %is : i1
    } score(%s: f64, %b, %h, %i, %j, %x) {
      %step = arith.constant 150 : index
      %limit = arith.muli %i, %step : index
      %isLeast = arith.cmpi uge, %j, %limit : index
      %r = arith.select %isLeast, %x, %s : f64
      attn.yield %r : f64
    } : (tensor<?x16xf64>, tensor<?x16xf64>, tensor<?x16xf64>) -> tensor<?x16xf64>
  return %o : tensor<?x16xf64>
}

func.func @squared(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>, %v: tensor<?x16xf32>, %least: f32) -> tensor<?x16xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] captures(%least : f32)
    mask(%b, %h, %i, %j, %x) {
      %one = arith.constant 1 : index
      %two = arith.constant 2 : index
      %bit = arith.andi %j, %one : index
      %isOdd = arith.cmpi eq, %bit, %one : index
      %isLater = arith.cmpi uge, %i, %two : index
      %is = arith.ori %isOdd, %isLater : i1
      attn.yield %is : i1
    } score(%s, %b, %h, %i, %j, %x) {
      %step = arith.constant 150 : index
      %limit = arith.muli %i, %step : index
      %isLeast = arith.cmpi uge, %j, %limit : index
      %r = arith.select %isLeast, %x, %s : f32
      attn.yield %r : f32
    } weight(%p, %b, %h, %i, %j, %x) {
      %p2 = arith.mulf %p, %p : f32
      attn.yield %p2 : f32
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}

func.func @sink(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>, %v: tensor<?x16xf32>, %least: f32) -> tensor<?x16xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %v[s,d] captures(%least : f32) sink(%least : f32)
    mask(%b, %h, %i, %j, %x) {
      %one = arith.constant 1 : index
      %two = arith.constant 2 : index
      %bit = arith.andi %j, %one : index
      %isOdd = arith.cmpi eq, %bit, %one : index
      %isLater = arith.cmpi uge, %i, %two : index
      %is = arith.ori %isOdd, %isLater : i1
      attn.yield %is : i1
    } score(%s, %b, %h, %i, %j, %x) {
      %step = arith.constant 150 : index
      %limit = arith.muli %i, %step : index
      %isLeast = arith.cmpi uge, %j, %limit : index
      %r = arith.select %isLeast, %x, %s : f32
      attn.yield %r : f32
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}
