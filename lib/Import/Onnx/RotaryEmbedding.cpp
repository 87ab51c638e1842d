//===- RotaryEmbedding.cpp - ONNX's RotaryEmbedding, version 23 ---------------===//
#include "AttentionOperands.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using attn::Dim;
using door::Extents;

/// Elements first, first + step, ... of the last dimension.
static Value partOf(ImplicitLocOpBuilder &b, Value tensor, int64_t first, int64_t count, int64_t step = 1) {
  Extents sizes = door::extentsOf(b, tensor);
  SmallVector<OpFoldResult> offsets(sizes.size(), b.getIndexAttr(0));
  SmallVector<int64_t> steps(sizes.size(), 1);
  offsets.back() = b.getIndexAttr(first);
  sizes.back() = b.getIndexAttr(count);
  steps.back() = step;
  return door::slice(b, tensor, offsets, sizes, steps);
}

/// The cache of cosines or sines for each position, with a dimension of heads that broadcasts.
static FailureOr<Value> readCache(DoorOp &op, unsigned input, int64_t half, bool headsFirst, StringRef role) {
  ImplicitLocOpBuilder &b = op.builder();
  Value cache = op.operand(input), positions = op.operand(3);
  int64_t rank = positions ? 2 : 3;
  auto type = cast<RankedTensorType>(cache.getType());
  if (type.getRank() != rank || !isa<FloatType>(type.getElementType()))
    return op.error() << role << " is " << type << ", wanted " << rank << " dimensions";
  if (!type.isDynamicDim(rank - 1) && type.getDimSize(rank - 1) != half)
    return op.error() << role << " is " << type << ", wanted a last dimension of " << half;
  if (positions) {
    if (rankOf(positions) != 2 || !isa<IntegerType>(elementOf(positions)))
      return op.error() << "position_ids is " << positions.getType() << ", wanted [batch, position] of integers";
    cache = door::gather(b, cache, positions, 0);
  }
  return door::unsqueeze(b, cache, {headsFirst ? 1 : 2});
}

static LogicalResult translateRotaryEmbedding(DoorOp &op, Values &results) {
  if (failed(requireOperands(op, 3, 4)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  FailureOr<Headed> input = cutIntoHeads(op, op.operand(0), op.integer("num_heads", 0), "the input");
  if (failed(input))
    return failure();
  std::optional<int64_t> depth = getConstantIntValue(input->extent(Dim::Depth));
  int64_t given = op.integer("rotary_embedding_dim", 0), turned = given ? given : depth.value_or(0);
  if (!depth || turned <= 0 || turned > *depth || turned % 2)
    return op.error() << "found " << turned
                      << " of a head's numbers to turn, wanted an even number up to the head size";
  int64_t half = turned / 2;
  bool headsFirst = input->dims == onnx::headsFirst(b.getContext()), interleaved = op.integer("interleaved", 0) != 0;
  FailureOr<Value> cosines = readCache(op, 1, half, headsFirst, "cos_cache");
  FailureOr<Value> sines = readCache(op, 2, half, headsFirst, "sin_cache");
  if (failed(cosines) || failed(sines))
    return failure();

  Value x = partOf(b, input->tensor, 0, half, interleaved ? 2 : 1);
  Value y = partOf(b, input->tensor, interleaved ? 1 : half, half, interleaved ? 2 : 1);
  SmallVector<Value> inputs = {x, y, *cosines, *sines};
  if (failed(requireBroadcast(op, inputs)))
    return failure();
  Type element = elementOf(input->tensor);
  Type type = element.isF64() ? element : b.getF32Type();
  auto turn = [&](bool isSecond) {
    return door::elementwise(b, inputs, element, [&](OpBuilder &nested, Location loc, ValueRange in) {
      auto wide = llvm::map_to_vector(in, [&](Value each) { return door::convert(nested, loc, each, type); });
      Value own = door::mul(nested, loc, wide[2], wide[isSecond ? 1 : 0]);
      Value other = door::mul(nested, loc, wide[3], wide[isSecond ? 0 : 1]);
      Value sum = isSecond ? door::add(nested, loc, own, other) : door::sub(nested, loc, own, other);
      return door::convert(nested, loc, sum, element);
    });
  };
  Value first = turn(false), second = turn(true), output;
  if (interleaved) {
    Value pairs = door::concat(b, {door::unsqueeze(b, first, {4}), door::unsqueeze(b, second, {4})}, 4);
    Extents extents = input->extents;
    extents.back() = b.getIndexAttr(turned);
    output = door::reshape(b, pairs, extents);
    if (turned < *depth)
      output = door::concat(b, {output, partOf(b, input->tensor, turned, *depth - turned)}, 3);
  } else {
    SmallVector<Value> parts = {first, second};
    if (turned < *depth)
      parts.push_back(partOf(b, input->tensor, turned, *depth - turned));
    output = door::concat(b, parts, 3);
  }
  results.push_back(headsFirst ? output : door::reshape(b, output, door::extentsOf(b, op.operand(0))));
  return success();
}

void onnx::addRotaryEmbedding(door::Door &door) { door.translators["RotaryEmbedding"] = translateRotaryEmbedding; }
