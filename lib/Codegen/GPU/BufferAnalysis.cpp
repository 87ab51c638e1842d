//===- BufferAnalysis.cpp - Extents and contents of buffers -------------------===//
#include "BufferAnalysis.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"
#include "saccade/Dialect/Attn/Analysis/Memory.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

bool device::isShared(Value buffer) { return getBaseMemory(buffer).getDefiningOp<memref::AllocOp>() != nullptr; }

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
  // Other values may be the same memory as a parameter of the kernel.
  linalg::FillOp fill = isShared(op.getDpsInits()[0]) ? getZeroFill(op) : linalg::FillOp();
  if (!fill)
    return false;
  fill->erase();
  return true;
}
