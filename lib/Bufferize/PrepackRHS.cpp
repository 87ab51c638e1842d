//===- PrepackRHS.cpp - Pack the RHS of matmuls once --------------------------===//
//
// Packs the RHS of a matmul before a parallel loop if several of its tasks read it. Runs after bufferization, which
// determines strides, and before outlining, which separates the loop from the definitions of its operands.
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
#include "saccade/Dialect/Attn/Analysis/Memory.h"
#include "saccade/Dialect/Attn/Analysis/ProductForm.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Support/CPUTarget.h"

namespace saccade {
#define GEN_PASS_DEF_PREPACKRHS
#include "saccade/Bufferize/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

/// Minimum number of tasks that share a block of columns; with fewer, each task packs it.
static constexpr int64_t minTasks = 2;
/// Panels per packing task: one panel reads too short rows of memory, too many panels leave threads idle.
static constexpr int64_t taskPanels = 2;
/// Rows whose stride is a multiple of this map to one L1 cache set, whose associativity is lower than the rows of a
/// group.
static constexpr int64_t cacheAliasBytes = 4096;

namespace {

/// Rewrites one matmul in a task.
class RHSPrepacker {
public:
  /// `constants`: memory with equal contents in all calls.
  RHSPrepacker(IRRewriter &b, linalg::LinalgOp op, const CPUTarget &target, const llvm::DenseSet<Value> &constants)
      : b(b), op(op), target(target), constants(constants) {}

