//===- SharedTile.cpp - A tile of 16-bit elements in shared memory ------------===//
//
// Copies vectors of 16 bytes, from global memory by cp.async and from shared memory through registers, and loads four
// 8 × 8 matrices per ldmatrix.
//
//===----------------------------------------------------------------------===//
#include "SharedTile.h"
#include "../ComputedRows.h"
#include "saccade/Support/Kernels.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

/// Elements per 16-byte cp.async.
static constexpr int64_t vectorElements = 8;
/// Bytes of a line of global memory, which a request of adjacent threads should cover.
static constexpr int64_t lineBytes = 128;

SharedTile::SharedTile(Emitter &e, Value shared, int64_t offset, Type element, int64_t rows, int64_t columns)
    : base(e.advance(shared, e.b.getI8Type(), static_cast<int32_t>(offset))), element(element), rows(rows),
      columns(columns), padded(paddedColumns(columns)), pitch(padded + vectorElements) {}

void SharedTile::commit(Emitter &e) { NVVM::CpAsyncCommitGroupOp::create(e.b, e.loc); }
void SharedTile::wait(Emitter &e, int pending) {
  NVVM::CpAsyncWaitGroupOp::create(e.b, e.loc, e.b.getI32IntegerAttr(pending));
}

int64_t SharedTile::threadsPerRow() const { return llvm::PowerOf2Ceil(padded / vectorElements); }
int64_t SharedTile::rowsAtOnce() const { return threadsPerCTA / threadsPerRow(); }

int64_t SharedTile::threadsPerWholeRow() const { return std::min(threadsPerRow(), lineBytes / (2 * vectorElements)); }

/// x · y + z for i32 factors and an i64 sum, which ptxas makes one instruction. LLVM would replace multiples by chains
/// of additions of 64 bits, which take two instructions each.
static Value multiplyAddWide(Emitter &e, Value x, Value y, Value z) {
  Value product = LLVM::InlineAsmOp::create(e.b, e.loc, z.getType(), ValueRange{x, y}, "mul.wide.s32 $0, $1, $2;",
                                            "=l,r,r", /*has_side_effects=*/false, /*is_align_stack=*/false,
                                            LLVM::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr())
                      .getResult(0);
  return e.add(z, product);
}

std::pair<Value, Value> SharedTile::threadPosition(Emitter &e) const {
  Value thread = e.optimizationBarrier(e.thread());
  int64_t threads = threadsPerWholeRow();
  return {e.toIndex(e.div(thread, threads)), e.toIndex(e.mul(e.rem(thread, threads), vectorElements))};
}

SharedTile::Copies SharedTile::prepare(Emitter &e, const GlobalMatrix &matrix, const Copies *like) const {
  Copies copies{matrix, matrix.isAligned(e, 2 * vectorElements), {}, {}, {}, {}};
  if (matrix.computed || matrix.hasRowAddresses() || !copies.isAligned || threadsPerRow() * vectorElements != columns ||
      rows % (threadsPerCTA / threadsPerWholeRow()) != 0)
    return copies;
  auto [row, column] = threadPosition(e);
  Value source = matrix.address(e, row, column);
  copies.source = LLVM::PtrToIntOp::create(e.b, e.loc, e.b.getI64Type(), source);
  bool isShared = like && like->target && like->matrix.columns == matrix.columns;
  copies.target = isShared ? like->target : e.optimizationBarrier(e.toI32(e.mul(e.add(e.mul(row, pitch), column), 2)));
  // ptxas would multiply a stride that it knows to be uniform in uniform registers, and then add 64 bits in two steps.
  // The low bits of an address are not uniform to it. They are 0 where the stride is used.
  Value address = arith::IndexCastOp::create(e.b, e.loc, e.b.getIndexType(), copies.source);
  copies.stride = e.add(e.toI32(e.mul(matrix.rowStride, 2)), e.toI32(e.rem(address, 2 * vectorElements)));
  Value isRange = e.andi(e.isAtMost(e.index(-(int64_t(1) << 30)), matrix.rowStride),
                         e.isLess(matrix.rowStride, e.index(int64_t(1) << 30)));
  Value end = e.max(e.add(matrix.rows, 1 - rows), e.index(0));
  copies.end = e.select(e.andi(copies.isAligned, isRange), e.toI32(end), e.i32(0));
  return copies;
}

