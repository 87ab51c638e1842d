//===- HeadSections.cpp - The order of work items over heads ------------------===//
#include "HeadSections.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "saccade/Support/IndexEmitter.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

/// What the keys and values of a section may take of the L2 cache, in bytes, as in FlashAttention-3. GPUs of sm_80 and
/// sm_90 have 40 and 50 MiB (NVIDIA A100 and H100 Tensor Core GPU Architecture).
static constexpr int64_t sectionBytes = 32 << 20;

HeadSections::HeadSections(OpBuilder &b, AttentionOp op, Value heads, Value items, Value keys) : heads(heads) {
  IndexEmitter e{b, op.getLoc()};
  auto sizeOf = [&](Value operand, DimsAttr dims, Dim dim) {
    return getValueOrCreateConstantIndexOp(b, e.loc, getDimSize(b, e.loc, operand, dims, dim));
  };
  auto rowBytes = [&](Value operand, DimsAttr dims) {
    unsigned bits = getElementTypeOrSelf(operand).getIntOrFloatBitWidth();
    return e.mul(sizeOf(operand, dims, Dim::Depth), static_cast<int64_t>(llvm::divideCeil(bits, 8)));
  };
  // Without heads or keys there are no items, but divisors must be nonzero.
  auto divisor = [&](Value x) { return e.max(e.index(1), x); };
  Value ofPosition = e.add(rowBytes(op.getKey(), op.getKeyDims()), rowBytes(op.getValue(), op.getValueDims()));
  Value fitting = divisor(e.div(e.index(sectionBytes), divisor(e.mul(keys, ofPosition))));
  Value group = divisor(e.div(sizeOf(op.getQuery(), op.getQueryDims(), Dim::Head),
                              divisor(sizeOf(op.getKey(), op.getKeyDims(), Dim::Head))));
  Value kvHeads = divisor(e.div(heads, group)), sections = e.ceilDiv(kvHeads, fitting);
  size = e.mul(e.ceilDiv(kvHeads, sections), group);
  itemsOfSection = divisor(e.mul(size, items));
  count = e.mul(heads, items);
}

HeadSections::Item HeadSections::item(OpBuilder &b, Location loc, Value task) const {
  IndexEmitter e{b, loc};
  std::optional<int64_t> all = getConstantIntValue(heads), some = getConstantIntValue(size);
  if (all && some && *all <= *some)
    return {e.rem(task, size), e.div(task, size)};
  Value section = e.div(task, itemsOfSection), inSection = e.rem(task, itemsOfSection), first = e.mul(section, size);
  bool isWhole = all && some && *all % *some == 0;
  Value ofSection = isWhole ? size : e.min(size, e.sub(heads, first));
  return {e.add(first, e.rem(inSection, ofSection)), e.div(inSection, ofSection)};
}
