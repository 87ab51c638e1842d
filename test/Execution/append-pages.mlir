// New rows in a page pool, against the reference, on all CPU targets of this machine and the simulated GPU. The pools are
// updated in place, and attention reads them in the same call; --check compares the pools too.

// The pages of three sequences; entries beyond their lengths are not in the pool.
// RUN: %python -c "import numpy; numpy.save('%t.npy', numpy.array([[7, 0, 3, -1], [6, 5, 1, 99], [4, 8, 2, -1]], 'i4'))"
// DEFINE: %{target} = portable
// DEFINE: %{on} = --target=%{target}
// DEFINE: %{pool} = --arg=9x16x2x64:f32:4 --arg=9x16x2x48:f32:5 --arg=%t.npy
// DEFINE: %{step} = saccade-run %s --entry=step --check %{on}
// DEFINE: %{long} = --arg=3x8x40x64:f32:1 --arg=3x2x40x64:f32:2 --arg=3x40x2x48:f32:3 %{pool}
// DEFINE: %{short} = --arg=3x8x1x64:f32:1 --arg=3x2x1x64:f32:2 --arg=3x1x2x48:f32:3 %{pool}
// DEFINE: %{cases} = %{step} %{long} --arg=3:i32:=5 --arg=3:i32:=38 --arg=3:i32:=43 && \
// DEFINE:   %{step} %{long} --arg=3:i32:=0 --arg=3:i32:=0 --arg=3:i32:=0 && \
// DEFINE:   %{step} %{short} --arg=3:i32:=31 --arg=3:i32:=1 --arg=3:i32:=32 && \
// DEFINE:   %{step} %{short} --arg=3:i32:=32 --arg=3:i32:=1 --arg=3:i32:=33 && \
// DEFINE:   saccade-run %s --entry=any_size --check %{on} --arg=7x5:bf16:1 --arg=4x5x3:bf16:2 --arg=1x4:index:=2 --arg=2 --arg=1 && \
// DEFINE:   saccade-run %s --entry=any_size --check %{on} --arg=0x5:bf16:1 --arg=4x5x3:bf16:2 --arg=1x0:index:=2 --arg=0 --arg=0

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

// Rows that do not fit, or would be written by two sequences, are refused before anything is written.
// REDEFINE: %{on} =
// RUN: not %{step} %{long} --arg=3:i32:=30 --arg=3:i32:=35 --arg=3:i32:=43 2>&1 | FileCheck %s --check-prefix=FULL
// FULL: append-pages.mlir:{{[0-9]+}}:9: 'attn.append' op page table is full: end of the new rows: found 65, expected at most 64, in sequence 0
// RUN: not %{step} %{short} --arg=3:i32:=48 --arg=3:i32:=1 --arg=3:i32:=43 2>&1 | FileCheck %s --check-prefix=OUTSIDE
// OUTSIDE: 'attn.append' op has a page that is not in the pool: found -1, expected 0 or more and less than 9, in sequence 0
// RUN: %python -c "import numpy; numpy.save('%t.shared.npy', numpy.array([[7, 0, 3], [7, 5, 3], [4, 5, 2]], 'i4'))"
// DEFINE: %{shared} = --arg=9x16x2x64:f32:4 --arg=9x16x2x48:f32:5 --arg=%t.shared.npy
// DEFINE: %{prompts} = --arg=3x8x40x64:f32:1 --arg=3x2x40x64:f32:2 --arg=3x40x2x48:f32:3 %{shared}
// RUN: not %{step} %{prompts} --arg=3:i32:=17 --arg=3:i32:=12 --arg=3:i32:=29 2>&1 | FileCheck %s --check-prefix=TWICE
// TWICE: 'attn.append' op writes to a page twice: found 5, expected a page other than those of sequence 1, in sequence 2
// RUN: not %{step} %{prompts} --arg=3:i32:=3 --arg=3:i32:=12 --arg=3:i32:=15 2>&1 | FileCheck %s --check-prefix=FIRST
// FIRST: 'attn.append' op writes to a page twice: found 7, expected a page other than those of sequence 0, in sequence 1
// RUN: not saccade-run %s --entry=any_size --arg=7x5:bf16:1 --arg=4x5x3:bf16:2 --arg=1x4:index:=2 --arg=2 --arg=2 2>&1 | FileCheck %s --check-prefix=SAME
// SAME: 'attn.append' op writes to a page twice: found 2, expected a page other than those of sequence 0, in sequence 0
// RUN: not %{step} %{prompts} --arg=2:i32:=3 --arg=3:i32:=12 --arg=3:i32:=15 2>&1 | FileCheck %s --check-prefix=BATCH
// BATCH: 'attn.append' op at has another batch size than page table: found 2, expected 3

// Only pages with new rows are compared: a prefix may be shared.
// RUN: %python -c "import numpy; numpy.save('%t.prefix.npy', numpy.array([[7, 0, 3], [7, 5, 3], [7, 6, 2]], 'i4'))"
// RUN: %{step} --arg=3x8x1x64:f32:1 --arg=3x2x1x64:f32:2 --arg=3x1x2x48:f32:3 --arg=9x16x2x64:f32:4 --arg=9x16x2x48:f32:5 --arg=%t.prefix.npy --arg=3:i32:=16 --arg=3:i32:=1 --arg=3:i32:=17

