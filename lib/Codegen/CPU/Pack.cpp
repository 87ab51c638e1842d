//===- Pack.cpp - Operands in the layout the microkernels read ----------------===//
//
// Each packing has a form for unit inner stride, in vectors, and one for any stride, in scalars,
// chosen once at run time.
//
//===----------------------------------------------------------------------===//
#include "Pack.h"

using namespace mlir;
using namespace saccade::cpu;

static Type withElement(Type shapeOf, Type element) {
  if (auto vector = dyn_cast<VectorType>(shapeOf))
    return VectorType::get(vector.getShape(), element);
  return element;
}

Value saccade::cpu::emitToCompute(Emitter &e, Value value) {
  unsigned bits = getElementTypeOrSelf(value).getIntOrFloatBitWidth();
  if (bits < e.type.getWidth())
    return arith::ExtFOp::create(e.b, e.loc, withElement(value.getType(), e.type), value);
  if (bits > e.type.getWidth())
    return arith::TruncFOp::create(e.b, e.loc, withElement(value.getType(), e.type), value);
  return value;
}

Value saccade::cpu::emitFromCompute(Emitter &e, Value value, Type elementType) {
  unsigned from = getElementTypeOrSelf(value).getIntOrFloatBitWidth(), to = elementType.getIntOrFloatBitWidth();
  if (to < from)
    return arith::TruncFOp::create(e.b, e.loc, withElement(value.getType(), elementType), value);
  if (to > from)
    return arith::ExtFOp::create(e.b, e.loc, withElement(value.getType(), elementType), value);
  return value;
}

Value saccade::cpu::emitTransposed(Emitter &e, Value memref) {
  auto swap = AffineMapAttr::get(AffineMap::getPermutationMap(ArrayRef<unsigned>{1, 0}, e.b.getContext()));
  return memref::TransposeOp::create(e.b, e.loc, memref, swap);
}

void saccade::cpu::emitByInnerStride(Emitter &e, Value memref, function_ref<void(Value)> contiguous,
                                     function_ref<void()> strided) {
  auto type = cast<MemRefType>(memref.getType());
  auto [strides, offset] = type.getStridesAndOffset();
  if (strides.back() == 1)
    return contiguous(memref);
  auto metadata = memref::ExtractStridedMetadataOp::create(e.b, e.loc, memref);
  Value isUnit = arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::eq, metadata.getStrides().back(), e.index(1));
  e.ifElse(
      isUnit,
      [&] {
        SmallVector<OpFoldResult> newStrides = metadata.getConstifiedMixedStrides();
        newStrides.back() = e.b.getIndexAttr(1);
        SmallVector<int64_t> staticStrides(strides);
        staticStrides.back() = 1;
        auto layout = StridedLayoutAttr::get(e.b.getContext(), offset, staticStrides);
        auto unit = MemRefType::get(type.getShape(), type.getElementType(), layout);
        contiguous(memref::ReinterpretCastOp::create(e.b, e.loc, unit, metadata.getBaseBuffer(),
                                                     metadata.getConstifiedMixedOffset(),
                                                     metadata.getConstifiedMixedSizes(), newStrides));
      },
      strided);
}

/// A vector of `lanes` elements of `src` in the compute type.
static Value loadConverted(Emitter &e, Value src, ValueRange at) {
  auto type = VectorType::get({e.lanes()}, getElementTypeOrSelf(src));
  return emitToCompute(e, vector::LoadOp::create(e.b, e.loc, type, src, at));
}

void saccade::cpu::emitPackRows(Emitter &e, Value src, Value rows, Value paddedRows, Value dst, Value scale,
                                bool zeroRest) {
  Value columns = e.size(src, 1), paddedColumns = e.size(dst, 1);
  Value vectorColumns = e.roundDown(columns, e.lanes());
  Value lastRow = e.sub(rows, e.index(1));
  Value wideScale = scale ? e.broadcast(scale) : Value();
  auto copyScalars = [&](Value from, Value to, Value first) {
    e.loop(first, columns, 1, [&](Value c) {
      Value x = emitToCompute(e, e.load(src, {from, c}));
      e.store(scale ? e.mulf(x, scale) : x, dst, {to, c});
    });
    if (zeroRest)
      e.loop(columns, paddedColumns, 1, [&](Value c) { e.store(e.scalar(0.0), dst, {to, c}); });
  };
  emitByInnerStride(
      e, src,
      [&](Value unit) {
        e.loop(e.index(0), paddedRows, 1, [&](Value r) {
          Value from = e.min(r, lastRow);
          e.loop(e.index(0), vectorColumns, e.lanes(), [&](Value c) {
            Value x = loadConverted(e, unit, {from, c});
            e.storeVector(scale ? e.mulf(x, wideScale) : x, dst, {r, c});
          });
          copyScalars(from, r, vectorColumns);
        });
      },
      [&] { e.loop(e.index(0), paddedRows, 1, [&](Value r) { copyScalars(e.min(r, lastRow), r, e.index(0)); }); });
}