void SharedTile::copy(Emitter &e, const Copies &copies, Value first) const {
  const GlobalMatrix &matrix = copies.matrix;
  if (columns % vectorElements == 0 && matrix.computed)
    return copyComputed(e, matrix, e.toIndex(first));
  if (columns % vectorElements != 0 || !copies.isAligned)
    return copyElements(e, matrix, e.toIndex(first));
  auto copyPart = [&](const GlobalMatrix &from) {
    // Extended here, not before the test of whole tiles.
    Value row = e.toIndex(copies.source ? e.optimizationBarrier(first) : first);
    e.ifElse(copies.isAligned, [&] { copyAsync(e, from, row); }, [&] { copyElements(e, from, row); });
  };
  if (!copies.source)
    return copyPart(matrix);
  Value isWhole = e.compare(arith::CmpIPredicate::ult, first, copies.end);
  e.ifElse(
      isWhole, [&] { copyWhole(e, copies, first); },
      [&] {
        // The start of the matrix is computed again, because it would take further registers.
        GlobalMatrix from = matrix;
        auto [threadRow, column] = threadPosition(e);
        Value source = LLVM::IntToPtrOp::create(e.b, e.loc, matrix.base.getType(), copies.source);
        Value offset = e.add(e.mul(threadRow, matrix.rowStride), e.mul(column, matrix.columnStride));
        from.base = e.advance(source, element, e.sub(e.index(0), offset));
        copyPart(from);
      });
}

void SharedTile::copyWhole(Emitter &e, const Copies &copies, Value first) const {
  // The products are computed here, not before an outer loop, where they would take registers.
  Value stride = e.optimizationBarrier(copies.stride);
  Value start = multiplyAddWide(e, first, stride, copies.source);
  Value target = e.add(LLVM::PtrToIntOp::create(e.b, e.loc, e.b.getI32Type(), base), copies.target);
  Type pointer = copies.matrix.base.getType();
  int64_t threads = threadsPerWholeRow();
  for (int64_t row = 0; row < rows; row += threadsPerCTA / threads) {
    Value source = row ? multiplyAddWide(e, stride, e.i32(row), start) : start;
    Value address = LLVM::IntToPtrOp::create(e.b, e.loc, pointer, source);
    for (int64_t column = 0; column < columns; column += threads * vectorElements)
      NVVM::CpAsyncOp::create(e.b, e.loc, toPointer(e, target, row * pitch + column),
                              e.advance(address, element, static_cast<int32_t>(column)), 2 * vectorElements,
                              NVVM::LoadCacheModifierKind::CG, /*cpSize=*/Value());
  }
}

/// The range [begin, end) of tile rows that are in the matrix, i32.
static std::pair<Value, Value> rowsWithin(Emitter &e, const GlobalMatrix &matrix, Value first, int64_t rows) {
  Value none = e.index(0), all = e.index(rows);
  auto clamp = [&](Value row) { return e.toI32(e.max(e.min(row, all), none)); };
  return {clamp(e.sub(none, first)), clamp(e.sub(matrix.rows, first))};
}

