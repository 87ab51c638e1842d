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
def Attn_Sink : AnyTypeOf<[AnyFloat, 1DTensorOf<[AnyFloat]>], "a number or one number a head">;
def Attn_Length : AnyTypeOf<[Index, 1DTensorOf<[I32, I64, Index]>], "an index or one integer a batch">;

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
    `softmax(mask(score(scale · Q Kᵀ))) V`, for every batch and head.

    Each operand names its dimensions; the number of query heads must be a multiple of the number of key heads
    (grouped-query attention), and the depth of values may differ from that of queries and keys.

    - `captures(...)`: tensors and scalars that the regions read; they arrive as the last region arguments.
    - `q_len(...)`, `kv_len(...)`: the absolute position at which queries and keys end, an index or one integer a
      batch. They are loop bounds, not masks. Rows from `q_len` on give 0 (log-sum-exp −inf).
    - `cu_seqlens_q(...)`, `cu_seqlens_k(...)`: queries, or keys and values, are packed: sequences of any lengths lie behind each
      other along `s`, and there is no `b`. Element i is where sequence i begins and sequence i − 1 ends: 0 first,
      ascending, one element more than there are sequences. A sequence is a batch, and all positions, lengths and region
      arguments count within it. Results are packed as queries are. Rows behind the last offset belong to no sequence
      and give 0 (log-sum-exp −inf).
    - `scale(...)`: a constant or a scalar; 1/sqrt(depth of keys) without it.
    - `at(%b, %h, %q, %k)`: the absolute position of element 0. Region arguments are absolute.
    - `sink(...)`: one more score of every row, a number or one a head (element 0 is the first head of the query), that
      takes its part of the softmax and has no value. No region sees it. −inf is no sink.
    - `mask`: `causal<top_left>`, `causal<bottom_right>` (counted from the lengths), `causal<N>` (key ≤ query + N),
      `window<L, R>` (query − L ≤ key ≤ query + R, `*` for no bound), or a region `(%b, %h, %q, %k, captures...)`.
      Several may follow one another; all must hold. They become one region.
    - `score(%s, %b, %h, %q, %k, captures...)`: a region from the scaled score to the score.
    - `weight(%p, %b, %h, %q, %k, captures...)`: a region from the probability of a visible key to what its value is
      multiplied by. The log-sum-exp and tallies do not see it.
    - `tally<N>(%s, %b, %h, %q, %k, captures...)`: a region that yields a bin (an index) and a number for a visible key
      with the score %s. The result, b×h×q×N, is for every bin the sum of probability · number over its keys; a bin
      outside of 0 ... N − 1 does not count. May be repeated; there are as many results.
    - `lse` before the types asks for the log-sum-exp, b×h×q, as a further result; it includes the sink. `max` asks for
      the largest score of a row's visible keys (−inf for none) and `argmax` for its position, an i64, the first of equal
      ones (−1 for none): the sink is none of them, and a NaN is never the largest.
    - The results are, in this order: output, `lse`, `max`, `argmax`, tallies.

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
                       Attn_DimsAttr:$output_dims, OptionalAttr<F64Attr>:$scale,
                       OptionalAttr<Attn_ScheduleAttr>:$schedule, OptionalAttr<Attn_SplitKVAttr>:$split_kv);
  let results = (outs AnyRankedTensor:$output, Optional<AnyRankedTensor>:$lse, Optional<AnyRankedTensor>:$row_max,
                      Optional<AnyRankedTensor>:$argmax, Variadic<AnyRankedTensor>:$tallies);
  let regions = (region MaxSizedRegion<1>:$score, MaxSizedRegion<1>:$mask, MaxSizedRegion<1>:$weight,
                        VariadicRegion<SizedRegion<1>>:$tally_regions);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    /// The dimensions of a result: those of the output; for others those of b, h, s that it has, in this order, and `d`
    /// for the bins of a tally.
    ::llvm::SmallVector<::saccade::attn::Dim> getResultDims(::mlir::Value result);

    /// Whether queries or keys are packed.
    bool isRagged() { return getCuSeqlensQ() || getCuSeqlensK(); }
    /// The offsets that pack queries, or keys and values; null where they are not packed.
    ::mlir::Value getCuSeqlens(::saccade::attn::Role role) {
      return role == ::saccade::attn::Role::Query ? getCuSeqlensQ() : getCuSeqlensK();
    }
    /// How many batches queries or keys have; packed sequences are batches.
    ::mlir::OpFoldResult getBatches(::mlir::OpBuilder &b, ::saccade::attn::Role role);
    /// The same where it is static, else `ShapedType::kDynamic`.
    int64_t getStaticBatches(::saccade::attn::Role role);
  }];
}

