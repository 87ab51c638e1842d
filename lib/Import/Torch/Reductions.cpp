//===- Reductions.cpp - PyTorch reductions, softmax and norms -------------===//
#include "saccade/Import/Common/Reductions.h"
#include "Torch.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "saccade/Import/Common/Functions.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::torch;
using frontend::Reduction;

static Value squareRoot(OpBuilder &b, Location loc, Value x) { return b.createOrFold<math::SqrtOp>(loc, x); }

static const llvm::StringMap<Reduction> &getTable() {
  static const llvm::StringMap<Reduction> table = {
      {"aten.all", {Reduction::Highest, frontend::minimum}},
      {"aten.amax", {Reduction::Lowest, frontend::maximum}},
      {"aten.amin", {Reduction::Highest, frontend::minimum}},
      {"aten.any", {Reduction::Lowest, frontend::maximum}},
      {"aten.linalg_vector_norm", {Reduction::Zero, frontend::add, frontend::square, squareRoot}},
      {"aten.max", {Reduction::Lowest, frontend::maximum}},
      {"aten.mean", {Reduction::Zero, frontend::add, nullptr, nullptr, /*isMean=*/true}},
      {"aten.min", {Reduction::Highest, frontend::minimum}},
      {"aten.prod", {Reduction::One, frontend::mul}},
      {"aten.sum", {Reduction::Zero, frontend::add}},
  };
  return table;
}

static LogicalResult requireReal(Arguments &a, Type element) {
  return isa<FloatType>(element) ? success()
                                 : a.op.error() << "found elements of " << element << ", expected floating point";
}

/// The first position along `axis` that has the extreme value.
static Value positionOf(ImplicitLocOpBuilder &b, Value tensor, Value extreme, int64_t axis, bool keepDims) {
  Type type = b.getI64Type();
  Value none = arith::ConstantOp::create(b, frontend::extremeAttr(type, /*largest=*/true));
  Value positions = frontend::generate(
      b, frontend::extentsOf(b, tensor), {tensor, extreme}, type, [&](OpBuilder &nested, Location loc, ValueRange x) {
        Value is = frontend::compare(nested, loc, arith::CmpIPredicate::eq, x[x.size() - 2], x.back());
        // NaN is unequal to itself but counts as the extreme.
        if (isa<FloatType>(x.back().getType()))
          is = nested.createOrFold<arith::OrIOp>(loc, is, frontend::isNaN(nested, loc, x[x.size() - 2]));
        Value at = frontend::convert(nested, loc, x[axis], type);
        return frontend::select(nested, loc, is, at, none);
      });
  return frontend::reduceBy(b, {Reduction::Highest, frontend::minimum}, positions, axis, keepDims);
}

/// max and min along one dimension also return positions; argmax and argmin return positions only.
static LogicalResult translateExtreme(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  StringRef name = a.op.getName();
  bool isLargest = name.contains("max"), onlyPosition = name.contains("arg"), keepDims = a.flag("keepdim");
  int64_t rank = rankOf(*tensor);
  bool isWhole = onlyPosition && !a.attribute("dim");
  // A single number has one dimension here.
  if (isWhole || rank == 0)
    tensor = frontend::reshape(b, *tensor, {frontend::multiplyExtents(b, frontend::extentsOf(b, *tensor))});
  FailureOr<int64_t> axis = a.axis("dim", 0, rankOf(*tensor));
  if (failed(axis))
    return failure();
  Reduction reduction{isLargest ? Reduction::Lowest : Reduction::Highest,
                      isLargest ? frontend::maximum : frontend::minimum};
  Value kept = frontend::reduceBy(b, reduction, *tensor, *axis, /*keepDims=*/true);
  Extents ones(rank, b.getIndexAttr(1));
  auto shaped = [&](Value result) {
    return rank == 0 || (isWhole && keepDims) ? frontend::reshape(b, result, ones) : result;
  };
  if (!onlyPosition)
    results.push_back(shaped(keepDims ? kept : frontend::squeeze(b, kept, *axis)));
  bool needsPosition = onlyPosition || a.op.isUsed(1);
  results.push_back(needsPosition ? shaped(positionOf(b, *tensor, kept, *axis, keepDims)) : Value());
  return success();
}