/// A thread copies the same columns of every `rowsAtOnce`-th row. If rows have one stride, it increments one address
/// instead of holding many.
void SharedTile::copyAsync(Emitter &e, const GlobalMatrix &matrix, Value first) const {
  Value thread = e.optimizationBarrier(e.thread());
  Value row = e.div(thread, threadsPerRow()), column = e.mul(e.rem(thread, threadsPerRow()), vectorElements);
  auto [begin, end] = rowsWithin(e, matrix, first, rows);
  // Rows without a common stride: all addresses are computed first, because those of pages are read from memory.
  SmallVector<Value> sources;
  Value source;
  if (matrix.hasRowAddresses())
    for (int64_t offset = 0; offset < rows; offset += rowsAtOnce())
      sources.push_back(matrix.address(e, e.add(first, e.toIndex(e.add(row, offset))), e.toIndex(column)));
  else
    source = e.advance(matrix.base, element,
                       e.add(e.mul(e.add(first, e.toIndex(row)), matrix.rowStride), e.toIndex(column)));
  Value target = opaqueAddress(e, row, column);
  Value step = e.mul(matrix.rowStride, rowsAtOnce());
  auto copyRows = [&] {
    for (int64_t offset = 0; offset < rows; offset += rowsAtOnce()) {
      Value current = e.add(row, offset);
      Value isInBounds = e.andi(e.isAtMost(begin, current), e.isLess(current, end));
      if (padded != columns)
        isInBounds = e.andi(isInBounds, e.isLess(column, e.i32(columns)));
      Value bytes = e.select(isInBounds, e.i32(2 * vectorElements), e.i32(0));
      Value from = sources.empty() ? source : sources[offset / rowsAtOnce()];
      auto copyRow = [&] {
        NVVM::CpAsyncOp::create(e.b, e.loc, toPointer(e, target, offset * pitch), from, 2 * vectorElements,
                                NVVM::LoadCacheModifierKind::CG, bytes);
      };
      if (offset + rowsAtOnce() <= rows)
        copyRow();
      else
        e.ifElse(e.isLess(current, e.i32(rows)), copyRow);
      if (sources.empty())
        source = e.advance(source, element, step);
    }
  };
  if (threadsPerRow() * vectorElements == padded)
    copyRows();
  else
    e.ifElse(e.isLess(column, e.i32(padded)), copyRows);
}

/// Copies element by element, for any strides.
void SharedTile::copyElements(Emitter &e, const GlobalMatrix &matrix, Value first) const {
  Value end = e.index(rows * padded);
  e.loop(e.toIndex(e.optimizationBarrier(e.thread())), end, threadsPerCTA, [&](Value i) {
    Value row = e.div(i, padded), column = e.rem(i, padded), from = e.add(first, row);
    Value isInBounds = e.andi(e.isAtMost(e.index(0), from), e.isLess(from, matrix.rows));
    if (padded != columns)
      isInBounds = e.andi(isInBounds, e.isLess(column, e.index(columns)));
    auto read = [&]() -> SmallVector<Value> { return {matrix.load(e, from, column)}; };
    auto zero = [&]() -> SmallVector<Value> {
      return {arith::ConstantOp::create(e.b, e.loc, e.b.getFloatAttr(element, 0.0))};
    };
    Value x = e.choose(isInBounds, read, zero)[0];
    LLVM::StoreOp::create(e.b, e.loc, x, e.advance(base, element, e.add(e.mul(row, pitch), column)));
  });
}

/// Threads are distributed as in `copyAsync`. All inputs of a thread are loaded before the first element is computed.
/// Rows and columns outside of the matrix are computed from the nearest ones, which avoids branches between loads.
void SharedTile::copyComputed(Emitter &e, const GlobalMatrix &matrix, Value first) const {
  Value thread = e.optimizationBarrier(e.thread());
  Value row = e.div(thread, threadsPerRow()), column = e.mul(e.rem(thread, threadsPerRow()), vectorElements);
  auto [begin, end] = rowsWithin(e, matrix, first, rows);
  Value lastColumn = e.i32(columns - vectorElements), from = e.toIndex(e.min(column, lastColumn));
  Value isColumn = e.isAtMost(column, lastColumn), target = opaqueAddress(e, row, column);
  SmallVector<ComputedRows::Loaded> loaded;
  for (int64_t offset = 0; offset < rows; offset += rowsAtOnce()) {
    Value position = e.add(first, e.toIndex(e.add(row, offset)));
    position = e.max(e.min(position, e.add(matrix.rows, -1)), e.index(0));
    loaded.push_back(matrix.computed->load(e, position, from, vectorElements));
  }
  auto vector = VectorType::get({vectorElements}, element);
  Value zero = arith::ConstantOp::create(e.b, e.loc, e.b.getZeroAttr(vector));
  for (int64_t offset = 0; offset < rows; offset += rowsAtOnce()) {
    Value current = e.add(row, offset), x = zero;
    for (int64_t i = 0; i < vectorElements; ++i)
      x = LLVM::InsertElementOp::create(e.b, e.loc, x, matrix.computed->compute(e, loaded[offset / rowsAtOnce()], i),
                                        e.i32(i));
    Value isInBounds = e.andi(isColumn, e.andi(e.isAtMost(begin, current), e.isLess(current, end)));
    x = e.select(isInBounds, x, zero);
    Value isOfTile = e.andi(e.isLess(column, e.i32(padded)), e.isLess(current, e.i32(rows)));
    e.ifElse(isOfTile,
             [&] { LLVM::StoreOp::create(e.b, e.loc, x, toPointer(e, target, offset * pitch), /*alignment=*/16); });
  }
}

