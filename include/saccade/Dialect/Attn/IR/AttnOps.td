//===- AttnOps.td - The ops of the attn dialect -----------------*- tablegen -*-===//
#ifndef SACCADE_ATTN_OPS_TD
#define SACCADE_ATTN_OPS_TD

include "saccade/Dialect/Attn/IR/AttnDialect.td"
include "saccade/Dialect/Attn/IR/AttnInterfaces.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/DestinationStyleOpInterface.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/TilingInterface.td"

class Attn_Op<string mnemonic, list<Trait> traits = []> : Op<Attn_Dialect, mnemonic, traits>;

def Attn_Shaped : AnyTypeOf<[AnyRankedTensor, AnyMemRef]>;
def Attn_Sink : AnyTypeOf<[AnyFloat, 1DTensorOf<[AnyFloat]>], "a scalar or one scalar per head">;
def Attn_Length : AnyTypeOf<[Index, 1DTensorOf<[I32, I64, Index]>], "an index or one integer per batch">;

def Attn_CuSeqlens : 1DTensorOf<[I32, I64, Index]>;

def Attn_AttentionOp : Attn_Op<"attention", [Pure, AttrSizedOperandSegments, AttrSizedResultSegments,
    IsolatedFromAbove,
    DeclareOpInterfaceMethods<Attn_ScoringOpInterface>,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>,
    DeclareOpInterfaceMethods<TilingInterface, ["getLoopIteratorTypes", "getIterationDomain",
        "getTiledImplementation", "getResultTilePosition"]>]> {
  let summary = "attention over whole tensors";
  let description = [{
    `softmax(mask(score(scale · Q Kᵀ))) V`, for every batch and head, or with a normalizer
    `normalizer(mask(score(scale · Q Kᵀ))) V`.

    Each operand names its dimensions. The number of query heads must be a multiple of the number of KV heads
    (grouped-query attention). The depth of values may differ from the depth of queries and keys.

    - `captures(...)`: tensors and scalars that the regions read. They are the last region arguments.
    - `q_len(...)`, `kv_len(...)`: the absolute end positions of queries and keys, an index or one integer per batch.
      They are loop bounds, not masks. Rows from `q_len` on have output 0 and log-sum-exp −inf.
    - `cu_seqlens_q(...)`, `cu_seqlens_k(...)`: queries, or keys and values, are a ragged batch: sequences of any lengths,
      contiguous along `s`, without `b`. Sequence i has the elements from cu_seqlens[i] up to cu_seqlens[i + 1]. The first
      element is 0, the elements ascend, and there is one more than there are sequences. A sequence is a batch;
      positions, lengths and region arguments are relative to its start. Results are ragged like queries. Rows after the
      last sequence have output 0 and log-sum-exp −inf.
    - `scale(...)`: a constant or a scalar, 1/sqrt(depth of keys) by default.
    - `qk_type(i8)`: permits a kernel to round queries and keys to int8 for their dot products, as SageAttention does
      (Zhang et al. 2024): each query, and each key minus a vector that all keys of a tile share, is rounded to 127 steps
      of its largest element on either side of 0. The dot product with that vector is added in f32. The result is that of
      attention without the clause within the error of this rounding; a kernel without int8 products ignores the clause.
      Inputs of f64 are refused. Derivatives are those of attention without the clause.
    - `at(%b, %h, %q, %k)`: the absolute position of element 0. Region arguments are absolute.
    - `sink(...)`: an additional score in the softmax of every row, without a value: a scalar, or one per head (element 0
      is the first head of the query). Regions are not applied to it. −inf means no sink.
    - `mask`: `causal<top_left>`, `causal<bottom_right>` (aligned at the lengths), `causal<N>` (key ≤ query + N),
      `window<L, R>` (query − L ≤ key ≤ query + R, `*` for an open side), or a region `(%b, %h, %q, %k, captures...)`.
      May be repeated; the masks are conjoined into one region.
    - `score(%s, %b, %h, %q, %k, captures...)`: a region from the scaled score to the score.
    - `weight(%p, %b, %h, %q, %k, captures...)`: a region from the probability of a visible key to the factor of its
      value. It does not change the log-sum-exp and tallies.
    - `normalizer(%s, %b, %h, %q, %k, captures...)`: a region from the score of a visible key to its weight, in place of the
      softmax: no sum divides the weights. Masked keys, and keys with a score of −inf, have weight 0. The weight region and
      dropout apply to this weight; the parser appends them to the region, which the op keeps as its weight region with
      `pointwise`. There is no log-sum-exp: `lse`, `lse_low`, `sink`, `max`, `argmax` and `tally` are refused.
    - `normalizer stick_breaking`: from the last visible key to the first, each key takes the part σ(score) of what later
      keys leave of a stick of length 1 (Tan et al. 2024). The weight of key j is σ(s_j) Π_{k > j} (1 − σ(s_k)). The rest
      has no value. The weight region takes this weight and must be proportional to it. The same clauses are refused.
    - `dropout(rate, %seed, heads : types)`: sets each weight to 0 with probability `rate` and divides the others by
      1 − rate, after the weight region. The rate is a constant in [0, 1] or an f32, the seed an i64, `heads` an integer or
      an index: the number of heads that the bits count, by default that of the query. Operands may also be tensors with
      one element. A run-time rate is clamped to [0, 1]; NaN counts as 0. The parser expands the clause to arith ops in
      the weight region. The bits are those of Philox4x32-10 (Salmon et al. 2011) with key (low word of the seed, high
      word) and counter (b · heads + h, q, k div 4, 0), all modulo 2^32: word k mod 4 is the one of key k. A weight is
      kept if the upper 24 bits of the word, times 2^-24, are at least the rate, which is rounded to f32.
    - `tally<N>(%s, %b, %h, %q, %k, captures...)`: a region that yields a bin (an index) and a number for a visible key
      with score %s. The result is b×h×q×N: for every bin the sum of probability · number over its keys. Bins outside of
      [0, N) are ignored. May be repeated, with one result each.
    - `lse`, before the types, adds the log-sum-exp, b×h×q, as a result; it includes the sink. `lse_low` adds what its
      rounding took: the log-sum-exp is lse + lse_low with twice the precision (0 for a row without keys). `max` adds the
      row maximum over visible keys (−inf without one) and `argmax` its first position, an i64 (−1 without one). Both
      ignore the sink and NaN.
    - Results are in the order output, `lse`, `lse_low`, `max`, `argmax`, tallies.

    ```mlir
    %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%slope : tensor<8xf32>)
        mask causal<bottom_right>
        score(%s, %b, %h, %i, %j, %sl) {
          %m = tensor.extract %sl[%h] : tensor<8xf32>
          %d = arith.subi %j, %i : index
          %d32 = arith.index_cast %d : index to i32
          %df = arith.sitofp %d32 : i32 to f32
          %bias = arith.mulf %m, %df : f32
          %r = arith.addf %s, %bias : f32
          attn.yield %r : f32
        } : (tensor<?x8x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16>) -> tensor<?x8x?x64xbf16>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$query, AnyRankedTensor:$key, AnyRankedTensor:$value,
                       Variadic<AnyType>:$captures, Optional<Attn_Length>:$q_len, Optional<Attn_Length>:$kv_len,
                       Optional<Attn_CuSeqlens>:$cu_seqlens_q, Optional<Attn_CuSeqlens>:$cu_seqlens_k,
                       Optional<AnyFloat>:$scale_value, Variadic<Index>:$at, Optional<Attn_Sink>:$sink,
                       Attn_DimsAttr:$query_dims, Attn_DimsAttr:$key_dims, Attn_DimsAttr:$value_dims,
                       Attn_DimsAttr:$output_dims, OptionalAttr<F64Attr>:$scale, OptionalAttr<TypeAttr>:$qk_type,
                       UnitAttr:$pointwise, UnitAttr:$stick_breaking, OptionalAttr<Attn_ScheduleAttr>:$schedule,
                       OptionalAttr<Attn_SplitKVAttr>:$split_kv);
  let results = (outs AnyRankedTensor:$output, Optional<AnyRankedTensor>:$lse, Optional<AnyRankedTensor>:$lse_low,
                      Optional<AnyRankedTensor>:$row_max, Optional<AnyRankedTensor>:$argmax,
                      Variadic<AnyRankedTensor>:$tallies);
  let regions = (region MaxSizedRegion<1>:$score, MaxSizedRegion<1>:$mask, MaxSizedRegion<1>:$weight,
                        VariadicRegion<SizedRegion<1>>:$tally_regions);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    /// The dimensions of a result. For all but the output: those of b, h, s that the output has, in this order, and `d`
    /// for the bins of a tally.
    ::llvm::SmallVector<::saccade::attn::Dim> getResultDims(::mlir::Value result);

  }];
}

def Attn_GradientOp : Attn_Op<"gradient", [Pure, AttrSizedOperandSegments, IsolatedFromAbove,
    DeclareOpInterfaceMethods<Attn_ScoringOpInterface>,
    DeclareOpInterfaceMethods<Attn_DerivativeOpInterface>,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "gradients of attention over whole tensors";
  let description = [{
    Gradients with respect to query, key, value and captures, given the gradient of the output. Probabilities are
    recomputed from the log-sum-exp (Dao et al. 2022, algorithm 4). For every batch, head, query i and visible key j:

        s = scale · q_i · k_j,   p = exp(score(s) − lse_i − lse_low_i),   dp = output_gradient_i · v_j
        dv_j += weight(p) · output_gradient_i
        ds = gradient(p, s, dp, delta_i)
        dq_i += scale · ds · k_j,   dk_j += scale · ds · q_i

    `attn-differentiate` creates this op and derives the region `gradient`.

    - Query, key, value, `captures`, `q_len`, `kv_len`, `cu_seqlens_q`, `cu_seqlens_k`, `scale`, `at`, `mask`, `score` and
      `weight` are those of the `attn.attention`.
    - `output_gradient(%do[b,h,s,d] : type)`: the gradient of the output.
    - `lse(%l : type)`: the log-sum-exp of every row, b×h×q (those that the output gradient names). A row with
      log-sum-exp −inf has no probabilities.
    - `lse_low(%r : type)`: what its rounding took, 0 by default. Without it the probabilities of a row sum to
      1 ± |lse| · 2^-24 in f32, and to the number of keys if lse is far below −1e7.
    - `delta(%d : type)`: Σ_j p · ∂L/∂p of every row, b×h×q. For plain attention this is the sum of
      output · output_gradient along a row.
    - `normalizer` is that of the `attn.attention`. There are neither `lse` nor `delta` then, p is the score after the score
      region, and the gradient region gets 0 as %delta.
    - `normalizer stick_breaking`: neither, as well. p is the weight, and %delta is the gradient of the score after the score
      region: g_j (1 − σ_j) − σ_j Σ_{k < j} g_k with g = weight(p) · dp. It is ds by default.
    - `gradient(%p, %s, %dp, %delta, %b, %h, %q, %k, captures...)`: a region that yields ds; p · (dp − delta) by default.
      `gradient<0, 0, 2>(...)` lists the captures of reads whose gradients are computed. For each of them the region
      then yields the indices of the read and a number. The number is added to the gradient of this element.
    - `dropout(...)` is that of the `attn.attention`. The gradient region reads the gradient of the weight before
      dropout: %dp is 0, or multiplied by 1 / (1 − rate), and p · (dp − delta) remains the default.
    - The results are the gradients of query, key and value, and of the captures in the list, in ascending order. The
      gradient of a scalar is a tensor of rank 0.

    Rows from `q_len` on, keys from `kv_len` on and masked pairs have gradient 0.

    ```mlir
    %dq, %dk, %dv, %dslope = attn.gradient %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%slope : tensor<8xf32>)
        output_gradient(%do[b,h,s,d] : tensor<?x8x?x64xf32>) lse(%l : tensor<?x8x?xf32>) delta(%d : tensor<?x8x?xf32>)
        mask causal<top_left>
        score(%s, %b, %h, %i, %j, %sl) { ... }
        gradient<0>(%p, %s, %dp, %delta, %b, %h, %i, %j, %sl) {
          %difference = arith.subf %dp, %delta : f32
          %ds = arith.mulf %p, %difference : f32
          ...
          attn.yield %ds, %h, %amount : f32, index, f32
        } : (tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>)
          -> (tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>, tensor<8xf32>)
    ```
  }];
  let arguments = (ins AnyRankedTensor:$query, AnyRankedTensor:$key, AnyRankedTensor:$value,
                       Variadic<AnyType>:$captures, Optional<Attn_Length>:$q_len, Optional<Attn_Length>:$kv_len,
                       Optional<Attn_CuSeqlens>:$cu_seqlens_q, Optional<Attn_CuSeqlens>:$cu_seqlens_k,
                       Optional<AnyFloat>:$scale_value, Variadic<Index>:$at, AnyRankedTensor:$output_gradient,
                       Optional<AnyRankedTensor>:$lse, Optional<AnyRankedTensor>:$lse_low,
                       Optional<AnyRankedTensor>:$delta,
                       Attn_DimsAttr:$query_dims, Attn_DimsAttr:$key_dims, Attn_DimsAttr:$value_dims,
                       Attn_DimsAttr:$output_dims, OptionalAttr<F64Attr>:$scale, UnitAttr:$pointwise,
                       UnitAttr:$stick_breaking, DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$reads,
                       OptionalAttr<Attn_ScheduleAttr>:$schedule);
  let results = (outs AnyRankedTensor:$query_gradient, AnyRankedTensor:$key_gradient, AnyRankedTensor:$value_gradient,
                      Variadic<AnyRankedTensor>:$capture_gradients);
  let regions = (region MaxSizedRegion<1>:$score, MaxSizedRegion<1>:$mask, MaxSizedRegion<1>:$weight,
                        MaxSizedRegion<1>:$gradient);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// The captures with a gradient, ascending: one for each result after the first three.
    ::llvm::SmallVector<int64_t> getDifferentiatedCaptures();
  }];
}

def Attn_JvpOp : Attn_Op<"jvp", [Pure, AttrSizedOperandSegments, IsolatedFromAbove,
    DeclareOpInterfaceMethods<Attn_ScoringOpInterface>,
    DeclareOpInterfaceMethods<Attn_DerivativeOpInterface>,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "tangents of attention over whole tensors";
  let description = [{
    The sums over keys in the Jacobian-vector product of an `attn.attention`, which computes the probabilities again from
    the log-sum-exp. For every batch, head, query i and visible key j:

        s  = scale · q_i · k_j,   p = exp(score(s) − lse_i − lse_low_i)
        ds = scale · (dq_i · k_j + q_i · dk_j) + dscale · q_i · k_j
        dp, dw = tangent(p, s, ds)
        output_i += dw · v_j + weight(p) · dv_j,   row_i += dp

    dp is p times the tangent of the score, and dw the tangent of the weight for a constant log-sum-exp. The tangent of
    the log-sum-exp is row_i plus that of the sink. The tangent of the output is output_i minus the tangent of the
    log-sum-exp times the output, so one pass over the keys computes it (Lu and Song 2024, "Simplifying, stabilizing and
    scaling continuous-time consistency models", section 4.1). `attn-differentiate` creates this op and those around it,
    and derives the region `tangent`.

    - Query, key, value, `captures`, `q_len`, `kv_len`, `cu_seqlens_q`, `cu_seqlens_k`, `scale`, `at`, `mask`, `score`,
      `weight` and `out` are those of the `attn.attention`. Captures also include tangents of captures.
    - `query_tangent(%dq : type)`, `key_tangent(%dk : type)`, `value_tangent(%dv : type)`: of the type of the operand; 0 by
      default. `scale_tangent(%x : type)`: of the type of a run-time scale.
    - `lse(%l : type)`: the log-sum-exp of every row, b×h×q (those that the output has). A row with log-sum-exp −inf has no
      probabilities. `lse_low(%r : type)`: what its rounding took, 0 by default.
    - `tangent(%p, %s, %ds, %b, %h, %q, %k, captures...)`: a region that yields dp and dw; p · ds for both by default. For
      each tally it then yields a bin and a number. The number is added to this bin of the row, unless the bin is
      outside of the tally.
    - The results are output, row and the sums of tallies, b×h×q×N, in the type of scores.

    - `normalizer` is that of the `attn.attention`. There is no `lse` then, p is the score after the score region, and dp is
      0, so row is 0 and output_i the tangent of the output.

    Rows from `q_len` on, keys from `kv_len` on and masked pairs contribute 0.

    ```mlir
    %do, %row = attn.jvp %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] query_tangent(%dq : tensor<?x8x?x64xf32>)
        value_tangent(%dv : tensor<?x8x?x64xf32>) lse(%l : tensor<?x8x?xf32>) mask causal<top_left>
        : (tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>, tensor<?x8x?x64xf32>) -> (tensor<?x8x?x64xf32>, tensor<?x8x?xf32>)
    ```
  }];
  let arguments = (ins AnyRankedTensor:$query, AnyRankedTensor:$key, AnyRankedTensor:$value,
                       Variadic<AnyType>:$captures, Optional<Attn_Length>:$q_len, Optional<Attn_Length>:$kv_len,
                       Optional<Attn_CuSeqlens>:$cu_seqlens_q, Optional<Attn_CuSeqlens>:$cu_seqlens_k,
                       Optional<AnyFloat>:$scale_value, Variadic<Index>:$at, Optional<AnyRankedTensor>:$query_tangent,
                       Optional<AnyRankedTensor>:$key_tangent, Optional<AnyRankedTensor>:$value_tangent,
                       Optional<AnyFloat>:$scale_tangent, Optional<AnyRankedTensor>:$lse,
                       Optional<AnyRankedTensor>:$lse_low,
                       Attn_DimsAttr:$query_dims, Attn_DimsAttr:$key_dims, Attn_DimsAttr:$value_dims,
                       Attn_DimsAttr:$output_dims, OptionalAttr<F64Attr>:$scale, UnitAttr:$pointwise,
                       OptionalAttr<Attn_ScheduleAttr>:$schedule);
  let results = (outs AnyRankedTensor:$output, AnyRankedTensor:$row, Variadic<AnyRankedTensor>:$tallies);
  let regions = (region MaxSizedRegion<1>:$score, MaxSizedRegion<1>:$mask, MaxSizedRegion<1>:$weight,
                        MaxSizedRegion<1>:$tangent);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Attn_WeightsOp : Attn_Op<"weights", [Pure, AttrSizedOperandSegments, IsolatedFromAbove,
    DeclareOpInterfaceMethods<Attn_ScoringOpInterface>,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "the weights of attention, as a tensor";
  let description = [{
    The softmax weights of every query and key, given the log-sum-exp: `exp(score(scale · q_i · k_j) − lse_i − lse_low_i)`,
    and 0 for masked pairs, rows from `q_len` on, keys from `kv_len` on, and rows with log-sum-exp −inf. A weight region
    is applied to visible pairs; the result is then the factors of the values.

    The result has the size queries × keys, which attention never has in memory. Slices of query, key and log-sum-exp,
    whose positions `at` gives, choose the part that is computed.

    - Query, key, `captures`, `q_len`, `kv_len`, `scale`, `at`, `mask`, `score`, `weight` and `dropout` are those of the
      `attn.attention`.
    - `lse(%l : type)`: the log-sum-exp of every row, b×h×q (those that the query has), which may include a sink.
    - `lse_low(%r : type)`: what its rounding took, 0 by default.
    - The result has the dimensions b and h that the query has, then queries, then keys, in the type of scores.

    The transforms stage expands the op to a contraction and an elementwise op. Ragged batches have no such tensor.

    ```mlir
    %w = attn.weights %q[b,h,s,d], %k[b,h,s,d] at(%zero, %zero, %first, %zero) lse(%l : tensor<?x8x?xf32>)
        mask causal<top_left>
        : (tensor<?x8x?x64xbf16>, tensor<?x2x?x64xbf16>) -> tensor<?x8x?x?xf32>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$query, AnyRankedTensor:$key, Variadic<AnyType>:$captures,
                       Optional<Attn_Length>:$q_len, Optional<Attn_Length>:$kv_len, Optional<AnyFloat>:$scale_value,
                       Variadic<Index>:$at, AnyRankedTensor:$lse, Optional<AnyRankedTensor>:$lse_low,
                       Attn_DimsAttr:$query_dims, Attn_DimsAttr:$key_dims, OptionalAttr<F64Attr>:$scale);
  let results = (outs AnyRankedTensor:$result);
  let regions = (region MaxSizedRegion<1>:$score, MaxSizedRegion<1>:$mask, MaxSizedRegion<1>:$weight);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// The dimensions of the log-sum-exp: those of b, h, s that the query has, in this order.
    ::llvm::SmallVector<::saccade::attn::Dim> getRowDims() { return ::saccade::attn::getRowDims(getQueryDims()); }
  }];
}

