// With fewer heads than threads, chunks are prepared in parallel and columns of the state are divided. The bits are those of
// one thread, for chunks before and after the end of a segment of 2,048 positions.
// DEFINE: %{entry} = delta
// DEFINE: %{args} = --arg=1x2101x64:f32:1 --arg=1x2101x64:f32:2 --arg=1x2101x128:f32:3 --arg=1x2101:f32:=-0.1 --arg=1x2101:f32:=0.03 --arg=1x64x128:f32:4
// DEFINE: %{run} = saccade-run %s --entry=%{entry} %{args}
// RUN: rm -rf %t && mkdir %t
// RUN: %{run} --threads=1 --out=%t/o1.npy --out=%t/s1.npy
// RUN: %{run} --threads=4 --out=%t/o16.npy --out=%t/s16.npy
// RUN: cmp %t/o1.npy %t/o16.npy
// RUN: cmp %t/s1.npy %t/s16.npy
// RUN: %{run} --threads=4 --profile | FileCheck %s --check-prefix=SPLIT
// RUN: %{run} --threads=1 --profile | FileCheck %s --check-prefix=WHOLE
// SPLIT-DAG: {{ [1-9][0-9.]*}} delta.linear_attention.columns
// SPLIT-DAG: {{ [1-9][0-9.]*}} delta.linear_attention.chunks
// SPLIT-DAG: {{ 0}} delta.linear_attention{{ *$}}
// WHOLE-NOT: {{ [1-9][0-9.]*}} delta.linear_attention.columns
// WHOLE: {{ 1}} delta.linear_attention{{ *$}}
func.func @delta(%q: tensor<1x?x64xf32>, %k: tensor<1x?x64xf32>, %v: tensor<1x?x128xf32>, %g: tensor<1x?xf32>,
                 %b: tensor<1x?xf32>, %s: tensor<1x64x128xf32>) -> (tensor<1x?x128xf32>, tensor<1x64x128xf32>) {
  %o:2 = attn.linear %q[h,s,d], %k[h,s,d], %v[h,s,d] causal scale(0.125) l2norm(1.0e-6) decay(%g[h,s] : tensor<1x?xf32>)
      beta(%b[h,s] : tensor<1x?xf32>) state(%s : tensor<1x64x128xf32>)
      : (tensor<1x?x64xf32>, tensor<1x?x64xf32>, tensor<1x?x128xf32>) -> (tensor<1x?x128xf32>, tensor<1x64x128xf32>)
  return %o#0, %o#1 : tensor<1x?x128xf32>, tensor<1x64x128xf32>
}

// Lengths, of which one is that of a step; decays of rows, and two heads of queries for one of values.
// REDEFINE: %{entry} = rows
// REDEFINE: %{args} = --arg=3x2x90x32:f32:1 --arg=3x1x90x32:f32:2 --arg=3x1x90x64:f32:3 --arg=3x1x90x32:f32:=-0.1 --arg=3x1x90:f32:=0.03 --arg=%t/lengths.npy
// RUN: %python -c "import numpy, sys; numpy.save(sys.argv[1], numpy.array([90, 5, 64], dtype=numpy.int64))" %t/lengths.npy
// RUN: %{run} --threads=1 --out=%t/o1.npy --out=%t/s1.npy --check
// RUN: %{run} --threads=8 --out=%t/o16.npy --out=%t/s16.npy
// RUN: cmp %t/o1.npy %t/o16.npy
// RUN: cmp %t/s1.npy %t/s16.npy
func.func @rows(%q: tensor<?x2x?x32xf32>, %k: tensor<?x1x?x32xf32>, %v: tensor<?x1x?x64xf32>, %g: tensor<?x1x?x32xf32>,
                %b: tensor<?x1x?xf32>, %n: tensor<?xi64>) -> (tensor<?x2x?x64xf32>, tensor<?x1x32x64xf32>) {
  %o:2 = attn.linear %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] causal decay(%g[b,h,s,d] : tensor<?x1x?x32xf32>)
      beta(%b[b,h,s] : tensor<?x1x?xf32>) kv_len(%n : tensor<?xi64>)
      : (tensor<?x2x?x32xf32>, tensor<?x1x?x32xf32>, tensor<?x1x?x64xf32>) -> (tensor<?x2x?x64xf32>, tensor<?x1x32x64xf32>)
  return %o#0, %o#1 : tensor<?x2x?x64xf32>, tensor<?x1x32x64xf32>
}

// Heads of values that share queries and keys are one task, or one each.
// REDEFINE: %{entry} = shared
// REDEFINE: %{args} = --arg=1x1x90x32:f32:1 --arg=1x1x90x32:f32:2 --arg=1x6x90x64:f32:3 --arg=1x6x90:f32:=-0.1 --arg=1x6x90:f32:=0.03
// RUN: %{run} --threads=1 --out=%t/o1.npy --check
// RUN: %{run} --threads=4 --out=%t/o16.npy
// RUN: cmp %t/o1.npy %t/o16.npy
// RUN: %{run} --threads=4 --profile | FileCheck %s --check-prefix=EACH
// EACH: {{ 6}} shared.linear_attention
func.func @shared(%q: tensor<1x1x?x32xf32>, %k: tensor<1x1x?x32xf32>, %v: tensor<1x6x?x64xf32>, %g: tensor<1x6x?xf32>,
                  %b: tensor<1x6x?xf32>) -> tensor<1x6x?x64xf32> {
  %o = attn.linear %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] causal decay(%g[b,h,s] : tensor<1x6x?xf32>)
      beta(%b[b,h,s] : tensor<1x6x?xf32>) : (tensor<1x1x?x32xf32>, tensor<1x1x?x32xf32>, tensor<1x6x?x64xf32>) -> tensor<1x6x?x64xf32>
  return %o : tensor<1x6x?x64xf32>
}

// bf16 without decay, and any number of heads.
// REDEFINE: %{entry} = half
// REDEFINE: %{args} = --arg=1x1x150x32:bf16:1 --arg=1x1x150x32:bf16:2 --arg=1x1x150x128:bf16:3
// RUN: %{run} --threads=1 --out=%t/o1.npy --check
// RUN: %{run} --threads=4 --out=%t/o16.npy
// RUN: cmp %t/o1.npy %t/o16.npy
func.func @half(%q: tensor<1x?x?x32xbf16>, %k: tensor<1x?x?x32xbf16>, %v: tensor<1x?x?x128xbf16>) -> tensor<1x?x?x128xbf16> {
  %o = attn.linear %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] causal
      : (tensor<1x?x?x32xbf16>, tensor<1x?x?x32xbf16>, tensor<1x?x?x128xbf16>) -> tensor<1x?x?x128xbf16>
  return %o : tensor<1x?x?x128xbf16>
}
