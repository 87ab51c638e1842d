//===- Reductions.cpp - StableHLO reductions ------------------------------===//
#include "saccade/Import/Common/Reductions.h"
#include "StableHLO.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::stablehlo;
using frontend::Extents;

/// The name of the only op of a region if it takes both arguments; empty for other regions.
static StringRef onlyOp(Region &region) {
  Block &body = region.front();
  if (body.getNumArguments() != 2 || !llvm::hasNItems(body, 2) ||
      body.back().getOperands() != ValueRange(body.front().getResults()))
    return "";
  OperandRange operands = body.front().getOperands();
  bool takesBoth = operands.size() == 2 && operands[0] != operands[1] &&
                   llvm::all_of(operands, [](Value each) { return isa<BlockArgument>(each); });
  return takesBoth ? body.front().getName().getStringRef() : "";
}

/// Verifies that operands are `count` tensors of one shape followed by `count` initial values of matching types, and
/// that the region fits them.
static LogicalResult verifyOperands(FrontendOp &op, unsigned count) {
  Operation *operation = op.getOperation();
  if (count == 0 || op.operands().size() != 2 * count || operation->getNumResults() != count ||
      operation->getNumRegions() != 1)
    return op.error() << "found " << op.numOperands() << " operands, " << operation->getNumResults() << " results and "
                      << operation->getNumRegions() << " regions, expected one initial value and one result per tensor";
  for (unsigned i = 0; i < count; ++i) {
    RankedTensorType type = typeOf(op.operand(i)), first = typeOf(op.operand(count + i));
    if (type.getRank() != typeOf(op.operand(0)).getRank() || first.getRank() != 0 ||
        first.getElementType() != type.getElementType() || declaredElement(op, i) != type.getElementType())
      return op.error() << "cannot reduce " << type << " from " << first << " to " << operation->getResult(i).getType();
  }
  Region &region = operation->getRegion(0);
  if (failed(requireScalarRegion(op, region, 2 * count, count)))
    return failure();
  for (unsigned i = 0; i < 2 * count; ++i)
    if (getElementTypeOrSelf(region.getArgument(i).getType()) != typeOf(op.operand(i % count)).getElementType())
      return op.error() << "the region has an argument " << region.getArgument(i).getType() << " for elements of "
                        << op.operand(i % count).getType();
  for (auto [i, value] : llvm::enumerate(region.front().back().getOperands()))
    if (getElementTypeOrSelf(value.getType()) != typeOf(op.operand(i)).getElementType())
      return op.error() << "the region yields " << value.getType() << " for elements of " << op.operand(i).getType();
  return requireSameShape(op, ArrayRef(op.operands()).take_front(count));
}