void SharedTile::copyScalars(Emitter &e, Value source, Value stride, Value target, Value count) const {
  e.loop(e.i32(0), e.i32(vectorElements), 1, [&](Value i) {
    auto read = [&]() -> SmallVector<Value> {
      Value address = e.advance(source, element, e.mul(e.toIndex(i), stride));
      return {LLVM::LoadOp::create(e.b, e.loc, element, address)};
    };
    auto zero = [&]() -> SmallVector<Value> {
      return {arith::ConstantOp::create(e.b, e.loc, e.b.getFloatAttr(element, 0.0))};
    };
    Value x = e.choose(e.isLess(i, count), read, zero)[0];
    LLVM::StoreOp::create(e.b, e.loc, x, e.advance(target, element, i));
  });
}

void SharedTile::copyPart(Emitter &e, const GlobalMatrix &matrix, Value isAligned, Value firstRow, Value endRow,
                          Value firstColumn, Value endColumn) const {
  assert(rows * padded % (threadsPerCTA * vectorElements) == 0 && "threads copy equal numbers of vectors");
  int64_t threadsPerRow = padded / vectorElements, rowsAtOnce = threadsPerCTA / threadsPerRow;
  // The addresses of a thread are computed here, not before an outer loop, where they would take registers.
  Value thread = e.optimizationBarrier(e.thread());
  Value row = e.div(thread, threadsPerRow), column = e.mul(e.rem(thread, threadsPerRow), vectorElements);
  Value fromRow = e.add(firstRow, e.toIndex(row)), fromColumn = e.add(firstColumn, e.toIndex(column));
  Value target = opaqueAddress(e, row, column);
  // The numbers of in-bounds rows of the tile and elements of a vector; the other elements are 0.
  Value none = e.index(0), vectorSize = e.index(vectorElements);
  auto clamp = [&](Value count, Value most) { return e.toI32(e.max(e.min(count, most), none)); };
  Value rowsLeft = clamp(e.sub(endRow, firstRow), e.index(rows));
  Value remaining = clamp(e.sub(endColumn, fromColumn), vectorSize);
  auto forRows = [&](function_ref<void(Value, Value, Value)> copyRow) {
    Value source = matrix.address(e, fromRow, fromColumn), step = e.mul(matrix.rowStride, rowsAtOnce);
    for (int64_t offset = 0; offset < rows; offset += rowsAtOnce) {
      Value isRow = e.isLess(e.add(row, offset), rowsLeft);
      copyRow(source, e.select(isRow, remaining, e.i32(0)), toPointer(e, target, offset * pitch));
      source = e.advance(source, element, step);
    }
  };
  auto copyByElement = [&](Value from, Value count, Value to) { copyScalars(e, from, matrix.columnStride, to, count); };
  auto copyInShared = [&](Value from, Value count, Value to) {
    auto copyVector = [&] {
      Type vector = VectorType::get({vectorElements}, element);
      Value x = LLVM::LoadOp::create(e.b, e.loc, vector, from, /*alignment=*/16);
      LLVM::StoreOp::create(e.b, e.loc, x, to, /*alignment=*/16);
    };
    e.ifElse(e.isEqual(count, e.toI32(vectorSize)), copyVector, [&] { copyByElement(from, count, to); });
  };
  auto copyAsync = [&](Value from, Value count, Value to) {
    NVVM::CpAsyncOp::create(e.b, e.loc, to, from, 2 * vectorElements, NVVM::LoadCacheModifierKind::CG, e.mul(count, 2));
  };
  auto copyVectors = [&] {
    if (matrix.isInShared)
      forRows(copyInShared);
    else
      forRows(copyAsync);
  };
  e.ifElse(isAligned, copyVectors, [&] { forRows(copyByElement); });
}

