//===- EvaluateRegion.cpp - Score and mask regions at one pair ----------------===//
//
// Code of a thread is scalar, so the region's ops are cloned; reads of captures become loads. Indices are clamped
// instead of guarded, because regions are also evaluated at masked positions and branch-free loads overlap.
//
//===----------------------------------------------------------------------===//
#include "EvaluateRegion.h"
#include "../Common/IntegerDivision.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

/// Replaces a read of a length or an op whose tensor operand has become a memref.
static Value replaceRead(Emitter &e, Operation *read, ScoringOpInterface op) {
  OpBuilder::InsertionGuard guard(e.b);
  e.b.setInsertionPoint(read);
  if (auto length = dyn_cast<LengthOp>(read))
    return length.getRole() == Role::Query ? op.getQLen() : op.getKvLen();
  Value source = read->getOperand(0);
  if (isa<tensor::DimOp>(read))
    return memref::DimOp::create(e.b, e.loc, source, read->getOperand(1));
  SmallVector<Value> position;
  for (auto [dim, index] : llvm::enumerate(read->getOperands().drop_front())) {
    Value last = e.add(e.size(source, dim), -1);
    position.push_back(e.max(e.min(index, last), e.index(0)));
  }
  return e.load(source, position);
}

IRMapping PositionRegion::emit(Emitter &e, Value score, RowPosition query, Value key, const IRMapping &known) {
  RegionArguments args = getRegionArguments(region, /*numbers=*/score ? 1 : 0);
  IRMapping values = known;
  if (score)
    values.map(args.score, score);
  values.map(args.batch, emitPosition(e.b, e.loc, op).batch);
  values.map(args.head, query.head);
  values.map(args.query, query.query);
  values.map(args.key, key);
  values.map(args.captures, op.getCaptures());
  for (Operation &original : region.front().without_terminator()) {
    if (llvm::all_of(original.getResults(), [&](Value x) { return values.contains(x); }))
      continue;
    if (scoreTanh) {
      auto operands = llvm::map_to_vector(original.getOperands(), [&](Value x) { return values.lookupOrDefault(x); });
      if (Value value = emitScoreOp(e, original, operands, *scoreTanh)) {
        values.map(original.getResult(0), value);
        continue;
      }
    }
    Operation *clone = e.b.clone(original, values);
    if (scoreTanh && clone->getNumResults() == 1 && isUsedContinuously(original.getResult(0)))
      permitFusion(clone->getResult(0));
    SmallVector<Operation *> reads;
    clone->walk([&](Operation *inner) {
      if (isa<LengthOp, tensor::ExtractOp, tensor::DimOp>(inner))
        reads.push_back(inner);
      if (isIntegerDivision(inner)) {
        OpBuilder before(inner);
        inner->setOperand(1, guardDivisor(before, e.loc, inner->getOperand(1)));
      }
    });
    for (Operation *read : reads) {
      Value value = replaceRead(e, read, op);
      if (read == clone)
        values.map(original.getResult(0), value);
      read->replaceAllUsesWith(ValueRange{value});
      read->erase();
    }
  }
  return values;
}

SmallVector<Value> PositionRegion::evaluateAll(Emitter &e, Value score, RowPosition query, Value key) {
  IRMapping values = emit(e, score, query, key);
  return llvm::map_to_vector(region.front().getTerminator()->getOperands(),
                             [&](Value yielded) { return values.lookupOrDefault(yielded); });
}
