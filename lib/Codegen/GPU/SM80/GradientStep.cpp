//===- GradientStep.cpp - The ops of a tile of pairs in a gradient ------------===//
#include "GradientStep.h"
#include "../BufferAnalysis.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"
#include "saccade/Dialect/Attn/Analysis/Memory.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

/// Adds the uses of a buffer, through views of it.
static void collectUses(Value buffer, SmallVectorImpl<OpOperand *> &uses) {
  for (OpOperand &use : buffer.getUses()) {
    auto view = dyn_cast<ViewLikeOpInterface>(use.getOwner());
    if (view && view.getViewSource() == use.get())
      for (Value result : use.getOwner()->getResults())
        collectUses(result, uses);
    else
      uses.push_back(&use);
  }
}

static SmallVector<OpOperand *> usesOf(Value buffer) {
  SmallVector<OpOperand *> uses;
  collectUses(buffer, uses);
  return uses;
}

static bool isNarrow(Type type) { return type.isF16() || type.isBF16(); }

/// An operand that is a matrix of 16-bit elements in global memory with `position` and `depth` as loops.
static std::optional<PositionMatrix> positionMatrix(linalg::LinalgOp op, OpOperand &operand, unsigned position,
                                                    unsigned depth) {
  auto type = dyn_cast<MemRefType>(operand.get().getType());
  if (!type || type.getRank() != 2 || !isNarrow(type.getElementType()) || device::isShared(operand.get()))
    return std::nullopt;
  AffineMap map = op.getMatchingIndexingMap(&operand);
  PositionMatrix matrix{operand.get(), 0, 0, 0};
  for (auto [dim, expr] : llvm::enumerate(map.getResults())) {
    auto loop = dyn_cast<AffineDimExpr>(expr);
    if (loop && loop.getPosition() == position)
      matrix.rowDim = dim;
    else if (loop && loop.getPosition() == depth)
      matrix.columnDim = dim;
    else
      return std::nullopt;
  }
  matrix.columns = type.getDimSize(matrix.columnDim);
  if (matrix.rowDim == matrix.columnDim || ShapedType::isDynamic(matrix.columns))
    return std::nullopt;
  return matrix;
}

/// The m, n and k loop of a tile matmul without batches.
static std::optional<std::array<unsigned, 3>> loopsOf(linalg::LinalgOp op) {
  std::optional<linalg::ContractionDimensions> dims = getMatmulDims(op);
  if (!dims || !op->hasAttr(tileMatmulAttr) || !dims->batch.empty() || dims->m.size() != 1 || dims->n.size() != 1 ||
      dims->k.size() != 1)
    return std::nullopt;
  return std::array{dims->m[0], dims->n[0], dims->k[0]};
}

static bool isOutput(OpOperand &use) {
  auto op = dyn_cast<linalg::LinalgOp>(use.getOwner());
  return op && op.isDpsInit(&use);
}

/// Whether pure ops compute `value` before `op`, if they are moved there.
static bool isKnownBefore(Value value, Operation *op) {
  if (!op->isAncestor(value.getParentRegion()->getParentOp()))
    return true;
  Operation *maker = value.getDefiningOp();
  return maker && isPure(maker) && maker->getNumRegions() == 0 &&
         llvm::all_of(maker->getOperands(), [&](Value operand) { return isKnownBefore(operand, op); });
}

namespace {

class Matcher {
public:
  explicit Matcher(linalg::GenericOp pairs) : pairs(pairs) { step.pairs = pairs; }

  /// Why `run` returned nullopt.
  StringRef getObstacle() const { return obstacle; }