Value SharedTile::opaqueAddress(Emitter &e, Value row, Value column) const {
  Value start = LLVM::PtrToIntOp::create(e.b, e.loc, e.b.getI32Type(), base);
  return e.optimizationBarrier(e.add(start, e.mul(e.add(e.mul(row, pitch), column), 2)));
}

Value SharedTile::toPointer(Emitter &e, Value address, int64_t elements) const {
  Value pointer = LLVM::IntToPtrOp::create(e.b, e.loc, base.getType(), address);
  return e.advance(pointer, element, static_cast<int32_t>(elements));
}

Value SharedTile::laneAddress(Emitter &e, Value row, unsigned rowBit, unsigned columnBit, Value column) const {
  Value lane = e.rem(e.thread(), 32);
  auto bit = [&](unsigned position) { return e.rem(e.div(lane, int64_t(1) << position), 2); };
  Value laneColumn = e.mul(bit(columnBit), 8);
  if (column)
    laneColumn = e.add(column, laneColumn);
  return opaqueAddress(e, e.add(row, e.add(e.rem(lane, 8), e.mul(bit(rowBit), 8))), laneColumn);
}

// Bits 3 and 4 of the lane select one of four 8 × 8 matrices. LHS: the row blocks 0 and 8 of the first eight columns,
// then of the next. RHS: the column blocks 0 and 8 (k) of the first eight rows (n), then of the next. Transposed, rows
// are k and columns are m or n.
Value SharedTile::lhsAddress(Emitter &e, Value row) const { return laneAddress(e, row, 3, 4); }
Value SharedTile::lhsTransposedAddress(Emitter &e, Value row, Value column) const {
  return laneAddress(e, row, 4, 3, column);
}
Value SharedTile::rhsAddress(Emitter &e, Value row) const { return laneAddress(e, row, 4, 3); }
Value SharedTile::rhsTransposedAddress(Emitter &e, Value row, Value column) const {
  return laneAddress(e, row, 3, 4, column);
}

SmallVector<Value> SharedTile::loadMatrices(Emitter &e, Value address, int64_t row, int64_t column,
                                            bool isTransposed) const {
  MLIRContext *context = e.b.getContext();
  Type word = e.b.getI32Type();
  auto type = LLVM::LLVMStructType::getLiteral(context, {word, word, word, word});
  Value matrices =
      NVVM::LdMatrixOp::create(e.b, e.loc, type, toPointer(e, address, row * pitch + column), 4,
                               isTransposed ? NVVM::MMALayout::col : NVVM::MMALayout::row,
                               NVVM::LdStMatrixShapeAttr::get(context, 8, 8), NVVM::LdStMatrixEltType::B16);
  SmallVector<Value> words;
  for (int64_t i = 0; i < 4; ++i)
    words.push_back(LLVM::ExtractValueOp::create(e.b, e.loc, matrices, i));
  return words;
}

SmallVector<Value> SharedTile::loadLhs(Emitter &e, Value address, int64_t row, int64_t k) const {
  return loadMatrices(e, address, row, k, /*isTransposed=*/false);
}

SmallVector<Value> SharedTile::loadLhsTransposed(Emitter &e, Value address, int64_t k, int64_t row) const {
  return loadMatrices(e, address, k, row, /*isTransposed=*/true);
}

SmallVector<Value> SharedTile::loadRhs(Emitter &e, Value address, int64_t n, int64_t k) const {
  return loadMatrices(e, address, n, k, /*isTransposed=*/false);
}

SmallVector<Value> SharedTile::loadRhsTransposed(Emitter &e, Value address, int64_t k, int64_t n) const {
  return loadMatrices(e, address, k, n, /*isTransposed=*/true);
}
