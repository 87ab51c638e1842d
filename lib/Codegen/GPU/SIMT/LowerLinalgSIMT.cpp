//===- LowerLinalgSIMT.cpp - Structured ops as loops over threads -------------===//
//
// Distributes the result elements of an op over the threads of a CTA. It runs after the lowering of attention, which
// consumes the structured ops that initialize its states.
//
//===----------------------------------------------------------------------===//
#include "MatmulSIMT.h"
#include "mlir/Dialect/Affine/Utils.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "saccade/Codegen/GPU/Passes.h"
#include "saccade/Support/Kernels.h"

namespace saccade {
#define GEN_PASS_DEF_LOWERLINALGSIMT
#include "saccade/Codegen/GPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

namespace {

/// Lowers one op; each result element is computed by one thread.
class ElementLoop {
public:
  ElementLoop(const Emitter &e, linalg::LinalgOp op) : e(e), op(op) {}

  void run() {
    for (Range range : op.createLoopRanges(e.b, e.loc))
      sizes.push_back(e.toI32(getValueOrCreateConstantIndexOp(e.b, e.loc, range.size)));
    op.getParallelDims(parallel);
    op.getReductionDims(reductions);
    Value count = e.i32(1);
    for (unsigned loop : parallel)
      count = e.b.createOrFold<arith::MulIOp>(e.loc, count, sizes[loop]);
    positions.resize(sizes.size());
    e.loop(e.thread(), count, threadsPerCTA, [&](Value element) {
      for (unsigned loop : llvm::reverse(parallel)) {
        positions[loop] = e.toIndex(e.b.createOrFold<arith::RemUIOp>(e.loc, element, sizes[loop]));
        element = e.b.createOrFold<arith::DivUIOp>(e.loc, element, sizes[loop]);
      }
      SmallVector<Value> results;
      for (OpOperand &init : op.getDpsInitsMutable())
        results.push_back(op.payloadUsesValueFromOperand(&init) || !reductions.empty() ? load(init) : Value());
      results = reduce(reductions, results);
      for (auto [init, result] : llvm::zip_equal(op.getDpsInitsMutable(), results))
        e.store(result, init.get(), subscripts(init));
    });
  }

private:
  /// Emits the reduction loops `rest` around the body, with the accumulators `running`.
  SmallVector<Value> reduce(ArrayRef<unsigned> rest, ArrayRef<Value> running) {
    if (rest.empty())
      return body(running);
    return e.loop(e.i32(0), sizes[rest.front()], 1, running, [&](Value position, ValueRange carried) {
      positions[rest.front()] = e.toIndex(position);
      return reduce(rest.drop_front(), SmallVector<Value>(carried));
    });
  }

  SmallVector<Value> body(ArrayRef<Value> running) {
    IRMapping values;
    for (OpOperand *input : op.getDpsInputOperands())
      if (!op.getMatchingBlockArgument(input).use_empty())
        values.map(op.getMatchingBlockArgument(input), load(*input));
    for (auto [argument, value] : llvm::zip_equal(op.getRegionOutputArgs(), running))
      if (value)
        values.map(argument, value);
    for (Operation &inner : op.getBlock()->without_terminator()) {
      Operation *clone = e.b.clone(inner, values);
      SmallVector<linalg::IndexOp> indices;
      clone->walk([&](linalg::IndexOp index) { indices.push_back(index); });
      for (linalg::IndexOp index : indices) {
        if (index == clone)
          values.map(inner.getResult(0), positions[index.getDim()]);
        index.getResult().replaceAllUsesWith(positions[index.getDim()]);
        index.erase();
      }
    }
    return llvm::map_to_vector(op.getBlock()->getTerminator()->getOperands(),
                               [&](Value result) { return values.lookupOrDefault(result); });
  }

  SmallVector<Value> subscripts(OpOperand &operand) {
    return llvm::map_to_vector(op.getMatchingIndexingMap(&operand).getResults(), [&](AffineExpr expr) {
      return affine::expandAffineExpr(e.b, e.loc, expr, positions, {});
    });
  }

  Value load(OpOperand &operand) {
    return isa<MemRefType>(operand.get().getType()) ? e.load(operand.get(), subscripts(operand)) : operand.get();
  }

  Emitter e;
  linalg::LinalgOp op;
  SmallVector<Value> sizes;     ///< of the loops, i32
  SmallVector<Value> positions; ///< in the loops, index
  SmallVector<unsigned> parallel, reductions;
};

/// Whether `op` stores to memory that the threads share, that is, not to an alloca.
bool isShared(memref::StoreOp op) {
  Value buffer = op.getMemRef();
  while (Operation *maker = buffer.getDefiningOp()) {
    if (isa<memref::AllocaOp>(maker))
      return false;
    auto view = dyn_cast<ViewLikeOpInterface>(maker);
    if (!view)
      break;
    buffer = view.getViewSource();
  }
  return true;
}

struct LowerLinalgSIMT : saccade::impl::LowerLinalgSIMTBase<LowerLinalgSIMT> {
  void runOnOperation() override {
    SmallVector<linalg::LinalgOp> ops;
    SmallVector<memref::StoreOp> stores;
    getOperation().walk([&](Operation *op) {
      if (auto structured = dyn_cast<linalg::LinalgOp>(op))
        ops.push_back(structured);
      if (auto store = dyn_cast<memref::StoreOp>(op); store && !store->hasAttr(perThreadStoreAttr) && isShared(store))
        stores.push_back(store);
    });
    OpBuilder b(&getContext());
    for (memref::StoreOp store : stores) {
      b.setInsertionPointAfter(store);
      Emitter e{b, store.getLoc(), b.getF32Type()};
      // Barriers order the store after earlier reads and before later ones.
      e.barrier();
      e.ifElse(e.compare(arith::CmpIPredicate::eq, e.thread(), e.i32(0)),
               [&] { store->moveBefore(b.getInsertionBlock(), b.getInsertionPoint()); });
      e.barrier();
    }
    for (linalg::LinalgOp op : ops) {
      b.setInsertionPoint(op);
      Emitter e{b, op.getLoc(), b.getF32Type()};
      if (!lowerMatmulSIMT(b, op))
        ElementLoop(e, op).run();
      if (!isa<func::ReturnOp>(op->getNextNode()))
        e.barrier();
      op->erase();
    }
    if (!ops.empty() && !getOperation()->hasAttr(familyAttr))
      getOperation()->setAttr(familyAttr, b.getStringAttr("simt"));
  }
};

} // namespace
