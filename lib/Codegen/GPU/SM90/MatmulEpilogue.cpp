//===- MatmulEpilogue.cpp - The results of a tile of a matmul -----------------===//
//
// There are two forms of the loop over rows and groups of columns. If all operands of 16 and 32 bits that are
// contiguous along columns are aligned, a thread accesses them by vectors, which are within the tile or beyond it.
// Otherwise it accesses elements, with a bounds check each.
//
//===----------------------------------------------------------------------===//
#include "MatmulEpilogue.h"
#include "../ElementOp.h"
#include "../GlobalMatrix.h"
#include "../SM80/MMA.h"
#include "mlir/IR/Matchers.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

static constexpr int64_t vectorBytes = 16;

namespace {

class Epilogue {
public:
  Epilogue(const Emitter &e, const MatmulItem &item, const MatmulShape &shape, Value sums, const MatmulPart &part)
      : e(e), item(item), shape(shape), sums(sums), part(part) {
    Value result = resultOf(item.matmul);
    rowsLeft = this->e.toI32(this->e.size(result, item.rowDim));
    columnsLeft = this->e.toI32(this->e.size(result, item.columnDim));
    positions.assign(cast<MemRefType>(result.getType()).getRank(), this->e.index(0));
  }

  void run() {
    for (OpOperand *operand : item.loads)
      if (hasVectors(operand->get().getType(), subscriptMap(*operand)))
        memories.try_emplace(operand->get(), e, operand->get());
    for (Value output : item.outputs)
      if (hasVectors(output.getType(), identityMap(output)))
        memories.try_emplace(output, e, output);
    Value isAligned = e.isEqual(e.rem(columnsLeft, MatmulShape::vectorColumns), e.i32(0));
    for (auto &[memory, access] : memories)
      isAligned = e.andi(isAligned, alignmentOf(memory, access));
    e.ifElse(
        isAligned, [&] { forVectors([&](Value row, Value column) { computeVector(row, column); }); },
        [&] { forVectors([&](Value row, Value column) { computeElements(row, column); }); });
  }

private:
  static Value resultOf(linalg::LinalgOp op) { return op.getDpsInits()[0]; }
  AffineMap identityMap(Value memory) {
    return AffineMap::getMultiDimIdentityMap(cast<MemRefType>(memory.getType()).getRank(), e.b.getContext());
  }
  /// The map from the position of an element to the subscripts of an operand. The result of the matmul is the element.
  AffineMap subscriptMap(OpOperand &operand) {
    auto op = cast<linalg::LinalgOp>(operand.getOwner());
    return op == item.matmul ? identityMap(operand.get()) : op.getMatchingIndexingMap(&operand);
  }

  /// Whether the elements of successive columns are successive, if the innermost stride is one.
  bool hasVectors(Type type, AffineMap map) {
    unsigned bits = getElementTypeOrSelf(type).isIntOrFloat() ? getElementTypeOrSelf(type).getIntOrFloatBitWidth() : 0;
    if ((bits != 16 && bits != 32) || map.getNumResults() == 0)
      return false;
    return map.getResults().back() == getAffineDimExpr(item.columnDim, map.getContext()) &&
           llvm::none_of(map.getResults().drop_back(),
                         [&](AffineExpr expr) { return expr.isFunctionOfDim(item.columnDim); });
  }

  static int64_t bytesOf(Value memory) { return getElementTypeOrSelf(memory).getIntOrFloatBitWidth() / 8; }

  Value alignmentOf(Value memory, const GlobalMemory &access) {
    Value isAligned =
        e.andi(isAlignedAddress(e, access.base, vectorBytes), e.isEqual(access.strides.back(), e.index(1)));
    for (auto [dim, stride] : llvm::enumerate(ArrayRef(access.strides).drop_back()))
      // The stride of a single element is arbitrary.
      if (cast<MemRefType>(memory.getType()).getDimSize(dim) != 1)
        isAligned = e.andi(isAligned, e.isEqual(e.rem(stride, vectorBytes / bytesOf(memory)), e.index(0)));
    return isAligned;
  }

  /// Emits `body` for each row of the warp and group of columns of this thread that begins within the tile.
  void forVectors(function_ref<void(Value row, Value column)> body) {
    int64_t vectors = shape.columns / MatmulShape::vectorColumns;
    e.loop(e.rem(e.thread(), 32), e.i32(WarpgroupShape::warpRows * vectors), 32, [&](Value at) {
      Value row = e.div(at, vectors), column = e.mul(e.rem(at, vectors), MatmulShape::vectorColumns);
      Value exists =
          e.andi(e.isLess(e.add(part.row, row), rowsLeft), e.isLess(e.add(part.column, column), columnsLeft));
      e.ifElse(exists, [&] { body(row, column); });
    });
  }

