//===- MicrosoftQuantized.cpp - Quantized weights of com.microsoft --------===//
//
// MatMulNBits and GatherBlockQuantized. The reader makes bytes of their uint8 weights.
//
//===----------------------------------------------------------------------===//
#include "Onnx.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Import/Common/Gather.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using frontend::Extents;

namespace {

/// The sizes of quantized weights: N rows of K elements.
struct Sizes {
  int64_t rows, columns, bits, block;

  int64_t blocks() const { return llvm::divideCeil(columns, block); }
  int64_t bytes() const { return block * bits / 8; }
};

} // namespace

/// `bits` and `block_size`.
static LogicalResult readSizes(FrontendOp &op, Sizes &sizes, int64_t defaultBlock) {
  sizes.bits = op.integer("bits", 4);
  sizes.block = op.integer("block_size", defaultBlock);
  if (sizes.bits != 4 && sizes.bits != 8)
    return op.error() << "'bits' is " << sizes.bits << ", expected 4 or 8";
  if (!llvm::isPowerOf2_64(std::max<int64_t>(sizes.block, 0)) || sizes.block < 16 || sizes.block > 256)
    return op.error() << "'block_size' is " << sizes.block << ", expected 16, 32, 64, 128 or 256";
  return success();
}

/// `tensor` with `shape`, which may also have been given as one dimension; null after an error.
static Value requireShapeOf(FrontendOp &op, Value tensor, ArrayRef<int64_t> shape, Type element, StringRef role) {
  auto type = cast<RankedTensorType>(tensor.getType());
  int64_t count = 1;
  for (int64_t extent : shape)
    count *= extent;
  bool isFlat = type.getRank() == 1 && type.getDimSize(0) == count;
  if (type.getElementType() != element || (!isFlat && type.getShape() != shape)) {
    op.error() << role << " is " << type << ", expected " << RankedTensorType::get(shape, element);
    return nullptr;
  }
  return isFlat && shape.size() > 1
             ? frontend::reshape(op.builder(), tensor, getAsIndexOpFoldResult(op.builder().getContext(), shape))
             : tensor;
}

/// The weights as a matrix of `element`; null after an error.
static Value dequantize(FrontendOp &op, Value codes, Value scales, Value zeros, const Sizes &sizes, Type element) {
  ImplicitLocOpBuilder &b = op.builder();
  if (sizes.rows <= 0 || sizes.columns <= 0 || sizes.rows > frontend::maxTensorElements / sizes.columns) {
    op.error() << "found " << sizes.rows << " rows of " << sizes.columns << " elements, expected a matrix";
    return nullptr;
  }
  Type ofScales = elementOf(scales);
  if (!isa<Float16Type, BFloat16Type, Float32Type>(ofScales)) {
    op.error() << "scales are " << scales.getType() << ", expected f16, bf16 or f32";
    return nullptr;
  }
  codes = requireShapeOf(op, codes, {sizes.rows, sizes.blocks(), sizes.bytes()}, b.getI8Type(), "B");
  scales = codes ? requireShapeOf(op, scales, {sizes.rows, sizes.blocks()}, ofScales, "scales") : Value();
  if (!scales)
    return nullptr;
  Type f32 = b.getF32Type();
  if (zeros && isa<FloatType>(elementOf(zeros))) {
    zeros = requireShapeOf(op, zeros, {sizes.rows, sizes.blocks()}, ofScales, "zero_points");
    zeros = zeros ? frontend::castElements(b, zeros, f32) : Value();
    if (!zeros)
      return nullptr;
  } else if (zeros) {
    int64_t bytes = llvm::divideCeil(sizes.blocks() * sizes.bits, 8);
    zeros = requireShapeOf(op, zeros, {sizes.rows, bytes}, b.getI8Type(), "zero_points");
    if (!zeros)
      return nullptr;
  }
  auto type = RankedTensorType::get({sizes.rows, sizes.columns}, element);
  return attn::DequantizeOp::create(b, type, codes, frontend::castElements(b, scales, f32), zeros,
                                    sizes.bits == 4 ? attn::BlockFormat::U4 : attn::BlockFormat::U8);
}

