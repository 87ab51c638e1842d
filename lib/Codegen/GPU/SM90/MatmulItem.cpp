//===- MatmulItem.cpp - A kernel that is one tile of a matmul -----------------===//
#include "MatmulItem.h"
#include "../BufferAnalysis.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"
#include "saccade/Dialect/Attn/Analysis/Memory.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

/// Tiles of fewer rows or columns would leave most of a product unused.
static constexpr int64_t minRows = 33, minColumns = 32;

/// A constant that the extent of `loop` does not exceed; tiles have the minimum of their size and what remains.
static std::optional<int64_t> boundOfTile(linalg::LinalgOp op, unsigned loop) {
  std::optional<int64_t> least = boundOfExtent(op, loop);
  for (OpOperand &operand : op->getOpOperands()) {
    auto view = operand.get().getDefiningOp<memref::SubViewOp>();
    if (!view || view.getSourceType().getRank() != view.getType().getRank())
      continue;
    for (auto [size, expr] : llvm::zip_equal(view.getMixedSizes(), op.getMatchingIndexingMap(&operand).getResults())) {
      auto value = dyn_cast<Value>(size);
      auto minimum = value ? value.getDefiningOp<affine::AffineMinOp>() : affine::AffineMinOp();
      if (!minimum || expr != getAffineDimExpr(loop, expr.getContext()))
        continue;
      for (AffineExpr bound : minimum.getMap().getResults())
        if (auto constant = dyn_cast<AffineConstantExpr>(bound))
          least = std::min(least.value_or(constant.getValue()), constant.getValue());
    }
  }
  return least;
}

/// The position of `loop` in a map that is a projected permutation.
static std::optional<unsigned> findLoop(AffineMap map, unsigned loop) {
  return map.getResultPosition(getAffineDimExpr(loop, map.getContext()));
}

namespace {

class ItemFinder {
public:
  ItemFinder(func::FuncOp kernel, std::string &obstacle) : kernel(kernel), obstacle(obstacle) {}

  std::optional<MatmulItem> run() {
    if (!llvm::hasSingleElement(kernel.getBody()) || !collectOps() || !item.matmul || !readMatmul())
      return std::nullopt;
    for (linalg::LinalgOp op : item.ops)
      if (op != item.matmul && !isElementOp(op))
        return std::nullopt;
    return findMemory() ? std::optional(item) : std::nullopt;
  }

private:
  bool collectOps() {
    for (Operation &op : kernel.getBody().front()) {
      if (auto structured = dyn_cast<linalg::LinalgOp>(op)) {
        if (!structured.hasPureBufferSemantics() || (isMatmul(structured) && item.matmul))
          return false;
        if (isMatmul(structured))
          item.matmul = structured;
        item.ops.push_back(structured);
      } else if (!isa<memref::AllocOp>(op) && !op.hasTrait<OpTrait::IsTerminator>() && !isMemoryEffectFree(&op)) {
        return false;
      }
    }
    return true;
  }

  bool refuse(const Twine &why) {
    obstacle = why.str();
    return false;
  }

  /// Operands of 16-bit floats, sums in f32, one loop each of m, n and k, and one position in each other loop: of a
  /// batch, or of one operand if the other one is the same for all.
  bool readMatmul() {
    linalg::LinalgOp op = item.matmul;
    std::optional<linalg::ContractionDimensions> dims = getMatmulDims(op);
    Type element = getElementTypeOrSelf(op.getDpsInputs()[0]), sum = getElementTypeOrSelf(op.getDpsInits()[0]);
    if (!element.isF16() && !element.isBF16())
      return refuse("elements are " + llvm::formatv("{0}", element).str());
    auto haveOnePosition = [&](ArrayRef<unsigned> loops) {
      return llvm::all_of(loops, [&](unsigned loop) { return boundOfExtent(op, loop) == 1; });
    };
    if (dims->k.size() != 1 || !haveOnePosition(dims->batch) || !haveOnePosition(ArrayRef(dims->m).drop_back()) ||
        !haveOnePosition(ArrayRef(dims->n).drop_back()) || getElementTypeOrSelf(op.getDpsInputs()[1]) != element ||
        !(sum == element || sum.isF32()))
      return false;
    unsigned m = dims->m.back(), n = dims->n.back(), k = dims->k[0];
    AffineMap result = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
    std::optional<unsigned> row = findLoop(result, m), column = findLoop(result, n);
    if (!row || column != result.getNumResults() - 1)
      return false;
    item.rowDim = *row, item.columnDim = *column;
    auto bounds = std::pair(boundOfTile(op, m), boundOfTile(op, n));
    if (!bounds.first || !bounds.second)
      return false;
    item.rows = *bounds.first, item.columns = *bounds.second;
    if (item.rows < minRows)
      return refuse("a tile has " + Twine(item.rows) + " rows, fewer than " + Twine(minRows));
    if (item.columns < minColumns)
      return refuse("a tile has " + Twine(item.columns) + " columns, fewer than " + Twine(minColumns));
    return (readOperand(item.lhs, *op.getDpsInputOperand(0), m, k) &&
            readOperand(item.rhs, *op.getDpsInputOperand(1), n, k)) ||
           refuse("no tensor map describes an operand");
  }

