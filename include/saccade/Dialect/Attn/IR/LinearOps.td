//===- LinearOps.td - Ops of linear attention -*- tablegen -*-===//
//
// A part of AttnOps.td, which includes it after the classes of operands.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LINEAR_OPS_TD
#define SACCADE_LINEAR_OPS_TD

def Attn_LinearOp : Attn_Op<"linear", [Pure, AttrSizedOperandSegments, IsolatedFromAbove,
    DeclareOpInterfaceMethods<Attn_LinearOpInterface>,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "linear attention: a state of fixed size in place of the softmax";
  let description = [{
    Accumulates keys and values into a state of fixed size, which queries read (Katharopoulos et al. 2020; decay and
    delta rule: Yang et al. 2024). For every batch and head of the value, with φ the feature region, for each position:

        S ← exp(decay) · S
        S ← S + φ(k) ⊗ u,  u = v,  with the delta rule  u = beta · (v − Sᵀ e)
        o = scale · Sᵀ φ(q)

    - `causal`: a query reads the state at its own position; queries and keys have the same length. Without it every
      query reads the state after the last key, and decay and the delta rule are not allowed.
    - `decay(%g[...] : type)`: natural logarithms of the decay factors of the state, broadcast along the dimensions that
      they lack: `[h]` one per head, `[b,s,h]` one per position, `[b,s,h,d]` one per row of the state (`d`: features of
      the key). 0 keeps the state, −inf clears it.
    - `beta(%b[...] : type)`: the rate of the delta rule, at which the value replaces the value stored for its key.
    - `erase(%e[b,s,h,d] : type)`: e, the key at which the delta rule reads; φ(k) without it. beta is 1 if it is not given.
    - `feature(%x)`: the feature map, a region on an element of queries and keys; the identity by default.
    - `l2norm(1.0e-6)`: queries and keys x are replaced by x / √(Σ x² + 1e-6) before the feature map. e is not.
    - `normalize`: divides every output by its result for values of 1, or sets it to 0 if that is 0. Not with the delta rule.
    - `scale(...)`: a constant, 1.0 by default.
    - `state(%s : type)`: the initial state, 0 by default. For each batch and head (those of the value, and a batch for
      each ragged sequence) a matrix of head size of keys × head size of values. `normalize` adds a last column, for the
      values of 1.
    - `cu_seqlens(%c : type)`: a ragged batch, as for `attn.attention`: sequence i has the positions from c[i] up to
      c[i + 1] of queries, keys and values, which have no `b`. Outputs of positions behind the last sequence are 0.
    - `kv_len(%n : type)`: batch i consists of its first n[i] positions, for one integer per batch. Outputs from there on
      are 0, and the final state is that after position n[i] − 1.
    - The second result is the state after the last position.

    Head sizes must be static; all other extents may be `?`. The number of value heads is a multiple of the number of key
    heads (and of those of `erase`): a group of value heads shares a key. The number of query heads is a multiple of the
    number of value heads, or divides it. The output has the larger number of heads.

    ```mlir
    %o, %next = attn.linear %q[b,s,h,d], %k[b,s,h,d], %v[b,s,h,d] causal scale(0.125) decay(%g[b,s,h] : tensor<?x?x4xf32>)
        beta(%beta[b,s,h] : tensor<?x?x4xf32>) state(%before : tensor<?x4x64x64xf32>)
        : (tensor<?x?x8x64xf32>, tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>)
        -> (tensor<?x?x8x64xf32>, tensor<?x4x64x64xf32>)
    ```
  }];
  let arguments = (ins AnyRankedTensor:$query, AnyRankedTensor:$key, AnyRankedTensor:$value,
                       Optional<AnyRankedTensor>:$decay, Optional<AnyRankedTensor>:$beta,
                       Optional<AnyRankedTensor>:$erase, Optional<AnyRankedTensor>:$state,
                       Optional<Attn_CuSeqlens>:$cu_seqlens, Optional<Attn_CuSeqlens>:$kv_len,
                       Attn_DimsAttr:$query_dims, Attn_DimsAttr:$key_dims, Attn_DimsAttr:$value_dims,
                       Attn_DimsAttr:$output_dims, OptionalAttr<Attn_AxesAttr>:$decay_axes,
                       OptionalAttr<Attn_AxesAttr>:$beta_axes, OptionalAttr<Attn_DimsAttr>:$erase_dims,
                       OptionalAttr<F64Attr>:$scale, OptionalAttr<F64Attr>:$l2norm, UnitAttr:$causal,
                       UnitAttr:$normalize);
  let results = (outs AnyRankedTensor:$output, Optional<AnyRankedTensor>:$final_state);
  let regions = (region MaxSizedRegion<1>:$feature);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Attn_LinearGradientOp : Attn_Op<"linear_gradient", [Pure, AttrSizedOperandSegments, AttrSizedResultSegments,
    DeclareOpInterfaceMethods<Attn_LinearOpInterface>,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "gradients of linear attention";
  let description = [{
    Gradients of an `attn.linear` without feature region, `l2norm` and `normalize`, given those of its output
    (`output_gradient`) and of its final state (`state_gradient`, 0 without it). `attn-differentiate` creates it. With G the
    gradient of the state, for each position from the last to the first:

        G ← G + q ⊗ do,  dq = S do
        du = Gᵀ k,  dk = G u
        with the delta rule  dv = beta · du,  dbeta = du · (v − S'ᵀ e),  de = −S' dv,  G ← G − e ⊗ dv,  else  dv = du
        ddecay = Σ (G ∘ S'),  G ← exp(decay) · G

    where S' is the decayed state before the write, and S the state after it.

    The results are the gradients of query, key, value, decay, beta, erase and state, of the operands that are given. Those
    of query, key and erase have the heads of the output, of the value and of the value: sums over a group are not taken.
    Those of decay and beta name the dimensions [b,s,h], [b,s,h,d] for a decay of rows; `b` and `h` if the value has them.
    Results may have the element type of the operand or of the state. Positions outside of all sequences have gradient 0.

    ```mlir
    %dq, %dk, %dv, %dg = attn.linear_gradient %q[b,s,h,d], %k[b,s,h,d], %v[b,s,h,d] causal
        decay(%g[b,s,h] : tensor<?x?x4xf32>) output_gradient(%do[b,s,h,d] : tensor<?x?x4x64xf32>)
        : (tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>)
        -> (tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>, tensor<?x?x4xf32>)
    ```
  }];
  let arguments = (ins AnyRankedTensor:$query, AnyRankedTensor:$key, AnyRankedTensor:$value,
                       Optional<AnyRankedTensor>:$decay, Optional<AnyRankedTensor>:$beta,
                       Optional<AnyRankedTensor>:$erase, Optional<AnyRankedTensor>:$state,
                       Optional<Attn_CuSeqlens>:$cu_seqlens, Optional<Attn_CuSeqlens>:$kv_len,
                       AnyRankedTensor:$output_gradient, Optional<AnyRankedTensor>:$state_gradient,
                       Attn_DimsAttr:$query_dims, Attn_DimsAttr:$key_dims, Attn_DimsAttr:$value_dims,
                       Attn_DimsAttr:$output_dims, OptionalAttr<Attn_AxesAttr>:$decay_axes,
                       OptionalAttr<Attn_AxesAttr>:$beta_axes, OptionalAttr<Attn_DimsAttr>:$erase_dims,
                       OptionalAttr<F64Attr>:$scale, UnitAttr:$causal);
  let results = (outs AnyRankedTensor:$query_gradient, AnyRankedTensor:$key_gradient, AnyRankedTensor:$value_gradient,
                      Optional<AnyRankedTensor>:$decay_gradient, Optional<AnyRankedTensor>:$beta_gradient,
                      Optional<AnyRankedTensor>:$erase_gradient, Optional<AnyRankedTensor>:$initial_gradient);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

#endif // SACCADE_LINEAR_OPS_TD