  std::optional<GradientStep> run() {
    if (pairs.getNumLoops() != 2 || pairs.getNumParallelLoops() != 2)
      return std::nullopt;
    for (OpOperand &init : pairs.getDpsInitsMutable())
      if (!matchResult(init))
        return std::nullopt;
    if (step.sums.empty())
      return std::nullopt;
    for (OpOperand *input : pairs.getDpsInputOperands()) {
      if (!device::isShared(input->get())) {
        step.inputs.push_back(std::nullopt);
        continue;
      }
      std::optional<GradientStep::Product> product = matchProduct(*input);
      if (!product)
        return std::nullopt;
      step.inputs.push_back(product);
    }
    bool hasProduct = llvm::any_of(step.inputs, [](const auto &input) { return input.has_value(); });
    bool isRowFixed = llvm::all_of(
        step.inputs, [&](const auto &input) { return !input || isKnownBefore(input->row.memref, step.outermost); });
    return hasProduct && isRowFixed && writesOnlyBuffers() ? std::optional(step) : std::nullopt;
  }

private:
  /// The buffer of a tile: 16-bit weights, or f32 products, one for each pair, in the block of the step.
  memref::AllocOp tileBuffer(OpOperand &operand) {
    auto buffer = getBaseMemory(operand.get()).getDefiningOp<memref::AllocOp>();
    AffineMap map = pairs.getMatchingIndexingMap(&operand);
    return buffer && buffer->getBlock() == pairs->getBlock() && map.isIdentity() ? buffer : memref::AllocOp();
  }

  /// Whether the ops of the step are all that write memory in the loops around it. Another op could change operands,
  /// which are copied at other places than where the step reads them.
  bool writesOnlyBuffers() {
    llvm::SmallPtrSet<Operation *, 8> known = {pairs};
    for (const auto &input : step.inputs)
      if (input)
        known.insert({input->op, input->fill});
    for (const GradientStep::Sum &sum : step.sums)
      known.insert(sum.op);
    return !step.outermost
                ->walk([&](Operation *op) {
                  bool isAround = op->hasTrait<OpTrait::HasRecursiveMemoryEffects>() && !isa<linalg::LinalgOp>(op);
                  auto effects = dyn_cast<MemoryEffectOpInterface>(op);
                  bool writes = effects ? effects.hasEffect<MemoryEffects::Write>() : !isAround && !isPure(op);
                  if (known.contains(op))
                    return WalkResult::skip();
                  return writes ? WalkResult::interrupt() : WalkResult::advance();
                })
                .wasInterrupted();
  }

  /// Whether a view of the buffer of a sum starts with its first element.
  static bool startsAtZero(Value view) {
    while (auto part = view.getDefiningOp<memref::SubViewOp>()) {
      if (!llvm::all_of(part.getMixedOffsets(), isZeroInteger))
        return false;
      view = part.getSource();
    }
    return true;
  }

  bool isOfElement(const PositionMatrix &matrix) {
    return getElementTypeOrSelf(matrix.memref.getType()) == step.element;
  }

  /// A result of `pairs` is the LHS of matmuls only.
  bool matchResult(OpOperand &init) {
    memref::AllocOp buffer = tileBuffer(init);
    Type type = getElementTypeOrSelf(init.get().getType());
    if (!isNarrow(type)) {
      // The first results are operands of matmuls, others gradients of captured tensors with their positions.
      obstacle = step.element   ? "gradients of captured tensors are sums over the same tiles"
                 : type.isF32() ? "elements are f32"
                                : "elements are not f16 or bf16";
      return false;
    }
    if (!buffer || pairs.payloadUsesValueFromOperand(&init))
      return false;
    if (step.element && step.element != buffer.getType().getElementType())
      return false;
    step.element = buffer.getType().getElementType();
    for (OpOperand *use : usesOf(buffer))
      if (use->getOwner() != pairs && !matchSum(*use, init.getOperandNumber() - pairs.getNumDpsInputs()))
        return false;
    return true;
  }