  bool readOperand(MatmulItem::Operand &to, OpOperand &operand, unsigned loop, unsigned k) {
    AffineMap map = item.matmul.getMatchingIndexingMap(&operand);
    std::optional<unsigned> ofLoop = findLoop(map, loop), ofSum = findLoop(map, k);
    unsigned last = map.getNumResults() - 1;
    if (!ofLoop || !ofSum || (ofLoop != last && ofSum != last) || !isMappable(operand.get()))
      return false;
    bool isTransposed = ofLoop == last;
    to = {operand.get(), isTransposed ? *ofSum : *ofLoop, last, isTransposed};
    // A stage may extend beyond k, where both operands must be zeros.
    int64_t extent = cast<MemRefType>(operand.get().getType()).getDimSize(*ofSum);
    if (!ShapedType::isDynamic(extent) && extent % MatmulShape::depth == 0)
      return true;
    std::optional<SmallVector<ParameterExtent>> equal = extentsIfWhole(operand.get(), *ofSum);
    if (!equal)
      return false;
    for (ParameterExtent parameter : *equal)
      if (!llvm::is_contained(item.equalExtents, parameter))
        item.equalExtents.push_back(parameter);
    return true;
  }

  /// Whether an op computes one element of each result from elements of the same position, or of others that no op
  /// writes.
  bool isElementOp(linalg::LinalgOp op) {
    if (op.getNumParallelLoops() != op.getNumLoops() || op.getNumDpsInits() == 0)
      return false;
    for (OpOperand &init : op.getDpsInitsMutable())
      if (!op.getMatchingIndexingMap(&init).isIdentity())
        return false;
    return llvm::all_of(*op.getBlock(), [](Operation &inner) {
      return inner.hasTrait<OpTrait::IsTerminator>() || isMemoryEffectFree(&inner);
    });
  }

  /// Assigns each access to memory: a buffer that an op writes is accessed as one value, at the position of the
  /// element, by all ops.
  bool findMemory() {
    llvm::SmallDenseMap<Value, Value> written; // base memory to its view
    for (linalg::LinalgOp op : item.ops)
      for (Value init : op.getDpsInits())
        if (written.try_emplace(getBaseMemory(init), init).first->second != init)
          return false;
    Value result = item.matmul.getDpsInits()[0];
    if (written.contains(getBaseMemory(item.lhs.value)) || written.contains(getBaseMemory(item.rhs.value)))
      return false;
    llvm::SmallPtrSet<Value, 4> known, ofElement = {result};
    for (linalg::LinalgOp op : item.ops) {
      bool isMatmul = op == item.matmul, isJoined = isMatmul;
      for (OpOperand &operand : op->getOpOperands()) {
        Value memory = operand.get();
        bool isInit = op.isDpsInit(&operand);
        if (!isa<MemRefType>(memory.getType()) || (isMatmul && !isInit))
          continue;
        isJoined |= ofElement.contains(memory);
        auto at = written.find(getBaseMemory(memory));
        if (at != written.end() &&
            (at->second != memory || !(isMatmul || op.getMatchingIndexingMap(&operand).isIdentity())))
          return false;
        if (known.contains(memory) || !op.payloadUsesValueFromOperand(&operand))
          continue;
        // Nothing in this kernel has written the buffer.
        if (isShared(memory))
          return false;
        item.loads.push_back(&operand);
      }
      // Other ops may have other iteration spaces.
      if (!isJoined)
        return false;
      for (Value init : op.getDpsInits()) {
        ofElement.insert(init);
        if (known.insert(init).second && !isShared(init))
          item.outputs.push_back(init);
      }
    }
    return true;
  }

  func::FuncOp kernel;
  std::string &obstacle;
  MatmulItem item;
};

} // namespace

bool MatmulItem::hasDynamicCount() const {
  return llvm::any_of(outputs, [](Value output) {
    auto type = dyn_cast<MemRefType>(getBaseMemory(output).getType());
    return !type || !type.hasStaticShape();
  });
}

std::optional<MatmulItem> device::findMatmulItem(func::FuncOp kernel, std::string &obstacle) {
  int64_t matmuls = 0;
  kernel.walk([&](linalg::LinalgOp op) { matmuls += isMatmul(op); });
  obstacle = matmuls == 1 ? "the kernel is more than a matmul and ops of its elements" : "";
  return ItemFinder(kernel, obstacle).run();
}
