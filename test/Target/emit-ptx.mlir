// LLVM compiles kernels in parallel. Their PTX does not depend on the number of processors, has each declaration once, and begins with
// the largest kernels. Kernels that call a function, here libdevice's, share its definition.
// REQUIRES: ptxas, libdevice
// RUN: saccade-compile %s --target=sm_80 --emit=ptx -o %t.ptx
// RUN: %python -c "import os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); os.execvp(sys.argv[1], sys.argv[1:])" saccade-compile %s --target=sm_80 --emit=ptx -o %t.one.ptx
// RUN: cmp %t.ptx %t.one.ptx
// RUN: FileCheck %s --input-file=%t.ptx
// RUN: saccade-compile %s --target=sm_80 --emit=cubin --ptxas=%ptxas -o %t.cubin

// CHECK-COUNT-1: .version
// CHECK-NOT: .version
// CHECK: .extern .shared .align 128 .b8 saccade_shared[];
// CHECK-NOT: saccade_shared[]
// CHECK: // .globl attention_attention
// CHECK: .visible .entry attention_attention(
// CHECK: .visible .entry attention_attention_split_kv(
// CHECK: // .globl sine_sin
// CHECK: .func {{.*}}__internal_trig_reduction_slowpathd
// CHECK: .visible .entry sine_sin(
// CHECK: .visible .entry cosine_cos(
// CHECK: .func {{.*}}__internal_trig_reduction_slowpathd
// CHECK-NOT: .func
// CHECK-NOT: .entry
func.func @sine(%x: tensor<?xf64>) -> tensor<?xf64> {
  %y = math.sin %x : tensor<?xf64>
  return %y : tensor<?xf64>
}

func.func @cosine(%x: tensor<?xf64>) -> tensor<?xf64> {
  %y = math.cos %x : tensor<?xf64>
  return %y : tensor<?xf64>
}

func.func @attention(%q: tensor<?x?x?x64xf16>, %k: tensor<?x?x?x64xf16>, %v: tensor<?x?x?x64xf16>) -> tensor<?x?x?x64xf16> {
  %r = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    : (tensor<?x?x?x64xf16>, tensor<?x?x?x64xf16>, tensor<?x?x?x64xf16>) -> tensor<?x?x?x64xf16>
  return %r : tensor<?x?x?x64xf16>
}
