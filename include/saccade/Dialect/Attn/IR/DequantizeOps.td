//===- DequantizeOps.td - Ops of quantized weights -*- tablegen -*-===//
//
// A part of AttnOps.td, which includes it after the classes of operands.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DEQUANTIZE_OPS_TD
#define SACCADE_DEQUANTIZE_OPS_TD

def Attn_DequantizeOp : Attn_Op<"dequantize", [Pure, AttrSizedOperandSegments]> {
  let summary = "a matrix of weights from quantized blocks";
  let description = [{
    Row n of the result has the elements of the blocks of row n. `codes` has their bytes. The formats of GGUF have all
    numbers of a block in its bytes, exactly as in the file, and rows of whole blocks:

    | format | bytes | elements | element |
    |---|---|---|---|
    | `q4_0` | 18 | 32 | d · (code − 8), 4 bits |
    | `q4_1` | 20 | 32 | d · code + m, 4 bits |
    | `q8_0` | 34 | 32 | d · code, 8 bits, signed |
    | `q4_k` | 144 | 256 | d · s · code − m · t, 4 bits; 6 bits of s and t for each 32 elements |
    | `q6_k` | 210 | 256 | d · s · (code − 32), 6 bits; 8 bits of s for each 16 elements |

    `u4` and `u8` are the formats of MatMulNBits: scale · (code − zero), with codes of 4 or 8 bits, the lowest bits first, and
    16 to 256 elements in a block. `zeros` are packed like codes, along the blocks of a row, or are floats; without
    them they are 8 and 128. The last block of a row may have more elements than are left of it.

    ```mlir
    %w = attn.dequantize %blocks format(q4_0) : tensor<4096x128x18xi8> -> tensor<4096x4096xf32>
    %w = attn.dequantize %codes scales(%s : tensor<4096x128xf32>) zeros(%z : tensor<4096x64xi8>) format(u4)
        : tensor<4096x128x16xi8> -> tensor<4096x4096xf32>
    ```
    Elements are computed in f32, and rounded if the result has a smaller type, except where a matmul of few rows has them
    in registers. On a CPU a matmul whose RHS has the rows
    of the result as columns reads the blocks; the result is never in memory as a whole. With `int8_lhs`, which the
    compiler adds, the LHS of all matmuls that read it is that of an `attn.fake_quantize`.
  }];
  let arguments = (ins 3DTensorOf<[I8]>:$codes, Optional<2DTensorOf<[F32]>>:$scales,
                       Optional<2DTensorOf<[I8, F32]>>:$zeros, Attn_BlockFormat:$format, UnitAttr:$int8_lhs);
  let results = (outs 2DTensorOf<[F16, BF16, F32]>:$result);
  let assemblyFormat = [{
    $codes (`scales` `(` $scales^ `:` type($scales) `)`)? (`zeros` `(` $zeros^ `:` type($zeros) `)`)?
    `format` `(` $format `)` (`int8_lhs` $int8_lhs^)? attr-dict `:` type($codes) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Attn_FakeQuantizeOp : Attn_Op<"fake_quantize", [Pure, AllTypesMatch<["source", "result"]>,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "rounds blocks of 32 neighbours to 8 bits";
  let description = [{
    The last dimension has blocks of 32 elements, as in `q8_0` of `attn.dequantize`. An element becomes `round(x · 127 / m)
    · (m / 127)`, computed in f32, where m is the largest magnitude of its block, and `round` is to the nearest integer,
    of two the even one. A block with m < 2⁻¹⁰⁰ becomes 0, and one with NaN or an infinity becomes NaN.

    ```mlir
    %rounded = attn.fake_quantize %x : tensor<?x4096xf32>
    ```
    A matmul of few rows with weights of `attn.dequantize` multiplies the integers, on a processor that has instructions
    for it. All other ops read the rounded numbers.
  }];
  let arguments = (ins RankedTensorOf<[F32]>:$source);
  let results = (outs RankedTensorOf<[F32]>:$result);
  let assemblyFormat = "$source attr-dict `:` type($source)";
  let hasVerifier = 1;
}

def Attn_LoadDequantizedOp : Attn_Op<"load_dequantized", [DestinationStyleOpInterface, AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "dequantizes rows of weights to a tile";
  let description = [{
    The rows of an `attn.dequantize` that a task reads. A matmul on a CPU that is the only user of the tile reads the
    blocks instead.

    ```mlir
    %w = attn.load_dequantized %blocks format(q4_0) into(%tile)
        : (tensor<?x128x18xi8>, tensor<?x4096xf32>) -> tensor<?x4096xf32>
    ```
  }];
  let arguments = (ins Attn_Shaped:$codes, Optional<Attn_Shaped>:$scales, Optional<Attn_Shaped>:$zeros,
                       Attn_Shaped:$tile, Attn_BlockFormat:$format, UnitAttr:$int8_lhs);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $codes (`scales` `(` $scales^ `)`)? (`zeros` `(` $zeros^ `)`)? `format` `(` $format `)` (`int8_lhs` $int8_lhs^)?
    `into` `(` $tile `)` attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() { return getTileMutable(); }
  }];
}

#endif // SACCADE_DEQUANTIZE_OPS_TD