include "saccade/Dialect/Attn/IR/LinearOps.td"

def Attn_AccumulateOp : Attn_Op<"accumulate", [AttrSizedOperandSegments, IsolatedFromAbove,
    DestinationStyleOpInterface, DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
    DeclareOpInterfaceMethods<Attn_ScoringOpInterface>,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "a step of attention over a tile of keys";
  let description = [{
    Accumulates a tile of keys and values into the state of a tile of queries (online softmax: Milakov and Gimelshein
    2018, Dao et al. 2022). For row i with scores t = log2(e) · masked score:

        m' = max(m, max t),  acc' = 2^(m − m') acc + Σ 2^(t − m') v,  sum' = 2^(m − m') sum + Σ 2^(t − m')

    The state is in base 2, so that exp2 is the only exponential. With `natural_max` the maximum is that of the scores,
    and the weights are 2^(log2(e) · (score − max)): a maximum as a base-2 exponent is rounded, and a large one then loses
    the logarithm of the sum. The empty state is acc = 0, max = −inf, sum = 0. Query
    and key tiles are 2-D (`s` and `d` in either order); `at` gives their batch and head. `q_len` and `kv_len` are the
    results of `attn.length`; all keys of the tile are within the length.

    ```mlir
    %acc1, %max1, %sum1 = attn.accumulate %q[s,d], %k[s,d], %v[s,d] at(%b, %h, %q0, %k0)
        into(%acc, %max, %sum : tensor<96x64xf32>, tensor<96xf32>, tensor<96xf32>)
        : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>)
    ```
    The state may have more rows than the query tile, and the accumulator more columns than the values: code generators
    round up to register tiles. The additional elements of the accumulator are unspecified afterwards; max and sum of
    the additional rows are unchanged.

    After these three, `into` takes for each tally region the sums of its bins (rows × bins, rescaled like `sum`), and
    optionally the row maximum in base e and its position.

    A weight region changes the factors of the values, but not `sum`. It must be proportional to its argument, or the
    step `final`, which is the second pass of a two-pass softmax: max and sum are those of all keys and only the
    accumulator changes. The region takes 2^(t − max) / sum, and its result is multiplied by sum.

    `normalizer` in place of `weight` is the region of an attention without softmax. It takes the score, and its result is
    the weight: acc' = acc + Σ normalizer(score) · v. The maximum becomes 0 and the sum does not change, so that `attn.merge`
    adds accumulators. The state before the first key, with maximum 0 and sum 1, makes `attn.finalize` divide by 1.

    `normalizer stick_breaking`: the maximum is the base-2 logarithm of what the keys so far leave of a stick of length 1, 0
    before the first key, and the sum does not change. The keys of the tile come after those of the state:
    acc' = 2^m acc + Σ weight(p) · v and max' = max + m, where p are the weights and m is the maximum of the tile alone.

    `unpacked`: keys and values are read unpacked, for few rows. The query tile may then have a dimension `h` with heads
    of one KV head (`at` names the first): row i · heads + h is query i of head h. The number of rows of the state is a
    multiple of 4.
  }];
  let arguments = (ins Attn_Shaped:$query, Attn_Shaped:$key, Attn_Shaped:$value,
                       Variadic<AnyType>:$captures, Optional<Index>:$q_len, Optional<Index>:$kv_len,
                       Optional<AnyFloat>:$scale_value, Variadic<Index>:$at,
                       Attn_Shaped:$acc, Attn_Shaped:$max, Attn_Shaped:$sum, Variadic<Attn_Shaped>:$tallies,
                       Optional<Attn_Shaped>:$row_max, Optional<Attn_Shaped>:$argmax,
                       Attn_DimsAttr:$query_dims, Attn_DimsAttr:$key_dims, Attn_DimsAttr:$value_dims,
                       OptionalAttr<F64Attr>:$scale, OptionalAttr<TypeAttr>:$qk_type, UnitAttr:$pointwise,
                       UnitAttr:$stick_breaking, UnitAttr:$final,
                       OptionalAttr<Attn_ScheduleAttr>:$schedule, UnitAttr:$unpacked, UnitAttr:$natural_max);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let regions = (region MaxSizedRegion<1>:$score, MaxSizedRegion<1>:$mask, MaxSizedRegion<1>:$weight,
                        VariadicRegion<SizedRegion<1>>:$tally_regions);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      unsigned first = getAccMutable().getOperandNumber();
      return ::mlir::MutableOperandRange(*this, first, getNumOperands() - first);
    }
  }];
}

