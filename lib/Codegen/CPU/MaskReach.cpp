//===- MaskReach.cpp - Which columns of a tile a few queries see --------------===//
//
// A tile that is partial for all of its queries may be empty for twelve of them but for a few panels. Panels are tested
// one by one; the first and the last that may hold anything are the ends.
//
//===----------------------------------------------------------------------===//
#include "MaskReach.h"
#include "saccade/Dialect/Attn/Analysis/EmittedInputs.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::cpu;

KeyRange saccade::cpu::emitMaskReach(Emitter &e, AccumulateOp op, Value head, Value firstQuery, Value lastQuery,
                                     KeyRange columns) {
  int64_t panel = 2 * e.lanes();
  Value begin = e.roundDown(e.max(columns.begin, e.index(0)), panel);
  SmallVector<Value> ends = {columns.end, columns.begin};
  auto loop = scf::ForOp::create(e.b, e.loc, begin, columns.end, e.index(panel), ends);
  OpBuilder b = OpBuilder::atBlockBegin(loop.getBody());
  NumberBuilder numbers(b, e.loc, loop);
  auto at = [&](unsigned i) { return op.getAt().empty() ? Number(0) : numbers.fromValue(op.getAt()[i]); };
  Number first = Number(loop.getInductionVar(), 48), start = at(3);
  Number last = numbers.sub(numbers.min(numbers.add(first, panel), Number(columns.end, 48)), 1);
  MaskBox box{
      at(0), numbers.fromValue(head), {Number(firstQuery), Number(lastQuery)}, {numbers.add(start, first), numbers.add(start, last)}};
  EmittedInputs inputs(op);
  Coverage coverage = analyzeMask(op.getMask(), box, inputs, numbers);
  if (coverage.mayHold.isConstant(1)) {
    // Nothing would ever be left out. What was emitted is dead code.
    loop.erase();
    return columns;
  }
  Value mayHold = numbers.materialize(coverage.mayHold, /*isTruth=*/true);
  b.setInsertionPointToEnd(loop.getBody());
  ValueRange carried = loop.getRegionIterArgs();
  Value end = arith::AddIOp::create(b, e.loc, loop.getInductionVar(), loop.getStep());
  Value lower = arith::MinSIOp::create(b, e.loc, carried[0], loop.getInductionVar());
  scf::YieldOp::create(b, e.loc,
                       ValueRange{arith::SelectOp::create(b, e.loc, mayHold, lower, carried[0]),
                                  arith::SelectOp::create(b, e.loc, mayHold, end, carried[1])});
  return {e.max(columns.begin, loop.getResult(0)), e.min(columns.end, loop.getResult(1))};
}
