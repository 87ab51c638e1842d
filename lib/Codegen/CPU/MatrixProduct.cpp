//===- MatrixProduct.cpp - Matmuls of blocks ----------------------------------===//
#include "MatrixProduct.h"
#include "Pack.h"
#include "Product.h"
#include "SVE.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::cpu;

/// An emitter of registers of rows of blocks, which have 64 bits.
static Emitter rowsOfBlocks(Emitter &e) { return {e.b, e.loc, e.target, e.b.getF64Type()}; }

static Value bitcast(Emitter &e, Value vector, VectorType type) {
  return vector::BitCastOp::create(e.b, e.loc, type, vector);
}

/// Shuffles 64-bit parts of two registers.
static Value shuffleRows(Emitter &e, Value first, Value second, ArrayRef<int64_t> parts) {
  VectorType wide = rowsOfBlocks(e).vectorType();
  Value shuffled = vector::ShuffleOp::create(e.b, e.loc, bitcast(e, first, wide), bitcast(e, second, wide), parts);
  return bitcast(e, shuffled, e.vectorType());
}

//===----------------------------------------------------------------------===//
// Packing
//===----------------------------------------------------------------------===//

void cpu::emitStoreRowOfBlocks(Emitter &e, Value kPacks, Value dst, ValueRange at, Value row, bool isWhole) {
  int64_t rows = e.lanes() / 2, stored = isWhole ? rows : rows / 2;
  auto columnOf = [&](int64_t q) {
    SmallVector<Value> place(at);
    place.back() = e.add(place.back(), blockDepth * q);
    return place;
  };
  if (!e.target.hasSVE) {
    Value offset = e.mul(row, 2);
    for (int64_t q = 0; q < stored; ++q) {
      SmallVector<Value> place = columnOf(q);
      place.back() = e.add(place.back(), offset);
      Value part = vector::ExtractStridedSliceOp::create(e.b, e.loc, kPacks, ArrayRef<int64_t>{2 * q},
                                                         ArrayRef<int64_t>{2}, ArrayRef<int64_t>{1});
      vector::StoreOp::create(e.b, e.loc, part, dst, place);
    }
    return;
  }
  // Both rows of each block, of which the lanes of one are stored.
  SmallVector<int32_t> rowOfLane;
  for (int64_t lane = 0; lane < e.lanes(); ++lane)
    rowOfLane.push_back(lane / 2 % 2);
  auto type = VectorType::get({e.lanes()}, e.b.getI32Type());
  Value rowsOfLanes = arith::ConstantOp::create(e.b, e.loc, DenseElementsAttr::get(type, ArrayRef(rowOfLane)));
  Value number = arith::IndexCastOp::create(e.b, e.loc, e.b.getI32Type(), row);
  Value mask = arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::eq, rowsOfLanes,
                                     vector::BroadcastOp::create(e.b, e.loc, type, number));
  for (int64_t first = 0; first < stored; first += rows / 2) {
    SmallVector<int64_t> twice;
    for (int64_t q = first; q < first + rows / 2; ++q)
      twice.append({q, q});
    vector::MaskedStoreOp::create(e.b, e.loc, dst, columnOf(first), mask, shuffleRows(e, kPacks, kPacks, twice));
  }
}

/// Elements of `src` in a k-pack.
static unsigned kPackElements(Value src) { return getElementTypeOrSelf(src).isBF16() ? 2 : 1; }

void cpu::emitPackRowBlocks(Emitter &e, Value src, Value rows, Value paddedRows, Value dst, Value signMask) {
  unsigned factor = kPackElements(src);
  Value lastRow = e.sub(rows, e.index(1)), kPacks = e.ceilDiv(e.size(src, 1), factor),
        paddedKPacks = e.roundUp(kPacks, 2);
  auto pack = [&](Value unit) {
    e.loop(e.index(0), paddedRows, 1, [&](Value r) {
      Value from = e.min(r, lastRow), pair = e.div(r, 2), row = e.sub(r, e.mul(pair, 2)), begin = e.index(0);
      if (unit) {
        begin = e.roundDown(e.div(e.size(src, 1), factor), e.lanes());
        KPackReader reader{e, unit, {factor}};
        e.loop(e.index(0), begin, e.lanes(), [&](Value w) {
          emitStoreRowOfBlocks(e, applySignMask(e, reader.vector(from, e.mul(w, factor)), signMask), dst,
                               {pair, e.mul(w, 2)}, row);
        });
      }
      auto store = [&](Value kPack, Value w) {
        Value q = e.div(w, 2), h = e.sub(w, e.mul(q, 2));
        e.store(kPack, dst, {pair, e.add(e.add(e.mul(q, blockDepth), e.mul(row, 2)), h)});
      };
      e.loop(begin, kPacks, 1, [&](Value w) {
        KPackReader reader{e, src, {factor}};
        store(applySignMask(e, reader.scalar(from, e.mul(w, factor)), signMask), w);
      });
      e.loop(kPacks, paddedKPacks, 1, [&](Value w) { store(e.scalar(0.0), w); });
    });
  };
  emitByInnerStride(e, src, pack, [&] { pack(nullptr); });
}