def Attn_MergeOp : Attn_Op<"merge", [SameVariadicOperandSize, DestinationStyleOpInterface,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "merges two states over disjoint sets of keys";
  let description = [{
    Associative; the empty state is the identity. States of keys that are split over threads are merged from left to
    right, so that the result is deterministic.

    ```mlir
    %acc, %max, %sum = attn.merge (%acc1, %max1, %sum1) into(%acc0, %max0, %sum0)
        : (tensor<96x64xf32>, tensor<96xf32>, tensor<96xf32>, tensor<96x64xf32>, tensor<96xf32>, tensor<96xf32>)
        -> (tensor<96x64xf32>, tensor<96xf32>, tensor<96xf32>)
    ```
    Both states have the parts of `attn.accumulate`: after accumulator, max and sum the tallies, which are rescaled like
    the sum, and optionally the row maximum and its position. The first of two equal row maxima counts. `natural_max`: so
    are the maxima of both. `stick_breaking`: maxima are logarithms of sticks, and the keys of the other state come later, so
    acc' = 2^other acc + acc of the other, and maxima and sums are added.
  }];
  let arguments = (ins Variadic<Attn_Shaped>:$other_parts, Variadic<Attn_Shaped>:$parts, UnitAttr:$natural_max,
                       UnitAttr:$stick_breaking);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `(` $other_parts `)` `into` `(` $parts `)` attr-dict `:` functional-type(operands, $results)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() { return getPartsMutable(); }
    /// The state that is merged into the state.
    State getOtherState() { return State(getOtherParts()); }
    State getState() { return State(getParts()); }
  }];
}