  /// Prepacks the RHS of the matmul if possible and potentially profitable.
  void run() {
    loop = op->getParentOfType<scf::ForallOp>();
    if (!loop)
      return;
    hoistExtents();
    if (!matchOperands() || !matchRHS() || isWrittenInTasks() || !matchTasks() || !isMatrix(lhs->get()) ||
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
  /// Whether a task writes to the memory of the RHS, which then cannot be packed before the loop.
  bool isWrittenInTasks() { return mayWrite(loop, getBaseMemory(source)); }
  bool isConstant() { return constants.contains(getBaseMemory(source)); }
  bool isPrepacked();
  bool matchTasks();
  bool matchConditions();
  bool requireUnitStride(Value memref);
  bool require(OpFoldResult x, arith::CmpIPredicate predicate, int64_t limit);
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
  /// Whether all dimensions of `memref` except the last two are 1; with leading dimensions, the last two must not be 1.
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
  OpOperand *lhs = nullptr, *rhs = nullptr;
  unsigned n = 0, k = 0;
  const ProductTraits *product = nullptr;
  int64_t panel = 0, rowSize = 0; ///< columns of a panel, and elements of `type` of its rows
  FloatType type;                 ///< of a lane of a panel

  /// The RHS before the loop, with the offsets and sizes of its columns and depth.
  Value source;
  unsigned columnDim = 0;
  OpFoldResult columns, depth, depthOffset, columnOffset;
  std::optional<unsigned> columnLoop; ///< the dimension of the loop that tiles columns

  Operation *start = nullptr; ///< the op that initializes the result
  Value usesPanels;           ///< i1: whether to pack; null if known
  Value panels;
};

} // namespace

/// Hoists memref.dim of values defined outside of the loop.
void RHSPrepacker::hoistExtents() {
  SmallVector<memref::DimOp> dims;
  loop.walk([&](memref::DimOp dim) { dims.push_back(dim); });
  b.setInsertionPoint(loop);
  for (memref::DimOp dim : dims)
    if (std::optional<int64_t> position = dim.getConstantIndex(); position && isOutside(dim.getSource()))
      b.replaceOp(dim, memref::DimOp::create(b, dim.getLoc(), dim.getSource(), *position));
}

/// Finds LHS and RHS, and checks that the LHS has k-packs of the same type as the packed RHS.
bool RHSPrepacker::matchOperands() {
  FailureOr<linalg::ContractionDimensions> dims = linalg::inferContractionDims(op);
  if (failed(dims) || dims->k.size() != 1)
    return false;
  n = dims->n.back(), k = dims->k[0];
  unsigned m = dims->m.back();
  lhs = op.getDpsInputOperand(0), rhs = op.getDpsInputOperand(1);
  if (!op.getMatchingIndexingMap(lhs).isFunctionOfDim(m))
    std::swap(lhs, rhs);
  // Rows are contiguous: (..., m, k), and (..., m, n) of the result.
  auto endsWith = [&](OpOperand *operand, unsigned row, unsigned column) {
    AffineMap map = op.getMatchingIndexingMap(operand);
    unsigned rank = map.getNumResults();
    return rank >= 2 && map.getDimPosition(rank - 2) == row && map.getDimPosition(rank - 1) == column;
  };
  if (!endsWith(lhs, m, k) || !endsWith(op.getDpsInitOperand(0), m, n))
    return false;
  Type leftType = getElementTypeOrSelf(lhs->get()), rightType = getElementTypeOrSelf(rhs->get());
  product = &chooseProduct(target, leftType, rightType, getElementTypeOrSelf(op.getDpsInits()[0]));
  type = rightType.isF64() ? FloatType(b.getF64Type()) : FloatType(b.getF32Type());
  panel = 2 * target.lanes(type.getWidth());
  rowSize = product->kPacks * panel;
  return product->form != attn::ProductForm::MultiplyAdd ||
         (leftType == type && getElementTypeOrSelf(op.getDpsInits()[0]).getIntOrFloatBitWidth() <= type.getWidth());
}

/// Finds the matrix outside of the loop of which the RHS is a block of columns.
bool RHSPrepacker::matchRHS() {
  AffineMap map = op.getMatchingIndexingMap(rhs);
  if (map.getNumResults() != 2)
    return false;
  columnDim = map.getDimPosition(0) == n ? 0 : 1;
  source = rhs->get();
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

/// Whether the panels are packed once for all calls: constants of which at least half a panel is not padding.
bool RHSPrepacker::isPrepacked() {
  std::optional<int64_t> known = getConstantIntValue(columns);
  return isConstant() && known && 2 * *known >= panel && getConstantIntValue(depth);
}

/// Whether several tasks may share columns, which prepacked constants do not require.
bool RHSPrepacker::matchTasks() { return isPrepacked() || loop.getRank() > (columnLoop ? 1u : 0u); }

bool RHSPrepacker::require(OpFoldResult x, arith::CmpIPredicate predicate, int64_t limit) {
  if (std::optional<int64_t> known = getConstantIntValue(x))
    return arith::applyCmpPredicate(predicate, APInt(64, *known, true), APInt(64, limit, true));
  Value holds = arith::CmpIOp::create(b, op.getLoc(), predicate, cast<Value>(x), value(b.getIndexAttr(limit)));
  usesPanels = usesPanels ? arith::AndIOp::create(b, op.getLoc(), usesPanels, holds) : holds;
  return true;
}

/// Requires inner stride 1 of `memref`, which is used in the loop; false if it is known to differ or not computable.
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

/// Emits the run-time condition of packing before the loop; false if it is known not to hold.
bool RHSPrepacker::matchConditions() {
  AffineExpr lower, upper, by;
  bindSymbols(b.getContext(), lower, upper, by);
  OpFoldResult tasks = b.getIndexAttr(1);
  for (unsigned i = 0; i < loop.getRank(); ++i)
    if (columnLoop != i)
      tasks = apply(lower * (upper - by).ceilDiv(getAffineSymbolExpr(3, b.getContext())),
                    {tasks, loop.getMixedUpperBound()[i], loop.getMixedLowerBound()[i], loop.getMixedStep()[i]});
  if (!(isPrepacked() || require(tasks, arith::CmpIPredicate::sge, minTasks)) || !requireUnitStride(lhs->get()) ||
      !requireUnitStride(op.getDpsInits()[0]))
    return false;
  // Where the LHS is always copied, the copy adds what K lacks.
  return product->step == 1 || product->copiesLHS ||
         require(apply(getAffineSymbolExpr(0, b.getContext()) % product->step, {depth}), arith::CmpIPredicate::eq, 0);
}

/// Emits an scf.if on `condition` with the original loop in its else branch, and continues with a copy in the then
/// branch.
void RHSPrepacker::splitByCondition(Value condition) {
  auto choice = scf::IfOp::create(b, op.getLoc(), condition, /*withElseRegion=*/true);
  b.setInsertionPointToStart(choice.thenBlock());
  IRMapping copies;
  auto copy = cast<scf::ForallOp>(b.clone(*loop, copies));
  b.moveOpBefore(loop, choice.elseBlock(), choice.elseBlock()->begin());
  auto copyOf = [&](OpOperand *operand) {
    return &copies.lookup(operand->getOwner())->getOpOperand(operand->getOperandNumber());
  };
  lhs = copyOf(lhs), rhs = copyOf(rhs);
  start = copies.lookup(start);
  op = cast<linalg::LinalgOp>(copies.lookup(op.getOperation()));
  loop = copy;
}

/// Emits the packing loop.
void RHSPrepacker::pack() {
  Location loc = op.getLoc();
  b.setInsertionPoint(loop);
  AffineExpr x = getAffineSymbolExpr(0, b.getContext()), y = getAffineSymbolExpr(1, b.getContext());
  OpFoldResult units = apply(product->units(x), {depth}), count = apply(x.ceilDiv(panel), {columns});
  SmallVector<int64_t> shape;
  SmallVector<Value> sizes;
  dispatchIndexOpFoldResults({count, units}, sizes, shape);
  shape.push_back(rowSize);
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
                                {least({group, y - x}, {first, count}), units, b.getIndexAttr(rowSize)}, strides);
  attn::PackOp::create(b, loc, part, packed, product->form);
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

/// A view of the matrix with static inner stride 1.
Value RHSPrepacker::withUnitStride(Value matrix) {
  auto memrefType = cast<MemRefType>(matrix.getType());
  auto [strides, offset] = memrefType.getStridesAndOffset();
  if (strides.back() == 1)
    return matrix;
  strides.back() = 1;
  auto unit = MemRefType::get(memrefType.getShape(), memrefType.getElementType(),
                              StridedLayoutAttr::get(b.getContext(), offset, strides));
  // Not a memref.cast, which would fold into the users.
  auto metadata = memref::ExtractStridedMetadataOp::create(b, op.getLoc(), matrix);
  SmallVector<OpFoldResult> newStrides = metadata.getConstifiedMixedStrides();
  newStrides.back() = b.getIndexAttr(1);
  return memref::ReinterpretCastOp::create(b, op.getLoc(), unit, metadata.getBaseBuffer(),
                                           metadata.getConstifiedMixedOffset(), metadata.getConstifiedMixedSizes(),
                                           newStrides);
}

/// The fill with 0 or the bias broadcast along columns that initializes the result, or null.
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

/// The row stride of the LHS; null if it cannot be computed before the loop.
OpFoldResult RHSPrepacker::rowStride() {
  Value memref = lhs->get();
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

/// Emits the packed matmul, `blocked` if the LHS must be copied, or its rows conflict in a cache set.
void RHSPrepacker::emitMatmulByStride() {
  if (product->copiesLHS)
    return multiply(/*isBlocked=*/true);
  b.setInsertionPoint(loop);
  OpFoldResult stride = rowStride();
  if (!stride)
    return multiply(/*isBlocked=*/false);
  int64_t period = cacheAliasBytes * 8 / getElementTypeOrSelf(lhs->get()).getIntOrFloatBitWidth();
  OpFoldResult remainder = apply(getAffineSymbolExpr(0, b.getContext()) % period, {stride});
  if (std::optional<int64_t> known = getConstantIntValue(remainder))
    return multiply(/*isBlocked=*/*known == 0);
  Value hasSetConflicts =
      arith::CmpIOp::create(b, op.getLoc(), arith::CmpIPredicate::eq, cast<Value>(remainder), value(b.getIndexAttr(0)));
  RHSPrepacker original(*this);
  splitByCondition(hasSetConflicts);
  multiply(/*isBlocked=*/true);
  original.multiply(/*isBlocked=*/false);
}

/// Replaces the matmul and its initialization by attn.packed_matmul.
void RHSPrepacker::multiply(bool isBlocked) {
  Location loc = op.getLoc();
  b.setInsertionPoint(op);
  AffineExpr x = getAffineSymbolExpr(0, b.getContext());
  OpFoldResult zero = b.getIndexAttr(0);
  OpFoldResult first = columnLoop ? apply(x.floorDiv(panel), {OpFoldResult(loop.getInductionVar(*columnLoop))}) : zero;
  Value result = withUnitStride(asMatrix(op.getDpsInits()[0]));
  OpFoldResult count = apply(x.ceilDiv(panel), {memref::getMixedSize(b, loc, result, 1)});
  OpFoldResult units = memref::getMixedSize(b, loc, panels, 1);
  SmallVector<OpFoldResult> ones(3, b.getIndexAttr(1));
  Value operand =
      memref::SubViewOp::create(b, loc, panels, {first, zero, zero}, {count, units, b.getIndexAttr(rowSize)}, ones);
  auto broadcast = dyn_cast<linalg::BroadcastOp>(start);
  attn::PackedMatmulOp::create(b, loc, withUnitStride(asMatrix(lhs->get())), operand,
                               broadcast ? broadcast.getInput() : Value(), result, product->form, isBlocked);
  b.eraseOp(op);
  b.eraseOp(start);
}

/// Memory with equal contents in all calls: constant arguments, and buffers computed from them alone.
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
    SmallVector<linalg::LinalgOp> matmuls;
    getOperation().walk([&](linalg::LinalgOp op) {
      if (isMatmul(op) && op.hasPureBufferSemantics())
        matmuls.push_back(op);
    });
    for (linalg::LinalgOp op : matmuls)
      RHSPrepacker(rewriter, op, *cpu, constants).run();
  }
};

} // namespace