void saccade::cpu::emitUnpackRows(Emitter &e, Value src, Value dst) {
  Type element = getElementTypeOrSelf(dst);
  Value rows = e.size(dst, 0), columns = e.size(dst, 1), vectorColumns = e.roundDown(columns, e.lanes());
  auto copyScalars = [&](Value r, Value first) {
    e.loop(first, columns, 1, [&](Value c) { e.store(emitFromCompute(e, e.load(src, {r, c}), element), dst, {r, c}); });
  };
  emitByInnerStride(
      e, dst,
      [&](Value unit) {
        e.loop(e.index(0), rows, 1, [&](Value r) {
          e.loop(e.index(0), vectorColumns, e.lanes(), [&](Value c) {
            e.storeVector(emitFromCompute(e, e.loadVector(src, {r, c}), element), unit, {r, c});
          });
          copyScalars(r, vectorColumns);
        });
      },
      [&] { e.loop(e.index(0), rows, 1, [&](Value r) { copyScalars(r, e.index(0)); }); });
}

/// Turns `lines` (a square of registers) by exchanging halves, quarters, ... of pairs of lines (Eklundh, 1972). Written as
/// shuffles because folding takes a transpose of rows apart into its elements.
static void transpose(Emitter &e, SmallVectorImpl<Value> &lines) {
  int64_t lanes = lines.size();
  for (int64_t distance = lanes / 2; distance > 0; distance /= 2) {
    SmallVector<int64_t> upper, lower;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      bool fromSecond = lane & distance;
      upper.push_back(fromSecond ? lanes + lane - distance : lane);
      lower.push_back(fromSecond ? lanes + lane : lane + distance);
    }
    for (int64_t i = 0; i < lanes; ++i) {
      if (i & distance)
        continue;
      Value first = lines[i], second = lines[i + distance];
      lines[i] = vector::ShuffleOp::create(e.b, e.loc, first, second, upper);
      lines[i + distance] = vector::ShuffleOp::create(e.b, e.loc, first, second, lower);
    }
  }
}

/// lanes × lanes elements: rows [row, row + lanes) of `src` from column `c` on, into one lane block of a panel.
static void transposeBlock(Emitter &e, Value src, Value row, Value lastRow, Value c, Value dst, Value panel,
                           Value lane) {
  SmallVector<Value> lines;
  for (int64_t i = 0; i < e.lanes(); ++i)
    lines.push_back(loadConverted(e, src, {e.min(e.add(row, i), lastRow), c}));
  transpose(e, lines);
  for (auto [i, line] : llvm::enumerate(lines))
    e.storeVector(line, dst, {panel, e.add(c, i), lane});
}

void saccade::cpu::emitPackPanels(Emitter &e, Value src, Value rows, Value dst) {
  int64_t panelRows = cast<MemRefType>(dst.getType()).getDimSize(2);
  Value columns = e.size(src, 1), vectorColumns = e.roundDown(columns, e.lanes());
  Value lastRow = e.sub(rows, e.index(1));
  // One lane block (a panel has several) at a time.
  auto forEachBlock = [&](function_ref<void(Value row, Value panel, Value lane)> body) {
    e.loop(e.index(0), rows, e.lanes(), [&](Value row) {
      Value panel = e.div(row, panelRows);
      body(row, panel, e.sub(row, e.mul(panel, panelRows)));
    });
  };
  auto copyScalars = [&](Value row, Value panel, Value lane, Value first) {
    e.loop(e.index(0), e.index(e.lanes()), 1, [&](Value i) {
      Value from = e.min(e.add(row, i), lastRow);
      e.loop(first, columns, 1, [&](Value c) {
        e.store(emitToCompute(e, e.load(src, {from, c})), dst, {panel, c, e.add(lane, i)});
      });
    });
  };
  emitByInnerStride(
      e, src,
      [&](Value unit) {
        forEachBlock([&](Value row, Value panel, Value lane) {
          e.loop(e.index(0), vectorColumns, e.lanes(),
                 [&](Value c) { transposeBlock(e, unit, row, lastRow, c, dst, panel, lane); });
          copyScalars(row, panel, lane, vectorColumns);
        });
      },
      [&] {
        // Where the rows are what is contiguous, lanes lie beside each other already.
        emitByInnerStride(
            e, emitTransposed(e, src),
            [&](Value unit) {
              forEachBlock([&](Value row, Value panel, Value lane) {
                e.ifElse(
                    e.isLess(lastRow, e.add(row, e.lanes() - 1)),
                    [&] { copyScalars(row, panel, lane, e.index(0)); },
                    [&] {
                      e.loop(e.index(0), columns, 1, [&](Value c) {
                        e.storeVector(loadConverted(e, unit, {c, row}), dst, {panel, c, lane});
                      });
                    });
              });
            },
            [&] { forEachBlock([&](Value row, Value panel, Value lane) { copyScalars(row, panel, lane, e.index(0)); }); });
      });
}