def Attn_LinearOp : Attn_Op<"linear", [Pure, AttrSizedOperandSegments, IsolatedFromAbove,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "attention without a softmax, in time and memory linear in the length";
  let description = [{
    Keys and values are folded into a state of fixed size, which queries read (Katharopoulos et al. 2020; with decay and
    delta rule Yang et al. 2024). For every batch and key head, with φ the feature region, position after position:

        S ← exp(decay) · S
        S ← S + φ(k) ⊗ v,  with `beta`  S ← S + φ(k) ⊗ beta · (v − Sᵀ φ(k))
        o = scale · Sᵀ φ(q)

    - `causal`: a query reads the state of its own position; queries and keys have one length. Without it every query reads
      the state after all keys, and there are neither decay nor `beta`.
    - `decay(%g[...] : type)`: natural logarithms of what is left of the state, for each dimension that they name: `[h]` one a key
      head, `[b,s,h]` one a position as well, `[b,s,h,d]` one for each row of the state (`d` counts features of the key).
      0 keeps all, −inf nothing.
    - `beta(%b[...] : type)`: how much of what the state answers to a key is replaced by its value (the delta rule).
    - `feature(%x)`: a region from an element of queries and keys to its feature; the element itself without it.
    - `normalize`: every output is divided by what it would be if all values were 1; it is 0 where that is 0.
    - `scale(...)`: a constant, 1.0 without it.
    - `state(%s : type)`: the state to begin with, 0 without it: for each batch and key head (as far as the key names them) head
      size of keys × head size of values. With `normalize` one more column stands behind those of values, for the values 1.
    - A second result is the state after the last position.

    Elements of one head size are a kernel; all other extents may be `?`. The number of query heads is a multiple of that of
    key heads.

    ```mlir
    %o, %next = attn.linear %q[b,s,h,d], %k[b,s,h,d], %v[b,s,h,d] causal scale(0.125) decay(%g[b,s,h] : tensor<?x?x4xf32>)
        beta(%beta[b,s,h] : tensor<?x?x4xf32>) state(%before : tensor<?x4x64x64xf32>)
        : (tensor<?x?x8x64xf32>, tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>)
        -> (tensor<?x?x8x64xf32>, tensor<?x4x64x64xf32>)
    ```
  }];
  let arguments = (ins AnyRankedTensor:$query, AnyRankedTensor:$key, AnyRankedTensor:$value,
                       Optional<AnyRankedTensor>:$decay, Optional<AnyRankedTensor>:$beta,
                       Optional<AnyRankedTensor>:$state,
                       Attn_DimsAttr:$query_dims, Attn_DimsAttr:$key_dims, Attn_DimsAttr:$value_dims,
                       Attn_DimsAttr:$output_dims, OptionalAttr<Attn_AxesAttr>:$decay_axes,
                       OptionalAttr<Attn_AxesAttr>:$beta_axes, OptionalAttr<F64Attr>:$scale, UnitAttr:$causal,
                       UnitAttr:$normalize);
  let results = (outs AnyRankedTensor:$output, Optional<AnyRankedTensor>:$final_state);
  let regions = (region MaxSizedRegion<1>:$feature);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// The type in which features and the state are held: f64 for f64 inputs, else f32.
    ::mlir::FloatType getStateType() {
      return ::saccade::attn::getScoreType(::mlir::getElementTypeOrSelf(getQuery().getType()));
    }
    /// The dimensions of the state before its rows and columns: those of b and h that keys have.
    ::llvm::SmallVector<::saccade::attn::Dim> getStateDims();
  }];
}

