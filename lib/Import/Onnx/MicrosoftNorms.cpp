//===- MicrosoftNorms.cpp - Norms and activations of com.microsoft --------===//
//
// Operators that ONNX Runtime's optimizers write: norms of a sum, and activations of a sum. ONNX Runtime 1.31 adds and
// normalizes in f32 for 16-bit types, and rounds once.
//
//===----------------------------------------------------------------------===//
#include "Onnx.h"
#include "saccade/Import/Common/Functions.h"
#include "saccade/Import/Common/Gather.h"
#include "saccade/Import/Common/Reductions.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using frontend::Extents;

static LogicalResult requireFloats(FrontendOp &op, ValueRange tensors) {
  for (Value each : tensors)
    if (each && !isa<FloatType>(elementOf(each)))
      return op.error() << "found elements of " << elementOf(each) << ", expected floating point";
  return success();
}

/// The sum of `terms`, of which null ones are 0, in the type of sums of `element`.
static Value sumOf(FrontendOp &op, ArrayRef<Value> terms, Type element) {
  SmallVector<Value> given = llvm::to_vector(llvm::make_filter_range(terms, [](Value each) { return bool(each); }));
  Type type = frontend::getAccumulatorType(element);
  return frontend::elementwise(op.builder(), given, type, [&](OpBuilder &b, Location loc, ValueRange x) {
    Value sum = frontend::convert(b, loc, x[0], type);
    for (Value each : x.drop_front())
      sum = frontend::add(b, loc, sum, frontend::convert(b, loc, each, type));
    return sum;
  });
}

/// The norm over the last dimension of an unrounded `sum`; results of `element`, mean and 1 / √(variance + ε) of f32.
static frontend::Norm normOf(FrontendOp &op, Value sum, bool subtractsMean, Value scale, Value bias, Type element) {
  ImplicitLocOpBuilder &b = op.builder();
  Type type = elementOf(sum);
  auto wide = [&](Value x) { return x ? frontend::castElements(b, x, type) : x; };
  frontend::Norm norm = frontend::normalize(b, sum, {rankOf(sum) - 1}, subtractsMean, op.number("epsilon", 1e-12F),
                                            wide(scale), wide(bias));
  norm.result = frontend::castElements(b, norm.result, element);
  return norm;
}

/// `tensor` is a vector of the last dimension of `input`.
static LogicalResult requireVector(FrontendOp &op, Value tensor, Value input, StringRef role) {
  if (!tensor)
    return success();
  auto type = cast<RankedTensorType>(tensor.getType()), of = cast<RankedTensorType>(input.getType());
  int64_t found = type.getRank() == 1 ? type.getDimSize(0) : -1, expected = of.getShape().back();
  if (type.getRank() == 1 && (ShapedType::isDynamic(found) || ShapedType::isDynamic(expected) || found == expected))
    return success();
  return op.error() << role << " is " << type << ", expected one element for each of the last dimension of " << of;
}

/// SkipLayerNormalization(input, skip, gamma, beta, bias) and, without a mean and beta,
/// SkipSimplifiedLayerNormalization.
static LogicalResult translateSkipNorm(FrontendOp &op, Values &results) {
  bool subtractsMean = op.getName() == "microsoft.SkipLayerNormalization";
  if (failed(requireOperands(op, 3, subtractsMean ? 5 : 4)))
    return failure();
  Value input = op.operand(0), skip = op.operand(1), gamma = op.operand(2);
  Value beta = subtractsMean ? op.operand(3) : Value(), bias = op.operand(subtractsMean ? 4 : 3);
  int64_t rank = rankOf(input);
  if (failed(requireFloats(op, {input, skip, gamma, beta, bias})))
    return failure();
  if (rank < 2 || rankOf(skip) < 2 || rankOf(skip) > rank)
    return op.error() << "input is " << input.getType() << " and skip " << skip.getType()
                      << ", expected at least 2 dimensions and no more in skip";
  // Only the batch of `skip` broadcasts.
  auto own = cast<RankedTensorType>(skip.getType()).getShape(), to = cast<RankedTensorType>(input.getType()).getShape();
  for (auto [extent, expected] : llvm::zip(llvm::reverse(own.take_back(2)), llvm::reverse(to)))
    if (extent == 1 && expected != 1)
      return op.error() << "skip is " << skip.getType() << ", expected the last two dimensions of " << input.getType();
  if (failed(requireVector(op, gamma, input, "gamma")) || failed(requireVector(op, beta, input, "beta")) ||
      failed(requireVector(op, bias, input, "the bias")) || failed(requireBroadcast(op, {input, skip})))
    return failure();
  Type element = elementOf(input);
  Value sum = sumOf(op, {input, skip, bias}, element);
  frontend::Norm norm = normOf(op, sum, subtractsMean, gamma, beta, element);
  results.append({norm.result, subtractsMean ? norm.mean : Value(), norm.inverse,
                  op.isUsed(3) ? frontend::castElements(op.builder(), sum, element) : Value()});
  return success();
}

