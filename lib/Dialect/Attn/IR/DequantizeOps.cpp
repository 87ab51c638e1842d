//===- DequantizeOps.cpp - attn.dequantize, load_dequantized, fake_quantize ----===//
#include "Syntax.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/IR/BlockFormat.h"

using namespace mlir;
using namespace saccade::attn;
using namespace saccade::attn::syntax;

BlockTraits saccade::attn::blockTraits(BlockFormat format, int64_t bytes) {
  switch (format) {
  case BlockFormat::Q4_0:
    return {32, 18, 32, false};
  case BlockFormat::Q4_1:
    return {32, 20, 32, false};
  case BlockFormat::Q8_0:
    return {32, 34, 32, false};
  case BlockFormat::Q4_K:
    return {256, 144, 32, false};
  case BlockFormat::Q6_K:
    return {256, 210, 16, false};
  case BlockFormat::U4:
    return {2 * bytes, bytes, 2 * bytes, true};
  case BlockFormat::U8:
    return {bytes, bytes, bytes, true};
  }
  llvm_unreachable("unknown format");
}

static LogicalResult verifyBlocks(Operation *op, const QuantizedWeights &weights, ShapedType codes,
                                  BlockTraits traits) {
  StringRef format = stringifyBlockFormat(weights.format);
  if (codes.getDimSize(2) != traits.bytes)
    return op->emitOpError() << "codes have blocks of " << codes.getDimSize(2) << " bytes, expected " << traits.bytes
                             << " bytes of " << format;
  if (!llvm::isPowerOf2_64(traits.elements) || traits.elements < 16 || traits.elements > 256)
    return op->emitOpError() << "codes have blocks of " << traits.elements << " elements of " << format
                             << ", expected 16, 32, 64, 128 or 256";
  if (traits.hasScales != bool(weights.scales))
    return op->emitOpError() << (traits.hasScales ? "has no scales, expected one for each block of "
                                                  : "has scales, expected none: they are in the blocks of ")
                             << format;
  if (weights.zeros && !traits.hasScales)
    return op->emitOpError() << "has zeros, expected none for " << format;
  return success();
}

/// Whether an operand with a number for each block, or `columns` of them for each row, fits `codes`.
static LogicalResult verifyOfBlocks(Operation *op, StringRef role, Value operand, ShapedType codes, int64_t columns) {
  auto type = cast<ShapedType>(operand.getType());
  if (failed(verifySameExtent(op, "number of rows", "codes", codes.getDimSize(0), role, type.getDimSize(0))))
    return failure();
  return verifySameExtent(op, "number of columns", "blocks", columns, role, type.getDimSize(1));
}

/// The verifier of both ops. `result`: the matrix of elements.
static LogicalResult verifyWeights(Operation *op, const QuantizedWeights &weights, ShapedType result) {
  auto codes = cast<ShapedType>(weights.codes.getType());
  if (ShapedType::isDynamic(codes.getDimSize(1)) || ShapedType::isDynamic(codes.getDimSize(2)))
    return op->emitOpError() << "codes are " << codes << ", expected a static number of blocks and of their bytes";
  BlockTraits traits = weights.traits();
  if (failed(verifyBlocks(op, weights, codes, traits)))
    return failure();
  if (failed(verifySameExtent(op, "number of rows", "codes", codes.getDimSize(0), "result", result.getDimSize(0))))
    return failure();
  int64_t most = codes.getDimSize(1) * traits.elements, least = most - (traits.hasScales ? traits.elements - 1 : 0);
  int64_t columns = result.getDimSize(1);
  if (columns < std::min<int64_t>(least, most) || columns > most)
    return op->emitOpError() << "result is " << result << ", expected " << most << " columns for "
                             << codes.getDimSize(1) << " blocks of " << traits.elements << " elements"
                             << (traits.hasScales ? ", or fewer in the last block" : "");
  if (weights.scales && failed(verifyOfBlocks(op, "scales", weights.scales, codes, codes.getDimSize(1))))
    return failure();
  int64_t perByte = weights.hasPackedZeros() && weights.format == BlockFormat::U4 ? 2 : 1;
  if (weights.zeros &&
      failed(verifyOfBlocks(op, "zeros", weights.zeros, codes, llvm::divideCeil(codes.getDimSize(1), perByte))))
    return failure();
  return success();
}

LogicalResult DequantizeOp::verify() {
  auto codes = cast<ShapedType>(getCodes().getType());
  if (ShapedType::isDynamic(codes.getDimSize(0)) || !cast<ShapedType>(getResult().getType()).hasStaticShape())
    return emitOpError() << "codes are " << codes << " and the result " << getResult().getType()
                         << ", expected static extents";
  return verifyWeights(*this, QuantizedWeights::of(*this), cast<ShapedType>(getResult().getType()));
}

LogicalResult LoadDequantizedOp::verify() {
  auto isMatrix = [](Value operand) { return !operand || cast<ShapedType>(operand.getType()).getRank() == 2; };
  auto tile = cast<ShapedType>(getTile().getType());
  if (cast<ShapedType>(getCodes().getType()).getRank() != 3 || !isMatrix(getScales()) || !isMatrix(getZeros()) ||
      !isMatrix(getTile()) || !isa<FloatType>(tile.getElementType()) || ShapedType::isDynamic(tile.getDimSize(1)))
    return emitOpError() << "codes are " << getCodes().getType() << " and the tile is " << tile
                         << ", expected blocks, and a matrix of floats with static columns";
  return verifyWeights(*this, QuantizedWeights::of(*this), tile);
}

LogicalResult FakeQuantizeOp::verify() {
  auto type = cast<RankedTensorType>(getSource().getType());
  int64_t columns = type.getRank() == 0 ? 0 : type.getShape().back();
  if (ShapedType::isDynamic(columns) || columns == 0 || columns % fakeQuantizedBlock != 0)
    return emitOpError() << "operand is " << type << ", expected a last dimension of whole blocks of "
                         << fakeQuantizedBlock << " elements";
  return success();
}

LogicalResult FakeQuantizeOp::reifyResultShapes(OpBuilder &builder, ReifiedRankedShapedTypeDims &shapes) {
  shapes.push_back(tensor::getMixedSizes(builder, getLoc(), getSource()));
  return success();
}

void LoadDequantizedOp::getEffects(SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  addBufferEffects(cast<DestinationStyleOpInterface>(getOperation()), effects);
}
