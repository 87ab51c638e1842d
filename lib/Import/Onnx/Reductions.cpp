//===- Reductions.cpp - ONNX reductions, softmax and norms ----------------===//
#include "saccade/Import/Common/Reductions.h"
#include "Onnx.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "saccade/Import/Common/Functions.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using frontend::Extents;
using frontend::Reduction;

static Value exponential(OpBuilder &b, Location loc, Value x) { return b.createOrFold<math::ExpOp>(loc, x); }
static Value logarithm(OpBuilder &b, Location loc, Value x) { return b.createOrFold<math::LogOp>(loc, x); }
static Value squareRoot(OpBuilder &b, Location loc, Value x) { return b.createOrFold<math::SqrtOp>(loc, x); }

static const llvm::StringMap<Reduction> &getTable() {
  static const llvm::StringMap<Reduction> table = {
      {"ReduceL1", {Reduction::Zero, frontend::add, frontend::absolute}},
      {"ReduceL2", {Reduction::Zero, frontend::add, frontend::square, squareRoot}},
      {"ReduceLogSum", {Reduction::Zero, frontend::add, nullptr, logarithm}},
      {"ReduceLogSumExp", {Reduction::Zero, frontend::add, exponential, logarithm}},
      {"ReduceMax", {Reduction::Lowest, frontend::maximum}},
      {"ReduceMean", {Reduction::Zero, frontend::add, nullptr, nullptr, /*isMean=*/true}},
      {"ReduceMin", {Reduction::Highest, frontend::minimum}},
      {"ReduceProd", {Reduction::One, frontend::mul}},
      {"ReduceSum", {Reduction::Zero, frontend::add}},
      {"ReduceSumSquare", {Reduction::Zero, frontend::add, frontend::square}},
  };
  return table;
}

static LogicalResult translateReduction(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 2)))
    return failure();
  const Reduction &reduction = getTable().find(op.getName())->second;
  Value tensor = op.operand(0);
  int64_t rank = rankOf(tensor);
  Type element = elementOf(tensor);
  if (!isa<FloatType>(element) && reduction.after)
    return op.error() << "found elements of " << element << ", expected floating point";
  if (element.isInteger(1) && reduction.start < Reduction::Lowest)
    return op.error() << "found elements of bool, expected numbers";
  auto given = integersOf(op, 1, "axes");
  if (failed(given))
    return failure();
  SmallVector<int64_t> axes = given->value_or(SmallVector<int64_t>());
  // Without axes all dimensions are reduced, or none: then ReduceLogSum is still a logarithm, for example.
  if (axes.empty() && !op.integer("noop_with_empty_axes", 0))
    axes = llvm::to_vector(llvm::seq<int64_t>(0, rank));
  FailureOr<SmallVector<int64_t>> dims = resolveAxes(op, axes, rank);
  if (failed(dims))
    return failure();
  if (dims->empty() && !reduction.before && !reduction.after) {
    results.push_back(tensor);
    return success();
  }
  bool keepDims = op.integer("keepdims", 1) != 0;
  results.push_back(op.getName() == "ReduceLogSumExp"
                        ? frontend::logSumExp(op.builder(), tensor, *dims, keepDims)
                        : frontend::reduceBy(op.builder(), reduction, tensor, *dims, keepDims));
  return success();
}

static LogicalResult translateSoftmax(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 1)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value tensor = op.operand(0);
  bool isOld = opsetOf(op) < 13;
  if (!isa<FloatType>(elementOf(tensor)))
    return op.error() << "found elements of " << elementOf(tensor) << ", expected floating point";
  FailureOr<int64_t> axis = resolveAxis(op, op.integer("axis", isOld ? 1 : -1), rankOf(tensor));
  if (failed(axis))
    return failure();
  if (!isOld || *axis == rankOf(tensor) - 1) {
    results.push_back(frontend::softmax(b, tensor, *axis));
    return success();
  }
  // Before opset 13, softmax flattened all dimensions from the axis on.
  Extents extents = frontend::extentsOf(b, tensor), joined(ArrayRef(extents).take_front(*axis));
  joined.push_back(frontend::multiplyExtents(b, ArrayRef(extents).drop_front(*axis)));
  results.push_back(frontend::reshape(b, frontend::softmax(b, frontend::reshape(b, tensor, joined), *axis), extents));
  return success();
}