def Attn_AccumulateOp : Attn_Op<"accumulate", [AttrSizedOperandSegments, IsolatedFromAbove,
    DestinationStyleOpInterface, DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
    DeclareOpInterfaceMethods<Attn_ScoringOpInterface>,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "one step of attention over a tile of keys";
  let description = [{
    Folds a tile of keys and values into the state of a tile of queries (the online softmax; Milakov and
    Gimelshein 2018, Dao et al. 2022). For row i with scores t = log2(e) · masked score:

        m' = max(m, max t),  acc' = 2^(m − m') acc + Σ 2^(t − m') v,  sum' = 2^(m − m') sum + Σ 2^(t − m')

    The state is held in base 2 so that a code generator needs no other exponential; the empty state is
    acc = 0, max = −inf, sum = 0. Query and key tiles are 2-D (`s` and `d` in either order); batch and head are
    those of `at`. `q_len` and `kv_len` are the lengths that `attn.length` answers with; all keys of the tile
    are within the length.

    ```mlir
    %acc1, %max1, %sum1 = attn.accumulate %q[s,d], %k[s,d], %v[s,d] at(%b, %h, %q0, %k0)
        into(%acc, %max, %sum : tensor<96x64xf32>, tensor<96xf32>, tensor<96xf32>)
        : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>)
    ```
    The state may have more rows than the query tile and the accumulator more columns than the values: code
    generators like to round up. There the accumulator is unspecified afterwards; max and sum keep their values.

    Behind these three `into` takes a sum for every bin (rows × bins, which shrinks as `sum` does) for each tally region,
    and, where someone asks for it, the largest score of the row, not scaled to base 2, and its position.

    A weight region changes what values are multiplied by, after their sum was taken. It must be proportional to its
    argument, or the step be `final`: then max and sum are those of all keys, and stay, and so does all but the
    accumulator; the region is given 2^(t − max) / sum, and sum times what it yields is accumulated.

    `unpacked` says that the rows are few and keys and values are read where they lie. Then the query tile may also have
    heads, all of them of one key head (`at` names the first): row i · heads + h is query i of head h. The state has rows
    in multiples of 4.
  }];
  let arguments = (ins Attn_Shaped:$query, Attn_Shaped:$key, Attn_Shaped:$value,
                       Variadic<AnyType>:$captures, Optional<Index>:$q_len, Optional<Index>:$kv_len,
                       Optional<AnyFloat>:$scale_value, Variadic<Index>:$at,
                       Attn_Shaped:$acc, Attn_Shaped:$max, Attn_Shaped:$sum, Variadic<Attn_Shaped>:$tallies,
                       Optional<Attn_Shaped>:$row_max, Optional<Attn_Shaped>:$argmax,
                       Attn_DimsAttr:$query_dims, Attn_DimsAttr:$key_dims, Attn_DimsAttr:$value_dims,
                       OptionalAttr<F64Attr>:$scale, UnitAttr:$final, OptionalAttr<Attn_ScheduleAttr>:$schedule,
                       UnitAttr:$unpacked);
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

def Attn_MergeOp : Attn_Op<"merge", [DestinationStyleOpInterface,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "joins two states over disjoint sets of keys";
  let description = [{
    Associative; the empty state is the identity. Rows whose keys are split over threads, pages or ranks are
    merged left to right, so that the result does not depend on who computed what.

    ```mlir
    %acc, %max, %sum = attn.merge (%acc1, %max1, %sum1) into(%acc0, %max0, %sum0)
        : (tensor<96x64xf32>, tensor<96xf32>, tensor<96xf32>, tensor<96x64xf32>, tensor<96xf32>, tensor<96xf32>)
        -> (tensor<96x64xf32>, tensor<96xf32>, tensor<96xf32>)
    ```
  }];
  let arguments = (ins Attn_Shaped:$other_acc, Attn_Shaped:$other_max, Attn_Shaped:$other_sum,
                       Attn_Shaped:$acc, Attn_Shaped:$max, Attn_Shaped:$sum);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `(` $other_acc `,` $other_max `,` $other_sum `)` `into` `(` $acc `,` $max `,` $sum `)`
    attr-dict `:` functional-type(operands, $results)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return ::mlir::MutableOperandRange(*this, 3, 3);
    }
  }];
}

