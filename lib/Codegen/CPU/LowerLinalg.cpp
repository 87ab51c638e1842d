//===- LowerLinalg.cpp - Structured ops as vector loops -----------------------===//
//
// Lowers every linalg op on buffers except contractions to a loop nest with an inner vector loop. Runs after the
// lowering of contractions.
//
//===----------------------------------------------------------------------===//
#include "LaneChoice.h"
#include "LaneMemory.h"
#include "Microkernel.h"
#include "VectorizeRegion.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Affine/Utils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "saccade/Codegen/CPU/Passes.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"
#include "saccade/Support/CPUTarget.h"

namespace saccade {
#define GEN_PASS_DEF_LOWERLINALG
#include "saccade/Codegen/CPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::cpu;

/// The most vectors that an iteration of an elementwise loop has.
static constexpr int64_t maxUnrolled = 4;

namespace {

/// Vector accumulators of a reduction, which hide the latency of the addition.
constexpr int64_t accumulators = 4;

/// Lowers one op.
class LoopNest {
public:
  LoopNest(OpBuilder &b, linalg::LinalgOp op, const CPUTarget &target)
      : b(b), op(op), loc(op.getLoc()), combiners(matchCombiners(op)), operands(op->getOperands()) {
    lanes = target.lanes(widestBits(op));
  }

  LogicalResult lower() {
    expandPositions();
    for (Range range : op.createLoopRanges(b, loc))
      sizes.push_back(getValueOrCreateConstantIndexOp(b, loc, range.size));
    if (RegionVectorizer::hasVectorForm(*op.getBlock()))
      along = chooseLaneLoop(op, lanes);
    if (!along)
      return emit();
    if (!isReduction(*along))
      lanes *= registersOfGroups();
    SmallVector<unsigned> unknown = unknownStrides();
    if (unknown.empty())
      return emit();
    Value isContiguous;
    for (unsigned i : unknown) {
      auto metadata = memref::ExtractStridedMetadataOp::create(b, loc, operands[i]);
      Value is = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, metadata.getStrides().back(), index(1));
      isContiguous = isContiguous ? arith::AndIOp::create(b, loc, isContiguous, is).getResult() : is;
    }
    auto branch = scf::IfOp::create(b, loc, isContiguous, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.elseBlock());
    std::optional<unsigned> chosen = std::exchange(along, std::nullopt);
    if (failed(emit()))
      return failure();
    b.setInsertionPointToStart(branch.thenBlock());
    along = chosen;
    for (unsigned i : unknown)
      operands[i] = withUnitStride(operands[i]);
    return emit();
  }

private:
  /// Expands affine.apply, by which tiling shifts linalg.index, to arith.
  void expandPositions() {
    op.getBlock()->walk([&](affine::AffineApplyOp apply) {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPoint(apply);
      std::optional<SmallVector<Value, 8>> expanded =
          affine::expandAffineMap(b, apply.getLoc(), apply.getAffineMap(), apply.getOperands());
      assert(expanded && "affine maps have arithmetic forms");
      apply.getResult().replaceAllUsesWith(expanded->front());
      apply.erase();
    });
  }

  Value index(int64_t value) { return arith::ConstantIndexOp::create(b, loc, value); }

  AffineMap mapOf(unsigned i) { return op.getMatchingIndexingMap(&op->getOpOperand(i)); }

  MemRefType typeOf(unsigned i) { return dyn_cast<MemRefType>(operands[i].getType()); }

  bool isReduction(unsigned dim) { return op.getIteratorTypesArray()[dim] == utils::IteratorType::reduction; }

  /// The number of registers of which groups of lanes, that the op computes numbers for, fill one.
  unsigned registersOfGroups() {
    std::function<bool(Value)> isPosition = [&](Value value) -> bool {
      Operation *producer = value.getDefiningOp();
      if (auto index = dyn_cast_or_null<linalg::IndexOp>(producer))
        return index.getDim() == along;
      return isa_and_nonnull<arith::AddIOp>(producer) && llvm::any_of(producer->getOperands(), isPosition);
    };
    return std::min<int64_t>(4, RegionVectorizer::largestGroup(*op.getBlock(), isPosition));
  }

