//===- Products.cpp - ONNX's matrix products ----------------------------------===//
#include "Onnx.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using door::Extents;

/// Refuses two extents that cannot be equal.
static LogicalResult requireEqual(DoorOp &op, int64_t found, int64_t wanted, StringRef what) {
  if (found == wanted || ShapedType::isDynamic(found) || ShapedType::isDynamic(wanted))
    return success();
  return op.error() << what << ": found " << found << ", wanted " << wanted;
}

static LogicalResult translateMatMul(DoorOp &op, Values &results) {
  if (failed(requireOperands(op, 2, 2)))
    return failure();
  Value lhs = op.operand(0), rhs = op.operand(1);
  auto left = cast<RankedTensorType>(lhs.getType()), right = cast<RankedTensorType>(rhs.getType());
  if (left.getRank() == 0 || right.getRank() == 0 || left.getElementType() != right.getElementType())
    return op.error() << "cannot multiply " << left << " and " << right;
  int64_t depth = right.getDimSize(right.getRank() == 1 ? 0 : right.getRank() - 2);
  if (failed(requireEqual(op, depth, left.getShape().back(), "rows of the right matrix")))
    return failure();
  door::Extents batches[] = {door::extentsOf(op.builder(), lhs), door::extentsOf(op.builder(), rhs)};
  for (door::Extents &extents : batches)
    extents.truncate(extents.size() - std::min<size_t>(extents.size(), 2));
  if (failed(door::broadcastExtents(op.builder(), batches)))
    return op.error() << "the batches of " << left << " and " << right << " do not broadcast to one another";
  results.push_back(door::matmul(op.builder(), lhs, rhs));
  return success();
}

