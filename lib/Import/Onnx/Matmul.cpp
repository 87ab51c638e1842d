//===- Matmul.cpp - ONNX matmuls and convolutions -------------------------===//
#include "saccade/Import/Common/Matmul.h"
#include "Onnx.h"
#include "saccade/Import/Common/Einsum.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;

static LogicalResult append(FailureOr<Value> result, Values &results) {
  if (failed(result))
    return failure();
  results.push_back(*result);
  return success();
}

static LogicalResult translateMatMul(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 2, 2)))
    return failure();
  return append(frontend::importMatmul(op, op.operand(0), op.operand(1)), results);
}

/// alpha · A · B + beta · C; A and B may be transposed.
static LogicalResult translateGemm(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 2, 3)))
    return failure();
  Value lhs = op.operand(0), rhs = op.operand(1);
  if (rankOf(lhs) != 2)
    return op.error() << "cannot multiply " << lhs.getType() << " and " << rhs.getType() << ", expected two matrices";
  frontend::GemmParams params;
  params.transA = op.integer("transA", 0) != 0;
  params.transB = op.integer("transB", 0) != 0;
  params.alpha = op.number("alpha", 1);
  params.beta = op.number("beta", 1);
  params.bias = op.operand(2);
  return append(frontend::importGemm(op, lhs, rhs, params), results);
}

static LogicalResult translateEinsum(FrontendOp &op, Values &results) {
  return append(frontend::einsum(op, op.text("equation", ""), op.operands()), results);
}

/// Only convolutions with non-overlapping windows.
static LogicalResult translateConv(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 2, 3)))
    return failure();
  Value image = op.operand(0), filters = op.operand(1);
  auto filter = cast<RankedTensorType>(filters.getType());
  if (rankOf(image) != 4 || filter.getRank() != 4)
    return op.error() << "cannot convolve " << image.getType() << " and " << filter
                      << ", expected images in two dimensions";
  SmallVector<int64_t> kernel(filter.getShape().drop_front(2)), ones = {1, 1};
  SmallVector<int64_t> strides = op.integers("strides").value_or(ones);
  SmallVector<int64_t> dilations = op.integers("dilations").value_or(ones);
  SmallVector<int64_t> pads = op.integers("pads").value_or(SmallVector<int64_t>());
  bool fits = strides == kernel && dilations == ones && op.integer("group", 1) == 1 &&
              llvm::all_of(pads, [](int64_t each) { return each == 0; }) &&
              llvm::is_contained({"NOTSET", "VALID"}, op.text("auto_pad", "NOTSET"));
  if (!fits)
    return op.error() << "only non-overlapping windows are supported: strides equal to the filter size, no padding, "
                         "no groups and no dilations";
  return append(frontend::convolvePatches(op, image, filters, op.operand(2)), results);
}

void onnx::addMatmuls(frontend::Frontend &frontend) {
  frontend.translators["Conv"] = translateConv;
  frontend.translators["Einsum"] = translateEinsum;
  frontend.translators["MatMul"] = translateMatMul;
  frontend.translators["Gemm"] = translateGemm;
}