  /// Operands that are contiguous along the lanes only if a run-time stride is 1.
  SmallVector<unsigned> unknownStrides() {
    SmallVector<unsigned> unknown;
    for (unsigned i = 0; i < operands.size(); ++i) {
      MemRefType type = typeOf(i);
      if (!type || type.getRank() == 0)
        continue;
      SmallVector<int64_t> strides;
      int64_t offset;
      (void)type.getStridesAndOffset(strides, offset);
      if (ShapedType::isDynamic(strides.back()) && strideAlong(op, i, *along) == 1)
        unknown.push_back(i);
    }
    return unknown;
  }

  /// A view with static inner stride 1. (A memref.cast would be folded away.)
  Value withUnitStride(Value operand) {
    auto type = cast<MemRefType>(operand.getType());
    SmallVector<int64_t> strides;
    int64_t offset;
    (void)type.getStridesAndOffset(strides, offset);
    strides.back() = 1;
    auto unit = MemRefType::get(type.getShape(), type.getElementType(),
                                StridedLayoutAttr::get(b.getContext(), offset, strides), type.getMemorySpace());
    auto metadata = memref::ExtractStridedMetadataOp::create(b, loc, operand);
    SmallVector<OpFoldResult> known = metadata.getConstifiedMixedStrides();
    known.back() = b.getIndexAttr(1);
    return memref::ReinterpretCastOp::create(b, loc, unit, metadata.getBaseBuffer(),
                                             metadata.getConstifiedMixedOffset(), metadata.getConstifiedMixedSizes(),
                                             known);
  }

  //===--------------------------------------------------------------------===//
  // Loops
  //===--------------------------------------------------------------------===//

  /// Emits the outer loops in the order of the op and the vector loop inside; scalar code if `along` is not set.
  LogicalResult emit() {
    OpBuilder::InsertionGuard guard(b);
    positions.assign(op.getNumLoops(), Value());
    Value zero = index(0), one = index(1);
    for (unsigned dim = 0; dim < op.getNumLoops(); ++dim) {
      if (dim == along)
        continue;
      auto loop = scf::ForOp::create(b, loc, zero, sizes[dim], one);
      positions[dim] = loop.getInductionVar();
      b.setInsertionPointToStart(loop.getBody());
    }
    if (!along)
      return emitScalar();
    loadUniform();
    return isReduction(*along) ? emitReduction() : emitElementwise();
  }

  LogicalResult emitScalar() {
    RegionVectorizer region(b, loc, 1);
    for (unsigned i = 0; i < operands.size(); ++i)
      region.bindUniform(op.getBlock()->getArgument(i), loadScalar(i));
    bindIndices(region, Value());
    if (failed(region.run(*op.getBlock())))
      return failure();
    for (auto [k, yielded] : llvm::enumerate(op.getBlock()->getTerminator()->getOperands())) {
      unsigned i = op.getNumDpsInputs() + k;
      memref::StoreOp::create(b, loc, region.getUniform(yielded), operands[i], subscripts(i));
    }
    return success();
  }

  LogicalResult emitElementwise() {
    auto step = [&](Value position, Value mask) -> LogicalResult {
      RegionVectorizer region(b, loc, lanes);
      bind(region, position, mask, /*running=*/{});
      if (failed(region.run(*op.getBlock())))
        return failure();
      for (auto [k, yielded] : llvm::enumerate(op.getBlock()->getTerminator()->getOperands())) {
        unsigned i = op.getNumDpsInputs() + k;
        storeLanes(b, loc, region.getVector(yielded), operands[i], laneIndices(i, position), mask);
      }
      return success();
    };
    Value size = sizes[*along], whole = floorTo(size, lanes);
    LogicalResult result = success();
    // Several vectors in an iteration, as the counter and the branch take as long as one of them.
    int64_t unrolled = 1;
    while (unrolled < maxUnrolled && isMultiple(whole, 2 * unrolled * lanes))
      unrolled *= 2;
    auto main = scf::ForOp::create(b, loc, index(0), whole, index(unrolled * lanes));
    inBody(main, [&] {
      for (int64_t u = 0; u < unrolled && succeeded(result); ++u)
        result = step(u == 0 ? Value(main.getInductionVar())
                             : arith::AddIOp::create(b, loc, main.getInductionVar(), index(u * lanes)),
                      Value());
    });
    if (failed(result) || isMultiple(size, lanes))
      return result;
    auto rest = scf::IfOp::create(b, loc, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, whole, size));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(rest.thenBlock());
    Value count = arith::SubIOp::create(b, loc, size, whole);
    return step(whole, firstLanes(b, loc, count, lanes));
  }

