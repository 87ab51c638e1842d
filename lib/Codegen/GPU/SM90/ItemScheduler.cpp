//===- ItemScheduler.cpp - The work items of a CTA on sm_90a ------------------===//
#include "ItemScheduler.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

void ItemScheduler::init(Emitter &e) const {
  for (int64_t slot = 0; slot < slots; ++slot)
    Mbarrier{e.add(shared, 8 * slot)}.init(e, 1);
}

/// Emits the loop except for the end of its body, at which the builder is left.
ItemScheduler::Loop ItemScheduler::emitLoop(Emitter &e, Body body) const {
  Type i32 = e.b.getI32Type();
  Value first = NVVM::BlockIdXOp::create(e.b, e.loc, i32);
  auto whileItems = scf::WhileOp::create(
      e.b, e.loc, TypeRange{i32, i32}, ValueRange{first, e.i32(0)},
      [&](OpBuilder &b, Location loc, ValueRange at) {
        Value exists = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, at[0], count);
        scf::ConditionOp::create(b, loc, exists, at);
      },
      [](OpBuilder &, Location, ValueRange) {});
  ValueRange at = whileItems.getAfterArguments();
  Loop loop{whileItems.getAfterBody(), at[0], at[1]};
  e.b.setInsertionPointToEnd(loop.body);
  body(loop);
  e.b.setInsertionPointToEnd(loop.body);
  return loop;
}

ItemScheduler::Slot ItemScheduler::slotAt(Emitter &e, Value place) const {
  Value slot = e.rem(place, slots), parity = e.rem(e.div(place, slots), 2);
  return {parity, e.add(e.add(shared, 8 * slots), e.mul(slot, 4)), {e.add(shared, e.mul(slot, 8))}};
}

Value ItemScheduler::takeItem(Emitter &e) const {
  Value ctas = NVVM::GridDimXOp::create(e.b, e.loc, e.b.getI32Type());
  Value isShared = arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::ult, ctas, count);
  return e.choose(
      e.andi(isShared, e.isFirstLane()),
      [&]() -> SmallVector<Value> {
        Value taken = LLVM::AtomicRMWOp::create(e.b, e.loc, LLVM::AtomicBinOp::add, counter, e.i32(1),
                                                LLVM::AtomicOrdering::monotonic, "device");
        return {e.add(taken, ctas)};
      },
      [&]() -> SmallVector<Value> { return {count}; })[0];
}

void ItemScheduler::produce(Emitter &e, Body body) const {
  OpBuilder::InsertionGuard guard(e.b);
  Loop loop = emitLoop(e, body);
  Value taken = takeItem(e);
  Slot slot = slotAt(e, loop.place);
  e.ifElse(e.isFirstLane(), [&] {
    LLVM::StoreOp::create(e.b, e.loc, taken, e.sharedPointer(slot.number));
    slot.full.arriveIf(e, arith::ConstantIntOp::create(e.b, e.loc, 1, 1));
  });
  end(e, loop, e.shuffleFrom(taken, e.i32(0)));
}

void ItemScheduler::consume(Emitter &e, Body body) const {
  OpBuilder::InsertionGuard guard(e.b);
  Loop loop = emitLoop(e, body);
  Slot slot = slotAt(e, loop.place);
  slot.full.wait(e, slot.parity);
  Value next = LLVM::LoadOp::create(e.b, e.loc, e.b.getI32Type(), e.sharedPointer(slot.number));
  end(e, loop, e.shuffleFrom(next, e.i32(0)));
}

void ItemScheduler::end(Emitter &e, const Loop &loop, Value next) const {
  scf::YieldOp::create(e.b, e.loc, ValueRange{next, e.add(loop.place, 1)});
}
