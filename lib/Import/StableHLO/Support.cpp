//===- Support.cpp - Operand and attribute accessors of StableHLO translators -===//
#include "StableHLO.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::stablehlo;

RankedTensorType stablehlo::typeOf(Value tensor) { return cast<RankedTensorType>(tensor.getType()); }

Type stablehlo::declaredElement(FrontendOp &op, unsigned i) {
  Operation *operation = op.getOperation();
  auto type = i < operation->getNumResults() ? dyn_cast<RankedTensorType>(operation->getResult(i).getType()) : nullptr;
  return type ? type.getElementType() : nullptr;
}

LogicalResult stablehlo::requireOperands(FrontendOp &op, unsigned count) {
  if (op.numOperands() == count && op.operands().size() == count && op.getOperation()->getNumResults() >= 1)
    return success();
  return op.error() << "found " << op.numOperands() << " operands and " << op.getOperation()->getNumResults()
                    << " results, expected " << count << " and 1";
}

FailureOr<SmallVector<int64_t>> stablehlo::requireIntegers(FrontendOp &op, StringRef attribute,
                                                           std::optional<size_t> count) {
  std::optional<SmallVector<int64_t>> found = op.integers(attribute);
  if (!found)
    return op.error() << "the attribute '" << attribute << "' is missing or not a list of integers";
  if (count && found->size() != *count)
    return op.error() << "the attribute '" << attribute << "' has " << found->size() << " integers, expected "
                      << *count;
  return *found;
}

LogicalResult stablehlo::requireDims(FrontendOp &op, ArrayRef<int64_t> dims, int64_t rank, StringRef what) {
  for (auto [i, dim] : llvm::enumerate(dims)) {
    if (dim < 0 || dim >= rank)
      return op.error() << what << ": dimension " << dim << " is outside of a tensor with " << rank << " dimensions";
    if (llvm::is_contained(dims.take_front(i), dim))
      return op.error() << what << ": dimension " << dim << " occurs twice";
  }
  return success();
}

FailureOr<frontend::OpaqueText> stablehlo::requireOpaque(FrontendOp &op, StringRef attribute, StringRef kind) {
  std::optional<frontend::OpaqueText> text = frontend::parseOpaque(op.attribute(attribute));
  if (!text || text->kind != kind)
    return op.error() << "the attribute '" << attribute << "' is missing or not of the form #stablehlo." << kind
                      << "<...>";
  return *text;
}

FailureOr<frontend::Extents> stablehlo::requireExtents(FrontendOp &op, unsigned i, StringRef role) {
  Value tensor = op.operand(i);
  if (!isa<IntegerType, IndexType>(typeOf(tensor).getElementType()) || typeOf(tensor).getRank() != 1)
    return op.error() << role << " is " << tensor.getType() << ", expected a list of integers";
  std::optional<SmallVector<OpFoldResult>> elements = frontend::elementsOf(tensor);
  if (!elements)
    return op.error() << role << " must be constant or computed from shapes, found the run-time value "
                      << tensor.getType();
  frontend::Extents extents = frontend::toExtents(op.builder(), *elements);
  for (OpFoldResult each : extents)
    if (std::optional<int64_t> extent = getConstantIntValue(each); extent && *extent < 0)
      return op.error() << role << " has a negative element, " << *extent;
  return extents;
}

LogicalResult stablehlo::requireSameShape(FrontendOp &op, ValueRange tensors) {
  SmallVector<int64_t> shape;
  for (Value tensor : tensors) {
    RankedTensorType type = typeOf(tensor);
    if (type.getRank() == 0)
      continue;
    if (shape.empty())
      shape.assign(type.getShape().begin(), type.getShape().end());
    bool fits = shape.size() == type.getShape().size();
    for (int64_t i = 0; fits && i < type.getRank(); ++i)
      fits = shape[i] == type.getDimSize(i) || ShapedType::isDynamic(shape[i]) || type.isDynamicDim(i);
    if (!fits) {
      InFlightDiagnostic error = op.error() << "the operands";
      for (Value each : tensors)
        error << " " << each.getType();
      return error << " have different shapes";
    }
    // Prefer static extents.
    for (int64_t i = 0; i < type.getRank(); ++i)
      shape[i] = ShapedType::isDynamic(shape[i]) ? type.getDimSize(i) : shape[i];
  }
  return success();
}
