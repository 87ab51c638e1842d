//===- NonFinite.cpp - Where NaN and infinities come from -------------------------===//
//
// The interpreter keeps what it computed of every value. A NaN that no operand has was made by the op itself.
//
//===----------------------------------------------------------------------===//
#include "NonFinite.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"
#include <cmath>

using namespace mlir;
using namespace saccade::reference;

bool saccade::reference::hasNonFinite(const Cells *cells, bool isNaN) {
  if (!cells || !isa<FloatType>(cells->getElementType()))
    return false;
  for (int64_t i = 0; i < cells->size(); ++i)
    if (double value = cells->isKnown(i) ? cells->data()[i].real : 0; isNaN ? std::isnan(value) : std::isinf(value))
      return true;
  return false;
}

std::optional<Origin> saccade::reference::originOf(Frame &frame, bool isNaN) {
  auto has = [&](Value value) { return hasNonFinite(frame.computed(value), isNaN); };
  for (Operation &op : frame.getRegion().front()) {
    if (llvm::none_of(op.getResults(), has))
      continue;
    SetVector<Value> read(op.operand_begin(), op.operand_end());
    getUsedValuesDefinedAbove(op.getRegions(), read);
    if (llvm::any_of(read, has))
      continue;
    if (Frame *child = frame.existingChild(&op))
      if (std::optional<Origin> origin = originOf(*child, isNaN))
        return origin;
    return Origin{op.getLoc(), op.getName().getStringRef().str()};
  }
  return std::nullopt;
}
