//===- Matmul.cpp - ONNX matmuls and convolutions -------------------------===//
#include "saccade/Import/Common/Matmul.h"
#include "Onnx.h"
#include "saccade/Import/Common/Convolution.h"
#include "saccade/Import/Common/Einsum.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;

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

static LogicalResult translateConv(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 2, 3)))
    return failure();
  Value image = op.operand(0), filters = op.operand(1);
  auto list = [&](StringRef name) { return op.integers(name).value_or(SmallVector<int64_t>()); };
  frontend::ConvolutionParams params;
  params.strides = list("strides");
  params.dilations = list("dilations");
  params.groups = op.integer("group", 1);
  auto filter = cast<RankedTensorType>(filters.getType());
  if (SmallVector<int64_t> kernel = list("kernel_shape");
      !kernel.empty() && filter.getRank() > 2 && ArrayRef(kernel) != filter.getShape().drop_front(2))
    return op.error() << "'kernel_shape' differs from the filters " << filter;
  StringRef padding = op.text("auto_pad", "NOTSET");
  if (padding == "NOTSET") {
    // All starts, then all ends.
    SmallVector<int64_t> pads = list("pads");
    if (pads.size() % 2 != 0)
      return op.error() << "found " << pads.size() << " paddings, expected an even number";
    params.before.assign(pads.begin(), pads.begin() + pads.size() / 2);
    params.after.assign(pads.begin() + pads.size() / 2, pads.end());
  } else if (!llvm::is_contained({"VALID", "SAME_UPPER", "SAME_LOWER"}, padding)) {
    return op.error() << "'auto_pad' is '" << padding << "', expected NOTSET, VALID, SAME_UPPER or SAME_LOWER";
  } else if (padding != "VALID" &&
             failed(frontend::padToSameSize(op, image, filters, params, padding == "SAME_LOWER"))) {
    return failure();
  }
  return append(frontend::convolve(op, image, filters, op.operand(2), params), results);
}

void onnx::addMatmuls(frontend::Frontend &frontend) {
  frontend.translators["Conv"] = translateConv;
  frontend.translators["Einsum"] = translateEinsum;
  frontend.translators["MatMul"] = translateMatMul;
  frontend.translators["Gemm"] = translateGemm;
}
