//===- RotaryEmbedding.cpp - ONNX RotaryEmbedding, opset 23 ---------------===//
#include "AttentionOperands.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using attn::Dim;
using frontend::Extents;

/// Elements first, first + step, … of the last dimension.
static Value sliceLastDim(ImplicitLocOpBuilder &b, Value tensor, int64_t first, int64_t count, int64_t step = 1) {
  Extents sizes = frontend::extentsOf(b, tensor);
  SmallVector<OpFoldResult> offsets(sizes.size(), b.getIndexAttr(0));
  SmallVector<int64_t> steps(sizes.size(), 1);
  offsets.back() = b.getIndexAttr(first);
  sizes.back() = b.getIndexAttr(count);
  steps.back() = step;
  return frontend::slice(b, tensor, offsets, sizes, steps);
}

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

  Value x = sliceLastDim(b, input->tensor, 0, half, interleaved ? 2 : 1);
  Value y = sliceLastDim(b, input->tensor, interleaved ? 1 : half, half, interleaved ? 2 : 1);
  SmallVector<Value> inputs = {x, y, *cosines, *sines};
  if (failed(requireBroadcast(op, inputs)))
    return failure();
  Type element = elementOf(input->tensor);
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
  if (interleaved) {
    Value pairs = frontend::concat(b, {frontend::unsqueeze(b, first, {4}), frontend::unsqueeze(b, second, {4})}, 4);
    Extents extents = input->extents;
    extents.back() = b.getIndexAttr(rotated);
    output = frontend::reshape(b, pairs, extents);
    if (rotated < *depth)
      output = frontend::concat(b, {output, sliceLastDim(b, input->tensor, rotated, *depth - rotated)}, 3);
  } else {
    SmallVector<Value> parts = {first, second};
    if (rotated < *depth)
      parts.push_back(sliceLastDim(b, input->tensor, rotated, *depth - rotated));
    output = frontend::concat(b, parts, 3);
  }
  results.push_back(isBHSD ? output : frontend::reshape(b, output, frontend::extentsOf(b, op.operand(0))));
  return success();
}

void onnx::addRotaryEmbedding(frontend::Frontend &frontend) {
  frontend.translators["RotaryEmbedding"] = translateRotaryEmbedding;
}
