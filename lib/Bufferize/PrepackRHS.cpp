//===- PrepackRHS.cpp - Pack the right sides of products once ----------------===//
//
// Where several tasks multiply with the same matrix, it is packed before them. It stands after bufferization, which
// makes strides known, and before outlining, while a loop still stands beside what it reads.
//
//===----------------------------------------------------------------------===//
#include "ConstantComputation.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/IR/LinalgInterfaces.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"
#include "saccade/Bufferize/Passes.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Support/CPUTarget.h"

namespace saccade {
#define GEN_PASS_DEF_PREPACKRHS
#include "saccade/Bufferize/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

/// Fewer tasks that share a block of columns pack it each for themselves.
static constexpr int64_t minTasks = 2;
/// A packing task has so many panels: one reads too short stretches of memory, too many leave threads without work.
static constexpr int64_t taskPanels = 2;
/// Rows a multiple of this apart share a set of a first-level cache, which has room for fewer lines than a group has rows.
static constexpr int64_t cacheAliasBytes = 4096;

namespace {

/// One product in a task.
class RHSPrepacker {
public:
  /// Memory in `constants` is the same in all calls.
  RHSPrepacker(IRRewriter &b, linalg::LinalgOp op, const CPUTarget &target, const llvm::DenseSet<Value> &constants)
      : b(b), op(op), target(target), constants(constants) {}

  /// Packs the right side of the product where that is possible and may pay.
  void run() {
    loop = op->getParentOfType<scf::ForallOp>();
    if (!loop)
      return;
    hoistExtents();
    if (!matchOperands() || !matchRHS() || isWrittenInTasks() || !matchTasks() || !isMatrix(left->get()) ||
        !isMatrix(op.getDpsInits()[0]))
      return;
    start = findStart();
    if (!start)
      return;
    b.setInsertionPoint(loop);
    if (!matchConditions())
      return;
    if (usesPanels)
      splitByCondition(usesPanels);
    pack();
    emitMatmulByStride();
  }

private:
  void hoistExtents();
  bool matchOperands();
  bool matchRHS();
  bool isWrittenInTasks();
  bool isConstant() { return constants.contains(getBaseMemory(source)); }
  bool isPrepacked();
  bool matchTasks();
  bool matchConditions();
  bool requireUnitStride(Value memref);
  bool require(OpFoldResult value, arith::CmpIPredicate predicate, int64_t limit);
  void splitByCondition(Value condition);
  void pack();
  OpFoldResult rowStride();
  void emitMatmulByStride();
  void multiply(bool isBlocked);
  Operation *findStart();

  bool isOutside(OpFoldResult value) {
    auto found = dyn_cast<Value>(value);
    return !found || loop.isDefinedOutsideOfLoop(found);
  }
  /// Whether all but the last two dimensions of `memref` are 1, and these are not.
  bool isMatrix(Value memref) {
    ArrayRef<int64_t> shape = cast<MemRefType>(memref.getType()).getShape();
    return shape.size() >= 2 && llvm::all_of(shape.drop_back(2), [](int64_t size) { return size == 1; }) &&
           (shape.size() == 2 || llvm::none_of(shape.take_back(2), [](int64_t size) { return size == 1; }));
  }
  Value asMatrix(Value memref);
  Value withUnitStride(Value matrix);
  Value value(OpFoldResult x) { return getValueOrCreateConstantIndexOp(b, op.getLoc(), x); }
  OpFoldResult apply(AffineExpr expr, ArrayRef<OpFoldResult> operands) {
    return affine::makeComposedFoldedAffineApply(b, op.getLoc(), expr, operands);
  }

  IRRewriter &b;
  linalg::LinalgOp op;
  const CPUTarget &target;
  const llvm::DenseSet<Value> &constants;
  scf::ForallOp loop;
  OpOperand *left = nullptr, *right = nullptr;
  unsigned n = 0, k = 0;
  int64_t step = 1, panel = 0;
  FloatType type; ///< of a word

  /// The right side as it stands before the loop: where columns and depth begin and how many there are.
  Value source;
  unsigned columnDim = 0;
  OpFoldResult columns, depth, depthOffset, columnOffset;
  std::optional<unsigned> columnLoop; ///< the dimension of the loop that cuts columns