/// Packs rows [row, row + lanes) from k-pack `w` on, as many blocks as rows of blocks fit in a register, into a panel.
static void transposeBlocks(Emitter &e, KPackReader src, Value row, Value lastRow, Value w, Value dst, Value panel,
                            Value lane) {
  Emitter wide = rowsOfBlocks(e);
  int64_t count = wide.lanes();
  for (int64_t half : {0, 1}) {
    SmallVector<Value> vectors;
    for (int64_t i = 0; i < count; ++i) {
      Value from = e.min(e.add(row, half * count + i), lastRow);
      vectors.push_back(bitcast(e, src.vector(from, e.mul(w, src.shape.elements)), wide.vectorType()));
    }
    emitTranspose(wide, vectors);
    for (auto [i, each] : llvm::enumerate(vectors))
      e.storeVector(bitcast(e, each, e.vectorType()), dst,
                    {panel, e.add(e.div(w, 2), i), e.add(e.mul(lane, 2), half * e.lanes())});
  }
}

/// Stores two registers of k-packs of adjacent columns, the first and the second ones of blocks.
static void storeColumnsOfBlocks(Emitter &e, Value first, Value second, Value dst, ValueRange at) {
  auto [lower, upper] = emitInterleave(e, first, second);
  SmallVector<Value> next(at);
  next.back() = e.add(next.back(), e.lanes());
  e.storeVector(lower, dst, at);
  e.storeVector(upper, dst, next);
}

void cpu::emitPackPanelBlocks(Emitter &e, Value src, Value rows, Value dst) {
  unsigned factor = kPackElements(src);
  int64_t panelRows = cast<MemRefType>(dst.getType()).getDimSize(2) / 2;
  Value depth = e.size(src, 1), kPacks = e.ceilDiv(depth, factor), paddedKPacks = e.roundUp(kPacks, 2),
        lastRow = e.sub(rows, e.index(1));
  auto forBlocks = [&](Value begin, Value end, function_ref<void(Value row, Value panel, Value lane)> body) {
    e.loop(begin, end, e.lanes(), [&](Value row) {
      Value panel = e.div(row, panelRows);
      body(row, panel, e.sub(row, e.mul(panel, panelRows)));
    });
  };
  auto copyScalars = [&](Value row, Value panel, Value lane, Value first) {
    KPackReader reader{e, src, {factor}};
    e.loop(e.index(0), e.index(e.lanes()), 1, [&](Value i) {
      Value from = e.min(e.add(row, i), lastRow);
      auto store = [&](Value kPack, Value w) {
        Value q = e.div(w, 2), h = e.sub(w, e.mul(q, 2));
        e.store(kPack, dst, {panel, q, e.add(e.mul(e.add(lane, i), 2), h)});
      };
      e.loop(first, kPacks, 1, [&](Value w) { store(reader.scalar(from, e.mul(w, factor)), w); });
      e.loop(kPacks, paddedKPacks, 1, [&](Value w) { store(e.scalar(0.0), w); });
    });
  };
  emitByInnerStride(
      e, src,
      [&](Value unit) {
        Value vectorKPacks = e.roundDown(e.div(depth, factor), e.lanes());
        forBlocks(e.index(0), rows, [&](Value row, Value panel, Value lane) {
          e.loop(e.index(0), vectorKPacks, e.lanes(),
                 [&](Value w) { transposeBlocks(e, {e, unit, {factor}}, row, lastRow, w, dst, panel, lane); });
          copyScalars(row, panel, lane, vectorKPacks);
        });
      },
      [&] {
        // If columns are contiguous, no transpose is needed.
        emitByInnerStride(
            e, emitTransposed(e, src),
            [&](Value unit) {
              KPackReader reader{e, unit, {factor, /*isColumn=*/true}};
              Value wholeRows = e.roundDown(rows, e.lanes()), blocks = e.div(depth, 2 * factor);
              // A few blocks at a time, since a cache line of the source has elements of several registers.
              e.loop(e.index(0), blocks, packedTogether / 2, [&](Value begin) {
                Value end = e.min(e.add(begin, packedTogether / 2), blocks);
                forBlocks(e.index(0), wholeRows, [&](Value row, Value panel, Value lane) {
                  e.loop(begin, end, 1, [&](Value q) {
                    Value first = e.mul(q, 2 * factor);
                    storeColumnsOfBlocks(e, reader.vector(first, row), reader.vector(e.add(first, factor), row), dst,
                                         {panel, q, e.mul(lane, 2)});
                  });
                });
              });
              forBlocks(e.index(0), wholeRows,
                        [&](Value row, Value panel, Value lane) { copyScalars(row, panel, lane, e.mul(blocks, 2)); });
              forBlocks(wholeRows, rows,
                        [&](Value row, Value panel, Value lane) { copyScalars(row, panel, lane, e.index(0)); });
            },
            [&] {
              forBlocks(e.index(0), rows,
                        [&](Value row, Value panel, Value lane) { copyScalars(row, panel, lane, e.index(0)); });
            });
      });
}

