//===- BlockedMatmul.cpp - Matmul blocked for the caches ----------------------===//
#include "BlockedMatmul.h"
#include "Microkernel.h"
#include "Pack.h"
#include "Prefetch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::cpu;

Value cpu::emitBlock(Emitter &e, Value matrix, const ResultBlock &block) {
  SmallVector<OpFoldResult> ones(2, e.b.getIndexAttr(1));
  return memref::SubViewOp::create(e.b, e.loc, matrix, getAsOpFoldResult(ValueRange{block.row, block.column}),
                                   getAsOpFoldResult(ValueRange{block.rows, block.columns}), ones);
}

BlockedMatmul::BlockedMatmul(Emitter &e, const Product &product, MatmulBlock maxBlock)
    : e(e), product(product), maxBlock(maxBlock), groupRows(product.traits.groupRows()) {
  if (product.traits.inTiles)
    tiles.emplace(e, product.traits);
  tile = e.alloc({int64_t(llvm::alignTo(maxBlock.rows, groupRows)), maxBlock.columns});
  SmallVector<int64_t> packed = product.rowsShape(groupRows, maxBlock.depth);
  packed.back() += 512 / e.type.getWidth();
  group = e.alloc(packed);
}

/// The k-packs of `depth` elements.
Value BlockedMatmul::kPacksOf(Value depth) { return emitUnits(e, product.traits, depth); }

/// Chooses how the microkernel reads groups of LHS rows.
BlockedMatmul::GroupForm BlockedMatmul::formOf(Value lhs) {
  if (tiles)
    return GroupForm::Rows;
  auto type = cast<MemRefType>(lhs.getType());
  auto strides = type.getStridesAndOffset().first;
  // With static strides, as temporaries of a task have, the elements of a group have constant distances.
  if (product.traits.form == attn::ProductForm::MultiplyAdd && type.getElementType() == e.type &&
      llvm::none_of(strides, ShapedType::isDynamic))
    return GroupForm::Unpacked;
  bool isTransposed = strides[0] == 1 && strides[1] != 1;
  bool fitsPanel = product.traits.kPacks == 1 && panelBlock(e.target, /*isTail=*/false).rows <= e.lanes();
  return isTransposed && fitsPanel ? GroupForm::Panel : GroupForm::Rows;
}

/// Adds the sums over the k-packs [kPack, kPack + kPacks) of `allPacks` to a register block at (row, column) of `at`,
/// which begins in registers, and in a whole group of rows and a whole panel also ends there.
void BlockedMatmul::addParts(RegisterBlock block, const FromRow &fromRow, const ResultBlock &at, Value row,
                             Value column, Value kPack, Value kPacks, Value allPacks, SumPart sum) {
  auto addPart = [&](Value begin, Value length) {
    SmallVector<Value> part = sum(begin, length);
    Value first = e.add(kPack, begin);
    auto addToRow = [&] {
      SmallVector<Value> sums(part);
      for (unsigned i = 0; fromRow.initialRow && i < sums.size(); ++i) {
        Value at = e.add(column, i % block.vectors * e.lanes());
        sums[i] = e.addf(e.loadVector(fromRow.initialRow, at), part[i]);
      }
      return sums;
    };
    SmallVector<Value> sums = e.choose(e.isEqual(first, e.index(0)), addToRow,
                                       [&] { return cpu::addBlock(e, block, part, tile, row, column); });
    auto store = [&] { storeBlock(e, block, sums, tile, row, column); };
    if (block.rows != panelBlock(e.target, /*isTail=*/false).rows)
      return store();
    Value isLast = e.isEqual(e.add(first, length), allPacks);
    Value isWhole = e.isLess(e.add(column, block.vectors * e.lanes() - 1), at.columns);
    e.ifElse(
        e.b.createOrFold<arith::AndIOp>(e.loc, isLast, isWhole),
        [&] {
          // Otherwise the addresses of these stores are computed, and spilled, before each sum.
          Value place = e.add(at.row, emitOpaqueIndex(e, row));
          storeBlock(e, block, sums, fromRow.result, place, e.add(at.column, column));
          for (Value matrix : epilogue)
            emitPrefetchBlock(e, matrix, place, e.add(at.column, column), block.rows, block.vectors * e.lanes());
        },
        store);
  };
  // LLVM 22 unrolls products of lanes with spills.
  emitParts(e, e.index(0), kPacks, Product::inVectors(product.traits.form).partLength(),
            /*hasConstantParts=*/!e.target.hasLaneProducts, addPart);
}