/// A reduction with the region as its body. Sums of 16-bit floats are accumulated in f32.
static LogicalResult translateReduce(FrontendOp &op, Values &results) {
  unsigned count = op.numOperands() / 2;
  if (failed(verifyOperands(op, count)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Region &region = op.getOperation()->getRegion(0);
  int64_t rank = typeOf(op.operand(0)).getRank();
  auto dims = requireIntegers(op, "dimensions");
  if (failed(dims) || failed(requireDims(op, *dims, rank, "dimensions")))
    return failure();
  bool isSum = onlyOp(region) == "stablehlo.add";
  Extents extents = frontend::extentsOf(b, op.operand(0)), kept;
  SmallVector<AffineExpr> to;
  SmallVector<utils::IteratorType> iterators(rank, utils::IteratorType::reduction);
  for (int64_t i = 0; i < rank; ++i) {
    if (llvm::is_contained(*dims, i))
      continue;
    iterators[i] = utils::IteratorType::parallel;
    kept.push_back(extents[i]);
    to.push_back(b.getAffineDimExpr(i));
  }
  SmallVector<Value> inputs, inits;
  SmallVector<AffineMap> maps(count, b.getMultiDimIdentityMap(rank));
  maps.append(count, AffineMap::get(rank, 0, to, b.getContext()));
  for (unsigned i = 0; i < count; ++i) {
    inputs.push_back(op.operand(i));
    Type element = typeOf(inputs[i]).getElementType();
    Value first = op.operand(count + i);
    std::optional<SmallVector<OpFoldResult>> known = frontend::elementsOf(first);
    first = known ? frontend::toValue(b, known->front()) : Value(tensor::ExtractOp::create(b, first, ValueRange()));
    first = frontend::convert(b, b.getLoc(), first, isSum ? frontend::getAccumulatorType(element) : element);
    inits.push_back(frontend::splat(b, kept, first));
  }
  auto body = [&](OpBuilder &nested, Location loc, ValueRange x) {
    SmallVector<Value> arguments(x.drop_front(count));
    for (unsigned i = 0; i < count; ++i)
      arguments.push_back(frontend::convert(nested, loc, x[i], arguments[i].getType()));
    linalg::YieldOp::create(nested, loc, computeRegion(region, nested, loc, arguments));
  };
  auto loop =
      linalg::GenericOp::create(b, TypeRange(ValueRange(inits).getTypes()), inputs, inits, maps, iterators, body);
  for (auto [result, input] : llvm::zip(loop.getResults(), inputs))
    results.push_back(frontend::castElements(b, result, typeOf(input).getElementType()));
  return success();
}

/// Supports only windows that compute prefix or suffix sums.
static LogicalResult translateReduceWindow(FrontendOp &op, Values &results) {
  if (op.numOperands() != 2)
    return op.error() << "windows over several tensors are not supported";
  if (failed(verifyOperands(op, 1)))
    return failure();
  RankedTensorType type = typeOf(op.operand(0));
  int64_t rank = type.getRank();
  SmallVector<int64_t> ones(rank, 1), zeros(2 * rank, 0);
  FailureOr<SmallVector<int64_t>> window = requireIntegers(op, "window_dimensions", rank), padding = zeros;
  if (op.attribute("padding"))
    padding = requireIntegers(op, "padding", 2 * rank);
  if (failed(window) || failed(padding))
    return failure();
  std::optional<SmallVector<OpFoldResult>> first = frontend::elementsOf(op.operand(1));
  auto isZero = [](OpFoldResult value) {
    auto attribute = dyn_cast<Attribute>(value);
    auto real = dyn_cast_or_null<FloatAttr>(attribute);
    return real ? real.getValue().isZero() : attribute && isConstantIntValue(value, 0);
  };
  bool fits = onlyOp(op.getOperation()->getRegion(0)) == "stablehlo.add" && first && isZero(first->front()) &&
              !type.getElementType().isInteger(1);
  for (StringRef name : {"window_strides", "base_dilations", "window_dilations"})
    fits = fits && op.integers(name).value_or(ones) == ones;
  int64_t axis = -1;
  for (int64_t i = 0; i < rank && fits; ++i) {
    int64_t low = (*padding)[2 * i], high = (*padding)[2 * i + 1];
    if ((*window)[i] == 1) {
      fits = low == 0 && high == 0;
      continue;
    }
    int64_t rest = type.getDimSize(i) - 1;
    fits = axis < 0 && (*window)[i] == type.getDimSize(i) && ((low == rest && high == 0) || (low == 0 && high == rest));
    axis = i;
  }
  if (!fits)
    return op.error() << "only cumulative sums along one dimension are supported as window reductions";
  if (axis < 0) {
    results.push_back(op.operand(0));
    return success();
  }
  results.push_back(frontend::cumulativeSum(op.builder(), op.operand(0), axis, /*isExclusive=*/false,
                                            /*isReversed=*/(*padding)[2 * axis] == 0));
  return success();
}

void stablehlo::addReductions(frontend::Frontend &frontend) {
  frontend.translators["reduce"] = translateReduce;
  frontend.translators["reduce_window"] = translateReduceWindow;
}
