//===- AttnDialect.td - The attn dialect and its attributes -----*- tablegen -*-===//
#ifndef SACCADE_ATTN_DIALECT_TD
#define SACCADE_ATTN_DIALECT_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/DialectBase.td"
include "mlir/IR/EnumAttr.td"

def Attn_Dialect : Dialect {
  let name = "attn";
  let cppNamespace = "::saccade::attn";
  let summary = "Attention, whole and in tiles";
  let description = [{
    Few ops, each with one meaning. `attn.attention` is attention over whole tensors; `attn.accumulate`,
    `attn.merge` and `attn.finalize` are the same computation cut into tiles of keys, with the state of the
    online softmax made visible. `attn.linear` is attention without a softmax. Everything around attention stays in `linalg`, `tensor`, `arith` and `math`.

    Semantics that hold for every target:
    - The order is scale, score, mask, softmax, weight. 16-bit inputs are accumulated in f32, f64 in f64.
    - The mask is a set of (query, key) pairs, never a finite number added to a score.
    - A row without a key and without a sink gives output 0 and log-sum-exp −inf, never NaN.
    - Elements beyond a length never influence anything, even if they are NaN. A masked NaN key inside the
      length is harmless; a masked NaN or Inf value there may reach the rows of its tile.
    - The log-sum-exp is the natural logarithm.
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasCanonicalizer = 1;
  // Mask sugar becomes arith, tiling makes affine and tensor ops, an empty attention is filled.
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def Attn_Dim : I32EnumAttr<"Dim", "a named dimension of an attention operand", [
    I32EnumAttrCase<"Batch", 0, "b">, I32EnumAttrCase<"Head", 1, "h">,
    I32EnumAttrCase<"Seq", 2, "s">, I32EnumAttrCase<"Depth", 3, "d">]> {
  let cppNamespace = "::saccade::attn";
}

def Attn_Role : I32EnumAttr<"Role", "the query side or the key side", [
    I32EnumAttrCase<"Query", 0, "query">, I32EnumAttrCase<"Key", 1, "key">]> {
  let cppNamespace = "::saccade::attn";
}

class Attn_Attr<string name, string attrMnemonic> : AttrDef<Attn_Dialect, name> {
  let mnemonic = attrMnemonic;
}

def Attn_DimsAttr : Attn_Attr<"Dims", "dims"> {
  let summary = "which dimension of a tensor is batch, head, sequence and depth";
  let description = [{
    One letter a dimension, outermost first: `b` batch, `h` head, `s` sequence (query or key positions),
    `d` depth (the head size). `s` and `d` are always there; a missing `b` or `h` counts as size 1.

    ```mlir
    #attn.dims<b, s, h, d>
    ```
  }];
  let parameters = (ins ArrayRefParameter<"::saccade::attn::Dim">:$dims);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The position of `dim` in the shape, or nothing where the operand does not have it.
    std::optional<unsigned> position(Dim dim) const;
    unsigned size() const { return getDims().size(); }
  }];
}

def Attn_AxesAttr : Attn_Attr<"Axes", "axes"> {
  let summary = "which dimension of a factor is batch, head, sequence and depth";
  let description = [{
    As `dims`, for what may lack any of them: it is the same along a dimension that it does not name.

    ```mlir
    #attn.axes<b, s, h>
    ```
  }];
  let parameters = (ins ArrayRefParameter<"::saccade::attn::Dim">:$dims);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The position of `dim` in the shape, or nothing where the operand does not have it.
    std::optional<unsigned> position(Dim dim) const;
    unsigned size() const { return getDims().size(); }
  }];
}

def Attn_ScheduleAttr : Attn_Attr<"Schedule", "schedule"> {
  let summary = "how an attention or a contraction is cut into tiles";
  let description = [{
    `rows` is the number of queries (rows of the result) of a task, `cols` the number of keys (for a contraction:
    columns of the result) of a step, `depth` the extent of the reduction that is packed at a time (0: all of it).

    ```mlir
    #attn.schedule<rows = 384, cols = 512>
    ```
  }];
  let parameters = (ins "int64_t":$rows, "int64_t":$cols, DefaultValuedParameter<"int64_t", "0">:$depth);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Attn_SplitKVAttr : Attn_Attr<"SplitKV", "split_kv"> {
  let summary = "how attention with few queries is split along the keys (split-KV, flash-decoding)";
  let description = [{
    With at most `queries` queries, keys and values are read where they lie, once for all query heads of a key head: a
    task takes at most `rows` rows (a row is one query of one head) and one of the chunks of `cols` keys at absolute
    multiples of `cols`. The chunks' states are merged from left to right.

    ```mlir
    #attn.split_kv<queries = 8, rows = 12, cols = 1024>
    ```
  }];
  let parameters = (ins "int64_t":$queries, "int64_t":$rows, "int64_t":$cols);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

#endif // SACCADE_ATTN_DIALECT_TD