static LogicalResult translateReduction(Arguments &a, Values &results) {
  StringRef name = a.op.getName();
  bool isExtreme = name == "aten.max" || name == "aten.min";
  if (isExtreme && a.has("other"))
    return append(extremeOf(a, name == "aten.max"), results);
  if (isExtreme && a.attribute("dim"))
    return translateExtreme(a, results);
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  Reduction reduction = getTable().find(name)->second;
  FailureOr<SmallVector<int64_t>> dims = a.axes("dim", rankOf(*tensor));
  if (failed(dims))
    return failure();
  Type element = elementOf(*tensor), type = element;
  if (name == "aten.all" || name == "aten.any") {
    type = b.getI1Type();
    // An empty list of dimensions reduces nothing for all and any, but everything for other ops.
    if (auto given = a.integers("dim"); given && given->empty())
      dims->clear();
  }
  if (isa<IntegerType>(element) && (name == "aten.sum" || name == "aten.prod"))
    type = b.getI64Type();
  type = a.type("dtype", type);
  // The sum of bool is whether any is true.
  if (name == "aten.sum" && type.isInteger(1))
    reduction = {Reduction::Lowest, frontend::maximum};
  if (dims->empty() && rankOf(*tensor) > 0) {
    (void)a.flag("keepdim");
    results.push_back(frontend::castElements(b, *tensor, type));
    return success();
  }
  if ((reduction.isMean || reduction.after) && failed(requireReal(a, type)))
    return failure();
  if (name == "aten.linalg_vector_norm" && a.number("ord", 2) != 2)
    return a.op.error() << "found a norm of order " << a.number("ord", 2) << ", expected 2";
  Value converted = frontend::castElements(b, *tensor, type);
  results.push_back(frontend::reduceBy(b, reduction, converted, *dims, a.flag("keepdim")));
  return success();
}

static LogicalResult translateVariance(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor) || failed(requireReal(a, elementOf(*tensor))))
    return failure();
  FailureOr<SmallVector<int64_t>> dims = a.axes("dim", rankOf(*tensor));
  if (failed(dims))
    return failure();
  bool isUnbiased = !a.attribute("unbiased") || a.flag("unbiased");
  double correction = a.number("correction", isUnbiased ? 1 : 0);
  ImplicitLocOpBuilder &b = a.op.builder();
  Value result = frontend::variance(b, *tensor, *dims, a.flag("keepdim"), correction);
  StringRef name = a.op.getName();
  if (name.starts_with("aten.std"))
    result = frontend::elementwise(b, result, elementOf(result), [](OpBuilder &nested, Location loc, ValueRange x) {
      return squareRoot(nested, loc, x[0]);
    });
  results.push_back(result);
  if (name.ends_with("_mean"))
    results.push_back(frontend::reduceBy(b, getTable().find("aten.mean")->second, *tensor, *dims, a.flag("keepdim")));
  return success();
}

static LogicalResult translateLogSumExp(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor) || failed(requireReal(a, elementOf(*tensor))))
    return failure();
  FailureOr<SmallVector<int64_t>> dims = a.axes("dim", rankOf(*tensor));
  if (failed(dims))
    return failure();
  results.push_back(frontend::logSumExp(a.op.builder(), *tensor, *dims, a.flag("keepdim")));
  return success();
}

static LogicalResult translateCumulativeSum(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  Type element = elementOf(*tensor);
  Type type = a.type("dtype", isa<IntegerType>(element) ? Type(b.getI64Type()) : element);
  FailureOr<int64_t> axis = a.axis("dim", 0, std::max<int64_t>(rankOf(*tensor), 1));
  if (failed(axis))
    return failure();
  Value converted = frontend::castElements(b, *tensor, type);
  results.push_back(rankOf(converted) == 0 ? converted
                                           : frontend::cumulativeSum(b, converted, *axis, /*isExclusive=*/false,
                                                                     /*isReversed=*/false));
  return success();
}

//===- Softmax ------------------------------------------------------------===//

static LogicalResult translateSoftmax(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  Type type = a.type("dtype", a.flag("half_to_float") ? Type(b.getF32Type()) : elementOf(*tensor));
  int64_t rank = rankOf(*tensor);
  FailureOr<int64_t> axis = a.axis("dim", -1, std::max<int64_t>(rank, 1));
  if (failed(axis) || failed(requireReal(a, type)))
    return failure();
  Value converted = frontend::castElements(b, *tensor, type);
  // A single number has one dimension here.
  if (rank == 0)
    converted = frontend::reshape(b, converted, {b.getIndexAttr(1)});
  auto shaped = [&](Value result) { return rank == 0 ? frontend::reshape(b, result, {}) : result; };
  if (a.op.getName().contains("log_softmax")) {
    results.push_back(shaped(frontend::logSoftmax(b, converted, *axis)));
    return success();
  }
  Value weights = shaped(frontend::softmax(b, converted, *axis));
  // _safe_softmax gives 0 for fully masked rows.
  if (a.op.getName() == "aten._safe_softmax")
    weights = frontend::elementwise(b, weights, type, [](OpBuilder &nested, Location loc, ValueRange x) {
      return frontend::zeroForNaN(nested, loc, x[0]);
    });
  results.push_back(weights);
  return success();
}

//===- Norms --------------------------------------------------------------===//

/// The dimensions given by `normalized_shape`, which must match the last dimensions of the tensor and the shapes of
/// weight and bias.
static FailureOr<SmallVector<int64_t>> normalizedDims(Arguments &a, Value tensor) {
  auto shape = a.integers("normalized_shape");
  auto type = cast<RankedTensorType>(tensor.getType());
  if (!shape || shape->empty() || static_cast<int64_t>(shape->size()) > type.getRank())
    return a.op.error() << "'normalized_shape' must be constant and have at most as many dimensions as " << type;
  int64_t first = type.getRank() - shape->size();
  for (auto [found, expected] : llvm::zip(type.getShape().drop_front(first), *shape))
    if (failed(frontend::requireEqual(a.op, found, expected, "a normalized extent")))
      return failure();
  for (StringRef name : {"weight", "bias"})
    if (Value factor = a.tensor(name);
        factor && cast<RankedTensorType>(factor.getType()).getShape() != ArrayRef<int64_t>(*shape))
      return a.op.error() << "'" << name << "' is " << factor.getType()
                          << ", expected the extents of 'normalized_shape'";
  return llvm::to_vector(llvm::seq<int64_t>(first, type.getRank()));
}

