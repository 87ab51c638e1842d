//===- RotaryEmbedding.cpp - ONNX RotaryEmbedding -------------------------===//
//
// That of operator set 23, and that of com.microsoft, whose positions are numbers of rows of both tables.
//
//===----------------------------------------------------------------------===//
#include "AttentionOperands.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using attn::Dim;
using frontend::Extents;
using frontend::sliceLastDim;

/// The cos or sin values for each position, with a head dimension of extent 1.
static FailureOr<Value> readCache(FrontendOp &op, unsigned input, int64_t half, bool isBHSD, StringRef role) {
  ImplicitLocOpBuilder &b = op.builder();
  Value cache = op.operand(input), positions = op.operand(3);
  int64_t rank = positions ? 2 : 3;
  auto type = cast<RankedTensorType>(cache.getType());
  if (type.getRank() != rank || !isa<FloatType>(type.getElementType()))
    return op.error() << role << " is " << type << ", expected " << rank << " dimensions";
  if (!type.isDynamicDim(rank - 1) && type.getDimSize(rank - 1) != half)
    return op.error() << role << " is " << type << ", expected a last dimension of " << half;
  if (positions) {
    if (rankOf(positions) != 2 || !isa<IntegerType>(elementOf(positions)))
      return op.error() << "position_ids is " << positions.getType() << ", expected [batch, position] of integers";
    cache = frontend::gather(b, cache, positions, 0);
  }
  return frontend::unsqueeze(b, cache, {isBHSD ? 1 : 2});
}

Value onnx::rotateHeads(ImplicitLocOpBuilder &b, const AttentionOperand &input, Value cosines, Value sines,
                        int64_t half, bool isInterleaved) {
  int64_t rotated = 2 * half, depth = *getConstantIntValue(input.extent(Dim::Depth));
  Value x = sliceLastDim(b, input.tensor, 0, half, isInterleaved ? 2 : 1);
  Value y = sliceLastDim(b, input.tensor, isInterleaved ? 1 : half, half, isInterleaved ? 2 : 1);
  SmallVector<Value> inputs = {x, y, cosines, sines};
  Type element = elementOf(input.tensor);
  Type type = element.isF64() ? element : b.getF32Type();
  auto rotate = [&](bool isSecond) {
    return frontend::elementwise(b, inputs, element, [&](OpBuilder &nested, Location loc, ValueRange in) {
      auto wide = llvm::map_to_vector(in, [&](Value each) { return frontend::convert(nested, loc, each, type); });
      Value own = frontend::mul(nested, loc, wide[2], wide[isSecond ? 1 : 0]);
      Value other = frontend::mul(nested, loc, wide[3], wide[isSecond ? 0 : 1]);
      Value sum = isSecond ? frontend::add(nested, loc, own, other) : frontend::sub(nested, loc, own, other);
      return frontend::convert(nested, loc, sum, element);
    });
  };
  Value first = rotate(false), second = rotate(true), output;
  if (isInterleaved) {
    Value pairs = frontend::concat(b, {frontend::unsqueeze(b, first, {4}), frontend::unsqueeze(b, second, {4})}, 4);
    Extents extents = input.extents;
    extents.back() = b.getIndexAttr(rotated);
    output = frontend::reshape(b, pairs, extents);
    if (rotated < depth)
      output = frontend::concat(b, {output, sliceLastDim(b, input.tensor, rotated, depth - rotated)}, 3);
  } else {
    SmallVector<Value> parts = {first, second};
    if (rotated < depth)
      parts.push_back(sliceLastDim(b, input.tensor, rotated, depth - rotated));
    output = frontend::concat(b, parts, 3);
  }
  return output;
}

