// Terms that depend only on key minus query are tabulated, without a change of the results.

// RUN: saccade-run %s --entry=one_of_another --check --arg=70x16:f32:1 --arg=17:f32:2
// RUN: saccade-run %s --entry=one_of_another --check --arg=70x16:f32:1 --arg=17:f32:2 --target=portable
// RUN: saccade-run %s --entry=narrow --check --arg=200x16:f32:1
// RUN: saccade-run %s --entry=narrow --check --arg=200x16:f32:1 --target=v3

// A term that is used alone and inside another term: both are tabulated.
func.func @one_of_another(%x: tensor<?x16xf32>, %t: tensor<?xf32>) -> tensor<?x16xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] captures(%t : tensor<?xf32>) score(%s, %b, %h, %i, %j, %t1) {
      %low = arith.constant -8 : index
      %high = arith.constant 8 : index
      %d = arith.subi %j, %i : index
      %least = arith.maxsi %d, %low : index
      %near = arith.minsi %least, %high : index
      %place = arith.addi %near, %high : index
      %e = tensor.extract %t1[%place] : tensor<?xf32>
      %y = math.sin %e : f32
      %twice = arith.addf %y, %e : f32
      %p = arith.mulf %s, %e : f32
      %r = arith.addf %p, %twice : f32
      attn.yield %r : f32
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}

// i8 wraps, within a vector too.
func.func @narrow(%x: tensor<?x16xf32>) -> tensor<?x16xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] score(%s, %b, %h, %i, %j) {
      %three = arith.constant 3 : index
      %q3 = arith.muli %i, %three : index
      %k3 = arith.muli %j, %three : index
      %q8 = arith.index_cast %q3 : index to i8
      %k8 = arith.index_cast %k3 : index to i8
      %d = arith.subi %k8, %q8 : i8
      %x1 = arith.sitofp %d : i8 to f32
      %y = math.sin %x1 : f32
      %k1 = arith.sitofp %k8 : i8 to f32
      %z = arith.addf %y, %k1 : f32
      %r = arith.addf %s, %z : f32
      attn.yield %r : f32
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}

// A KV cache that is larger than kv_len: distances cover the longest sequence, for tiled and split-KV kernels.
// RUN: saccade-run %s --entry=cache --check --arg=2x70x16:f32:1 --arg=2x3000x16:f32:2 --arg=17:f32:2 --arg=2:i64:=1234
// RUN: saccade-run %s --entry=cache --check --arg=2x3x16:f32:1 --arg=2x3000x16:f32:2 --arg=17:f32:2 --arg=2:i64:=1025
// RUN: saccade-run %s --entry=computed_cache --check --arg=2x3x16:f32:1 --arg=2x3000x16:f32:2 --arg=17:f32:2 --arg=2:i64:=-6
// RUN: saccade-run %s --entry=computed_cache --check --arg=2x3x16:f32:1 --arg=2x300x16:f32:2 --arg=17:f32:2 --arg=2:i64:=100000
// RUN: not saccade-run %s --entry=cache --arg=2x3x16:f32:1 --arg=2x300x16:f32:2 --arg=17:f32:2 --arg=2:i64:=-5 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// NEGATIVE: kv_len is negative: found -5, expected at least 0
// RUN: not saccade-run %s --entry=cache --arg=2x3x16:f32:1 --arg=2x300x16:f32:2 --arg=17:f32:2 --arg=2:i64:=301 2>&1 | FileCheck %s --check-prefix=LONG
// LONG: kv_len exceeds the length of key: found 301, expected at most 300
// RUN: saccade-run %s --entry=cache_of_one --check --arg=70x16:f32:1 --arg=3000x16:f32:2 --arg=17:f32:2 --arg=65
// RUN: saccade-run %s --entry=cache_of_one --check --arg=1x16:f32:1 --arg=3000x16:f32:2 --arg=17:f32:2 --arg=0
func.func @cache(%q: tensor<2x?x16xf32>, %k: tensor<2x?x16xf32>, %t: tensor<17xf32>, %n: tensor<2xi64>) -> tensor<2x?x16xf32> {
  %o = attn.attention %q[b,s,d], %k[b,s,d], %k[b,s,d] captures(%t : tensor<17xf32>) kv_len(%n : tensor<2xi64>)
    score(%s, %b, %h, %i, %j, %t1) {
      %low = arith.constant -8 : index
      %high = arith.constant 8 : index
      %d = arith.subi %j, %i : index
      %least = arith.maxsi %d, %low : index
      %near = arith.minsi %least, %high : index
      %place = arith.addi %near, %high : index
      %e = tensor.extract %t1[%place] : tensor<17xf32>
      %r = arith.addf %s, %e : f32
      attn.yield %r : f32
    } : (tensor<2x?x16xf32>, tensor<2x?x16xf32>, tensor<2x?x16xf32>) -> tensor<2x?x16xf32>
  return %o : tensor<2x?x16xf32>
}
// Computed lengths are not checked before the call but clamped.
func.func @computed_cache(%q: tensor<2x?x16xf32>, %k: tensor<2x?x16xf32>, %t: tensor<17xf32>, %n: tensor<2xi64>) -> tensor<2x?x16xf32> {
  %empty = tensor.empty() : tensor<2xi64>
  %m = linalg.map ins(%n : tensor<2xi64>) outs(%empty : tensor<2xi64>) (%in: i64, %init: i64) {
    %one = arith.constant 1 : i64
    %next = arith.addi %in, %one : i64
    linalg.yield %next : i64
  }
  %o = attn.attention %q[b,s,d], %k[b,s,d], %k[b,s,d] captures(%t : tensor<17xf32>) kv_len(%m : tensor<2xi64>)
    score(%s, %b, %h, %i, %j, %t1) {
      %low = arith.constant -8 : index
      %high = arith.constant 8 : index
      %d = arith.subi %j, %i : index
      %bounded = arith.maxsi %d, %low : index
      %near = arith.minsi %bounded, %high : index
      %entry = arith.addi %near, %high : index
      %e = tensor.extract %t1[%entry] : tensor<17xf32>
      %r = arith.addf %s, %e : f32
      attn.yield %r : f32
    } : (tensor<2x?x16xf32>, tensor<2x?x16xf32>, tensor<2x?x16xf32>) -> tensor<2x?x16xf32>
  return %o : tensor<2x?x16xf32>
}
func.func @cache_of_one(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>, %t: tensor<17xf32>, %n: index) -> tensor<?x16xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %k[s,d] captures(%t : tensor<17xf32>) kv_len(%n : index)
    score(%s, %b, %h, %i, %j, %t1) {
      %low = arith.constant -8 : index
      %high = arith.constant 8 : index
      %d = arith.subi %j, %i : index
      %least = arith.maxsi %d, %low : index
      %near = arith.minsi %least, %high : index
      %place = arith.addi %near, %high : index
      %e = tensor.extract %t1[%place] : tensor<17xf32>
      %r = arith.addf %s, %e : f32
      attn.yield %r : f32
    } : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}