static LogicalResult translateNorm(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("input");
  if (failed(tensor) || failed(requireReal(a, elementOf(*tensor))))
    return failure();
  FailureOr<SmallVector<int64_t>> dims = normalizedDims(a, *tensor);
  if (failed(dims))
    return failure();
  bool subtractsMean = a.op.getName() != "aten.rms_norm";
  // The default ε of rms_norm is the machine epsilon of the accumulator type.
  double epsilon = 1e-5;
  if (!subtractsMean) {
    auto type = cast<FloatType>(frontend::getAccumulatorType(elementOf(*tensor)));
    epsilon = std::ldexp(1.0, 1 - static_cast<int>(APFloat::semanticsPrecision(type.getFloatSemantics())));
  }
  frontend::Norm norm = frontend::normalize(a.op.builder(), *tensor, *dims, subtractsMean, a.number("eps", epsilon),
                                            a.tensor("weight"), a.tensor("bias"));
  results.push_back(norm.result);
  // native_layer_norm gives the mean and 1 / √(variance + ε) in the type of its weight.
  Type type = elementOf(a.tensor("weight") ? a.tensor("weight") : *tensor);
  for (Value each : {norm.mean, norm.inverse})
    results.push_back(each ? frontend::castElements(a.op.builder(), each, type) : each);
  return success();
}

/// Inference with the running statistics. In training mode PyTorch's graph has another operator.
static LogicalResult translateBatchNorm(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("input"), mean = a.required("running_mean"),
                   variance = a.required("running_var");
  if (failed(tensor) || failed(mean) || failed(variance) || failed(requireReal(a, elementOf(*tensor))))
    return failure();
  (void)a.attribute("momentum"); // of training
  FailureOr<Value> result = frontend::normalizeChannels(a.op, *tensor, *mean, *variance, a.number("eps", 1e-5),
                                                        a.tensor("weight"), a.tensor("bias"));
  if (failed(result))
    return failure();
  // The statistics of the batch are empty in inference.
  ImplicitLocOpBuilder &b = a.op.builder();
  Value empty = frontend::splat(b, {b.getIndexAttr(0)}, elementOf(*mean), 0);
  results.append({*result, empty, empty});
  return success();
}

static LogicalResult translateGroupNorm(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("input");
  if (failed(tensor) || failed(requireReal(a, elementOf(*tensor))))
    return failure();
  return append(frontend::normalizeGroups(a.op, *tensor, a.integer("num_groups", 1), a.number("eps", 1e-5),
                                          a.tensor("weight"), a.tensor("bias")),
                results);
}

/// Global average pooling (output size 1).
static LogicalResult translatePool(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  auto size = a.integers("output_size");
  if (failed(tensor) || failed(requireReal(a, elementOf(*tensor))))
    return failure();
  int64_t pooled = a.op.getName() == "aten.adaptive_avg_pool1d" ? 1 : 2, rank = rankOf(*tensor);
  if (!size || !llvm::all_of(*size, [](int64_t each) { return each == 1; }) || rank < pooled)
    return a.op.error() << "only pooling with an output size of 1 is supported";
  SmallVector<int64_t> dims = llvm::to_vector(llvm::seq(rank - pooled, rank));
  results.push_back(
      frontend::reduceBy(a.op.builder(), getTable().find("aten.mean")->second, *tensor, dims, /*keepDims=*/true));
  return success();
}

void torch::addReductions(frontend::Frontend &frontend) {
  for (const auto &entry : getTable())
    add(frontend, entry.getKey(), translateReduction);
  for (StringRef name : {"aten.argmax", "aten.argmin"})
    add(frontend, name, translateExtreme);
  for (StringRef name : {"aten.std", "aten.std_mean", "aten.var", "aten.var_mean"})
    add(frontend, name, translateVariance);
  for (StringRef name :
       {"aten._log_softmax", "aten._safe_softmax", "aten._softmax", "aten.log_softmax", "aten.softmax"})
    add(frontend, name, translateSoftmax);
  for (StringRef name : {"aten.layer_norm", "aten.native_layer_norm", "aten.rms_norm"})
    add(frontend, name, translateNorm);
  add(frontend, "aten._native_batch_norm_legit_no_training", translateBatchNorm);
  add(frontend, "aten.group_norm", translateGroupNorm);
  for (StringRef name : {"aten.adaptive_avg_pool1d", "aten.adaptive_avg_pool2d"})
    add(frontend, name, translatePool);
  add(frontend, "aten.cumsum", translateCumulativeSum);
  add(frontend, "aten.logsumexp", translateLogSumExp);
}