// The pool has more pages than the check takes at a time.
// RUN: %python -c "import numpy; numpy.save('%t.many.npy', numpy.array([[65536, 0], [70000, 65535], [4464, 131071]], 'i4'))"
// RUN: saccade-run %s --entry=bytes --check --arg=3x2x1:i8:1 --arg=131072x1x1:i8:2 --arg=%t.many.npy --arg=3:index:=0
// RUN: %python -c "import numpy; numpy.save('%t.many.npy', numpy.array([[0, 65536], [70000, 4464], [5, 70000]], 'i4'))"
// RUN: not saccade-run %s --entry=bytes --check --arg=3x2x1:i8:1 --arg=131072x1x1:i8:2 --arg=%t.many.npy --arg=3:index:=0 2>&1 | FileCheck %s --check-prefix=MANY
// MANY: 'attn.append' op writes to a page twice: found 70000, expected a page other than those of sequence 1, in sequence 2

// The host does not read GPU memory: kernels clamp, and write no row of a page that is not in the pool.
// RUN: saccade-run %s --device=ptxsim --check --entry=bytes --arg=3x7x2:i8:1 --arg=9x4x2:i8:2 --arg=%t.npy --arg=3:index:=10
// RUN: saccade-run %s --device=ptxsim --check --entry=bytes --arg=3x4x2:i8:1 --arg=9x4x2:i8:2 --arg=%t.npy --arg=3:index:=-6

func.func @step(%q: tensor<?x8x?x64xf32>, %k: tensor<?x2x?x64xf32>, %v: tensor<?x?x2x48xf32>,
                %k_pool: tensor<?x16x2x64xf32> {attn.updated_by = 1}, %v_pool: tensor<?x16x2x48xf32> {attn.updated_by = 2},
                %table: tensor<?x?xi32>, %len: tensor<?xi32>, %n: tensor<?xi32>, %end: tensor<?xi32>)
    -> (tensor<?x8x?x48xf32>, tensor<?x16x2x64xf32>, tensor<?x16x2x48xf32>) {
  %kp = attn.append %k[b,h,s,d] to %k_pool[b,s,h,d] pages(%table : tensor<?x?xi32>) at(%len : tensor<?xi32>)
    count(%n : tensor<?xi32>) : (tensor<?x2x?x64xf32>, tensor<?x16x2x64xf32>) -> tensor<?x16x2x64xf32>
  %vp = attn.append %v[b,s,h,d] to %v_pool[b,s,h,d] pages(%table : tensor<?x?xi32>) at(%len : tensor<?xi32>)
    count(%n : tensor<?xi32>) : (tensor<?x?x2x48xf32>, tensor<?x16x2x48xf32>) -> tensor<?x16x2x48xf32>
  %ks = attn.paged %kp[b,s,h,d], %table : tensor<?x16x2x64xf32>, tensor<?x?xi32> -> tensor<?x?x2x64xf32>
  %vs = attn.paged %vp[b,s,h,d], %table : tensor<?x16x2x48xf32>, tensor<?x?xi32> -> tensor<?x?x2x48xf32>
  %o = attn.attention %q[b,h,s,d], %ks[b,s,h,d], %vs[b,s,h,d] q_len(%n : tensor<?xi32>) kv_len(%end : tensor<?xi32>)
    mask causal<bottom_right>
    : (tensor<?x8x?x64xf32>, tensor<?x?x2x64xf32>, tensor<?x?x2x48xf32>) -> tensor<?x8x?x48xf32>
  return %o, %kp, %vp : tensor<?x8x?x48xf32>, tensor<?x16x2x64xf32>, tensor<?x16x2x48xf32>
}
func.func @any_size(%new: tensor<?x?xbf16>, %pool: tensor<?x?x?xbf16> {attn.updated_by = 0}, %table: tensor<1x?xindex>,
                    %at: index, %n: index) -> tensor<?x?x?xbf16> {
  %p = attn.append %new[s,d] to %pool[b,d,s] pages(%table : tensor<1x?xindex>) at(%at : index) count(%n : index)
    : (tensor<?x?xbf16>, tensor<?x?x?xbf16>) -> tensor<?x?x?xbf16>
  return %p : tensor<?x?x?xbf16>
}
func.func @bytes(%new: tensor<?x?x?xi8>, %pool: tensor<?x?x?xi8> {attn.updated_by = 0}, %table: tensor<?x?xi32>,
                 %at: tensor<?xindex>) -> tensor<?x?x?xi8> {
  %p = attn.append %new[b,s,d] to %pool[b,s,d] pages(%table : tensor<?x?xi32>) at(%at : tensor<?xindex>)
    : (tensor<?x?x?xi8>, tensor<?x?x?xi8>) -> tensor<?x?x?xi8>
  return %p : tensor<?x?x?xi8>
}