  Value sumAddress(Value row, Value column) {
    return e.add(e.add(sums, e.mul(row, shape.sumRowBytes())), e.mul(column, 4));
  }
  Value loadSums(Value address, Type type, int64_t alignment) {
    return LLVM::LoadOp::create(e.b, e.loc, type, e.sharedPointer(address), alignment);
  }

  void setPosition(Value row, Value column) {
    positions[item.rowDim] = e.toIndex(e.add(part.row, row));
    positions[item.columnDim] = e.toIndex(e.add(part.column, column));
  }

  //===--- Vectors ---===//
  Value address(const GlobalMemory &access, AffineMap map) {
    Value offset = e.index(0);
    for (auto [subscript, stride] : llvm::zip_equal(evaluateMap(e, map, positions), access.strides))
      offset = e.add(offset, e.mul(subscript, stride));
    return offset;
  }

  /// Accesses the elements of eight columns as vectors of words.
  template <typename Access> void forWords(Value memory, AffineMap map, Access access) {
    const GlobalMemory &at = memories.at(memory);
    Type element = getElementTypeOrSelf(memory);
    Value first = e.advance(at.base, element, address(at, map));
    int64_t count = vectorBytes / bytesOf(memory);
    for (int64_t i = 0; i < MatmulShape::vectorColumns; i += count)
      access(e.advance(first, element, static_cast<int32_t>(i)), i, count);
  }

  SmallVector<Value> loadVector(OpOperand &operand) {
    AffineMap map = subscriptMap(operand);
    Type element = getElementTypeOrSelf(operand.get());
    SmallVector<Value> elements;
    if (memories.contains(operand.get()) && hasVectors(operand.get().getType(), map)) {
      forWords(operand.get(), map, [&](Value from, int64_t, int64_t count) {
        Value words = LLVM::LoadOp::create(e.b, e.loc, wordsType(), from, /*alignment=*/vectorBytes);
        Value vector = LLVM::BitcastOp::create(e.b, e.loc, VectorType::get({count}, element), words);
        for (int64_t i = 0; i < count; ++i)
          elements.push_back(LLVM::ExtractElementOp::create(e.b, e.loc, vector, e.i32(i)));
      });
      return elements;
    }
    bool isShared =
        llvm::none_of(map.getResults(), [&](AffineExpr expr) { return expr.isFunctionOfDim(item.columnDim); });
    Value column = positions[item.columnDim];
    for (int64_t i = 0; i < MatmulShape::vectorColumns; ++i) {
      positions[item.columnDim] = e.add(column, i);
      elements.push_back(i && isShared ? elements.front() : loadElement(operand));
    }
    positions[item.columnDim] = column;
    return elements;
  }

  void storeVector(Value output, ArrayRef<Value> elements) {
    if (!memories.contains(output)) {
      Value column = positions[item.columnDim];
      for (auto [i, element] : llvm::enumerate(elements)) {
        positions[item.columnDim] = e.add(column, static_cast<int64_t>(i));
        e.storeShared(element, output, positions);
      }
      positions[item.columnDim] = column;
      return;
    }
    forWords(output, identityMap(output), [&](Value to, int64_t first, int64_t count) {
      Value words = LLVM::PoisonOp::create(e.b, e.loc, wordsType());
      ArrayRef<Value> part = elements.slice(first, count);
      for (int64_t i = 0, n = count / 4; i < 4; ++i)
        words = LLVM::InsertElementOp::create(e.b, e.loc, words, wordOf(part.slice(i * n, n)), e.i32(i));
      LLVM::StoreOp::create(e.b, e.loc, words, to, /*alignment=*/vectorBytes);
    });
  }

  VectorType wordsType() { return VectorType::get({4}, e.b.getI32Type()); }

  /// One or two elements as a word. Two that are rounded to 16 bits take one conversion.
  Value wordOf(ArrayRef<Value> elements) {
    Type element = elements.front().getType();
    auto sourceOf = [](Value x) {
      auto rounded = x.getDefiningOp<arith::TruncFOp>();
      return rounded && rounded.getIn().getType().isF32() ? rounded.getIn() : Value();
    };
    if (elements.size() == 2 && (element.isF16() || element.isBF16()) && sourceOf(elements[0]) && sourceOf(elements[1]))
      return packWord(e, element, sourceOf(elements[0]), sourceOf(elements[1]));
    Value vector =
        LLVM::PoisonOp::create(e.b, e.loc, VectorType::get({static_cast<int64_t>(elements.size())}, element));
    for (auto [i, x] : llvm::enumerate(elements))
      vector = LLVM::InsertElementOp::create(e.b, e.loc, vector, x, e.i32(static_cast<int64_t>(i)));
    return LLVM::BitcastOp::create(e.b, e.loc, e.b.getI32Type(), vector);
  }