def Attn_FinalizeOp : Attn_Op<"finalize", [AttrSizedOperandSegments, DestinationStyleOpInterface,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "the results of a state: output, log-sum-exp, tallies";
  let description = [{
    output = acc / sum (0 where sum is 0), lse = ln2 · max + ln sum (−inf where sum is 0). The outputs may
    have fewer rows than the state. `output` is 2-D (`s` and `d` in either order), `lse` 1-D.

    ```mlir
    %o = attn.finalize %acc, %max, %sum : tensor<96x64xf32>, tensor<96xf32>, tensor<96xf32>
        into(%out[s,d] : tensor<?x64xbf16>)
    ```

    `with(...)` names more of the state: tallies, which are divided by sum (0 where sum is 0) likewise, largest scores and
    their positions, which are copied. For each there is one destination more, behind the log-sum-exp.
  }];
  let arguments = (ins Attn_Shaped:$acc, Attn_Shaped:$max, Attn_Shaped:$sum, Variadic<Attn_Shaped>:$others,
                       Attn_Shaped:$output, Optional<Attn_Shaped>:$lse, Variadic<Attn_Shaped>:$other_outputs,
                       Attn_DimsAttr:$output_dims,
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

def Attn_PackOp : Attn_Op<"pack"> {
  let summary = "packs the RHS of a matmul into panels";
  let description = [{
    Writes panels: panels[c / L][p][c % L] is k-pack p of column c of the RHS. A k-pack is `packing_factor` consecutive
    elements along K; missing elements of the last k-pack are 0. `source` has a row for each column of the RHS. Padding
    columns of the last panel repeat the last column.

    ```mlir
    attn.pack %w into %panels packing_factor(2) : memref<?x?xbf16, strided<[1, ?]>>, memref<?x?x32xf32>
    ```
  }];
  let arguments = (ins Arg<MemRefRankOf<[AnyFloat], [2]>, "", [MemRead]>:$source,
                       Arg<MemRefRankOf<[F32, F64], [3]>, "", [MemWrite]>:$panels,
                       ConfinedAttr<I64Attr, [IntPositive]>:$packing_factor);
  let assemblyFormat = [{
    $source `into` $panels `packing_factor` `(` $packing_factor `)` attr-dict `:` type($source) `,` type($panels)
  }];
}

def Attn_PackedMatmulOp : Attn_Op<"packed_matmul"> {
  let summary = "a matmul with a packed RHS and an optional bias";
  let description = [{
    result[r, c] = bias[c] + Σ_p lhs[r, p] · panels[c / L][p][c % L], accumulated in the type of the panels and rounded
    once to that of the result. Without a bias the accumulators start from 0. `lhs` is read unpacked: its rows are
    contiguous, and K is a multiple of `packing_factor`. With `blocked` the LHS is copied, one block of rows and K at a
    time. The order of accumulation is the same.

    ```mlir
    attn.packed_matmul %x, %panels bias(%b) into %y packing_factor(1)
        : memref<?x?xf32, strided<[?, 1]>>, memref<?x?x32xf32>, memref<?xf32> into memref<?x?xf32, strided<[?, 1]>>
    ```
  }];
  let arguments = (ins Arg<MemRefRankOf<[AnyFloat], [2]>, "", [MemRead]>:$lhs,
                       Arg<MemRefRankOf<[F32, F64], [3]>, "", [MemRead]>:$panels,
                       Arg<Optional<MemRefRankOf<[AnyFloat], [1]>>, "", [MemRead]>:$bias,
                       Arg<MemRefRankOf<[AnyFloat], [2]>, "", [MemWrite]>:$result,
                       ConfinedAttr<I64Attr, [IntPositive]>:$packing_factor, UnitAttr:$blocked);
  let assemblyFormat = [{
    $lhs `,` $panels (`bias` `(` $bias^ `)`)? `into` $result `packing_factor` `(` $packing_factor `)`
    (`blocked` $blocked^)? attr-dict `:` type($lhs) `,` type($panels) (`,` type($bias)^)? `into` type($result)
  }];
}

def Attn_LengthOp : Attn_Op<"length", [Pure]> {
  let summary = "the number of queries or keys that count, inside a region of attention";
  let description = [{
    Answers with the `q_len` or `kv_len` of the batch at hand, or the extent of the operand where no length is
    given, `at` included: the absolute end of the sequence.

    ```mlir
    %n = attn.length key
    ```
  }];
  let arguments = (ins Attn_Role:$role);
  let results = (outs Index:$result);
  let assemblyFormat = "$role attr-dict";
  let hasVerifier = 1;
}

def Attn_YieldOp : Attn_Op<"yield", [Pure, Terminator, ParentOneOf<["AttentionOp", "AccumulateOp", "LinearOp"]>]> {
  let summary = "ends a region of attention";
  let arguments = (ins Variadic<AnyType>:$operands);
  let assemblyFormat = "$operands attr-dict `:` type($operands)";
  let extraClassDeclaration = [{
    /// What all but tallies yield.
    ::mlir::Value getOperand() { return getOperands().front(); }
  }];
}

def Attn_LaunchOp : Attn_Op<"launch", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "runs the work items of a task in parallel";
  let description = [{
    Runs every item of [0, count) of the task exactly once, on as many threads as the host gives, and returns when
    all are done. The task is a private function `(captures..., begin: index, end: index, scratch: memref<?xi8>)`
    that runs the items [begin, end) with `scratch` bytes of memory, aligned to 64, of its own. The number of bytes
    is 0 until `attn-plan-scratch` has counted them.

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

#endif // SACCADE_ATTN_OPS_TD