void cpu::emitPackColumnBlocks(Emitter &e, Value src, Value dst) {
  Value rows = e.size(src, 0), columns = e.size(src, 1), lastRow = e.sub(rows, e.index(1)),
        blocks = e.div(rows, blockDepth);
  int64_t paddedColumns = cast<MemRefType>(dst.getType()).getDimSize(1) / 2;
  auto pack = [&](Value unit) {
    auto packRow = [&](Value q, Value firstColumn) {
      KPackReader reader{e, src, {2, /*isColumn=*/true}};
      for (int64_t h : {0, 1}) {
        Value row = e.add(e.mul(q, blockDepth), 2 * h), isInside = e.isLess(row, rows);
        e.loop(firstColumn, columns, 1, [&](Value c) {
          Value kPack = e.select(isInside, reader.scalar(e.min(row, lastRow), c), e.scalar(0.0));
          e.store(kPack, dst, {q, e.add(e.mul(c, 2), h)});
        });
        e.loop(columns, e.index(paddedColumns), 1,
               [&](Value c) { e.store(e.scalar(0.0), dst, {q, e.add(e.mul(c, 2), h)}); });
      }
    };
    e.loop(e.index(0), blocks, 1, [&](Value q) {
      Value begin = e.index(0);
      if (unit) {
        begin = e.roundDown(columns, e.lanes());
        KPackReader reader{e, unit, {2, /*isColumn=*/true}};
        e.loop(e.index(0), begin, e.lanes(), [&](Value c) {
          Value row = e.mul(q, blockDepth);
          storeColumnsOfBlocks(e, reader.vector(row, c), reader.vector(e.add(row, 2), c), dst, {q, e.mul(c, 2)});
        });
      }
      packRow(q, begin);
    });
    e.ifElse(e.isLess(e.mul(blocks, blockDepth), rows), [&] { packRow(blocks, e.index(0)); });
  };
  emitByInnerStride(e, src, pack, [&] { pack(nullptr); });
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

Value cpu::emitLoadBlock(Emitter &e, Value memref, ValueRange at) {
  Value block = vector::LoadOp::create(e.b, e.loc, VectorType::get({blockDepth}, e.type), memref, at);
  if (!e.target.hasSVE)
    return block;
  Value first = LLVM::ConstantOp::create(e.b, e.loc, e.b.getI64IntegerAttr(0));
  return emitSVE(e, "llvm.aarch64.sve.dupq.lane", e.vectorType(), {block, first});
}

static Value multiplyAddBlocks(Emitter &e, bool isInt8, Value lhs, Value rhs, Value sum) {
  Type element = isInt8 ? Type(e.b.getI8Type()) : Type(e.b.getBF16Type());
  VectorType sums = isInt8 ? VectorType::get({e.lanes()}, e.b.getI32Type()) : e.vectorType();
  if (isInt8)
    sum = bitcast(e, sum, sums);
  Value added;
  if (e.target.hasSVE) {
    added = emitSVE(e, isInt8 ? "llvm.aarch64.sve.smmla" : "llvm.aarch64.sve.bfmmla", sums,
                    {sum, emitScalable(e, lhs, element), emitScalable(e, rhs, element)});
  } else {
    auto type = VectorType::get({e.target.lanes(element.getIntOrFloatBitWidth())}, element);
    StringRef name = isInt8 ? "llvm.aarch64.neon.smmla.v4i32.v16i8" : "llvm.aarch64.neon.bfmmla";
    SmallVector<Value> operands = {sum, bitcast(e, lhs, type), bitcast(e, rhs, type)};
    added = LLVM::CallIntrinsicOp::create(e.b, e.loc, sums, e.b.getStringAttr(name), operands).getResult(0);
  }
  return isInt8 ? bitcast(e, added, e.vectorType()) : added;
}

/// Accumulators of rows as sums of blocks, or the reverse: a register of each of two rows has the 64-bit parts of two
/// registers of blocks.
static SmallVector<Value> convert(Emitter &e, RegisterBlock block, ArrayRef<Value> from, bool toBlocks) {
  int64_t parts = e.lanes() / 2;
  SmallVector<int64_t> first, second;
  for (int64_t i = 0; i < parts; ++i) {
    if (toBlocks) {
      first.push_back(i / 2 + i % 2 * parts);
      second.push_back(parts / 2 + i / 2 + i % 2 * parts);
    } else {
      first.push_back(2 * i);
      second.push_back(2 * i + 1);
    }
  }
  SmallVector<Value> to(from);
  for (unsigned i = 0; i < block.rows; i += 2)
    for (unsigned j = 0; j < block.vectors; ++j) {
      // Registers 2j and 2j + 1 of a pair of rows are those of its blocks.
      unsigned row = i * block.vectors, upper = row + j, lower = upper + block.vectors;
      unsigned even = row + 2 * j, odd = even + 1;
      unsigned x = toBlocks ? upper : even, y = toBlocks ? lower : odd;
      to[toBlocks ? even : upper] = shuffleRows(e, from[x], from[y], first);
      to[toBlocks ? odd : lower] = shuffleRows(e, from[x], from[y], second);
    }
  return to;
}

namespace {

/// Blocks of bf16, or of int8 with sums in i32, whose bits accumulators have. `block.vectors` counts registers of sums
/// of a row.
class BlockProduct : public VectorProduct {
public:
  using VectorProduct::VectorProduct;

  SmallVector<int64_t> rowsShape(int64_t rows, int64_t units) const override { return {rows / 2, blockDepth * units}; }
  void packRows(Emitter &e, Value src, Value rows, Value paddedRows, Value dst, Value signMask) const override {
    emitPackRowBlocks(e, src, rows, paddedRows, dst, signMask);
  }
  void packPanels(Emitter &e, Value src, Value rows, Value dst) const override {
    emitPackPanelBlocks(e, src, rows, dst);
  }
  void packColumns(Emitter &e, Value src, Value dst) const override { emitPackColumnBlocks(e, src, dst); }

  RegisterBlock valueBlock(const CPUTarget &target, int64_t, bool isTail, int64_t vectors) const override {
    // A register of columns of a row takes two of blocks.
    RegisterBlock block = panelBlock(target, isTail);
    block.vectors = std::min<unsigned>(block.vectors, vectors);
    return block;
  }
  Value loadRow(Emitter &e, Value rows, Value row, unsigned i, Value q) const override {
    return emitLoadBlock(e, rows, {e.add(e.div(row, 2), i), e.mul(q, blockDepth)});
  }
  /// The weights of a pair of rows take the place of the scores of the first one.
  Value loadWeight(Emitter &e, Value weights, Value row, unsigned i, Value q) const override {
    return emitLoadBlock(e, weights, {e.add(row, 2 * int64_t(i)), e.mul(q, blockDepth)});
  }
  void storeWeights(Emitter &e, ArrayRef<Value> weights, Value scores, Value row, Value column) const override {
    Value evenRow = e.mul(e.div(row, 2), 2), rowOfBlock = e.sub(row, evenRow);
    forPairs(e, weights, [&](unsigned i, Value first, Value second, bool isWhole) {
      emitStoreRowOfBlocks(e, emitRoundToPairs(e, first, second), scores, {evenRow, e.add(column, i * e.lanes())},
                           rowOfBlock, isWhole);
    });
  }
  SmallVector<Value> multiply(Emitter &e, RegisterBlock block, Value begin, Value end, ArrayRef<Value> acc,
                              function_ref<Value(unsigned, Value)> a,
                              function_ref<Value(Value, unsigned)> b) const override {
    assert(block.rows % 2 == 0 && acc.size() == block.rows * block.vectors);
    bool isInt8 = traits.form == attn::ProductForm::Int8Blocks;
    SmallVector<Value> blocks = convert(e, block, acc, /*toBlocks=*/true);
    // Of an unrolled loop LLVM 22 would load the operands early, and spill.
    blocks = e.loop(begin, end, 1, blocks, [&](Value q, ValueRange carried) {
      SmallVector<Value> rhs, sums(carried);
      for (unsigned j = 0; j < 2 * block.vectors; ++j)
        rhs.push_back(b(q, j));
      for (unsigned i = 0; i < block.rows / 2; ++i) {
        Value lhs = a(i, q);
        for (unsigned j = 0; j < rhs.size(); ++j) {
          Value &sum = sums[i * rhs.size() + j];
          sum = multiplyAddBlocks(e, isInt8, lhs, rhs[j], sum);
        }
      }
      return sums;
    });
    return convert(e, block, blocks, /*toBlocks=*/false);
  }
};

} // namespace

const VectorProduct &cpu::blockProduct() {
  static const BlockProduct product(attn::ProductForm::Blocks);
  return product;
}

const VectorProduct &cpu::int8BlockProduct() {
  static const BlockProduct product(attn::ProductForm::Int8Blocks);
  return product;
}
