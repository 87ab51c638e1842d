//===- BufferAnalysis.cpp - Extents and contents of buffers -------------------===//
#include "BufferAnalysis.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

Value device::getRoot(Value buffer) {
  while (auto view = buffer.getDefiningOp<ViewLikeOpInterface>())
    buffer = view.getViewSource();
  return buffer;
}

bool device::isShared(Value buffer) { return getRoot(buffer).getDefiningOp<memref::AllocOp>() != nullptr; }

/// A bound of the extent of dimension `dim` of a buffer.
static std::optional<int64_t> boundOfDim(Value buffer, unsigned dim) {
  auto type = cast<MemRefType>(buffer.getType());
  if (!type.isDynamicDim(dim))
    return type.getDimSize(dim);
  auto part = buffer.getDefiningOp<memref::SubViewOp>();
  if (!part || !isShared(buffer))
    return std::nullopt;
  llvm::SmallBitVector dropped = part.getDroppedDims();
  unsigned source = 0;
  for (unsigned kept = 0;; ++source)
    if (!dropped[source] && kept++ == dim)
      break;
  return boundOfDim(part.getSource(), source);
}

std::optional<int64_t> device::boundOfExtent(linalg::LinalgOp op, unsigned loop) {
  std::optional<int64_t> least;
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isa<MemRefType>(operand.get().getType()))
      continue;
    for (auto [dim, expr] : llvm::enumerate(op.getMatchingIndexingMap(&operand).getResults())) {
      auto along = dyn_cast<AffineDimExpr>(expr);
      std::optional<int64_t> bound;
      if (along && along.getPosition() == loop)
        bound = boundOfDim(operand.get(), dim);
      if (bound)
        least = std::min(least.value_or(*bound), *bound);
    }
  }
  return least;
}

bool device::takeZeroFill(linalg::LinalgOp op) {
  Value result = op.getDpsInits()[0], root = getRoot(result);
  // Other values may be the same memory as a parameter of the kernel.
  if (!isShared(result))
    return false;
  for (Operation *before = op->getPrevNode(); before; before = before->getPrevNode()) {
    if (auto fill = dyn_cast<linalg::FillOp>(before); fill && fill.getOutputs()[0] == result) {
      if (!matchPattern(fill.getInputs()[0], m_AnyZeroFloat()))
        return false;
      fill->erase();
      return true;
    }
    bool isUse = llvm::any_of(before->getOperands(), [&](Value operand) {
      return isa<MemRefType>(operand.getType()) && getRoot(operand) == root;
    });
    if (before->getNumRegions() > 0 && !isa<linalg::LinalgOp>(before))
      return false;
    if (isUse && !isa<ViewLikeOpInterface>(before))
      return false;
  }
  return false;
}