  bool matchSum(OpOperand &use, unsigned result) {
    auto op = dyn_cast<linalg::GenericOp>(use.getOwner());
    auto loops = op ? loopsOf(op) : std::nullopt;
    if (!loops || use.getOperandNumber() != 0 || op->getBlock() != pairs->getBlock() || !pairs->isBeforeInBlock(op))
      return false;
    auto [m, n, k] = *loops;
    // The results of `pairs` have the loops of `pairs` as dimensions.
    AffineMap map = op.getMatchingIndexingMap(&use);
    unsigned columnLoop = map.getDimPosition(0) == k ? 0 : 1;
    if (!step.sums.empty() && step.rowLoop != 1 - columnLoop)
      return false;
    step.rowLoop = 1 - columnLoop;
    OpOperand &init = *op.getDpsInitOperand(0);
    AffineMap resultMap = op.getMatchingIndexingMap(&init);
    auto column = positionMatrix(op, *op.getDpsInputOperand(1), k, n);
    auto buffer = getBaseMemory(init.get()).getDefiningOp<memref::AllocOp>();
    Operation *columnView = column ? column->memref.getDefiningOp() : nullptr;
    if (columnView && columnView->getBlock() == pairs->getBlock() && !columnView->isBeforeInBlock(pairs))
      return false;
    if (!column || !isOfElement(*column) || !buffer || !startsAtZero(init.get()) ||
        !buffer.getType().getElementType().isF32() || resultMap.getNumResults() != 2 ||
        resultMap.getDimPosition(0) != m || resultMap.getDimPosition(1) != n)
      return false;
    // Without a loop, the step is around `pairs`.
    Operation *outermost = buffer->getBlock()->findAncestorOpInBlock(*pairs);
    if (!outermost || (!step.sums.empty() && step.outermost != outermost))
      return false;
    step.outermost = outermost;
    GradientStep::Sum sum{op, result, *column, buffer, {}, {}};
    for (OpOperand *other : usesOf(buffer))
      if (other->getOwner() != op && !matchUseOfSum(*other, sum))
        return false;
    if (!sum.fill)
      return false;
    step.sums.push_back(sum);
    return true;
  }

  /// A use of the buffer of a sum: zeros before all steps, or an elementwise op after them.
  bool matchUseOfSum(OpOperand &use, GradientStep::Sum &sum) {
    Operation *user = use.getOwner();
    if (user->getBlock() != step.outermost->getBlock())
      return false;
    if (user->isBeforeInBlock(step.outermost)) {
      auto fill = dyn_cast<linalg::FillOp>(user);
      if (!fill || sum.fill || !isOutput(use) || !matchPattern(fill.getInputs()[0], m_AnyZeroFloat()))
        return false;
      sum.fill = fill;
      return true;
    }
    auto store = dyn_cast<linalg::GenericOp>(user);
    if (!store || store.getNumParallelLoops() != 2 || store.getNumLoops() != 2 || store.getNumDpsInputs() != 1 ||
        store.getNumDpsInits() != 1 || isOutput(use) || store.hasIndexSemantics() ||
        !store.getMatchingIndexingMap(&use).isIdentity() || !startsAtZero(use.get()) ||
        device::isShared(store.getDpsInits()[0]) || store.payloadUsesValueFromOperand(store.getDpsInitOperand(0)))
      return false;
    sum.stores.push_back(store);
    return true;
  }

  /// An input of `pairs` that is a product of rows and columns, with zeros before.
  std::optional<GradientStep::Product> matchProduct(OpOperand &input) {
    memref::AllocOp buffer = tileBuffer(input);
    if (!buffer || !buffer.getType().getElementType().isF32())
      return std::nullopt;
    GradientStep::Product product;
    for (OpOperand *use : usesOf(buffer)) {
      if (use->getOwner() == pairs)
        continue;
      auto fill = dyn_cast<linalg::FillOp>(use->getOwner());
      auto op = dyn_cast<linalg::GenericOp>(use->getOwner());
      if (fill ? bool(product.fill) : !op || bool(product.op))
        return std::nullopt;
      if (fill)
        product.fill = fill;
      else
        product.op = op;
      if (!isOutput(*use) || use->getOwner()->getBlock() != pairs->getBlock() ||
          !use->getOwner()->isBeforeInBlock(pairs))
        return std::nullopt;
    }
    auto loops = product.op && product.fill ? loopsOf(product.op) : std::nullopt;
    if (!loops || getZeroFill(product.op) != product.fill)
      return std::nullopt;
    auto [m, n, k] = *loops;
    AffineMap map = product.op.getMatchingIndexingMap(product.op.getDpsInitOperand(0));
    if (map.getNumResults() != 2 || map.getDimPosition(0) != m || map.getDimPosition(1) != n)
      return std::nullopt;
    auto queries = positionMatrix(product.op, *product.op.getDpsInputOperand(0), m, k),
         keys = positionMatrix(product.op, *product.op.getDpsInputOperand(1), n, k);
    if (!queries || !keys || !isOfElement(*queries) || !isOfElement(*keys))
      return std::nullopt;
    product.row = step.rowLoop == 0 ? *queries : *keys, product.column = step.rowLoop == 0 ? *keys : *queries;
    return product;
  }