/// Prefetches what `prefetchInPlace` has set for the registers at (row, column) of the result, which are number `part`.
void BlockedMatmul::prefetchOperands(RegisterBlock registers, Value row, Value column, Value part) {
  for (Value matrix : beforeSums)
    emitPrefetchBlock(e, matrix, row, column, registers.rows, 2 * e.lanes());
  for (const NextMatrices &each : next)
    emitPrefetchPart(e, each, part);
}

/// Adds the packed group · panel `panel` of `panels` to the tile registers at (row, column) of `into`.
void BlockedMatmul::addTiles(RegisterBlock registers, const Panels &panels, Value panel, Value kPack, Value kPacks,
                             Value into, Value row, Value column, bool isZero) {
  Value zero = e.index(0);
  auto load = [&] { return emitLoadTiles(e, registers, into, row, column); };
  e.loop(zero, kPacks, TileMatmul::part, [&](Value k) {
    Value length = e.min(e.sub(kPacks, k), e.index(TileMatmul::part)), begin = e.add(kPack, k);
    auto start = [&]() -> SmallVector<Value> {
      if (isZero)
        return e.choose(e.isEqual(begin, zero), [&] { return emitZeroTiles(e, registers); }, load);
      return load();
    };
    tiles->add(registers, {group, zero, k, kPacks, panels.memref, panel, e.add(panels.kPack, k)}, begin, length, into,
               row, column, start);
  });
}