  void computeVector(Value row, Value column) {
    setPosition(row, column);
    // All loads precede the arithmetic, so that their latencies overlap.
    llvm::SmallDenseMap<OpOperand *, SmallVector<Value>> loaded;
    for (OpOperand *operand : item.loads)
      loaded[operand] = loadVector(*operand);
    SmallVector<Value> ofColumns;
    for (int64_t half : {0, 1}) {
      Value vector = loadSums(e.add(sumAddress(row, column), half * vectorBytes),
                              VectorType::get({4}, e.b.getF32Type()), vectorBytes);
      for (int64_t i = 0; i < 4; ++i)
        ofColumns.push_back(LLVM::ExtractElementOp::create(e.b, e.loc, vector, e.i32(i)));
    }
    SmallVector<SmallVector<Value>> results(item.outputs.size());
    Value first = positions[item.columnDim];
    for (auto [i, sum] : llvm::enumerate(ofColumns)) {
      positions[item.columnDim] = e.add(first, static_cast<int64_t>(i));
      auto values = evaluate(sum, [&, i = i](OpOperand &operand) { return loaded[&operand][i]; });
      for (auto [output, result] : llvm::zip_equal(item.outputs, results))
        result.push_back(values[output]);
    }
    positions[item.columnDim] = first;
    for (auto [output, result] : llvm::zip_equal(item.outputs, results))
      storeVector(output, result);
  }

  //===--- Elements ---===//
  Value loadElement(OpOperand &operand) {
    return e.load(operand.get(), evaluateMap(e, subscriptMap(operand), positions));
  }

  void computeElements(Value row, Value column) {
    Value end = e.min(e.add(column, MatmulShape::vectorColumns), e.sub(columnsLeft, part.column));
    e.loop(column, end, 1, [&](Value at) {
      setPosition(row, at);
      Value sum = loadSums(sumAddress(row, at), e.b.getF32Type(), /*alignment=*/4);
      auto values = evaluate(sum, [&](OpOperand &operand) { return loadElement(operand); });
      for (Value output : item.outputs)
        e.storeShared(values[output], output, positions);
    });
  }

  /// The values of all buffers that the ops write, at `positions`.
  llvm::SmallDenseMap<Value, Value> evaluate(Value sum, function_ref<Value(OpOperand &)> load) {
    llvm::SmallDenseMap<Value, Value> values;
    auto read = [&](OpOperand &operand) {
      if (!isa<MemRefType>(operand.get().getType()))
        return operand.get();
      Value known = values.lookup(operand.get());
      return known ? known : load(operand);
    };
    for (linalg::LinalgOp op : item.ops) {
      if (op == item.matmul) {
        OpOperand &init = *op.getDpsInitOperand(0);
        Value before = read(init);
        if (!matchPattern(before, m_PosZeroFloat()))
          sum = e.addf(e.extend(before), sum);
        values[init.get()] = e.truncate(sum, getElementTypeOrSelf(init.get()));
        continue;
      }
      IRMapping known;
      for (OpOperand &operand : op->getOpOperands())
        if (op.payloadUsesValueFromOperand(&operand))
          known.map(op.getMatchingBlockArgument(&operand), read(operand));
      for (Operation &inner : op.getBlock()->without_terminator())
        cloneAt(e, inner, known, positions);
      for (auto [init, result] : llvm::zip_equal(op.getDpsInits(), op.getBlock()->getTerminator()->getOperands()))
        values[init] = known.lookupOrDefault(result);
    }
    return values;
  }

  Emitter e;
  const MatmulItem &item;
  const MatmulShape &shape;
  Value sums, rowsLeft, columnsLeft;
  MatmulPart part;
  SmallVector<Value> positions;                  ///< of the element in the tile, index
  llvm::MapVector<Value, GlobalMemory> memories; ///< that vectors access
};

} // namespace

void device::emitMatmulEpilogue(Emitter &e, const MatmulItem &item, const MatmulShape &shape, Value sums,
                                const MatmulPart &part) {
  Epilogue(e, item, shape, sums, part).run();
}
