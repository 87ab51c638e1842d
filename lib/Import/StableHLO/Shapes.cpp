//===- Shapes.cpp - StableHLO constants, iota and shape ops ---------------===//
#include "StableHLO.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::stablehlo;
using frontend::Extents;

static LogicalResult translateConstant(FrontendOp &op, Values &results) {
  auto value = op.getOperation()->getAttrOfType<ElementsAttr>("value");
  auto dense = dyn_cast_or_null<DenseElementsAttr>(value);
  auto type = dense ? dyn_cast<RankedTensorType>(dense.getType()) : nullptr;
  if (failed(requireOperands(op, 0)) || !type || op.getOperation()->getResult(0).getType() != type)
    return op.error() << "the attribute 'value' is missing or not a constant of the result type";
  ImplicitLocOpBuilder &b = op.builder();
  if (dense.isSplat() && type.getNumElements() > frontend::maxFoldedElements) {
    Extents extents = getAsIndexOpFoldResult(b.getContext(), type.getShape());
    Value number = arith::ConstantOp::create(b, cast<TypedAttr>(dense.getSplatValue<Attribute>()));
    results.push_back(frontend::splat(b, extents, number));
    return success();
  }
  results.push_back(arith::ConstantOp::create(b, dense));
  return success();
}

/// The extents of the declared result, which must be static.
static FailureOr<Extents> requireDeclared(FrontendOp &op) {
  auto type = op.getOperation()->getNumResults() == 1
                  ? dyn_cast<RankedTensorType>(op.getOperation()->getResult(0).getType())
                  : nullptr;
  if (!type || !type.hasStaticShape())
    return op.error() << "expected one result of static shape";
  return Extents(getAsIndexOpFoldResult(op.builder().getContext(), type.getShape()));
}

/// The extents of the result: as declared, or for dynamic ops the elements of operand `i`.
static FailureOr<Extents> resultExtents(FrontendOp &op, unsigned i) {
  if (!op.getName().starts_with("dynamic_"))
    return requireDeclared(op);
  FailureOr<Extents> extents = requireExtents(op, i, "the shape");
  auto type = dyn_cast<RankedTensorType>(op.getOperation()->getResult(0).getType());
  if (failed(extents) || !type)
    return failed(extents) ? failure() : op.error() << "expected a ranked tensor as result";
  if (static_cast<int64_t>(extents->size()) != type.getRank())
    return op.error() << "the shape has " << extents->size() << " extents, expected those of the result " << type;
  for (auto [extent, declared] : llvm::zip(*extents, type.getShape())) {
    std::optional<int64_t> known = getConstantIntValue(extent);
    if (known && !ShapedType::isDynamic(declared) && *known != declared)
      return op.error() << "the shape has the extent " << *known << ", expected that of the result " << type;
    if (!ShapedType::isDynamic(declared))
      extent = op.builder().getIndexAttr(declared);
  }
  return extents;
}

static LogicalResult translateIota(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, op.getName() == "iota" ? 0 : 1)))
    return failure();
  FailureOr<Extents> extents = resultExtents(op, 0);
  if (failed(extents))
    return failure();
  int64_t dim = op.integer("iota_dimension", -1);
  if (failed(requireDims(op, dim, extents->size(), "iota_dimension")))
    return failure();
  Type element = declaredElement(op);
  auto body = [&](OpBuilder &nested, Location loc, ValueRange at) {
    return frontend::convert(nested, loc, at[dim], element);
  };
  results.push_back(frontend::generate(op.builder(), *extents, {}, element, body));
  return success();
}

static LogicalResult translateReshape(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, op.getName() == "reshape" ? 1 : 2)))
    return failure();
  FailureOr<Extents> extents = resultExtents(op, 1);
  if (failed(extents))
    return failure();
  RankedTensorType from = typeOf(op.operand(0)), to = frontend::typeOf(*extents, from.getElementType());
  bool fits = !from.hasStaticShape() || !to.hasStaticShape() || from.getNumElements() == to.getNumElements();
  if (!fits || (from.getRank() == 0 && !llvm::all_of(to.getShape(), [](int64_t extent) { return extent == 1; })) ||
      (to.getRank() == 0 && !llvm::all_of(from.getShape(), [](int64_t extent) { return extent == 1; })))
    return op.error() << "cannot reshape " << from << " to " << to;
  results.push_back(frontend::reshape(op.builder(), op.operand(0), *extents));
  return success();
}

static LogicalResult translateBroadcast(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, op.getName() == "broadcast_in_dim" ? 1 : 2)))
    return failure();
  FailureOr<Extents> extents = resultExtents(op, 1);
  if (failed(extents))
    return failure();
  RankedTensorType type = typeOf(op.operand(0));
  auto dims = requireIntegers(op, "broadcast_dimensions", type.getRank());
  if (failed(dims) || failed(requireDims(op, *dims, extents->size(), "broadcast_dimensions")))
    return failure();
  for (auto [dim, own] : llvm::zip(*dims, type.getShape())) {
    std::optional<int64_t> expected = getConstantIntValue((*extents)[dim]);
    if (own != 1 && expected && !ShapedType::isDynamic(own) && own != *expected)
      return op.error() << type << " does not broadcast: found extent " << own << ", expected " << *expected;
  }
  results.push_back(frontend::broadcastAlong(op.builder(), op.operand(0), *extents, *dims));
  return success();
}

static LogicalResult translateTranspose(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 1)))
    return failure();
  int64_t rank = typeOf(op.operand(0)).getRank();
  auto permutation = requireIntegers(op, "permutation", rank);
  if (failed(permutation) || failed(requireDims(op, *permutation, rank, "permutation")))
    return failure();
  results.push_back(frontend::transpose(op.builder(), op.operand(0), *permutation));
  return success();
}

static LogicalResult translateDimensionSize(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 1)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  int64_t dim = op.integer("dimension", -1);
  auto element = dyn_cast_or_null<IntegerType>(declaredElement(op));
  if (failed(requireDims(op, dim, typeOf(op.operand(0)).getRank(), "dimension")))
    return failure();
  if (!element)
    return op.error() << "expected an integer result";
  Value list = frontend::fromExtents(b, frontend::extentsOf(b, op.operand(0))[dim], element);
  results.push_back(frontend::reshape(b, list, {}));
  return success();
}

void stablehlo::addShapes(frontend::Frontend &frontend) {
  frontend.translators["constant"] = translateConstant;
  frontend.translators["iota"] = frontend.translators["dynamic_iota"] = translateIota;
  frontend.translators["reshape"] = frontend.translators["dynamic_reshape"] = translateReshape;
  frontend.translators["broadcast_in_dim"] = frontend.translators["dynamic_broadcast_in_dim"] = translateBroadcast;
  frontend.translators["transpose"] = translateTranspose;
  frontend.translators["get_dimension_size"] = translateDimensionSize;
}
