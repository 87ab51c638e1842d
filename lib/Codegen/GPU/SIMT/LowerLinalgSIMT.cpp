//===- LowerLinalgSIMT.cpp - Structured ops as loops over threads -------------===//
//
// Distributes the result elements of an op over the threads of a CTA. It runs after the lowering of attention, which
// consumes the structured ops that initialize its states.
//
//===----------------------------------------------------------------------===//
#include "../BufferAnalysis.h"
#include "../ElementOp.h"
#include "MatmulSIMT.h"
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

/// Elements of a row that a thread computes together.
static constexpr int64_t vectorElements = 4;

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
    positions.resize(sizes.size());
    // The elements are counted in a space of constant extents where bounds are known, so that their positions need no
    // division by a number of run time. Elements beyond the sizes are skipped.
    extents = sizes;
    auto outer = llvm::find_if(parallel, [&](unsigned loop) { return !matchPattern(sizes[loop], m_One()); });
    ArrayRef<unsigned> inner(outer == parallel.end() ? outer : outer + 1, parallel.end());
    std::optional<int64_t> innerCount = 1;
    for (unsigned loop : inner) {
      std::optional<int64_t> bound = boundOfExtent(op, loop);
      if (bound)
        extents[loop] = e.i32(*bound);
      innerCount = innerCount && bound ? std::optional(*innerCount * *bound) : std::nullopt;
    }
    // Positions are computed here: those of several ops would be live across the loops between them.
    Value thread = e.optimizationBarrier(e.thread());
    int64_t width = inner.empty() ? 1 : consecutiveElements(inner.back());
    if (outer != parallel.end() && innerCount && *innerCount > 0 && threadsPerCTA % (*innerCount / width) == 0) {
      // The positions of a thread differ in the outer loop only.
      for (unsigned loop : parallel)
        positions[loop] = e.index(0);
      int64_t threads = *innerCount / width;
      ifInside(locate(e.mul(e.rem(thread, threads), width), inner), [&] {
        e.loop(e.div(thread, threads), sizes[*outer], threadsPerCTA / threads, [&](Value position) {
          positions[*outer] = e.toIndex(position);
          if (width > 1)
            computeElements(inner.back(), width);
          else
            computeElement();
        });
      });
      return;
    }
    Value count = e.i32(1);
    for (unsigned loop : parallel)
      count = e.b.createOrFold<arith::MulIOp>(e.loc, count, extents[loop]);
    e.loop(thread, count, threadsPerCTA,
           [&](Value element) { ifInside(locate(element, parallel), [&] { computeElement(); }); });
  }

private:
  /// Sets the positions in `loops`, of element number `element` below the product of their extents. Returns whether
  /// they are within the sizes, null if they always are.
  Value locate(Value element, ArrayRef<unsigned> loops) {
    Value isInside;
    for (auto [i, loop] : llvm::enumerate(llvm::reverse(loops))) {
      Value position = element;
      if (i + 1 < loops.size()) {
        position = e.rem(element, extents[loop]);
        element = e.div(element, extents[loop]);
      }
      if (!isEqualConstantIntOrValue(extents[loop], sizes[loop])) {
        Value isBelow = e.isLess(position, sizes[loop]);
        isInside = isInside ? e.andi(isInside, isBelow) : isBelow;
      }
      positions[loop] = e.toIndex(position);
    }
    return isInside;
  }

  void ifInside(Value isInside, function_ref<void()> body) {
    if (isInside)
      e.ifElse(isInside, body);
    else
      body();
  }

  /// The elements along `loop` that a thread computes together: loads and stores of shared memory then have several of
  /// them. 1 unless all memory with these elements is the kernel's, in this order.
  int64_t consecutiveElements(unsigned loop) {
    std::optional<int64_t> extent = getConstantIntValue(sizes[loop]);
    if (!reductions.empty() || !extent || *extent % vectorElements != 0)
      return 1;
    for (OpOperand &operand : op->getOpOperands()) {
      AffineMap map = op.getMatchingIndexingMap(&operand);
      auto type = dyn_cast<MemRefType>(operand.get().getType());
      if (!type || !map.isFunctionOfDim(loop))
        continue;
      SmallVector<int64_t> strides;
      int64_t offset = 0;
      bool isLast = map.getResults().back() == getAffineDimExpr(loop, map.getContext());
      if (!isLast || !map.isProjectedPermutation() || !isShared(operand.get()) ||
          failed(type.getStridesAndOffset(strides, offset)) || strides.back() != 1)
        return 1;
    }
    return vectorElements;
  }

  SmallVector<Value> initialValues() {
    SmallVector<Value> values;
    for (OpOperand &init : op.getDpsInitsMutable())
      values.push_back(op.payloadUsesValueFromOperand(&init) || !reductions.empty() ? load(init) : Value());
    return values;
  }

  void storeAll(ArrayRef<Value> results) {
    for (auto [init, result] : llvm::zip_equal(op.getDpsInitsMutable(), results))
      e.store(result, init.get(), subscripts(init));
  }

  void computeElement() { storeAll(reduce(reductions, initialValues())); }

  /// Computes `count` elements along `loop`. Loads come before all stores, so that LLVM can merge them.
  void computeElements(unsigned loop, int64_t count) {
    Value first = positions[loop];
    auto forAll = [&](function_ref<void(int64_t)> each) {
      for (int64_t i = 0; i < count; ++i) {
        positions[loop] = e.add(first, i);
        each(i);
      }
    };
    SmallVector<IRMapping> loaded(count);
    SmallVector<SmallVector<Value>> values(count);
    forAll([&](int64_t i) { loaded[i] = loadInputs(), values[i] = initialValues(); });
    forAll([&](int64_t i) { values[i] = body(loaded[i], values[i]); });
    forAll([&](int64_t i) { storeAll(values[i]); });
    positions[loop] = first;
  }

  /// Emits the reduction loops `rest` around the body, with the accumulators `running`.
  SmallVector<Value> reduce(ArrayRef<unsigned> rest, ArrayRef<Value> running) {
    if (rest.empty())
      return body(loadInputs(), running);
    return e.loop(e.i32(0), sizes[rest.front()], 1, running, [&](Value position, ValueRange carried) {
      positions[rest.front()] = e.toIndex(position);
      return reduce(rest.drop_front(), SmallVector<Value>(carried));
    });
  }

  IRMapping loadInputs() {
    IRMapping values;
    for (OpOperand *input : op.getDpsInputOperands())
      if (!op.getMatchingBlockArgument(input).use_empty())
        values.map(op.getMatchingBlockArgument(input), load(*input));
    return values;
  }

  SmallVector<Value> body(IRMapping values, ArrayRef<Value> running) {
    for (auto [argument, value] : llvm::zip_equal(op.getRegionOutputArgs(), running))
      if (value)
        values.map(argument, value);
    for (Operation &inner : op.getBlock()->without_terminator())
      cloneAt(e, inner, values, positions);
    return llvm::map_to_vector(op.getBlock()->getTerminator()->getOperands(),
                               [&](Value result) { return values.lookupOrDefault(result); });
  }

  SmallVector<Value> subscripts(OpOperand &operand) { return subscriptsOf(e, op, operand, positions); }

  Value load(OpOperand &operand) {
    return isa<MemRefType>(operand.get().getType()) ? e.load(operand.get(), subscripts(operand)) : operand.get();
  }

  Emitter e;
  linalg::LinalgOp op;
  SmallVector<Value> sizes;     ///< of the loops, i32
  SmallVector<Value> extents;   ///< bounds of the sizes, constants where known, i32
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
