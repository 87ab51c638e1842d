// New rows in a cache, against the reference, on all CPU targets of this machine and the simulated GPU. Each entry
// updates its cache in place; --check compares the updated arguments too.

// DEFINE: %{target} = portable
// DEFINE: %{on} = --target=%{target}
// DEFINE: %{step} = saccade-run %s --entry=step --check %{on} --arg=3x8x5x64:f32:1 --arg=3x2x5x64:f32:2 --arg=3x5x2x64:f32:3 --arg=3x2x40x64:f32:4 --arg=3x2x40x64:f32:5 --arg=3:i32:=7
// DEFINE: %{cases} = %{step} --arg=3:i32:=4 --arg=3:i32:=11 && %{step} --arg=3:i32:=0 --arg=3:i32:=7 && \
// DEFINE:   saccade-run %s --entry=ring --check %{on} --arg=2x23x2x16:f32:1 --arg=2x2x10x16:f32:2 --arg=2:i64:=1 && \
// DEFINE:   saccade-run %s --entry=ring --check %{on} --arg=2x4x2x16:f32:1 --arg=2x2x10x16:f32:2 --arg=2:i64:=1000 && \
// DEFINE:   saccade-run %s --entry=transposed --check %{on} --arg=9x3x16:bf16:1 --arg=3x16x50:bf16:2 --arg=13 --arg=8 && \
// DEFINE:   saccade-run %s --entry=any_size --check %{on} --arg=3x900x5:i8:1 --arg=3x1100x5x1:i8:2 --arg=3:index:=200 && \
// DEFINE:   saccade-run %s --entry=any_size --check %{on} --arg=0x9x5:i8:1 --arg=0x11x5x1:i8:2 --arg=0:index:=2 && \
// DEFINE:   saccade-run %s --entry=ragged --check %{on} --arg=20x2x16:f32:1 --arg=3x2x40x16:f32:2 --arg=3:i32:=4 --arg=3:i32:=5 --arg=3:i32:=7

// RUN: %{cases}
// REDEFINE: %{target} = v3
// RUN: %{cases}
// REDEFINE: %{target} = %{v4}
// RUN: %{cases}
// REDEFINE: %{target} = %{v4-bf16}
// RUN: %{cases}
// REDEFINE: %{on} = --device=ptxsim
// RUN: %{cases}

// Memory before and after the tensors is not accessed.
// REDEFINE: %{on} = --guard
// RUN: %{cases}
// REDEFINE: %{on} = --guard=begin
// RUN: %{cases}

// --out writes the results of the program in their order, updated arguments as well.
// RUN: saccade-run %s --entry=any_size --arg=1x1x2:i8:=7 --arg=1x3x2x1:i8:=1 --arg=1:index:=1 --out=%t.npy
// RUN: saccade-run %s --entry=read --arg=%t.npy | FileCheck %s --check-prefix=OUT
// OUT: result #0: 1x3x2x1xi8 [1, 1, 7, 7, 1, 1]

// Positions and counts outside of the cache are refused before anything is written.
// DEFINE: %{at} = 0
// DEFINE: %{n} = 0
// DEFINE: %{refused} = not saccade-run %s --entry=any_size --arg=2x4x2:i8:1 --arg=2x9x2x1:i8:2 --arg=2:index:=%{at}
// REDEFINE: %{at} = 6
// RUN: %{refused} 2>&1 | FileCheck %s --check-prefix=FULL
// FULL: append.mlir:{{[0-9]+}}:8: 'attn.append' op cache is full: end of the new rows: found 10, expected at most 9, in sequence 0
// REDEFINE: %{at} = 9223372036854775807
// RUN: %{refused} 2>&1 | FileCheck %s --check-prefix=FAR
// FAR: 'attn.append' op cache is full: end of the new rows: found {{[0-9]+}}, expected at most 9, in sequence 0
// REDEFINE: %{at} = -1
// RUN: %{refused} 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// NEGATIVE: 'attn.append' op position of the first new row is negative: found -1, expected at least 0, in sequence 0
// DEFINE: %{counted} = not saccade-run %s --entry=transposed --arg=9x3x16:bf16:1 --arg=3x16x50:bf16:2 --arg=13 --arg=%{n}
// REDEFINE: %{n} = 10
// RUN: %{counted} 2>&1 | FileCheck %s --check-prefix=COUNT
// COUNT: 'attn.append' op count exceeds the new rows: found 10, expected at most 9, in sequence 0
// REDEFINE: %{n} = -1
// RUN: %{counted} 2>&1 | FileCheck %s --check-prefix=FEW
// FEW: 'attn.append' op count of new rows is negative: found -1, expected at least 0, in sequence 0
// RUN: not saccade-run %s --entry=ring --arg=2x4x2x16:f32:1 --arg=2x2x3x16:f32:2 --arg=2:i64:=1 2>&1 | FileCheck %s --check-prefix=RING
// RING: 'attn.append' op ring keeps as many first rows as the cache has: found 3, expected less than 3
// RUN: not saccade-run %s --entry=any_size --arg=2x4x2:i8:1 --arg=3x9x2x1:i8:2 --arg=2:index:=1 2>&1 | FileCheck %s --check-prefix=BATCH
// BATCH: 'attn.append' op new rows have another batch size than cache: found 2, expected 3