/// EmbedLayerNormalization(ids, segment ids, word, position and segment embeddings, gamma, beta, mask, position ids).
static LogicalResult translateEmbedNorm(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 9)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value ids = op.operand(0), segments = op.operand(1), segmentTable = op.operand(4), mask = op.operand(7);
  for (unsigned i : {2u, 3u, 5u, 6u})
    if (!op.operand(i))
      return op.error() << "input " << i << " is missing";
  if (bool(segments) != bool(segmentTable))
    return op.error() << "found only one of segment_ids and segment_embedding, expected both or none";
  if (rankOf(ids) != 2 || (mask && rankOf(mask) != 2))
    return op.error() << "input_ids is " << ids.getType()
                      << ", expected [batch, position], and a mask of the same shape";
  Value positions = op.operand(3), word = op.operand(2);
  for (Value table : {word, positions, segmentTable})
    if (table && (rankOf(table) != 2 || !isa<FloatType>(elementOf(table))))
      return op.error() << "an embedding is " << table.getType() << ", expected two dimensions of floating point";
  FailureOr<Value> found = frontend::gatherSlices(op, word, ids, 0);
  if (failed(found))
    return failure();
  SmallVector<Value> terms = {*found};
  if (Value given = op.operand(8)) {
    found = frontend::gatherSlices(op, positions, given, 0);
  } else {
    Type index = b.getI64Type();
    Extents extents = {frontend::extentsOf(b, ids)[1]};
    Value own = frontend::generate(b, extents, ValueRange(), index, [&](OpBuilder &nested, Location loc, ValueRange x) {
      return arith::IndexCastOp::create(nested, loc, index, x[0]).getResult();
    });
    found = frontend::gatherSlices(op, positions, own, 0);
  }
  if (failed(found))
    return failure();
  terms.push_back(*found);
  if (segments) {
    found = frontend::gatherSlices(op, segmentTable, segments, 0);
    if (failed(found))
      return failure();
    terms.push_back(*found);
  }
  Value gamma = op.operand(5), beta = op.operand(6);
  if (failed(requireBroadcast(op, terms)) || failed(requireVector(op, gamma, word, "gamma")) ||
      failed(requireVector(op, beta, word, "beta")) || failed(requireFloats(op, {gamma, beta})))
    return failure();
  Type element = elementOf(word);
  Value sum = sumOf(op, terms, element);
  (void)op.integer("mask_index_type", 0);
  results.push_back(normOf(op, sum, /*subtractsMean=*/true, gamma, beta, element).result);
  Type count = b.getI32Type();
  Value ones = frontend::elementwise(b, mask ? mask : ids, count, [&](OpBuilder &nested, Location loc, ValueRange x) {
    if (!mask)
      return frontend::makeNumber(nested, loc, count, 0);
    Value one = frontend::makeNumber(nested, loc, x[0].getType(), 1);
    Value isOne = frontend::compare(nested, loc, arith::CmpIPredicate::eq, x[0], one);
    return frontend::convert(nested, loc, isOne, count);
  });
  results.push_back(
      op.isUsed(1) ? frontend::reduceBy(b, {frontend::Reduction::Zero, frontend::add}, ones, {1}, /*keepDims=*/false)
                   : Value());
  results.push_back(op.isUsed(2) ? frontend::castElements(b, sum, element) : Value());
  return success();
}

//===- Activations --------------------------------------------------------===//

/// An activation of `x` + an optional bias.
static LogicalResult translateActivation(FrontendOp &op, Values &results) {
  StringRef name = op.getName();
  bool needsBias = name == "microsoft.BiasGelu", takesBias = needsBias || name == "microsoft.FastGelu";
  if (failed(requireOperands(op, needsBias ? 2 : 1, takesBias ? 2 : 1)))
    return failure();
  Value input = op.operand(0), bias = op.operand(1);
  Type element = elementOf(input), type = frontend::getAccumulatorType(element);
  if (failed(requireFloats(op, {input, bias})) || failed(requireVector(op, bias, input, "the bias")))
    return failure();
  bool isSwish = name == "microsoft.QuickGelu";
  double alpha = isSwish ? op.number("alpha", 1.702F) : 0;
  SmallVector<Value> inputs = {input};
  if (bias)
    inputs.push_back(bias);
  results.push_back(frontend::elementwise(op.builder(), inputs, element, [&](OpBuilder &b, Location loc, ValueRange x) {
    Value y = frontend::convert(b, loc, x[0], type);
    if (bias)
      y = frontend::add(b, loc, y, frontend::convert(b, loc, x[1], type));
    y = isSwish ? frontend::swish(b, loc, y, alpha)
                : frontend::gelu(b, loc, y, /*byTanh=*/name == "microsoft.FastGelu");
    return frontend::convert(b, loc, y, element);
  }));
  return success();
}

void onnx::addMicrosoftNorms(frontend::Frontend &frontend) {
  for (StringRef name : {"BiasGelu", "FastGelu", "Gelu", "QuickGelu"})
    frontend.translators[("microsoft." + name).str()] = translateActivation;
  for (StringRef name : {"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"})
    frontend.translators[("microsoft." + name).str()] = translateSkipNorm;
  frontend.translators["microsoft.EmbedLayerNormalization"] = translateEmbedNorm;
}