static LogicalResult translateRotaryEmbedding(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 3, 4)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  FailureOr<AttentionOperand> input = splitHeads(op, op.operand(0), op.integer("num_heads", 0), "the input");
  if (failed(input))
    return failure();
  std::optional<int64_t> depth = getConstantIntValue(input->extent(Dim::Depth));
  int64_t given = op.integer("rotary_embedding_dim", 0), rotated = given ? given : depth.value_or(0);
  if (!depth || rotated <= 0 || rotated > *depth || rotated % 2)
    return op.error() << "found rotary_embedding_dim " << rotated
                      << ", expected an even number of at most the head size";
  int64_t half = rotated / 2;
  bool isBHSD = input->dims == onnx::bhsdDims(b.getContext()), interleaved = op.integer("interleaved", 0) != 0;
  FailureOr<Value> cosines = readCache(op, 1, half, isBHSD, "cos_cache");
  FailureOr<Value> sines = readCache(op, 2, half, isBHSD, "sin_cache");
  if (failed(cosines) || failed(sines))
    return failure();

  if (failed(requireBroadcast(op, {sliceLastDim(b, input->tensor, 0, half), *cosines, *sines})))
    return failure();
  Value output = rotateHeads(b, *input, *cosines, *sines, half, interleaved);
  results.push_back(isBHSD ? output : frontend::reshape(b, output, frontend::extentsOf(b, op.operand(0))));
  return success();
}

//===- com.microsoft ------------------------------------------------------===//

/// The rows of `table` at the positions: one number that is added to each position, or [batch, position].
static Value rowsAt(ImplicitLocOpBuilder &b, Value table, Value positions, OpFoldResult length, bool isBHSD) {
  if (rankOf(positions) == 1) {
    Value first = positions;
    Type type = elementOf(first);
    Extents extents = {b.getIndexAttr(1), length};
    positions = frontend::generate(b, extents, ValueRange(), type, [&](OpBuilder &nested, Location loc, ValueRange x) {
      Value given = tensor::ExtractOp::create(nested, loc, first, ValueRange{x[0]});
      return frontend::add(nested, loc, given, arith::IndexCastOp::create(nested, loc, type, x[1]));
    });
  }
  return frontend::unsqueeze(b, frontend::gather(b, table, positions, 0), {isBHSD ? 1 : 2});
}

/// RotaryEmbedding(x, position_ids, cos_cache, sin_cache).
static LogicalResult translateOfMicrosoft(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 4, 4)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value x = op.operand(0), positions = op.operand(1), cosines = op.operand(2), sines = op.operand(3);
  auto table = cast<RankedTensorType>(cosines.getType());
  if (table.getRank() != 2 || table.isDynamicDim(1) || table.getDimSize(1) == 0 ||
      !isa<FloatType>(table.getElementType()) || sines.getType() != table)
    return op.error() << "cos_cache is " << table << " and sin_cache " << sines.getType()
                      << ", expected equal tables [positions, columns] of floating point";
  auto given = cast<RankedTensorType>(positions.getType());
  bool isOffset = given.getRank() == 1 && given.getDimSize(0) == 1;
  if ((!isOffset && given.getRank() != 2) || !isa<IntegerType>(given.getElementType()))
    return op.error() << "position_ids is " << given << ", expected [1] or [batch, position] of integers";
  int64_t half = table.getDimSize(1), heads = op.integer("num_heads", 0),
          rotated = op.integer("rotary_embedding_dim", 0);
  (void)op.number("scale", 1); // not read on a CPU
  (void)op.integer("is_packed_batching", 0);
  int64_t width = cast<ShapedType>(x.getType()).getShape().back();
  if (rankOf(x) == 3 && heads == 0 && !ShapedType::isDynamic(width))
    heads = width / (2 * half);
  FailureOr<AttentionOperand> input = splitHeads(op, x, heads, "the input");
  if (failed(input))
    return failure();
  std::optional<int64_t> depth = getConstantIntValue(input->extent(Dim::Depth));
  if (!depth || (rotated ? rotated : *depth) != 2 * half || 2 * half > *depth)
    return op.error() << "found rotary_embedding_dim " << rotated << " and tables of " << half
                      << " columns, expected half of what is rotated of each head";
  bool isBHSD = rankOf(x) == 4;
  Value rows = rowsAt(b, cosines, positions, input->extent(Dim::Seq), isBHSD);
  if (failed(requireBroadcast(op, {sliceLastDim(b, input->tensor, 0, half), rows})))
    return failure();
  Value output = rotateHeads(b, *input, rows, rowsAt(b, sines, positions, input->extent(Dim::Seq), isBHSD), half,
                             op.integer("interleaved", 0) != 0);
  results.push_back(isBHSD ? output : joinHeads(b, output));
  return success();
}

void onnx::addRotaryEmbedding(frontend::Frontend &frontend) {
  frontend.translators["microsoft.RotaryEmbedding"] = translateOfMicrosoft;
  frontend.translators["RotaryEmbedding"] = translateRotaryEmbedding;
}