/// Adds lhs · panels for the k-packs [kPack, kPack + kPacks): whole groups of rows to those in place, all others to the
/// tile.
void BlockedMatmul::addBlock(Value lhs, InPlace inPlace, const std::optional<FromRow> &fromRow,
                             const ResultBlock &block, Value kPack, Value kPacks, const Panels &panels) {
  RegisterBlock full = tiles ? maxTileBlock : panelBlock(e.target, /*isTail=*/false);
  RegisterBlock tail = tiles ? tailTileBlock : panelBlock(e.target, /*isTail=*/true);
  int64_t elements = product.traits.stride();
  Value zero = e.index(0), k = e.mul(kPack, elements), depth = e.mul(kPacks, elements);
  if (product.traits.elements() > 1)
    depth = e.min(depth, e.sub(e.size(lhs, 1), k));
  int64_t width = 2 * e.lanes();
  // In a full block, each panel prefetches a share of the columns of the next group, and each group one of the k-packs
  // of the next panels.
  Value panelCount = e.ceilDiv(block.columns, width);
  int64_t line = cacheLine * 8 / getElementTypeOrSelf(lhs).getIntOrFloatBitWidth();
  int64_t share = llvm::divideCeil(maxBlock.depth * elements, llvm::divideCeil(maxBlock.columns, width));
  int64_t panelShare = llvm::divideCeil(maxBlock.depth, std::max<int64_t>(maxBlock.rows / full.rows, 1));
  auto prefetchRows = [&](Value first, Value p) {
    Value row = e.add(block.row, first), begin = e.add(k, e.mul(p, llvm::alignTo(share, line)));
    auto prefetchRow = [&](Value next) {
      for (int64_t column = 0; column < share; column += line)
        emitPrefetch(e, lhs, next, e.add(begin, column));
    };
    // Between register blocks, the mispredicted end of a loop costs more than the prefetch gains.
    if (tiles)
      e.loop(e.add(row, full.rows), e.add(row, 2 * full.rows), 1, prefetchRow);
    for (unsigned i = 0; !tiles && i < full.rows; ++i)
      prefetchRow(e.add(row, full.rows + i));
  };
  Value isLast = panels.nextItem ? e.isEqual(panels.next, kPacksOf(e.size(lhs, 1))) : Value();
  auto prefetchPanel = [&](Value first, Value p) {
    Value from = e.mul(e.div(first, int64_t(full.rows)), panelShare);
    auto ofBlock = [&] {
      emitPrefetchPanel(e, panels.memref, e.add(panels.panel, p), e.add(panels.next, from), panelShare);
    };
    if (!panels.nextItem)
      return ofBlock();
    e.ifElse(isLast, [&] { emitPrefetchPanel(e, panels.nextItem, p, from, panelShare); }, ofBlock);
  };
  auto addGroup = [&](Value first, Value count, RegisterBlock registers, GroupForm form, bool isWhole) {
    bool isInPlace = isWhole && inPlace.rows;
    Value row = e.add(block.row, first), into = isInPlace ? inPlace.rows : tile, intoRow = isInPlace ? row : first;
    if (form == GroupForm::Rows)
      product.packRows(e, emitBlock(e, lhs, {row, count, k, depth}), count, e.index(registers.rows), group);
    if (form == GroupForm::Panel) {
      // Whole vectors of a column are copied, with rows of the next group.
      Value rows = e.min(e.index(e.lanes()), e.sub(e.size(lhs, 0), row));
      product.packPanels(e, emitBlock(e, lhs, {row, rows, k, depth}), rows, panel);
    }
    e.loop(zero, panelCount, 1, [&](Value p) {
      if (registers.rows == full.rows && (form == GroupForm::Rows || (form == GroupForm::Unpacked && panels.next)))
        prefetchRows(first, p);
      if (panels.next && registers.rows == full.rows)
        prefetchPanel(first, p);
      Value rhs = e.add(panels.panel, p), column = e.mul(p, width);
      Value intoColumn = isInPlace ? e.add(block.column, column) : column;
      if (isInPlace)
        prefetchOperands(registers, row, intoColumn, e.add(e.mul(e.div(first, int64_t(full.rows)), panelCount), p));
      if (tiles)
        return addTiles(registers, panels, rhs, kPack, kPacks, into, intoRow, intoColumn, isInPlace && inPlace.isZero);
      const VectorProduct &inVectors = Product::inVectors(product.traits.form);
      SmallVector<Value> zeros(registers.rows * registers.vectors, e.splat(0.0));
      auto sum = [&](Value begin, Value length) {
        auto b = [&](Value q, unsigned j) {
          return loadAhead(e, panels.memref, rhs, e.add(panels.kPack, e.add(begin, q)), e.index(j * e.lanes()));
        };
        return inVectors.multiply(
            e, registers, zero, length, zeros,
            [&](unsigned i, Value offset) {
              Value inner = e.add(begin, offset);
              return form == GroupForm::Unpacked ? e.load(lhs, {e.add(row, i), e.add(k, inner)})
                     : form == GroupForm::Panel  ? e.load(panel, {zero, inner, e.index(i)})
                                                 : inVectors.loadRow(e, group, zero, i, inner);
            },
            b);
      };
      if (fromRow)
        return addParts(registers, *fromRow, block, first, column, kPack, kPacks, kPacksOf(e.size(lhs, 1)), sum);
      // LLVM 22 unrolls products of lanes with spills.
      emitSumInParts(e, registers, kPacks, inVectors.partLength(), into, intoRow, intoColumn, sum,
                     isInPlace && inPlace.isZero, /*hasConstantParts=*/!e.target.hasLaneProducts);
    });
  };
  // Rows of the tile are padded to whole groups, so tail blocks stay in bounds.
  Value fullEnd = e.roundDown(block.rows, groupRows);
  GroupForm form = formOf(lhs);
  if (std::optional<int64_t> rest = knownRest(lhs, block.rows)) {
    Value restBegin = e.sub(block.rows, e.index(*rest));
    e.loop(zero, restBegin, full.rows, [&](Value r) { addGroup(r, e.index(full.rows), full, form, /*isWhole=*/true); });
    if (*rest > 0)
      addGroup(restBegin, e.index(*rest), {unsigned(*rest), full.vectors}, form, /*isWhole=*/true);
    return;
  }
  e.loop(zero, fullEnd, full.rows, [&](Value r) { addGroup(r, e.index(full.rows), full, form, /*isWhole=*/true); });
  // Excess rows of the last group repeat the last row.
  e.loop(fullEnd, block.rows, tail.rows, [&](Value r) {
    addGroup(r, e.min(e.sub(block.rows, r), e.index(tail.rows)), tail, GroupForm::Rows, /*isWhole=*/false);
  });
}