/// A · Wᵀ + bias, where W is stored in blocks.
static LogicalResult translateMatMulNBits(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 3, 6)))
    return failure();
  Value lhs = op.operand(0), zeros = op.operand(3), bias = op.operand(5);
  Sizes sizes{op.integer("N", 0), op.integer("K", 0), 0, 0};
  if (failed(readSizes(op, sizes, 0)))
    return failure();
  if (op.operand(4))
    return op.error() << "input 4 ('g_idx') is not supported";
  if (op.integer("weight_prepacked", 0) != 0)
    return op.error() << "'weight_prepacked' is not 0: weights in the order of a device are not supported";
  // It permits a runtime to round A to 8 bits.
  (void)op.integer("accuracy_level", 0);
  Type element = elementOf(lhs);
  if (!isa<Float16Type, BFloat16Type, Float32Type>(element) || rankOf(lhs) == 0)
    return op.error() << "A is " << lhs.getType() << ", expected floating point";
  if (failed(requireEqual(op, sizes.columns, cast<RankedTensorType>(lhs.getType()).getShape().back(), "columns of A")))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value weights =
      dequantize(op, op.operand(1), op.operand(2), zeros, sizes, element.isBF16() ? element : Type(b.getF32Type()));
  if (!weights)
    return failure();
  if (bias && !(bias = requireShapeOf(op, bias, {sizes.rows}, element, "the bias")))
    return failure();
  Extents loops = frontend::extentsOf(b, lhs);
  loops.back() = b.getIndexAttr(sizes.rows);
  loops.push_back(b.getIndexAttr(sizes.columns));
  SmallVector<AffineExpr> lhsDims, resultDims;
  for (int64_t i = 0; i + 1 < rankOf(lhs); ++i)
    lhsDims.push_back(b.getAffineDimExpr(i));
  resultDims = lhsDims;
  AffineExpr row = b.getAffineDimExpr(loops.size() - 2), depth = b.getAffineDimExpr(loops.size() - 1);
  lhsDims.push_back(depth);
  resultDims.push_back(row);
  auto map = [&](ArrayRef<AffineExpr> dims) { return AffineMap::get(loops.size(), 0, dims, b.getContext()); };
  Value product =
      frontend::contract(b, lhs, weights, map(lhsDims), map({row, depth}), map(resultDims), loops, b.getF32Type());
  SmallVector<Value> terms = {product};
  if (bias)
    terms.push_back(bias);
  results.push_back(frontend::elementwise(b, terms, element, [&](OpBuilder &nested, Location loc, ValueRange x) {
    Value y = x[0];
    if (x.size() > 1)
      y = frontend::add(nested, loc, y, frontend::convert(nested, loc, x[1], y.getType()));
    return frontend::convert(nested, loc, y, element);
  }));
  return success();
}

/// Rows of weights that are stored in blocks, two elements of 4 bits in a byte.
static LogicalResult translateGatherBlockQuantized(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 3, 4)))
    return failure();
  Value codes = op.operand(0), indices = op.operand(1), scales = op.operand(2);
  auto type = cast<RankedTensorType>(codes.getType());
  Sizes sizes{0, 0, 0, 0};
  if (failed(readSizes(op, sizes, 128)))
    return failure();
  int64_t axis = op.integer("gather_axis", 0), quantized = op.integer("quantize_axis", 1);
  if (axis != 0 || (quantized != 1 && quantized != -1))
    return op.error() << "'gather_axis' is " << axis << " and 'quantize_axis' " << quantized << ", expected 0 and 1";
  if (type.getRank() != 2 || !type.hasStaticShape() || !type.getElementType().isInteger(8))
    return op.error() << "data is " << type << ", expected a matrix of bytes";
  sizes.rows = type.getDimSize(0), sizes.columns = type.getDimSize(1) * 8 / sizes.bits;
  if (sizes.columns % sizes.block != 0)
    return op.error() << "data has rows of " << sizes.columns << " elements, expected a multiple of the block size, "
                      << sizes.block;
  ImplicitLocOpBuilder &b = op.builder();
  codes =
      frontend::reshape(b, codes, getAsIndexOpFoldResult(b.getContext(), {sizes.rows, sizes.blocks(), sizes.bytes()}));
  Type element = elementOf(scales);
  Value weights = dequantize(op, codes, scales, op.operand(3), sizes, b.getF32Type());
  if (!weights)
    return failure();
  FailureOr<Value> found = frontend::gatherSlices(op, weights, indices, 0);
  if (failed(found))
    return failure();
  results.push_back(frontend::castElements(b, *found, element));
  return success();
}

void onnx::addMicrosoftQuantized(frontend::Frontend &frontend) {
  frontend.translators["microsoft.GatherBlockQuantized"] = translateGatherBlockQuantized;
  frontend.translators["microsoft.MatMulNBits"] = translateMatMulNBits;
}