// The host does not read GPU memory: kernels clamp. So does code for computed positions.
// RUN: saccade-run %s --device=ptxsim --check --entry=any_size --arg=2x4x2:i8:1 --arg=2x9x2x1:i8:2 --arg=2:index:=6
// RUN: saccade-run %s --device=ptxsim --check --entry=any_size --arg=2x4x2:i8:1 --arg=2x9x2x1:i8:2 --arg=2:index:=-6
// RUN: saccade-run %s --check --entry=computed --arg=4x8:f32:1 --arg=9x8:f32:2 --arg=7
// RUN: saccade-run %s --check --entry=computed --arg=4x8:f32:1 --arg=9x8:f32:2 --arg=-70

func.func @ragged(%new: tensor<?x2x16xf32>, %cache: tensor<?x2x?x16xf32> {attn.updated_by = 0}, %at: tensor<?xi32>, %n: tensor<?xi32>,
    %first: tensor<?xi32>) -> tensor<?x2x?x16xf32> {
  %c = attn.append %new[s,h,d] to %cache[b,h,s,d] at(%at : tensor<?xi32>) count(%n : tensor<?xi32>) from(%first : tensor<?xi32>)
    : (tensor<?x2x16xf32>, tensor<?x2x?x16xf32>) -> tensor<?x2x?x16xf32>
  return %c : tensor<?x2x?x16xf32>
}

func.func @step(%q: tensor<?x8x?x64xf32>, %k: tensor<?x2x?x64xf32>, %v: tensor<?x?x2x64xf32>,
                %k_cache: tensor<?x2x?x64xf32> {attn.updated_by = 1}, %v_cache: tensor<?x2x?x64xf32> {attn.updated_by = 2},
                %len: tensor<?xi32>, %n: tensor<?xi32>, %end: tensor<?xi32>)
    -> (tensor<?x8x?x64xf32>, tensor<?x2x?x64xf32>, tensor<?x2x?x64xf32>) {
  %ks = attn.append %k[b,h,s,d] to %k_cache[b,h,s,d] at(%len : tensor<?xi32>) count(%n : tensor<?xi32>)
    : (tensor<?x2x?x64xf32>, tensor<?x2x?x64xf32>) -> tensor<?x2x?x64xf32>
  %vs = attn.append %v[b,s,h,d] to %v_cache[b,h,s,d] at(%len : tensor<?xi32>) count(%n : tensor<?xi32>)
    : (tensor<?x?x2x64xf32>, tensor<?x2x?x64xf32>) -> tensor<?x2x?x64xf32>
  %o = attn.attention %q[b,h,s,d], %ks[b,h,s,d], %vs[b,h,s,d] q_len(%n : tensor<?xi32>) kv_len(%end : tensor<?xi32>)
    mask causal<bottom_right>
    : (tensor<?x8x?x64xf32>, tensor<?x2x?x64xf32>, tensor<?x2x?x64xf32>) -> tensor<?x8x?x64xf32>
  return %o, %ks, %vs : tensor<?x8x?x64xf32>, tensor<?x2x?x64xf32>, tensor<?x2x?x64xf32>
}
func.func @ring(%new: tensor<?x?x2x16xf32>, %cache: tensor<?x2x?x16xf32> {attn.updated_by = 0}, %at: tensor<?xi64>)
    -> tensor<?x2x?x16xf32> {
  %c = attn.append %new[b,s,h,d] to %cache[b,h,s,d] at(%at : tensor<?xi64>) ring<3>
    : (tensor<?x?x2x16xf32>, tensor<?x2x?x16xf32>) -> tensor<?x2x?x16xf32>
  return %c : tensor<?x2x?x16xf32>
}
func.func @transposed(%new: tensor<?x3x16xbf16>, %cache: tensor<3x16x?xbf16> {attn.updated_by = 0}, %at: index, %n: index)
    -> tensor<3x16x?xbf16> {
  %c = attn.append %new[s,h,d] to %cache[h,d,s] at(%at : index) count(%n : index)
    : (tensor<?x3x16xbf16>, tensor<3x16x?xbf16>) -> tensor<3x16x?xbf16>
  return %c : tensor<3x16x?xbf16>
}
func.func @any_size(%new: tensor<?x?x?xi8>, %cache: tensor<?x?x?x1xi8> {attn.updated_by = 0}, %at: tensor<?xindex>)
    -> tensor<?x?x?x1xi8> {
  %c = attn.append %new[b,s,d] to %cache[b,s,d,h] at(%at : tensor<?xindex>)
    : (tensor<?x?x?xi8>, tensor<?x?x?x1xi8>) -> tensor<?x?x?x1xi8>
  return %c : tensor<?x?x?x1xi8>
}
func.func @read(%x: tensor<?x?x?x1xi8>) -> tensor<?x?x?x1xi8> {
  return %x : tensor<?x?x?x1xi8>
}
func.func @computed(%new: tensor<?x8xf32>, %cache: tensor<?x8xf32>, %at: index) -> tensor<?x8xf32> {
  %c1 = arith.constant 1 : index
  %next = arith.addi %at, %c1 : index
  %c = attn.append %new[s,d] to %cache[s,d] at(%next : index) : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %c : tensor<?x8xf32>
}