/// The rows of a block after the last whole register block, if their number is known and the microkernel reads the LHS
/// in place. They are one register block.
std::optional<int64_t> BlockedMatmul::knownRest(Value lhs, Value rows) {
  std::optional<int64_t> count = getConstantIntValue(rows);
  if (!count || formOf(lhs) != GroupForm::Unpacked)
    return std::nullopt;
  return *count % panelBlock(e.target, /*isTail=*/false).rows;
}

void BlockedMatmul::run(Value lhs, Value result, Begin begin, GetPanels getPanels, InPlace inPlace,
                        std::optional<FromRow> fromRow) {
  assert(!(tiles && fromRow) && "sums in tile registers begin in the tile");
  Value zero = e.index(0), rows = e.size(result, 0), columns = e.size(result, 1);
  Value kPacks = kPacksOf(e.size(lhs, 1));
  if (formOf(lhs) == GroupForm::Panel)
    panel = e.alloc({1, maxBlock.depth, int64_t(e.lanes())});
  auto extentFrom = [&](Value begin, Value end, int64_t most) {
    std::optional<int64_t> known = getConstantIntValue(end);
    return inPlace.rows && known && *known % most == 0 ? e.index(most) : e.min(e.sub(end, begin), e.index(most));
  };
  e.loop(zero, columns, maxBlock.columns, [&](Value column) {
    Value columnCount = extentFrom(column, columns, maxBlock.columns);
    e.loop(zero, rows, maxBlock.rows, [&](Value row) {
      ResultBlock block{row, extentFrom(row, rows, maxBlock.rows), column, columnCount};
      ResultBlock copied = block;
      if (inPlace.rows) {
        Value whole = knownRest(lhs, block.rows) ? block.rows : e.roundDown(block.rows, groupRows);
        copied.row = e.add(row, whole), copied.rows = e.sub(block.rows, whole);
      }
      // The rows of the tile that are used have the same places as in the block.
      Value first = e.sub(copied.row, row);
      bool isCopied = !isConstantIntValue(copied.rows, 0);
      Value rowsOfTile = inPlace.rows && isCopied ? emitBlock(e, tile, {first, copied.rows, zero, columnCount}) : tile;
      if (isCopied)
        begin(rowsOfTile, copied);
      auto add = [&](Value kPack) {
        Value count = extentFrom(kPack, kPacks, maxBlock.depth);
        addBlock(lhs, inPlace, fromRow, block, kPack, count, getPanels(block, kPack, count));
      };
      if (inPlace.isZero)
        add(zero);
      else
        e.loop(zero, kPacks, maxBlock.depth, add);
      if (!isCopied)
        return;
      if (!fromRow)
        return emitUnpackRows(e, rowsOfTile, emitBlock(e, result, copied));
      // Without k-packs nothing has been stored in the result.
      auto stored = [&](Value extent, int64_t unit) {
        return e.select(e.isEqual(kPacks, zero), zero, e.roundDown(extent, unit));
      };
      Value storedRows = stored(block.rows, groupRows), storedColumns = stored(columnCount, 2 * e.lanes());
      auto copy = [&](Value first, Value rows, Value firstColumn) {
        Value columns = e.sub(columnCount, firstColumn);
        emitUnpackRows(e, emitBlock(e, tile, {first, rows, firstColumn, columns}),
                       emitBlock(e, result, {e.add(row, first), rows, e.add(column, firstColumn), columns}));
      };
      e.ifElse(e.isLess(storedColumns, columnCount), [&] { copy(zero, storedRows, storedColumns); });
      e.ifElse(e.isLess(storedRows, block.rows), [&] { copy(storedRows, e.sub(block.rows, storedRows), zero); });
    });
  });
}