static LogicalResult translateLogSoftmax(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 1)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value tensor = op.operand(0);
  Type element = elementOf(tensor);
  if (!isa<FloatType>(element) || opsetOf(op) < 13)
    return op.error() << "found elements of " << element << " in version " << opsetOf(op)
                      << ", expected floating point in version 13 or later";
  FailureOr<int64_t> axis = resolveAxis(op, op.integer("axis", -1), rankOf(tensor));
  if (failed(axis))
    return failure();
  results.push_back(frontend::logSoftmax(b, tensor, *axis));
  return success();
}

static LogicalResult translateCumSum(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 2, 2)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value tensor = op.operand(0);
  std::optional<SmallVector<int64_t>> given = frontend::constantIntegers(op.operand(1));
  if (!given || given->size() != 1 || elementOf(tensor).isInteger(1))
    return op.error() << "expected a constant axis and numeric elements";
  FailureOr<int64_t> axis = resolveAxis(op, given->front(), rankOf(tensor));
  if (failed(axis))
    return failure();
  bool isExclusive = op.integer("exclusive", 0) != 0, isReversed = op.integer("reverse", 0) != 0;
  results.push_back(frontend::cumulativeSum(b, tensor, *axis, isExclusive, isReversed));
  return success();
}

//===- Norms --------------------------------------------------------------===//

/// LayerNormalization and RMSNormalization over the dimensions from `axis` on; see `frontend::normalize`. The optional
/// further results are the mean and 1 / √(variance + ε).
static LogicalResult translateNorm(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 2, 3)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value tensor = op.operand(0), scale = op.operand(1), bias = op.operand(2);
  bool subtractsMean = op.getName() == "LayerNormalization";
  Type element = elementOf(tensor);
  if (!isa<FloatType>(element))
    return op.error() << "found elements of " << element << ", expected floating point";
  FailureOr<int64_t> axis = resolveAxis(op, op.integer("axis", -1), rankOf(tensor));
  if (failed(axis) || failed(requireBroadcast(op, op.operands())))
    return failure();
  // Scale and bias must broadcast to the input, not vice versa.
  for (Value factor : {scale, bias}) {
    if (!factor)
      continue;
    auto from = cast<RankedTensorType>(factor.getType()).getShape(),
         to = cast<RankedTensorType>(tensor.getType()).getShape();
    bool isLarger = from.size() > to.size();
    for (auto [extent, expected] : llvm::zip(llvm::reverse(from), llvm::reverse(to)))
      isLarger |= expected == 1 && extent != 1;
    if (isLarger)
      return op.error() << "found a scale or bias of " << factor.getType() << ", expected one that broadcasts to "
                        << tensor.getType();
  }
  SmallVector<int64_t> dims = llvm::to_vector(llvm::seq<int64_t>(*axis, rankOf(tensor)));
  frontend::Norm norm = frontend::normalize(b, tensor, dims, subtractsMean, op.number("epsilon", 1e-5F), scale, bias);
  results.append({norm.result, norm.mean, norm.inverse});
  return success();
}

/// BatchNormalization in inference.
static LogicalResult translateBatchNorm(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 5, 5)))
    return failure();
  if (op.integer("training_mode", 0) != 0)
    return op.error() << "'training_mode' is 1, expected 0";
  if (op.integer("spatial", 1) != 1) // of version 7: statistics for each element of a channel
    return op.error() << "'spatial' is 0, expected 1";
  (void)op.number("momentum", 0); // of training
  return append(frontend::normalizeChannels(op, op.operand(0), op.operand(3), op.operand(4),
                                            op.number("epsilon", 1e-5F), op.operand(1), op.operand(2)),
                results);
}

void onnx::addReductions(frontend::Frontend &frontend) {
  for (const auto &entry : getTable())
    frontend.translators[entry.getKey()] = translateReduction;
  frontend.translators["BatchNormalization"] = translateBatchNorm;
  frontend.translators["LayerNormalization"] = translateNorm;
  frontend.translators["RMSNormalization"] = frontend.translators["SimplifiedLayerNormalization"] = translateNorm;
  frontend.translators["CumSum"] = translateCumSum;
  frontend.translators["LogSoftmax"] = translateLogSoftmax;
  frontend.translators["Softmax"] = translateSoftmax;
}
