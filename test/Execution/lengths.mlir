// q_len and kv_len outside of 0 ... extent: a call with such an argument is rejected before any kernel runs. Computed
// lengths, and tensors of lengths in GPU memory, are clamped, and the reference agrees.

// RUN: saccade-run %s --entry=scalar --check --arg=5x16:f32:1 --arg=9x16:f32:2 --arg=9
// RUN: saccade-run %s --entry=scalar --check --arg=5x16:f32:1 --arg=9x16:f32:2 --arg=0
// RUN: not saccade-run %s --entry=scalar --check --arg=5x16:f32:1 --arg=9x16:f32:2 --arg=-1 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// RUN: not saccade-run %s --entry=scalar --check --arg=5x16:f32:1 --arg=9x16:f32:2 --arg=99 2>&1 | FileCheck %s --check-prefix=LONG
// RUN: not saccade-run %s --entry=cast --arg=5x16:f32:1 --arg=9x16:f32:2 --arg=-1 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// RUN: not saccade-run %s --entry=cast --arg=5x16:f32:1 --arg=9x16:f32:2 --arg=99 2>&1 | FileCheck %s --check-prefix=LONG
// RUN: not saccade-run %s --entry=batches --arg=3x5x16:f32:1 --arg=3x9x16:f32:2 --arg=3:i32:=2 --arg=3:i64:=-1 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// RUN: not saccade-run %s --entry=batches --arg=3x5x16:f32:1 --arg=3x9x16:f32:2 --arg=3:i32:=2 --arg=3:i64:=99 2>&1 | FileCheck %s --check-prefix=LONG
// RUN: not saccade-run %s --entry=batches --arg=3x5x16:f32:1 --arg=3x9x16:f32:2 --arg=3:i32:=6 --arg=3:i64:=9 2>&1 | FileCheck %s --check-prefix=QUERY
// RUN: saccade-run %s --entry=batches --check --arg=3x5x16:f32:1 --arg=3x9x16:f32:2 --arg=3:i32:=5 --arg=3:i64:=9
// NEGATIVE: lengths.mlir:{{[0-9]+}}:8: 'attn.attention' op kv_len is negative: found -1, expected at least 0
// LONG: 'attn.attention' op kv_len exceeds the length of key: found 99, expected at most 9
// QUERY: 'attn.attention' op q_len exceeds the length of query: found 6, expected at most 5

// Host code for a GPU reads scalars only.
// RUN: not saccade-run %s --device=ptxsim --entry=scalar --arg=5x16:f32:1 --arg=9x16:f32:2 --arg=99 2>&1 | FileCheck %s --check-prefix=LONG
// RUN: saccade-run %s --device=ptxsim --entry=batches --check --arg=3x5x16:f32:1 --arg=3x9x16:f32:2 --arg=3:i32:=6 --arg=3:i64:=99
// RUN: saccade-run %s --device=ptxsim --entry=batches --check --arg=3x5x16:f32:1 --arg=3x9x16:f32:2 --arg=3:i32:=5 --arg=3:i64:=-1

// RUN: saccade-run %s --entry=computed --check --arg=5x16:f32:1 --arg=9x16:f32:2 --arg=99
// RUN: saccade-run %s --entry=computed --check --arg=5x16:f32:1 --arg=9x16:f32:2 --arg=-7

// With `at`, the keys are a part of a longer sequence.
// RUN: saccade-run %s --entry=part --check --arg=5x16:f32:1 --arg=9x16:f32:2 --arg=99
// RUN: not saccade-run %s --entry=part --arg=5x16:f32:1 --arg=9x16:f32:2 --arg=-1 2>&1 | FileCheck %s --check-prefix=NEGATIVE

func.func @scalar(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>, %n: index) -> tensor<?x16xf32> {
  %o = attn.attention %q[s,d], %k[s,d], %k[s,d] kv_len(%n : index)
    : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}
func.func @cast(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>, %n: i32) -> tensor<?x16xf32> {
  %m = arith.index_cast %n : i32 to index
  %o = attn.attention %q[s,d], %k[s,d], %k[s,d] kv_len(%m : index)
    : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}
func.func @computed(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>, %n: index) -> tensor<?x16xf32> {
  %c1 = arith.constant 1 : index
  %m = arith.addi %n, %c1 : index
  %o = attn.attention %q[s,d], %k[s,d], %k[s,d] kv_len(%m : index)
    : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}
func.func @part(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>, %n: index) -> tensor<?x16xf32> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %o = attn.attention %q[s,d], %k[s,d], %k[s,d] kv_len(%n : index) at(%c0, %c0, %c2, %c2)
    : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}
func.func @batches(%q: tensor<?x?x16xf32>, %k: tensor<?x?x16xf32>, %m: tensor<?xi32>, %n: tensor<?xi64>) -> tensor<?x?x16xf32> {
  %o = attn.attention %q[b,s,d], %k[b,s,d], %k[b,s,d] q_len(%m : tensor<?xi32>) kv_len(%n : tensor<?xi64>)
    : (tensor<?x?x16xf32>, tensor<?x?x16xf32>, tensor<?x?x16xf32>) -> tensor<?x?x16xf32>
  return %o : tensor<?x?x16xf32>
}

// Without query heads there is nothing to compute, also if the two queries of a call select split-KV.
// RUN: saccade-run %s --entry=no_query_heads --check --arg=1x0x4x16:f32:1 --arg=1x2x8x16:f32:2 --arg=1x2x8x16:f32:3 | FileCheck %s --check-prefix=NONE
// RUN: saccade-run %s --entry=no_query_heads --check --arg=1x0x40x16:f32:1 --arg=1x2x8x16:f32:2 --arg=1x2x8x16:f32:3 | FileCheck %s --check-prefix=NONE
// NONE: check result #0, 0 of 0 elements: equal
func.func @no_query_heads(%q: tensor<?x?x?x16xf32>, %k: tensor<?x?x?x16xf32>, %v: tensor<?x?x?x16xf32>) -> tensor<?x?x?x16xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
      : (tensor<?x?x?x16xf32>, tensor<?x?x?x16xf32>, tensor<?x?x?x16xf32>) -> tensor<?x?x?x16xf32>
  return %o : tensor<?x?x?x16xf32>
}
