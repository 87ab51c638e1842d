//===- AttnDialect.td - The attn dialect and its attributes -----*- tablegen -*-===//
#ifndef SACCADE_ATTN_DIALECT_TD
#define SACCADE_ATTN_DIALECT_TD

include "mlir/Dialect/SCF/IR/DeviceMappingInterface.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/DialectBase.td"
include "mlir/IR/EnumAttr.td"

def Attn_Dialect : Dialect {
  let name = "attn";
  let cppNamespace = "::saccade::attn";
  let summary = "Attention on whole tensors and on tiles";
  let description = [{
    `attn.attention` is attention over whole tensors. `attn.accumulate`, `attn.merge` and `attn.finalize` are the same
    computation on tiles of keys, with the state of the online softmax as explicit operands. `attn.linear` is linear
    attention. All other computation stays in `linalg`, `tensor`, `arith` and `math`.

    Semantics that hold for every target:
    - The order is scale, score, mask, softmax, weight. 16-bit inputs are accumulated in f32, f64 in f64.
    - The mask is a set of (query, key) pairs, not a large negative bias.
    - A row without visible keys and without a sink has output 0 and log-sum-exp −inf, not NaN.
    - Elements beyond a length have no influence, even if they are NaN. A masked key inside the length may be NaN; a
      masked NaN or Inf value inside the length may propagate to the rows of its tile.
    - The log-sum-exp is the natural logarithm.
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasCanonicalizer = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
  // For expanded mask sugar (arith), tiling (affine, tensor) and the folding of empty attention (linalg.fill).
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
  let extraClassDeclaration = [{
    /// Adds a mask that programs write as `mask NAME<...>`. Two different ones of a name are an error where the name is
    /// used.
    void addMaskSugar(const MaskSugar &sugar);
    /// The names of masks: `causal`, `window` and those of extensions.
    llvm::ArrayRef<MaskSugar> getMaskSugars() const { return maskSugars; }

  private:
    llvm::SmallVector<MaskSugar> maskSugars;

  public:
  }];
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

def Attn_ProductForm : I32EnumAttr<"ProductForm", "how the packed operands of a matmul are multiplied on a CPU", [
    I32EnumAttrCase<"MultiplyAdd", 0, "multiply_add">, I32EnumAttrCase<"Pairs", 1, "pairs">,
    I32EnumAttrCase<"Blocks", 2, "blocks">, I32EnumAttrCase<"Tiles", 3, "tiles">,
    I32EnumAttrCase<"SplitTiles", 4, "split_tiles">, I32EnumAttrCase<"Int8Dot", 5, "int8_dot">,
    I32EnumAttrCase<"Int8Blocks", 6, "int8_blocks">, I32EnumAttrCase<"SignedInt8Dot", 7, "signed_int8_dot">]> {
  let cppNamespace = "::saccade::attn";
}

def Attn_BlockFormat : I32EnumAttr<"BlockFormat", "how a block of quantized weights is stored", [
    I32EnumAttrCase<"Q4_0", 0, "q4_0">, I32EnumAttrCase<"Q4_1", 1, "q4_1">, I32EnumAttrCase<"Q8_0", 2, "q8_0">,
    I32EnumAttrCase<"Q4_K", 3, "q4_k">, I32EnumAttrCase<"Q6_K", 4, "q6_k">, I32EnumAttrCase<"U4", 5, "u4">,
    I32EnumAttrCase<"U8", 6, "u8">]> {
  let cppNamespace = "::saccade::attn";
}

class Attn_Attr<string name, string attrMnemonic, list<Trait> traits = []> : AttrDef<Attn_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
}

def Attn_DimsAttr : Attn_Attr<"Dims", "dims"> {
  let summary = "which dimension of a tensor is batch, head, sequence and depth";
  let description = [{
    A letter for each dimension, outermost first: `b` batch, `h` head, `s` sequence (query or key positions), `d` depth
    (the head size). `s` and `d` are required; a missing `b` or `h` has extent 1.

    ```mlir
    #attn.dims<b, s, h, d>
    ```
  }];
  let parameters = (ins ArrayRefParameter<"::saccade::attn::Dim">:$dims);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The position of `dim` in the shape; nullopt if the operand does not have it.
    std::optional<unsigned> position(Dim dim) const;
    unsigned size() const { return getDims().size(); }
  }];
}

def Attn_AxesAttr : Attn_Attr<"Axes", "axes"> {
  let summary = "which dimension of a gate (decay, beta) is batch, head, sequence and depth";
  let description = [{
    As `dims`, but no dimension is required. The gate is broadcast along the dimensions that it lacks.

    ```mlir
    #attn.axes<b, s, h>
    ```
  }];
  let parameters = (ins ArrayRefParameter<"::saccade::attn::Dim">:$dims);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The position of `dim` in the shape; nullopt if the operand does not have it.
    std::optional<unsigned> position(Dim dim) const;
    unsigned size() const { return getDims().size(); }
  }];
}

def Attn_ScheduleAttr : Attn_Attr<"Schedule", "schedule"> {
  let summary = "tile sizes of an attention or a contraction";
  let description = [{
    `rows`: queries (contraction: rows of the result) per task. `cols`: keys (contraction: columns of the result) per
    step. `depth`: elements of the reduced dimension that are packed at a time, 0 for all.

    ```mlir
    #attn.schedule<rows = 384, cols = 512>
    ```
  }];
  let parameters = (ins "int64_t":$rows, "int64_t":$cols, DefaultValuedParameter<"int64_t", "0">:$depth);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Attn_SplitKVAttr : Attn_Attr<"SplitKV", "split_kv"> {
  let summary = "tile sizes of split-KV attention (flash-decoding)";
  let description = [{
    Used for at most `queries` queries. Keys and values are read unpacked, once for all query heads of a KV head. A task
    has at most `rows` rows (a row is one query of one head) and one chunk of `cols` keys; chunks start at absolute
    multiples of `cols`. The states of the chunks are merged from left to right. With `all`, more queries are computed in
    the same way, in blocks of `queries` one after another: the bits of a query do not depend on how many others a call
    has.

    ```mlir
    #attn.split_kv<queries = 8, rows = 12, cols = 1024>
    #attn.split_kv<queries = 8, rows = 12, cols = 256, all = true>
    ```
  }];
  let parameters = (ins "int64_t":$queries, "int64_t":$rows, "int64_t":$cols,
                        DefaultValuedParameter<"bool", "false">:$all);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Attn_TaskAttr : Attn_Attr<"Task", "task", [DeclareAttrInterfaceMethods<DeviceMappingAttrInterface>]> {
  let summary = "maps a dimension of a parallel loop to tasks";
  let description = [{
    The `mapping` of an `scf.forall` whose iterations are work items. Canonicalization keeps a loop with a mapping, even
    if it has one iteration: all computation stays in tasks.

    ```mlir
    scf.forall (%i, %j) in (4, 1) { ... } {mapping = [#attn.task<0>, #attn.task<1>]}
    ```
  }];
  let parameters = (ins "int64_t":$dim);
  let assemblyFormat = "`<` $dim `>`";
}

#endif // SACCADE_ATTN_DIALECT_TD