def Attn_FinalizeOp : Attn_Op<"finalize", [AttrSizedOperandSegments, DestinationStyleOpInterface,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "computes output, log-sum-exp and tallies from a state";
  let description = [{
    output = acc / sum (0 if sum is 0), lse = ln2 · max + ln sum (−inf if sum is 0). With `natural_max` the log-sum-exp is
    max + ln sum, and the destination after it, if there is one, takes what its rounding took. The outputs may have fewer
    rows than the state. `output` is 2-D (`s` and `d` in either order), the log-sum-exp is 1-D.

    ```mlir
    %o = attn.finalize %acc, %max, %sum : tensor<96x64xf32>, tensor<96xf32>, tensor<96xf32>
        into(%out[s,d] : tensor<?x64xbf16>)
    ```

    `with(...)` takes further parts of the state: tallies, which are divided by sum in the same way, and row maxima and
    their positions, which are copied. Their destinations follow the log-sum-exp.
  }];
  let arguments = (ins Attn_Shaped:$acc, Attn_Shaped:$max, Attn_Shaped:$sum, Variadic<Attn_Shaped>:$others,
                       Attn_Shaped:$output, Optional<Attn_Shaped>:$lse, Optional<Attn_Shaped>:$lse_low,
                       Variadic<Attn_Shaped>:$other_outputs, Attn_DimsAttr:$output_dims, UnitAttr:$natural_max,
                       OptionalAttr<Attn_ScheduleAttr>:$schedule);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      unsigned first = getOutputMutable().getOperandNumber();
      return ::mlir::MutableOperandRange(*this, first, getNumOperands() - first);
    }
  }];
}