  Operation *start = nullptr; ///< what gives the product its initial value
  Value usesPanels;             ///< null where it always is
  Value panels;
};

} // namespace

/// Asks for extents of what stands outside of the loop outside of it.
void RHSPrepacker::hoistExtents() {
  SmallVector<memref::DimOp> dims;
  loop.walk([&](memref::DimOp dim) { dims.push_back(dim); });
  b.setInsertionPoint(loop);
  for (memref::DimOp dim : dims)
    if (std::optional<int64_t> position = dim.getConstantIndex(); position && isOutside(dim.getSource()))
      b.replaceOp(dim, memref::DimOp::create(b, dim.getLoc(), dim.getSource(), *position));
}

/// Which side is which, and whether the left one has the words of the packed right one.
bool RHSPrepacker::matchOperands() {
  FailureOr<linalg::ContractionDimensions> dims = linalg::inferContractionDims(op);
  if (failed(dims) || dims->k.size() != 1)
    return false;
  n = dims->n.back(), k = dims->k[0];
  unsigned m = dims->m.back();
  left = op.getDpsInputOperand(0), right = op.getDpsInputOperand(1);
  if (!op.getMatchingIndexingMap(left).isFunctionOfDim(m))
    std::swap(left, right);
  // Rows are contiguous: (..., m, k), and (..., m, n) of the result.
  auto endsWith = [&](OpOperand *operand, unsigned row, unsigned column) {
    AffineMap map = op.getMatchingIndexingMap(operand);
    unsigned rank = map.getNumResults();
    return rank >= 2 && map.getDimPosition(rank - 2) == row && map.getDimPosition(rank - 1) == column;
  };
  if (!endsWith(left, m, k) || !endsWith(op.getDpsInitOperand(0), m, n))
    return false;
  Type leftType = getElementTypeOrSelf(left->get()), rightType = getElementTypeOrSelf(right->get());
  step = target.packingFactor(leftType, rightType);
  type = rightType.isF64() ? FloatType(b.getF64Type()) : FloatType(b.getF32Type());
  panel = 2 * target.lanes(type.getWidth());
  return step > 1 ||
         (leftType == type && getElementTypeOrSelf(op.getDpsInits()[0]).getIntOrFloatBitWidth() <= type.getWidth());
}

/// Finds the matrix outside of the loop that the right side is a block of columns of.
bool RHSPrepacker::matchRHS() {
  AffineMap map = op.getMatchingIndexingMap(right);
  if (map.getNumResults() != 2)
    return false;
  columnDim = map.getDimPosition(0) == n ? 0 : 1;
  source = right->get();
  depthOffset = columnOffset = b.getIndexAttr(0);
  if (loop.isDefinedOutsideOfLoop(source)) {
    b.setInsertionPoint(loop);
    columns = memref::getMixedSize(b, op.getLoc(), source, columnDim);
    depth = memref::getMixedSize(b, op.getLoc(), source, 1 - columnDim);
    return true;
  }
  auto part = source.getDefiningOp<memref::SubViewOp>();
  if (!part || part.getSourceType().getRank() != 2 || !part.hasUnitStride() ||
      !loop.isDefinedOutsideOfLoop(part.getSource()))
    return false;
  source = part.getSource();
  depthOffset = part.getMixedOffsets()[1 - columnDim];
  depth = part.getMixedSizes()[1 - columnDim];
  columns = part.getMixedSizes()[columnDim];
  OpFoldResult offset = part.getMixedOffsets()[columnDim];
  if (!isOutside(depthOffset) || !isOutside(depth))
    return false;
  if (isOutside(offset)) {
    columnOffset = offset;
    return isOutside(columns);
  }
  for (unsigned i = 0; i < loop.getRank(); ++i) {
    std::optional<int64_t> by = getConstantIntValue(loop.getMixedStep()[i]);
    if (loop.getInductionVar(i) != cast<Value>(offset))
      continue;
    columnLoop = i;
    columns = loop.getMixedUpperBound()[i];
    return isConstantIntValue(loop.getMixedLowerBound()[i], 0) && by && *by % panel == 0;
  }
  return false;
}

/// Whether a task writes into the memory of the right side, which is not there before the loop then.
bool RHSPrepacker::isWrittenInTasks() {
  Value base = getBaseMemory(source);
  return loop
      .walk([&](MemoryEffectOpInterface inner) {
        SmallVector<MemoryEffects::EffectInstance> effects;
        inner.getEffects<MemoryEffects::Write>(effects);
        bool isWritten = llvm::any_of(
            effects, [&](auto &effect) { return !effect.getValue() || getBaseMemory(effect.getValue()) == base; });
        return isWritten ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

/// Whether the panels are made once for all calls: not where more than half of what is kept would be padding.
bool RHSPrepacker::isPrepacked() {
  std::optional<int64_t> known = getConstantIntValue(columns);
  return isConstant() && known && 2 * *known >= panel && getConstantIntValue(depth);
}

/// Whether anything but the columns is cut at all, or need not be.
bool RHSPrepacker::matchTasks() { return isPrepacked() || loop.getRank() > (columnLoop ? 1u : 0u); }

bool RHSPrepacker::require(OpFoldResult x, arith::CmpIPredicate predicate, int64_t limit) {
  if (std::optional<int64_t> known = getConstantIntValue(x))
    return arith::applyCmpPredicate(predicate, APInt(64, *known, true), APInt(64, limit, true));
  Value holds = arith::CmpIOp::create(b, op.getLoc(), predicate, cast<Value>(x), value(b.getIndexAttr(limit)));
  usesPanels = usesPanels ? arith::AndIOp::create(b, op.getLoc(), usesPanels, holds) : holds;
  return true;
}

/// That the innermost stride of `memref`, which is used in the loop, is 1.
bool RHSPrepacker::requireUnitStride(Value memref) {
  while (true) {
    auto memrefType = cast<MemRefType>(memref.getType());
    if (memrefType.getStridesAndOffset().first.back() == 1)
      return true;
    if (loop.isDefinedOutsideOfLoop(memref))
      break;
    auto part = memref.getDefiningOp<memref::SubViewOp>();
    if (!part || !part.hasUnitStride() || part.getSourceType().getRank() != memrefType.getRank())
      return false;
    memref = part.getSource();
  }
  auto metadata = memref::ExtractStridedMetadataOp::create(b, op.getLoc(), memref);
  return require(metadata.getConstifiedMixedStrides().back(), arith::CmpIPredicate::eq, 1);
}

/// Computes before the loop whether to pack; false where it is known that not.
bool RHSPrepacker::matchConditions() {
  AffineExpr lower, upper, by;
  bindSymbols(b.getContext(), lower, upper, by);
  OpFoldResult tasks = b.getIndexAttr(1);
  for (unsigned i = 0; i < loop.getRank(); ++i)
    if (columnLoop != i)
      tasks = apply(lower * (upper - by).ceilDiv(getAffineSymbolExpr(3, b.getContext())),
                    {tasks, loop.getMixedUpperBound()[i], loop.getMixedLowerBound()[i], loop.getMixedStep()[i]});
  if (!(isPrepacked() || require(tasks, arith::CmpIPredicate::sge, minTasks)) || !requireUnitStride(left->get()) ||
      !requireUnitStride(op.getDpsInits()[0]))
    return false;
  return step == 1 ||
         require(apply(getAffineSymbolExpr(0, b.getContext()) % step, {depth}), arith::CmpIPredicate::eq, 0);
}

/// Puts the loop into the other branch of a choice by `condition`, and goes on with a copy of it.
void RHSPrepacker::splitByCondition(Value condition) {
  auto choice = scf::IfOp::create(b, op.getLoc(), condition, /*withElseRegion=*/true);
  b.setInsertionPointToStart(choice.thenBlock());
  IRMapping copies;
  auto copy = cast<scf::ForallOp>(b.clone(*loop, copies));
  b.moveOpBefore(loop, choice.elseBlock(), choice.elseBlock()->begin());
  auto copyOf = [&](OpOperand *operand) {
    return &copies.lookup(operand->getOwner())->getOpOperand(operand->getOperandNumber());
  };
  left = copyOf(left), right = copyOf(right);
  start = copies.lookup(start);
  op = cast<linalg::LinalgOp>(copies.lookup(op.getOperation()));
  loop = copy;
}

/// Adds the loop that packs.
void RHSPrepacker::pack() {
  Location loc = op.getLoc();
  b.setInsertionPoint(loop);
  AffineExpr x = getAffineSymbolExpr(0, b.getContext()), y = getAffineSymbolExpr(1, b.getContext());
  OpFoldResult words = apply(x.ceilDiv(step), {depth}), count = apply(x.ceilDiv(panel), {columns});
  SmallVector<int64_t> shape;
  SmallVector<Value> sizes;
  dispatchIndexOpFoldResults({count, words}, sizes, shape);
  shape.push_back(panel);
  auto memory = memref::AllocOp::create(b, loc, MemRefType::get(shape, type), sizes, b.getI64IntegerAttr(64));
  if (isConstant() && !isPrepacked())
    memory->setAttr(perCallAttr, b.getUnitAttr());
  panels = memory;

  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1), by = b.getIndexAttr(taskPanels);
  auto packing =
      scf::ForallOp::create(b, loc, ArrayRef(zero), ArrayRef(count), ArrayRef(by), ValueRange(), std::nullopt);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(packing.getTerminator());
  OpFoldResult first = packing.getInductionVar(0);
  AffineExpr from = x * panel + y;
  SmallVector<OpFoldResult> offsets(2), extents(2), strides(3, one);
  offsets[columnDim] = apply(from, {first, columnOffset});
  offsets[1 - columnDim] = depthOffset;
  auto least = [&](ArrayRef<AffineExpr> exprs, ArrayRef<OpFoldResult> operands) {
    return affine::makeComposedFoldedAffineMin(b, loc, AffineMap::get(0, operands.size(), exprs, b.getContext()),
                                               operands);
  };
  AffineExpr width = b.getAffineConstantExpr(taskPanels * panel), group = b.getAffineConstantExpr(taskPanels);
  extents[columnDim] = least({width, y - x * panel}, {first, columns});
  extents[1 - columnDim] = depth;
  Value part = memref::SubViewOp::create(b, loc, source, offsets, extents, ArrayRef(strides).take_front(2));
  if (columnDim == 1)
    part = memref::TransposeOp::create(
        b, loc, part, AffineMapAttr::get(AffineMap::getPermutationMap(ArrayRef<unsigned>{1, 0}, b.getContext())));
  Value packed =
      memref::SubViewOp::create(b, loc, panels, {first, zero, zero},
                                {least({group, y - x}, {first, count}), words, b.getIndexAttr(panel)}, strides);
  attn::PackOp::create(b, loc, part, packed, step);
}

/// The last two dimensions of `memref`.
Value RHSPrepacker::asMatrix(Value memref) {
  auto memrefType = cast<MemRefType>(memref.getType());
  int64_t rank = memrefType.getRank();
  if (rank == 2)
    return memref;
  SmallVector<OpFoldResult> offsets(rank, b.getIndexAttr(0)), strides(rank, b.getIndexAttr(1));
  SmallVector<OpFoldResult> sizes = memref::getMixedSizes(b, op.getLoc(), memref);
  MemRefType reduced = memref::SubViewOp::inferRankReducedResultType(memrefType.getShape().take_back(2), memrefType,
                                                                     offsets, sizes, strides);
  return memref::SubViewOp::create(b, op.getLoc(), reduced, memref, offsets, sizes, strides);
}

/// The matrix with the stride that is 1 known to be.
Value RHSPrepacker::withUnitStride(Value matrix) {
  auto memrefType = cast<MemRefType>(matrix.getType());
  auto [strides, offset] = memrefType.getStridesAndOffset();
  if (strides.back() == 1)
    return matrix;
  strides.back() = 1;
  auto unit = MemRefType::get(memrefType.getShape(), memrefType.getElementType(),
                              StridedLayoutAttr::get(b.getContext(), offset, strides));
  // No cast: it would be folded into what reads it.
  auto metadata = memref::ExtractStridedMetadataOp::create(b, op.getLoc(), matrix);
  SmallVector<OpFoldResult> newStrides = metadata.getConstifiedMixedStrides();
  newStrides.back() = b.getIndexAttr(1);
  return memref::ReinterpretCastOp::create(b, op.getLoc(), unit, metadata.getBaseBuffer(),
                                           metadata.getConstifiedMixedOffset(), metadata.getConstifiedMixedSizes(),
                                           newStrides);
}

/// The fill with 0 or the broadcast along the columns that the product starts from, or null.
Operation *RHSPrepacker::findStart() {
  Value result = op.getDpsInits()[0];
  for (Operation *before = op->getPrevNode(); before; before = before->getPrevNode()) {
    if (isPure(before))
      continue;
    if (auto fill = dyn_cast<linalg::FillOp>(before); fill && fill.getOutputs()[0] == result)
      return matchPattern(fill.getInputs()[0], m_AnyZeroFloat()) ? before : nullptr;
    if (auto broadcast = dyn_cast<linalg::BroadcastOp>(before); broadcast && broadcast.getInit() == result) {
      int64_t last = cast<MemRefType>(result.getType()).getRank() - 1;
      bool isAlongColumns = cast<MemRefType>(broadcast.getInput().getType()).getRank() == 1 &&
                            !llvm::is_contained(broadcast.getDimensions(), last);
      return isAlongColumns ? before : nullptr;
    }
    return nullptr;
  }
  return nullptr;
}

/// The stride of the left side's rows; null where views hide it.
OpFoldResult RHSPrepacker::rowStride() {
  Value memref = left->get();
  while (true) {
    auto memrefType = cast<MemRefType>(memref.getType());
    int64_t row = memrefType.getRank() - 2, known = memrefType.getStridesAndOffset().first[row];
    if (!ShapedType::isDynamic(known))
      return b.getIndexAttr(known);
    if (loop.isDefinedOutsideOfLoop(memref))
      return memref::ExtractStridedMetadataOp::create(b, op.getLoc(), memref).getConstifiedMixedStrides()[row];
    auto part = memref.getDefiningOp<memref::SubViewOp>();
    if (!part || !part.hasUnitStride() || part.getSourceType().getRank() != memrefType.getRank())
      return {};
    memref = part.getSource();
  }
}

/// Makes the product one with panels, whose left side is copied where its rows crowd a set of the cache.
void RHSPrepacker::emitMatmulByStride() {
  b.setInsertionPoint(loop);
  OpFoldResult stride = rowStride();
  if (!stride)
    return multiply(/*isBlocked=*/false);
  int64_t period = cacheAliasBytes * 8 / getElementTypeOrSelf(left->get()).getIntOrFloatBitWidth();
  OpFoldResult beyond = apply(getAffineSymbolExpr(0, b.getContext()) % period, {stride});
  if (std::optional<int64_t> known = getConstantIntValue(beyond))
    return multiply(/*isBlocked=*/*known == 0);
  Value hasSetConflicts =
      arith::CmpIOp::create(b, op.getLoc(), arith::CmpIPredicate::eq, cast<Value>(beyond), value(b.getIndexAttr(0)));
  RHSPrepacker inPlace(*this);
  splitByCondition(hasSetConflicts);
  multiply(/*isBlocked=*/true);
  inPlace.multiply(/*isBlocked=*/false);
}

/// Makes the product one with panels.
void RHSPrepacker::multiply(bool isBlocked) {
  Location loc = op.getLoc();
  b.setInsertionPoint(op);
  AffineExpr x = getAffineSymbolExpr(0, b.getContext());
  OpFoldResult zero = b.getIndexAttr(0);
  OpFoldResult first = columnLoop ? apply(x.floorDiv(panel), {OpFoldResult(loop.getInductionVar(*columnLoop))}) : zero;
  Value result = withUnitStride(asMatrix(op.getDpsInits()[0]));
  OpFoldResult count = apply(x.ceilDiv(panel), {memref::getMixedSize(b, loc, result, 1)});
  OpFoldResult words = memref::getMixedSize(b, loc, panels, 1);
  SmallVector<OpFoldResult> ones(3, b.getIndexAttr(1));
  Value mine =
      memref::SubViewOp::create(b, loc, panels, {first, zero, zero}, {count, words, b.getIndexAttr(panel)}, ones);
  auto broadcast = dyn_cast<linalg::BroadcastOp>(start);
  attn::PackedMatmulOp::create(b, loc, withUnitStride(asMatrix(left->get())), mine,
                           broadcast ? broadcast.getInput() : Value(), result, step, isBlocked);
  b.eraseOp(op);
  b.eraseOp(start);
}

/// The memory that is the same in all calls: constant arguments, and what is computed of them alone.
static llvm::DenseSet<Value> findConstants(ModuleOp module) {
  llvm::DenseSet<Value> constants;
  for (auto entry : module.getOps<func::FuncOp>()) {
    if (entry.isExternal())
      continue;
    for (BlockArgument argument : entry.getArguments())
      if (isConstantArgument(entry, argument))
        constants.insert(argument);
    for (memref::AllocOp buffer : findConstantComputation(entry).buffers)
      constants.insert(buffer);
  }
  return constants;
}

namespace {

struct PrepackRHS : saccade::impl::PrepackRHSBase<PrepackRHS> {
  using PrepackRHSBase::PrepackRHSBase;

  void runOnOperation() override {
    const CPUTarget *cpu = requireCPUTarget(getOperation(), target);
    if (!cpu)
      return signalPassFailure();
    IRRewriter rewriter(&getContext());
    llvm::DenseSet<Value> constants;
    if (prepack)
      constants = findConstants(getOperation());
    SmallVector<linalg::LinalgOp> products;
    getOperation().walk([&](linalg::LinalgOp op) {
      if (isMatmul(op) && op.hasPureBufferSemantics())
        products.push_back(op);
    });
    for (linalg::LinalgOp op : products)
      RHSPrepacker(rewriter, op, *cpu, constants).run();
  }
};

} // namespace
