//===- PairFragment.cpp - The pairs of a gradient that a thread has -----------===//
#include "PairFragment.h"
#include "../ElementOp.h"
#include "MMA.h"
#include "PairOp.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

SmallVector<PairFragment::Values>
PairFragment::evaluate(Emitter &e, GradientStep &step, ArrayRef<unsigned> used, ArrayRef<Values> products, bool isWhole,
                       function_ref<Value(OpOperand &, int64_t offset)> loadVector) const {
  SmallVector<Values> words(used.size());
  for (int64_t i = 0; i < columns / 2; i += 2) {
    // Two neighbouring columns of a row.
    SmallVector<Values> numbers(2);
    for (int64_t j : {0, 1}) {
      int64_t upper = i % 4 / 2, offset = firstColumn + i / 4 * 8 + j;
      Value row = e.add(place.row, 8 * upper), column = e.add(place.column, offset);
      Value isInside = isWhole ? Value() : e.isAtMost(column, lastColumn);
      // Tensors are not read beyond their end.
      Values places(2);
      places[step.rowLoop] = e.min(row, lastRow), places[step.columnLoop()] = e.min(column, lastColumn);
      numbers[j] = PairOp(e, step.pairs).evaluate(places, [&](OpOperand &operand, ArrayRef<Value> positions) -> Value {
        const Values &product = products[operand.getOperandNumber()];
        if (!product.empty())
          return product[i + j];
        if (!isa<MemRefType>(operand.get().getType()))
          return operand.get();
        if (Value element = loadVector(operand, offset))
          return element;
        return e.load(operand.get(), subscriptsOf(e, step.pairs, operand, positions));
      });
      if (isInside)
        for (Value &number : numbers[j])
          number = e.select(isInside, number, e.scalar(0.0));
    }
    for (auto [n, result] : llvm::enumerate(used))
      words[n].push_back(packWord(e, step.element, numbers[0][result], numbers[1][result]));
  }
  return words;
}

void device::storeFragment(Emitter &e, linalg::GenericOp store, Value registers, FragmentPlace place) {
  Range rows = linalg::LinalgOp(store).createLoopRanges(e.b, e.loc)[0];
  Value end = getValueOrCreateConstantIndexOp(e.b, e.loc, rows.size);
  OpOperand &init = *store.getDpsInitOperand(0);
  int64_t count = cast<MemRefType>(registers.getType()).getDimSize(0);
  for (int64_t upper : {0, 1}) {
    Value row = e.toIndex(e.add(place.row, 8 * upper));
    e.ifElse(e.isLess(row, end), [&] {
      for (int64_t i = 0; i < count; ++i) {
        if (i % 4 / 2 != upper)
          continue;
        Value positions[] = {row, e.toIndex(e.add(place.column, i / 4 * 8 + i % 2))};
        IRMapping values;
        values.map(store.getBody()->getArgument(0), e.load(registers, i));
        for (Operation &inner : store.getBlock()->without_terminator())
          cloneAt(e, inner, values, positions);
        e.storeShared(values.lookupOrDefault(store.getBlock()->getTerminator()->getOperand(0)), init.get(),
                      subscriptsOf(e, store, init, positions));
      }
    });
  }
}
