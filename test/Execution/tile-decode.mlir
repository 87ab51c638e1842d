// Split-KV with more than four rows in tile registers, and a window over many queries: one and two registers of rows, every
// kind of row source, head sizes that end within a step, and numbers of keys that end within a block. Memory around the
// tensors is not accessed.

// DEFINE: %{target} = %{v4-amx}
// DEFINE: %{run} = saccade-run %s --check --target=%{target}
// DEFINE: %{paged} = --entry=paged --arg=3x16x2x64:bf16 --arg=9x2x16x64:bf16 --arg=9x2x16x48:bf16 --arg=%S/Inputs/paged-table.npy --arg=3:i32:=39
// DEFINE: %{quantized} = --entry=quantized --arg=2x16x1x40:bf16:1 --arg=2x1x77x40:i8:2 --arg=2x1x77x1:f32:3
// DEFINE: %{widened} = --entry=widened --arg=2x6x3x32:bf16:1 --arg=2x1x130x32:f8E4M3FN:2 --arg=2x1x130x32:f8E5M2:3
// DEFINE: %{cases} = %{run} --entry=grouped --arg=2x6x1x40:bf16:1 --arg=2x1x1100x40:bf16:2 --arg=2x1x1100x24:bf16:3 && \
// DEFINE:   %{run} --entry=grouped --arg=1x6x7x40:bf16:1 --arg=1x1x100x40:bf16:2 --arg=1x1x100x24:bf16:3 && \
// DEFINE:   %{run} --entry=grouped --arg=1x6x2x40:bf16:1 --arg=1x1x1x40:bf16:2 --arg=1x1x1x24:bf16:3 && \
// DEFINE:   %{run} --entry=latent --arg=2x20x1x96:bf16:1 --arg=2x1x300x96:bf16:2 && \
// DEFINE:   %{run} --entry=latent --arg=1x20x5x96:bf16:1 --arg=1x1x33x96:bf16:2 && \
// DEFINE:   %{run} --entry=window --arg=2x8x3x33:bf16:1 --arg=2x1x500x33:bf16:2 --arg=2x1x500x160:bf16:3 && \
// DEFINE:   %{run} --entry=window --arg=1x8x100x33:bf16:1 --arg=1x1x300x33:bf16:2 --arg=1x1x300x160:bf16:3 && \
// DEFINE:   %{run} --entry=any_heads --arg=2x6x1x32:bf16:1 --arg=2x2x70x32:bf16:2 && \
// DEFINE:   %{run} --entry=any_heads --arg=2x6x2x32:bf16:1 --arg=2x1x70x32:bf16:2 && \
// DEFINE:   %{run} --entry=any_heads --arg=1x18x1x32:bf16:1 --arg=1x1x1100x32:bf16:2 && \
// DEFINE:   %{run} --entry=columns --arg=1x5x64x1:bf16:1 --arg=1x1x64x70:bf16:2 --arg=1x1x64x70:bf16:3 --arg=-0.2 && \
// DEFINE:   %{run} %{paged} && %{run} %{quantized} && %{run} %{widened}

// RUN: %{cases}
// REDEFINE: %{run} = saccade-run %s --guard --check --target=%{target}
// RUN: %{cases}
// REDEFINE: %{run} = saccade-run %s --guard=begin --target=%{target}
// RUN: %{cases}

// The instructions of the machine code are executed, checked and counted in software.
// REDEFINE: %{run} = saccade-run %s --check --target=v4-amx %{with-tiles}
// RUN: %if tile-handler %{ %{cases} %}

// The expanded kernels give the same bits.
// RUN: rm -rf %t && mkdir %t
// RUN: saccade-run %s --target=%{v4-amx} %{paged} --out=%t/native.npy && saccade-run %s --target=v4-amx-expanded %{paged} --out=%t/expanded.npy
// RUN: cmp %t/native.npy %t/expanded.npy
// RUN: saccade-run %s --target=%{v4-amx} %{quantized} --out=%t/native.npy && saccade-run %s --target=v4-amx-expanded %{quantized} --out=%t/expanded.npy
// RUN: cmp %t/native.npy %t/expanded.npy

// RUN: saccade-compile %s --target=v4-amx --explain 2>&1 | FileCheck %s --check-prefix=FAMILY
// FAMILY: attention in 'grouped'
// FAMILY: kernel family v4-amx unpacked, bf16 tiles (tdpbf16ps)
// FAMILY: attention in 'paged'
// FAMILY: kernel family v4-amx unpacked in pages, bf16 tiles (tdpbf16ps)

func.func @grouped(%q: tensor<?x6x?x40xbf16>, %k: tensor<?x1x?x40xbf16>, %v: tensor<?x1x?x24xbf16>) -> (tensor<?x6x?x24xbf16>, tensor<?x6x?xf32>) {
  %o, %lse = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask causal<bottom_right> lse
    : (tensor<?x6x?x40xbf16>, tensor<?x1x?x40xbf16>, tensor<?x1x?x24xbf16>) -> (tensor<?x6x?x24xbf16>, tensor<?x6x?xf32>)
  return %o, %lse : tensor<?x6x?x24xbf16>, tensor<?x6x?xf32>
}

