//===- RowParts.cpp - Steps of split-KV by parts of their rows ----------------===//
//
// Row i · heads + h of a state is query i of head h, so the rows of either kind of part are adjacent.
//
//===----------------------------------------------------------------------===//
#include "RowParts.h"
#include "Emitter.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "saccade/Dialect/Attn/IR/Position.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

namespace {

/// `count` elements of a dimension, from `begin` on.
struct Part {
  unsigned dim;
  Value begin, count;
};

} // namespace

/// The view of `parts` of a memref and all elements of its other dimensions.
static Value viewOf(OpBuilder &b, Value source, ArrayRef<Part> parts) {
  int64_t rank = cast<MemRefType>(source.getType()).getRank();
  SmallVector<OpFoldResult> offsets(rank, b.getIndexAttr(0)), steps(rank, b.getIndexAttr(1));
  SmallVector<OpFoldResult> sizes = memref::getMixedSizes(b, source.getLoc(), source);
  for (const Part &part : parts)
    offsets[part.dim] = part.begin, sizes[part.dim] = part.count;
  return memref::SubViewOp::create(b, source.getLoc(), source, offsets, sizes, steps);
}

AccumulateOp device::computeInParts(AccumulateOp step, int64_t rows) {
  if (step.getScheduleAttr().getRows() <= rows)
    return step;
  OpBuilder b(step);
  Emitter e{b, step.getLoc(), b.getF32Type()};
  unsigned queryDim = *step.getQueryDims().position(Dim::Seq);
  std::optional<unsigned> headDim = step.getQueryDims().position(Dim::Head);
  Value heads = headDim ? e.size(step.getQuery(), *headDim) : e.index(1), queries = e.size(step.getQuery(), queryDim);
  Value most = e.index(rows), queriesOfPart = e.max(e.index(1), e.div(most, e.max(e.index(1), heads)));
  auto startLoop = [&](Value end, Value distance) {
    auto loop = scf::ForOp::create(b, e.loc, e.index(0), end, distance);
    b.setInsertionPointToStart(loop.getBody());
    return loop.getInductionVar();
  };
  Value query = startLoop(queries, queriesOfPart), head = startLoop(heads, most);
  // Each part overwrites shared memory that threads may still read for the previous part.
  e.barrier();
  Value queryCount = e.min(queriesOfPart, e.sub(queries, query)), headCount = e.min(most, e.sub(heads, head));
  Part ofState{0, e.add(e.mul(query, heads), head), e.mul(queryCount, headCount)};
  IRMapping views;
  SmallVector<Part> ofQuery = {{queryDim, query, queryCount}};
  if (headDim)
    ofQuery.push_back({*headDim, head, headCount});
  views.map(step.getQuery(), viewOf(b, step.getQuery(), ofQuery));
  for (Value part : step.getDpsInits())
    views.map(part, viewOf(b, part, ofState));
  Position at = emitPosition(b, e.loc, step);
  at.head = e.add(at.head, head), at.query = e.add(at.query, query);
  auto inLoops = cast<AccumulateOp>(b.clone(*step, views));
  inLoops.getAtMutable().assign(at.inOrder());
  step.erase();
  return inLoops;
}