  LogicalResult emitReduction() {
    unsigned results = combiners->size();
    LogicalResult result = success();
    // Updates one vector of every accumulator.
    auto step = [&](Value position, Value mask, ValueRange running) {
      RegionVectorizer region(b, loc, lanes);
      bind(region, position, mask, running);
      if (failed(region.run(*op.getBlock())))
        result = failure();
      SmallVector<Value> next;
      for (auto [k, yielded] : llvm::enumerate(op.getBlock()->getTerminator()->getOperands())) {
        Value value = region.getVector(yielded);
        next.push_back(mask ? arith::SelectOp::create(b, loc, mask, value, running[k]).getResult() : value);
      }
      return next;
    };
    SmallVector<Value> neutral;
    for (const Combiner &combiner : *combiners) {
      std::optional<TypedAttr> element = arith::getNeutralElement(combiner.op);
      assert(element && "combiners have neutral elements");
      auto type = VectorType::get(lanes, combiner.running.getType());
      neutral.push_back(arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, Attribute(*element))));
    }
    SmallVector<Value> start;
    for (int64_t u = 0; u < accumulators; ++u)
      llvm::append_range(start, neutral);

    Value size = sizes[*along], width = index(lanes);
    Value whole = floorTo(size, lanes * accumulators);
    auto main = scf::ForOp::create(b, loc, index(0), whole, index(lanes * accumulators), start);
    inBody(main, [&] {
      SmallVector<Value> next;
      for (int64_t u = 0; u < accumulators; ++u) {
        Value position = arith::AddIOp::create(b, loc, main.getInductionVar(), index(u * lanes));
        llvm::append_range(next, step(position, Value(), main.getRegionIterArgs().slice(u * results, results)));
      }
      scf::YieldOp::create(b, loc, next);
    });
    // (0 + 1) + (2 + 3): always the same order.
    SmallVector<Value> sums(main.getResults());
    for (int64_t half = 1; half < accumulators; half *= 2)
      for (int64_t u = 0; u < accumulators; u += 2 * half)
        for (unsigned k = 0; k < results; ++k)
          sums[u * results + k] = combine((*combiners)[k], sums[u * results + k], sums[(u + half) * results + k]);
    sums.resize(results);
    if (!isMultiple(size, lanes * accumulators)) {
      auto rest = scf::ForOp::create(b, loc, whole, size, width, sums);
      inBody(rest, [&] {
        Value position = rest.getInductionVar();
        Value mask = firstLanes(b, loc, arith::SubIOp::create(b, loc, size, position), lanes);
        scf::YieldOp::create(b, loc, step(position, mask, rest.getRegionIterArgs()));
      });
      sums.assign(rest.getResults().begin(), rest.getResults().end());
    }
    for (auto [k, combiner] : llvm::enumerate(*combiners)) {
      unsigned i = op.getNumDpsInputs() + k;
      Value total = vector::ReductionOp::create(b, loc, *combiningKind(combiner.op), sums[k], flagsOf(combiner.op));
      SmallVector<Value> at = subscripts(i);
      Value before = memref::LoadOp::create(b, loc, operands[i], at);
      memref::StoreOp::create(b, loc, combine(combiner, before, total), operands[i], at);
    }
    return result;
  }

  /// Flags of the reduction over lanes: those of the op, plus reassoc, because a reduction may be reordered.
  arith::FastMathFlags flagsOf(Operation *combiner) {
    auto flags = arith::FastMathFlags::none;
    if (auto fast = dyn_cast<arith::ArithFastMathInterface>(combiner))
      flags = fast.getFastMathFlagsAttr().getValue();
    bool isSum = isa<arith::AddFOp, arith::MulFOp>(combiner);
    return isSum ? flags | arith::FastMathFlags::reassoc : flags;
  }

  /// running ⊕ other, on scalars or vectors.
  Value combine(const Combiner &combiner, Value running, Value other) {
    Operation *copy = combiner.op->clone();
    copy->setOperands({running, other});
    copy->getResult(0).setType(running.getType());
    return b.insert(copy)->getResult(0);
  }

  void inBody(scf::ForOp loop, llvm::function_ref<void()> build) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    build();
  }

  Value floorTo(Value size, int64_t multiple) {
    if (std::optional<int64_t> constant = getConstantIntValue(size))
      return index(*constant / multiple * multiple);
    // Lanes and accumulators are powers of two.
    return arith::AndIOp::create(b, loc, size, index(-multiple));
  }

  static bool isMultiple(Value size, int64_t multiple) {
    std::optional<int64_t> constant = getConstantIntValue(size);
    return constant && *constant % multiple == 0;
  }

  //===--------------------------------------------------------------------===//
  // Operands
  //===--------------------------------------------------------------------===//

  /// Binds inputs, outputs and indices for the iteration at `position` along the lanes.
  void bind(RegionVectorizer &region, Value position, Value mask, ValueRange running) {
    for (unsigned i = 0; i < operands.size(); ++i) {
      BlockArgument argument = op.getBlock()->getArgument(i);
      bool isOutput = i >= op.getNumDpsInputs();
      if (isOutput && !running.empty())
        region.bindVector(argument, running[i - op.getNumDpsInputs()]);
      else if (argument.use_empty())
        continue;
      else if (uniform[i])
        region.bindUniform(argument, uniform[i]);
      else
        region.bindVector(argument, loadLanes(b, loc, operands[i], laneIndices(i, position), lanes, mask));
    }
    region.setActive(mask);
    bindIndices(region, position);
  }

  void bindIndices(RegionVectorizer &region, Value position) {
    op.getBlock()->walk([&](linalg::IndexOp index) {
      if (index.getDim() == along)
        region.bindContiguous(index, position, lanes);
      else
        region.bindUniform(index, positions[index.getDim()]);
    });
  }

  /// Loads inputs that are uniform along the lanes before the vector loop.
  void loadUniform() {
    uniform.assign(operands.size(), Value());
    for (unsigned i = 0; i < op.getNumDpsInputs(); ++i)
      if (!op.getBlock()->getArgument(i).use_empty() && (!typeOf(i) || strideAlong(op, i, *along) == 0))
        uniform[i] = loadScalar(i);
  }

  /// The element of operand `i` at the current position, or the operand itself if it is a scalar.
  Value loadScalar(unsigned i) {
    return typeOf(i) ? memref::LoadOp::create(b, loc, operands[i], subscripts(i)).getResult() : operands[i];
  }

  /// The indices of the access to operand `i`, with position 0 along the lanes.
  SmallVector<Value> subscripts(unsigned i) {
    SmallVector<Value> dims = positions;
    if (along)
      dims[*along] = index(0);
    return llvm::map_to_vector(mapOf(i).getResults(),
                               [&](AffineExpr expr) { return affine::expandAffineExpr(b, loc, expr, dims, {}); });
  }

  SmallVector<LaneIndex> laneIndices(unsigned i, Value position) {
    SmallVector<Value> dims = positions;
    dims[*along] = position;
    AffineMap map = mapOf(i);
    return llvm::map_to_vector(map.getResults(), [&](AffineExpr expr) {
      int64_t step = stepAlong(expr, *along, map.getNumDims()).value_or(0);
      return LaneIndex{affine::expandAffineExpr(b, loc, expr, dims, {}), step, Value()};
    });
  }

  OpBuilder &b;
  linalg::LinalgOp op;
  Location loc;
  std::optional<SmallVector<Combiner>> combiners;
  SmallVector<Value> operands;
  SmallVector<Value> sizes;
  SmallVector<Value> positions; ///< induction variables of the outer loops; null along the lanes
  SmallVector<Value> uniform;   ///< inputs that are uniform along the lanes
  std::optional<unsigned> along;
  unsigned lanes;
};

struct LowerLinalg : saccade::impl::LowerLinalgBase<LowerLinalg> {
  using LowerLinalgBase::LowerLinalgBase;

  void runOnOperation() override {
    const CPUTarget *cpu = requireCPUTarget(getOperation(), target);
    if (!cpu)
      return signalPassFailure();
    SmallVector<linalg::LinalgOp> ops;
    getOperation().walk([&](linalg::LinalgOp op) {
      if (op.hasPureBufferSemantics() && !isMatmul(op))
        ops.push_back(op);
    });
    for (linalg::LinalgOp op : ops) {
      OpBuilder b(op);
      if (failed(LoopNest(b, op, *cpu).lower()))
        return signalPassFailure();
      op->erase();
    }
  }
};

} // namespace