// Values are the first elements of keys.
func.func @latent(%q: tensor<?x20x?x96xbf16>, %k: tensor<?x1x?x96xbf16>) -> tensor<?x20x?x80xbf16> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %n = tensor.dim %k, %c0 : tensor<?x1x?x96xbf16>
  %m = tensor.dim %k, %c2 : tensor<?x1x?x96xbf16>
  %v = tensor.extract_slice %k[0, 0, 0, 0] [%n, 1, %m, 80] [1, 1, 1, 1] : tensor<?x1x?x96xbf16> to tensor<?x1x?x80xbf16>
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    : (tensor<?x20x?x96xbf16>, tensor<?x1x?x96xbf16>, tensor<?x1x?x80xbf16>) -> tensor<?x20x?x80xbf16>
  return %o : tensor<?x20x?x80xbf16>
}

func.func @window(%q: tensor<?x8x?x33xbf16>, %k: tensor<?x1x?x33xbf16>, %v: tensor<?x1x?x160xbf16>) -> tensor<?x8x?x160xbf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask window<62, 0>
    : (tensor<?x8x?x33xbf16>, tensor<?x1x?x33xbf16>, tensor<?x1x?x160xbf16>) -> tensor<?x8x?x160xbf16>
  return %o : tensor<?x8x?x160xbf16>
}

// Up to four rows have the kernel without tile registers.
func.func @any_heads(%q: tensor<?x?x?x32xbf16>, %k: tensor<?x?x?x32xbf16>) -> tensor<?x?x?x32xbf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %k[b,h,s,d] mask causal<bottom_right>
    : (tensor<?x?x?x32xbf16>, tensor<?x?x?x32xbf16>, tensor<?x?x?x32xbf16>) -> tensor<?x?x?x32xbf16>
  return %o : tensor<?x?x?x32xbf16>
}

func.func @columns(%q: tensor<?x5x64x?xbf16>, %k: tensor<?x1x64x?xbf16>, %v: tensor<?x1x64x?xbf16>, %scale: f32) -> tensor<?x5x64x?xbf16> {
  %o = attn.attention %q[b,h,d,s], %k[b,h,d,s], %v[b,h,d,s] scale(%scale : f32)
    : (tensor<?x5x64x?xbf16>, tensor<?x1x64x?xbf16>, tensor<?x1x64x?xbf16>) -> tensor<?x5x64x?xbf16>
  return %o : tensor<?x5x64x?xbf16>
}

func.func @paged(%q: tensor<?x16x?x64xbf16>, %kp: tensor<?x2x?x64xbf16>, %vp: tensor<?x2x?x48xbf16>, %table: tensor<?x?xi32>, %len: tensor<?xi32>) -> tensor<?x16x?x48xbf16> {
  %k = attn.paged %kp[b,h,s,d], %table : tensor<?x2x?x64xbf16>, tensor<?x?xi32> -> tensor<?x2x?x64xbf16>
  %v = attn.paged %vp[b,h,s,d], %table : tensor<?x2x?x48xbf16>, tensor<?x?xi32> -> tensor<?x2x?x48xbf16>
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] kv_len(%len : tensor<?xi32>) mask causal<bottom_right>
    : (tensor<?x16x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x48xbf16>) -> tensor<?x16x?x48xbf16>
  return %o : tensor<?x16x?x48xbf16>
}

#all = affine_map<(b, h, s, d) -> (b, h, s, d)>
#position = affine_map<(b, h, s, d) -> (b, h, s, 0)>

// The factor of a position multiplies scores and weights.
func.func @quantized(%q: tensor<?x16x?x40xbf16>, %x: tensor<?x1x?x40xi8>, %scales: tensor<?x1x?x1xf32>) -> tensor<?x16x?x40xbf16> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %n = tensor.dim %x, %c0 : tensor<?x1x?x40xi8>
  %m = tensor.dim %x, %c2 : tensor<?x1x?x40xi8>
  %e = tensor.empty(%n, %m) : tensor<?x1x?x40xbf16>
  %k = linalg.generic {indexing_maps = [#all, #position, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
    ins(%x, %scales : tensor<?x1x?x40xi8>, tensor<?x1x?x1xf32>) outs(%e : tensor<?x1x?x40xbf16>) {
  ^bb0(%a: i8, %scale: f32, %out: bf16):
    %f = arith.sitofp %a : i8 to f32
    %g = arith.mulf %f, %scale : f32
    %r = arith.truncf %g : f32 to bf16
    linalg.yield %r : bf16
  } -> tensor<?x1x?x40xbf16>
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %k[b,h,s,d]
    : (tensor<?x16x?x40xbf16>, tensor<?x1x?x40xbf16>, tensor<?x1x?x40xbf16>) -> tensor<?x16x?x40xbf16>
  return %o : tensor<?x16x?x40xbf16>
}

func.func @widened(%q: tensor<?x6x?x32xbf16>, %k8: tensor<?x1x?x32xf8E4M3FN>, %v8: tensor<?x1x?x32xf8E5M2>) -> tensor<?x6x?x32xbf16> {
  %k = arith.extf %k8 : tensor<?x1x?x32xf8E4M3FN> to tensor<?x1x?x32xbf16>
  %v = arith.extf %v8 : tensor<?x1x?x32xf8E5M2> to tensor<?x1x?x32xbf16>
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    : (tensor<?x6x?x32xbf16>, tensor<?x1x?x32xbf16>, tensor<?x1x?x32xbf16>) -> tensor<?x6x?x32xbf16>
  return %o : tensor<?x6x?x32xbf16>
}
