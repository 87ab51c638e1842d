// Kernels of linear attention multiply operands of bf16 on tensor cores, in forward and gradient. Gradients with l2norm have
// operands of f32. Everything else of a
// chunk, and products of f32, are code for single threads.
// RUN: saccade-compile %s --target=sm_80 --explain --emit=ptx -o %t.ptx | FileCheck %s --check-prefix=FAMILY
// RUN: FileCheck %s --check-prefix=PTX --input-file=%t.ptx
// RUN: saccade-compile %s --target=sm_90a --explain --emit=ptx -o %t.90a.ptx | FileCheck %s --check-prefix=FAMILY
// RUN: FileCheck %s --check-prefix=PTX --input-file=%t.90a.ptx

// FAMILY-DAG: delta_linear_attention_chunks: kernel family sm_80, matmul
// FAMILY-DAG: delta_linear_attention_columns: kernel family sm_80, matmul
// FAMILY-DAG: delta_gradient_linear_attention_gradient_states: kernel family simt{{$}}
// FAMILY-DAG: delta_gradient_linear_attention_gradient_columns: kernel family simt{{$}}
// FAMILY-DAG: delta_gradient_linear_attention_gradient_chunks: kernel family simt{{$}}
// FAMILY-DAG: mamba2_linear_attention_columns: kernel family sm_80, matmul
// FAMILY-DAG: mamba2_gradient_linear_attention_gradient_chunks: kernel family sm_80, matmul
// FAMILY-DAG: rows_linear_attention_columns: kernel family sm_80, matmul
// FAMILY-DAG: rows_gradient_linear_attention_gradient_columns: kernel family sm_80, matmul
// FAMILY-DAG: wide_linear_attention_columns: kernel family simt{{$}}

// Heads of 128 fit in shared memory.
// PTX-LABEL: .entry delta_linear_attention_columns(
// PTX: ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16
// PTX: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
func.func @delta(%q: tensor<?x?x2x128xbf16>, %k: tensor<?x?x2x128xbf16>, %v: tensor<?x?x4x128xbf16>, %g: tensor<?x?x4xf32>,
                 %beta: tensor<?x?x4xf32>) -> tensor<?x?x4x128xbf16> attributes {attn.gradient} {
  %o = attn.linear %q[b,s,h,d], %k[b,s,h,d], %v[b,s,h,d] causal l2norm(1.0e-6) decay(%g[b,s,h] : tensor<?x?x4xf32>)
      beta(%beta[b,s,h] : tensor<?x?x4xf32>)
      : (tensor<?x?x2x128xbf16>, tensor<?x?x2x128xbf16>, tensor<?x?x4x128xbf16>) -> tensor<?x?x4x128xbf16>
  return %o : tensor<?x?x4x128xbf16>
}

func.func @mamba2(%c: tensor<?x?x1x128xbf16>, %b: tensor<?x?x1x128xbf16>, %x: tensor<?x?x4x64xbf16>, %g: tensor<?x?x4xf32>)
    -> tensor<?x?x4x64xbf16> attributes {attn.gradient} {
  %o = attn.linear %c[b,s,h,d], %b[b,s,h,d], %x[b,s,h,d] causal decay(%g[b,s,h] : tensor<?x?x4xf32>)
      : (tensor<?x?x1x128xbf16>, tensor<?x?x1x128xbf16>, tensor<?x?x4x64xbf16>) -> tensor<?x?x4x64xbf16>
  return %o : tensor<?x?x4x64xbf16>
}

// A decay of each row.
func.func @rows(%q: tensor<?x?x2x128xbf16>, %k: tensor<?x?x2x128xbf16>, %v: tensor<?x?x2x128xbf16>, %g: tensor<?x?x2x128xf32>,
                %beta: tensor<?x?x2xf32>) -> tensor<?x?x2x128xbf16> attributes {attn.gradient} {
  %o = attn.linear %q[b,s,h,d], %k[b,s,h,d], %v[b,s,h,d] causal decay(%g[b,s,h,d] : tensor<?x?x2x128xf32>)
      beta(%beta[b,s,h] : tensor<?x?x2xf32>)
      : (tensor<?x?x2x128xbf16>, tensor<?x?x2x128xbf16>, tensor<?x?x2x128xbf16>) -> tensor<?x?x2x128xbf16>
  return %o : tensor<?x?x2x128xbf16>
}

func.func @wide(%q: tensor<?x?x2x128xf32>, %g: tensor<?x?x2xf32>) -> tensor<?x?x2x128xf32> {
  %o = attn.linear %q[b,s,h,d], %q[b,s,h,d], %q[b,s,h,d] causal decay(%g[b,s,h] : tensor<?x?x2xf32>)
      : (tensor<?x?x2x128xf32>, tensor<?x?x2x128xf32>, tensor<?x?x2x128xf32>) -> tensor<?x?x2x128xf32>
  return %o : tensor<?x?x2x128xf32>
}