  linalg::GenericOp pairs;
  GradientStep step;
  StringRef obstacle = "its loops and memory have another form";
};

} // namespace

std::optional<GradientStep> GradientStep::match(linalg::GenericOp pairs, std::string *obstacle) {
  Matcher matcher(pairs);
  std::optional<GradientStep> step = matcher.run();
  if (!step && obstacle)
    *obstacle = matcher.getObstacle().str();
  return step;
}

void GradientStep::hoistRows() {
  auto hoist = [&](auto &&hoist, Value value) -> void {
    Operation *maker = value.getDefiningOp();
    if (!maker || maker == outermost || !outermost->isAncestor(maker))
      return;
    for (Value operand : maker->getOperands())
      hoist(hoist, operand);
    maker->moveBefore(outermost);
  };
  for (std::optional<Product> &input : inputs)
    if (input)
      hoist(hoist, input->row.memref);
}

/// Erases a buffer whose views are not used.
static void eraseBuffer(Value buffer) {
  for (Operation *user : llvm::make_early_inc_range(buffer.getUsers()))
    eraseBuffer(user->getResult(0));
  buffer.getDefiningOp()->erase();
}

void GradientStep::erase() {
  SmallVector<Value> buffers;
  for (Sum &sum : sums) {
    buffers.push_back(sum.buffer);
    sum.op->erase();
    sum.fill->erase();
    for (linalg::GenericOp store : sum.stores)
      store->erase();
  }
  for (Value init : pairs.getDpsInits())
    buffers.push_back(getBaseMemory(init));
  for (std::optional<Product> &input : inputs)
    if (input)
      buffers.push_back(getBaseMemory(input->op.getDpsInits()[0]));
  pairs->erase();
  for (std::optional<Product> &input : inputs)
    if (input) {
      input->op->erase();
      input->fill->erase();
    }
  for (Value buffer : buffers)
    eraseBuffer(buffer);
}

SmallVector<unsigned> GradientStep::usedResults() const {
  SmallVector<unsigned> used;
  for (const Sum &sum : sums)
    if (!llvm::is_contained(used, sum.result))
      used.push_back(sum.result);
  return used;
}

SmallVector<Value> GradientStep::columnVectors() {
  SmallVector<Value> vectors;
  AffineExpr column = getAffineDimExpr(columnLoop(), pairs.getContext());
  for (OpOperand *operand : pairs.getDpsInputOperands()) {
    auto type = dyn_cast<MemRefType>(operand->get().getType());
    if (type && type.getRank() == 1 && type.getElementType().isF32() &&
        pairs.getMatchingIndexingMap(operand).getResult(0) == column)
      vectors.push_back(operand->get());
  }
  return vectors;
}

/// Ops of an elementwise op that LLVM and ptxas overlap without spills beside other registers (ptxas 13.5).
static constexpr size_t maxOps = 24;

bool GradientStep::needsRegisters() {
  int64_t sumRegisters = 0;
  for (const Sum &sum : sums)
    sumRegisters += sum.column.columns / 2;
  auto hasPosition = [](auto &&hasPosition, Value value) -> bool {
    Operation *maker = value.getDefiningOp();
    return maker && (isa<linalg::IndexOp>(maker) || llvm::any_of(maker->getOperands(), [&](Value operand) {
                       return hasPosition(hasPosition, operand);
                     }));
  };
  bool loads = llvm::any_of(*pairs.getBlock(), [&](Operation &inner) {
    auto load = dyn_cast<memref::LoadOp>(inner);
    return load && llvm::any_of(load.getIndices(), [&](Value place) { return hasPosition(hasPosition, place); });
  });
  return sumRegisters > 64 && (loads || llvm::range_size(*pairs.getBlock()) > maxOps);
}