/// alpha · A · B + beta · C, A and B transposed on request: by the maps of the product, not by copies.
static LogicalResult translateGemm(DoorOp &op, Values &results) {
  if (failed(requireOperands(op, 2, 3)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value lhs = op.operand(0), rhs = op.operand(1);
  if (rankOf(lhs) != 2 || rankOf(rhs) != 2 || elementOf(lhs) != elementOf(rhs))
    return op.error() << "cannot multiply " << lhs.getType() << " and " << rhs.getType() << ", wanted two matrices";
  bool turnsLeft = op.integer("transA", 0), turnsRight = op.integer("transB", 0);
  auto left = cast<RankedTensorType>(lhs.getType()), right = cast<RankedTensorType>(rhs.getType());
  if (failed(requireEqual(op, right.getDimSize(turnsRight ? 1 : 0), left.getDimSize(turnsLeft ? 0 : 1),
                          "rows of the right matrix")))
    return failure();
  AffineExpr m, n, k;
  bindDims(b.getContext(), m, n, k);
  auto map = [&](AffineExpr x, AffineExpr y, bool turns) {
    return AffineMap::get(3, 0, turns ? ArrayRef<AffineExpr>{y, x} : ArrayRef<AffineExpr>{x, y}, b.getContext());
  };
  door::Extents leftExtents = door::extentsOf(b, lhs), rightExtents = door::extentsOf(b, rhs);
  Type element = elementOf(lhs);
  Type sum = element.isF16() || element.isBF16() ? b.getF32Type() : element;
  Value product = door::contract(
      b, lhs, rhs, map(m, k, turnsLeft), map(k, n, turnsRight), map(m, n, false),
      {leftExtents[turnsLeft ? 1 : 0], rightExtents[turnsRight ? 0 : 1], leftExtents[turnsLeft ? 0 : 1]}, sum);
  double alpha = op.number("alpha", 1), beta = op.number("beta", 1);
  SmallVector<Value> inputs = {product};
  if (Value bias = op.operand(2)) {
    inputs.push_back(bias);
    if (failed(requireBroadcast(op, inputs)))
      return failure();
    if (elementOf(bias) != element)
      return op.error() << "the bias is " << bias.getType() << ", wanted elements of " << element;
  }
  if (alpha == 1 && inputs.size() == 1) {
    results.push_back(door::castElements(b, product, element));
    return success();
  }
  results.push_back(door::elementwise(b, inputs, element, [&](OpBuilder &nested, Location loc, ValueRange x) {
    Value value = x[0];
    if (alpha != 1)
      value = door::mul(nested, loc, value, door::makeNumber(nested, loc, sum, alpha));
    if (x.size() > 1) {
      Value bias = door::convert(nested, loc, x[1], sum);
      if (beta != 1)
        bias = door::mul(nested, loc, bias, door::makeNumber(nested, loc, sum, beta));
      value = door::add(nested, loc, value, bias);
    }
    return door::convert(nested, loc, value, element);
  }));
  return success();
}

/// A convolution whose windows lie beside each other, as models of images cut these into patches: a product of patches,
/// as rows, and filters.
static LogicalResult translateConv(DoorOp &op, Values &results) {
  if (failed(requireOperands(op, 2, 3)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value image = op.operand(0), filters = op.operand(1), bias = op.operand(2);
  auto type = cast<RankedTensorType>(image.getType()), filter = cast<RankedTensorType>(filters.getType());
  if (type.getRank() != 4 || filter.getRank() != 4 || type.getElementType() != filter.getElementType() ||
      !isa<FloatType>(type.getElementType()))
    return op.error() << "cannot convolve " << type << " and " << filter << ", wanted images in two dimensions";
  if (ShapedType::isDynamic(type.getDimSize(1)) || !filter.hasStaticShape() || filter.getNumElements() == 0)
    return op.error() << "the channels of " << type << " and the filters " << filter << " must be static and not empty";
  if (failed(requireEqual(op, filter.getDimSize(1), type.getDimSize(1), "channels of the filters")))
    return failure();
  SmallVector<int64_t> kernel(filter.getShape().drop_front(2)), ones = {1, 1};
  SmallVector<int64_t> strides = op.integers("strides").value_or(ones);
  SmallVector<int64_t> dilations = op.integers("dilations").value_or(ones);
  SmallVector<int64_t> pads = op.integers("pads").value_or(SmallVector<int64_t>());
  bool fits = strides == kernel && dilations == ones && op.integer("group", 1) == 1 &&
              llvm::all_of(pads, [](int64_t each) { return each == 0; }) &&
              llvm::is_contained({"NOTSET", "VALID"}, op.text("auto_pad", "NOTSET"));
  for (unsigned i : {0u, 1u})
    fits = fits && (type.isDynamicDim(2 + i) || type.getDimSize(2 + i) % kernel[i] == 0);
  if (!fits)
    return op.error()
           << "only windows beside each other are supported: strides as large as the filters, no padding, no "
              "groups, no dilations and a multiple of the filters' extent";
  Extents extents = door::extentsOf(b, image);
  OpFoldResult high = b.getIndexAttr(kernel[0]), wide = b.getIndexAttr(kernel[1]);
  OpFoldResult rows = door::divideExtents(b, extents[2], high), columns = door::divideExtents(b, extents[3], wide);
  Value cut = door::reshape(b, image, {extents[0], extents[1], rows, high, columns, wide});
  Value patches = door::transpose(b, cut, {0, 2, 4, 1, 3, 5});
  OpFoldResult depth = b.getIndexAttr(filter.getDimSize(1) * kernel[0] * kernel[1]);
  OpFoldResult count = b.getIndexAttr(filter.getDimSize(0));
  patches = door::reshape(b, patches, {extents[0], rows, columns, depth});
  Value matrix = door::reshape(b, filters, {count, depth});
  AffineExpr n, y, x, m, k;
  bindDims(b.getContext(), n, m, y, x, k);
  auto map = [&](ArrayRef<AffineExpr> dims) { return AffineMap::get(5, 0, dims, b.getContext()); };
  Type element = type.getElementType();
  Type sum = element.isF16() || element.isBF16() ? b.getF32Type() : element;
  Value product = door::contract(b, patches, matrix, map({n, y, x, k}), map({m, k}), map({n, m, y, x}),
                                 {extents[0], count, rows, columns, depth}, sum);
  SmallVector<Value> inputs = {product};
  if (bias) {
    auto biasType = cast<RankedTensorType>(bias.getType());
    if (biasType.getRank() != 1 || biasType.getElementType() != element ||
        failed(requireEqual(op, biasType.getDimSize(0), filter.getDimSize(0), "numbers of the bias")))
      return op.error() << "the bias is " << biasType << ", wanted one " << element << " a filter";
    inputs.push_back(door::reshape(b, bias, {count, b.getIndexAttr(1), b.getIndexAttr(1)}));
  }
  results.push_back(door::elementwise(b, inputs, element, [&](OpBuilder &nested, Location loc, ValueRange in) {
    Value value = in[0];
    if (bias)
      value = door::add(nested, loc, value, door::convert(nested, loc, in[1], sum));
    return door::convert(nested, loc, value, element);
  }));
  return success();
}

void onnx::addProducts(door::Door &door) {
  door.translators["Conv"] = translateConv;
  door.translators["MatMul"] = translateMatMul;
  door.translators["Gemm"] = translateGemm;
}
