//===- Support.cpp - Operand accessors of ONNX translators ----------------===//
#include "Onnx.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;

int64_t onnx::opsetOf(FrontendOp &op) {
  if (auto own = op.getOperation()->getAttrOfType<IntegerAttr>("onnx.opset"))
    return own.getInt();
  auto module = op.getOperation()->getParentOfType<ModuleOp>();
  auto version = module ? module->getAttrOfType<IntegerAttr>("onnx.opset") : nullptr;
  return version ? version.getInt() : newestOpset;
}

LogicalResult onnx::requireOperands(FrontendOp &op, unsigned minCount, unsigned maxCount) {
  unsigned found = op.operands().size();
  if (found < minCount || found > maxCount) {
    InFlightDiagnostic error = op.error();
    error << "found " << found << " inputs, expected " << minCount;
    if (maxCount != minCount)
      error << " to " << maxCount;
    return error;
  }
  for (unsigned i = 0; i < minCount; ++i)
    if (!op.operand(i))
      return op.error() << "input " << i << " is missing";
  return success();
}

/// The known elements of integer operand `i`.
static FailureOr<SmallVector<OpFoldResult>> requireElements(FrontendOp &op, unsigned i, StringRef role) {
  Value tensor = op.operand(i);
  if (!tensor || !isa<IntegerType, IndexType>(elementOf(tensor)))
    return op.error() << role << " is missing or not an integer tensor";
  if (std::optional<SmallVector<OpFoldResult>> elements = frontend::elementsOf(tensor))
    return *elements;
  return op.error() << role << " must be constant or computed from shapes, found the run-time value "
                    << tensor.getType();
}

FailureOr<frontend::Extents> onnx::requireExtents(FrontendOp &op, unsigned i, StringRef role) {
  FailureOr<SmallVector<OpFoldResult>> elements = requireElements(op, i, role);
  if (failed(elements))
    return failure();
  return frontend::toExtents(op.builder(), *elements);
}

FailureOr<OpFoldResult> onnx::requireExtent(FrontendOp &op, unsigned i, StringRef role) {
  FailureOr<frontend::Extents> extents = requireExtents(op, i, role);
  if (failed(extents))
    return failure();
  if (extents->size() != 1)
    return op.error() << role << " has " << extents->size() << " elements, expected 1";
  return extents->front();
}

FailureOr<frontend::Extents> onnx::requireShape(FrontendOp &op, unsigned i, StringRef role) {
  FailureOr<frontend::Extents> extents = requireExtents(op, i, role);
  if (failed(extents))
    return failure();
  int64_t count = 1;
  for (auto [dim, extent] : llvm::enumerate(*extents)) {
    int64_t size = getConstantIntValue(extent).value_or(1);
    if (size < 0)
      return op.error() << "extent " << dim << " of " << role << " is " << size;
    if (size > 0 && (llvm::MulOverflow(count, size, count) || count > frontend::maxTensorElements))
      return op.error() << role << " has too many elements";
  }
  return extents;
}

FailureOr<std::optional<SmallVector<int64_t>>> onnx::integersOf(FrontendOp &op, unsigned i, StringRef name) {
  using Found = std::optional<SmallVector<int64_t>>;
  if (!op.operand(i))
    return Found(op.integers(name));
  FailureOr<SmallVector<OpFoldResult>> elements = requireElements(op, i, name);
  if (failed(elements))
    return failure();
  SmallVector<int64_t> integers;
  for (OpFoldResult each : *elements) {
    auto constant = dyn_cast<Attribute>(each);
    if (!constant)
      return op.error() << name << " must be constant";
    integers.push_back(cast<IntegerAttr>(constant).getValue().getSExtValue());
  }
  return Found(std::move(integers));
}

Type onnx::elementType(MLIRContext *context, int64_t dataType) {
  Builder b(context);
  switch (dataType) {
  case 1:
    return b.getF32Type();
  case 3:
    return b.getI8Type();
  case 5:
    return b.getIntegerType(16);
  case 6:
    return b.getI32Type();
  case 7:
    return b.getI64Type();
  case 9:
    return b.getI1Type();
  case 10:
    return b.getF16Type();
  case 11:
    return b.getF64Type();
  case 16:
    return b.getBF16Type();
  default:
    return nullptr;
  }
}