def Attn_AppendOp : Attn_Op<"append", [Pure, DestinationStyleOpInterface, AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "writes new keys or values into a cache";
  let description = [{
    Returns the cache with rows [at, at + n) of each sequence replaced by its n new rows. A row is a position of `s`, with
    all heads and elements. All other rows are those of the cache.

    The op has tensor semantics: the cache itself does not change. If the result updates an argument that is marked
    `attn.updated_by`, the rows are written to the memory of the caller and nothing else is copied.

    - Each operand names its dimensions, in any order. The cache has the batch size, head count and head size of the new
      rows, and their element type.
    - `at(...)`: the position of the first new row, an index or one integer per batch: the length of the sequence before
      the call.
    - `count(...)`: the number of new rows, an index or one integer per batch; all rows by default. The rows from `count`
      on are not read, so that a batch may mix sequences of many and of few new rows.
    - `from(...)`: the new rows are those of all sequences, one sequence after another, without a dimension `b`. Those of
      a sequence are the `count` rows from this one on, one integer per batch.
    - `ring<p>`: the cache holds the first p positions and the last of the others. Position i is in row i if i < p, else in
      row p + (i − p) mod (rows − p). Of new rows with the same row in the cache, the last one is written.
    - `pages(...)`: the cache is a page pool, as in `attn.paged`. Its batches are pages of `s` positions, and row i of
      sequence b is position (at + i) mod s of page table[b, (at + i) div s]. The batch size is that of the table.

    A position or a count that is negative or exceeds the rows, a page that is not in the pool, and a page in which two
    sequences write are refused before anything is written, if positions, counts and the table are arguments. Other
    positions and counts, and all on a GPU, are clamped; rows of a page that is not in the pool are then not written, and
    of rows with the same place any one is.

    ```mlir
    %k = attn.append %new[b,s,h,d] to %cache[b,h,s,d] at(%len : tensor<?xi32>) count(%n : tensor<?xi32>)
        : (tensor<?x?x2x64xf32>, tensor<?x2x?x64xf32>) -> tensor<?x2x?x64xf32>
    %p = attn.append %new[b,s,h,d] to %pool[b,s,h,d] pages(%table : tensor<?x?xi32>) at(%len : tensor<?xi32>)
        : (tensor<?x?x2x64xf32>, tensor<?x16x2x64xf32>) -> tensor<?x16x2x64xf32>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$rows, AnyRankedTensor:$cache,
                       Optional<2DTensorOf<[I32, I64, Index]>>:$table, Attn_Length:$at, Optional<Attn_Length>:$count,
                       Optional<Attn_Length>:$from,
                       Attn_DimsAttr:$rows_dims, Attn_DimsAttr:$cache_dims,
                       OptionalAttr<ConfinedAttr<I64Attr, [IntNonNegative]>>:$ring);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = [{
    $rows `` custom<Dims>($rows_dims) `to` $cache `` custom<Dims>($cache_dims)
    (`pages` `(` $table^ `:` type($table) `)`)? `at` `(` $at `:` type($at) `)` (`count` `(` $count^ `:` type($count) `)`)?
    (`from` `(` $from^ `:` type($from) `)`)? (`ring` `<` $ring^ `>`)? attr-dict `:` `(` type($rows) `,` type($cache) `)` `->` type($result)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() { return getCacheMutable(); }
    /// The number of sequences.
    ::mlir::OpFoldResult getBatches(::mlir::OpBuilder &builder);
  }];
}

def Attn_PackOp : Attn_Op<"pack"> {
  let summary = "packs the RHS of a matmul into panels";
  let description = [{
    Writes panels: panels[c / L][p][c % L] is unit p of column c of the RHS. The form of the product says how many
    consecutive elements along K a unit has (`Analysis/ProductForm.h`); missing elements of the last unit are 0. `source`
    has a row for each column of the RHS. Padding columns of the last panel repeat the last column. A unit of `blocks`
    has two elements of a panel's row. With `split_tiles`, elements are split into two bf16 (`Codegen/CPU/Pack.h`).

    ```mlir
    attn.pack %w into %panels form(pairs) : memref<?x?xbf16, strided<[1, ?]>>, memref<?x?x32xf32>
    ```
  }];
  let arguments = (ins Arg<MemRefRankOf<[AnyFloat], [2]>, "", [MemRead]>:$source,
                       Arg<MemRefRankOf<[F32, F64], [3]>, "", [MemWrite]>:$panels,
                       Attn_ProductForm:$form);
  let assemblyFormat = [{
    $source `into` $panels `form` `(` $form `)` attr-dict `:` type($source) `,` type($panels)
  }];
}

def Attn_PackedMatmulOp : Attn_Op<"packed_matmul"> {
  let summary = "a matmul with a packed RHS and an optional bias";
  let description = [{
    result[r, c] = bias[c] + Σ_p lhs[r, p] · panels[c / L][p][c % L], accumulated in the type of the panels and rounded
    once to that of the result. Without a bias the accumulators start from 0. `lhs` is read unpacked: its rows are
    contiguous, and K consists of whole units. With `blocked`, which `blocks` and `split_tiles` require, the LHS is copied, one block of rows and K at a time, and K is any number. The order of accumulation is the same.

    ```mlir
    attn.packed_matmul %x, %panels bias(%b) into %y form(multiply_add)
        : memref<?x?xf32, strided<[?, 1]>>, memref<?x?x32xf32>, memref<?xf32> into memref<?x?xf32, strided<[?, 1]>>
    ```
  }];
  let arguments = (ins Arg<MemRefRankOf<[AnyFloat], [2]>, "", [MemRead]>:$lhs,
                       Arg<MemRefRankOf<[F32, F64], [3]>, "", [MemRead]>:$panels,
                       Arg<Optional<MemRefRankOf<[AnyFloat], [1]>>, "", [MemRead]>:$bias,
                       Arg<MemRefRankOf<[AnyFloat], [2]>, "", [MemWrite]>:$result,
                       Attn_ProductForm:$form, UnitAttr:$blocked);
  let assemblyFormat = [{
    $lhs `,` $panels (`bias` `(` $bias^ `)`)? `into` $result `form` `(` $form `)`
    (`blocked` $blocked^)? attr-dict `:` type($lhs) `,` type($panels) (`,` type($bias)^)? `into` type($result)
  }];
}

def Attn_LengthOp : Attn_Op<"length", [Pure]> {
  let summary = "the end position of queries or keys, in a region of attention";
  let description = [{
    Returns the `q_len` or `kv_len` of the current batch. Without a length it returns the extent of the operand plus the
    position in `at`: the absolute end of the sequence.

    ```mlir
    %n = attn.length key
    ```
  }];
  let arguments = (ins Attn_Role:$role);
  let results = (outs Index:$result);
  let assemblyFormat = "$role attr-dict";
  let hasVerifier = 1;
}

def Attn_PagedOp : Attn_Op<"paged", [Pure,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "a view of a page pool through a page table (paged KV cache)";
  let description = [{
    The keys or values of a paged cache (Kwon et al. 2023, vLLM). The batches of the pool are pages of `s` positions.
    Entry (b, i) of the page table is the page with the positions [i · s, (i + 1) · s) of sequence b. Pages may be in any
    order and may be shared. Result element (b, position, h, d) is pool element (table[b, position div s],
    position mod s, h, d); its dimensions are in the order of those of the pool.

    ```mlir
    %k = attn.paged %pool[b,s,h,d], %table : tensor<?x16x2x64xf32>, tensor<?x?xi32> -> tensor<?x?x2x64xf32>
    ```
    Entries of pages that only contain positions beyond `kv_len` are not read. Attention on a CPU reads the pages in
    place or a tile at a time; the result is never in memory as a whole.
  }];
  let arguments = (ins AnyRankedTensor:$pool, 2DTensorOf<[I32, I64, Index]>:$table, Attn_DimsAttr:$dims);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$pool `` custom<Dims>($dims) `,` $table attr-dict `:` type($pool) `,` type($table) `->` type($result)";
  let hasVerifier = 1;
}

def Attn_LoadPagesOp : Attn_Op<"load_pages", [DestinationStyleOpInterface,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "copies positions of a paged sequence to a tile";
  let description = [{
    The tile of an `attn.paged` with one sequence and one head. Row i of the tile is position begin + i of the sequence.
    A page that is not in the pool is replaced by the nearest one.

    ```mlir
    %k = attn.load_pages %pool[b,s,d], %pages from %begin into(%tile)
        : (tensor<?x16x64xf32>, tensor<?xi32>, tensor<?x64xf32>) -> tensor<?x64xf32>
    ```
  }];
  let arguments = (ins Attn_Shaped:$pool, Attn_Shaped:$pages, Index:$begin, Attn_Shaped:$tile, Attn_DimsAttr:$dims);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $pool `` custom<Dims>($dims) `,` $pages `from` $begin `into` `(` $tile `)` attr-dict `:`
    functional-type(operands, results)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() { return getTileMutable(); }
  }];
}

include "saccade/Dialect/Attn/IR/DequantizeOps.td"

def Attn_YieldOp : Attn_Op<"yield", [Pure, Terminator, ParentOneOf<["AttentionOp", "AccumulateOp", "GradientOp", "JvpOp", "WeightsOp", "LinearOp"]>]> {
  let summary = "terminator of the regions of attention";
  let arguments = (ins Variadic<AnyType>:$operands);
  let assemblyFormat = "$operands attr-dict `:` type($operands)";
  let extraClassDeclaration = [{
    /// The result of a region other than a tally.
    ::mlir::Value getOperand() { return getOperands().front(); }
  }];
}

def Attn_LaunchOp : Attn_Op<"launch", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "runs the work items of a task in parallel";
  let description = [{
    Runs every item of [0, count) of the task exactly once, on the host's threads, and returns when all are complete. The
    task is a private function `(captures..., begin: index, end: index, scratch: memref<?xi8>)` that runs the items
    [begin, end). Each call has `scratch` bytes of private memory, aligned to 64 bytes; `attn-plan-scratch` sets this
    number, which is 0 before.

    ```mlir
    attn.launch @forward_task0(%q, %out) count(%n) scratch(16384) : (memref<?x64xf32>, memref<?x64xf32>)
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$task, Variadic<AnyType>:$captures, Index:$count,
                       DefaultValuedAttr<ConfinedAttr<I64Attr, [IntNonNegative]>, "0">:$scratch_bytes);
  let assemblyFormat = [{
    $task `(` $captures `)` `count` `(` $count `)` (`scratch` `(` $scratch_bytes^ `)`)? attr-dict
    (`:` `(` type($captures)^ `)`)?
  }];
}

def Attn_ThreadsOp : Attn_Op<"threads", [MemoryEffects<[MemRead]>]> {
  let summary = "the number of threads that run work items";
  let description = [{
    Returns the most threads that `attn.launch` may use in this call. Tilings select between forms of a computation by it
    whose results have the same bits.

    ```mlir
    %n = attn.threads
    ```
  }];
  let results = (outs Index:$result);
  let assemblyFormat = "attr-dict";
}

#endif // SACCADE_ATTN_OPS_TD
