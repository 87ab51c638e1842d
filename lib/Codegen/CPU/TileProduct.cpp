//===- TileProduct.cpp - Matmuls in tile registers ----------------------------===//
//
// LLVM allocates the registers and configures their shapes where a function first uses them. All have 16 rows of 64
// bytes, so that there is one configuration.
//
//===----------------------------------------------------------------------===//
#include "TileProduct.h"
#include "Pack.h"
#include "Product.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::cpu;

/// A call of an intrinsic of tile registers, whose first operands are extents of 16 bits.
static Operation *callTile(Emitter &e, StringRef name, unsigned extents, ValueRange operands, bool hasResult = true) {
  SmallVector<Value> arguments;
  for (unsigned i = 0; i < extents; ++i) {
    // The first extent counts rows, the others bytes.
    int64_t extent = i == 0 ? tileSize : tileSize * 4;
    arguments.push_back(arith::ConstantOp::create(e.b, e.loc, e.b.getI16IntegerAttr(extent)));
  }
  llvm::append_range(arguments, operands);
  StringAttr intrinsic = e.b.getStringAttr("llvm.x86." + name + ".internal");
  if (!hasResult)
    return LLVM::CallIntrinsicOp::create(e.b, e.loc, intrinsic, arguments);
  return LLVM::CallIntrinsicOp::create(e.b, e.loc, LLVM::LLVMX86AMXType::get(e.b.getContext()), intrinsic, arguments);
}

static Value toInteger(Emitter &e, Value index) {
  return arith::IndexCastOp::create(e.b, e.loc, e.b.getI64Type(), index);
}

/// The operands of a load or store: address and stride.
static SmallVector<Value, 2> operandsOf(Emitter &e, TileMemory memory) {
  auto pointer = LLVM::LLVMPointerType::get(e.b.getContext());
  return {LLVM::IntToPtrOp::create(e.b, e.loc, pointer, toInteger(e, memory.address)), toInteger(e, memory.stride)};
}

static Value loadTile(Emitter &e, TileMemory memory) {
  return callTile(e, "tileloadd64", 2, operandsOf(e, memory))->getResult(0);
}

TileMemory cpu::emitTileMemory(Emitter &e, Value memref, ValueRange at) {
  auto metadata = memref::ExtractStridedMetadataOp::create(e.b, e.loc, memref);
  ValueRange strides = metadata.getStrides();
  Value offset = metadata.getOffset();
  for (auto [index, stride] : llvm::zip_equal(at, strides))
    offset = e.add(offset, e.b.createOrFold<arith::MulIOp>(e.loc, index, stride));
  Value base = memref::ExtractAlignedPointerAsIndexOp::create(e.b, e.loc, metadata.getBaseBuffer());
  int64_t bytes = cast<MemRefType>(memref.getType()).getElementTypeBitWidth() / 8;
  Value between = strides.size() == 1 ? e.index(0) : e.mul(strides.drop_back().back(), bytes);
  return {e.add(base, e.mul(offset, bytes)), between};
}

SmallVector<Value> cpu::emitZeroTiles(Emitter &e, RegisterBlock block) {
  SmallVector<Value> tiles;
  for (int64_t i = 0; i < int64_t(block.rows) / tileSize * block.vectors; ++i)
    tiles.push_back(callTile(e, "tilezero", 2, {})->getResult(0));
  return tiles;
}

SmallVector<Value> cpu::emitTileProduct(Emitter &e, RegisterBlock block, Value begin, Value end, ArrayRef<Value> acc,
                                        function_ref<TileMemory(int64_t, Value)> a,
                                        function_ref<TileMemory(Value, unsigned)> b, PartProducts products) {
  struct PartProduct {
    int64_t ofLHS, ofRHS;
  };
  // Two registers hold a part of an operand. Neighbours share one, so that it is loaded once for both.
  static constexpr PartProduct whole[] = {{0, 0}}, exact[] = {{1, 1}, {0, 1}, {0, 0}, {1, 0}};
  ArrayRef<PartProduct> order = products == PartProducts::Whole ? ArrayRef(whole) : ArrayRef(exact);
  if (products == PartProducts::Rounded)
    order = order.drop_front();
  int64_t tileRows = block.rows / tileSize;
  assert(int64_t(acc.size()) == tileRows * block.vectors && "expected one register per tile of the block");
  return e.loop(begin, end, partsOf(products) * tileSize, acc, [&](Value k, ValueRange carried) {
    SmallVector<Value> result(carried), lhs, rhs;
    PartProduct loaded = {-1, -1};
    for (PartProduct part : order) {
      if (part.ofLHS != loaded.ofLHS)
        lhs = llvm::map_to_vector(llvm::seq(tileRows), [&](int64_t i) {
          return loadTile(e, a(i * tileSize, e.add(k, part.ofLHS * tileSize)));
        });
      if (part.ofRHS != loaded.ofRHS)
        rhs = llvm::map_to_vector(llvm::seq(block.vectors),
                                  [&](unsigned j) { return loadTile(e, b(e.add(k, part.ofRHS * tileSize), j)); });
      loaded = part;
      for (int64_t i = 0; i < tileRows; ++i)
        for (unsigned j = 0; j < block.vectors; ++j) {
          Value &sum = result[i * block.vectors + j];
          sum = callTile(e, "tdpbf16ps", 3, {sum, lhs[i], rhs[j]})->getResult(0);
        }
    }
    return result;
  });
}

/// The memory of each register of a block of `matrix`, row-major.
static SmallVector<TileMemory> memoryOf(Emitter &e, RegisterBlock block, Value matrix, Value row, Value column) {
  SmallVector<TileMemory> memory;
  for (int64_t i = 0; i < block.rows; i += tileSize)
    for (unsigned j = 0; j < block.vectors; ++j)
      memory.push_back(emitTileMemory(e, matrix, {e.add(row, i), e.add(column, j * tileSize)}));
  return memory;
}

SmallVector<Value> cpu::emitRepeatRow(Emitter &e, RegisterBlock block, Value row) {
  SmallVector<Value> tiles;
  for (int64_t i = 0; i < block.rows; i += tileSize)
    for (unsigned j = 0; j < block.vectors; ++j)
      tiles.push_back(loadTile(e, emitTileMemory(e, row, e.index(j * tileSize))));
  return tiles;
}

SmallVector<Value> cpu::emitLoadTiles(Emitter &e, RegisterBlock block, Value matrix, Value row, Value column) {
  return llvm::map_to_vector(memoryOf(e, block, matrix, row, column),
                             [&](TileMemory memory) { return loadTile(e, memory); });
}

void cpu::emitStoreTiles(Emitter &e, RegisterBlock block, ArrayRef<Value> tiles, Value matrix, Value row,
                         Value column) {
  for (auto [memory, tile] : llvm::zip_equal(memoryOf(e, block, matrix, row, column), tiles)) {
    SmallVector<Value> operands = operandsOf(e, memory);
    operands.push_back(tile);
    callTile(e, "tilestored64", 2, operands, /*hasResult=*/false);
  }
}

/// The products for results that are rounded to the type of the elements: f16 is rounded by 2⁻¹².
static PartProducts roundedProducts(const ProductTraits &product) {
  return product.parts > 1 ? PartProducts::Rounded : PartProducts::Whole;
}

TileMatmul::TileMatmul(Emitter &e, const ProductTraits &product)
    : e(e), products(roundedProducts(product)), lastLHS(e.alloc({maxTileBlock.rows, tileSize})),
      lastRHS(e.alloc({tileSize, maxTileBlock.vectors * tileSize})),
      partSums(e.alloc({maxTileBlock.rows, maxTileBlock.vectors * tileSize})) {}

/// The column of the LHS with k-pack `k`.
static Value columnOf(Emitter &e, const TileMatmul::Operands &operands, Value k) {
  int64_t width = 32 / cast<MemRefType>(operands.lhs.getType()).getElementTypeBitWidth();
  return e.add(operands.column, e.mul(k, width));
}

/// Copies `count` (< tileSize) k-packs of both operands from `whole` on, and clears the rest of the step.
void TileMatmul::copyLastStep(RegisterBlock block, Value count, const Operands &operands, Value whole) {
  auto type = cast<MemRefType>(operands.lhs.getType());
  auto elements = VectorType::get({tileSize * 32 / type.getElementTypeBitWidth()}, type.getElementType());
  Value column = columnOf(e, operands, whole), firstRHS = e.add(operands.firstRHS, whole);
  Value mask =
      vector::CreateMaskOp::create(e.b, e.loc, elements.clone(e.b.getI1Type()), e.sub(operands.lhsEnd, column));
  Value none = arith::ConstantOp::create(e.b, e.loc, e.b.getZeroAttr(elements)), zeros = e.splat(0.0);
  e.loop(e.index(0), e.index(block.rows), 1, [&](Value r) {
    Value kPacks = vector::MaskedLoadOp::create(e.b, e.loc, elements, operands.lhs,
                                                ValueRange{e.add(operands.row, r), column}, mask, none);
    e.storeVector(vector::BitCastOp::create(e.b, e.loc, e.vectorType(), kPacks), lastLHS, {r, e.index(0)});
  });
  auto forColumns = [&](function_ref<void(Value)> body) {
    for (unsigned j = 0; j < block.vectors; ++j)
      body(e.index(j * tileSize));
  };
  e.loop(e.index(0), count, 1, [&](Value k) {
    forColumns([&](Value c) {
      e.storeVector(e.loadVector(operands.panels, {operands.panel, e.add(firstRHS, k), c}), lastRHS, {k, c});
    });
  });
  e.loop(count, e.index(tileSize), 1,
         [&](Value k) { forColumns([&](Value c) { e.storeVector(zeros, lastRHS, {k, c}); }); });
}

/// `acc` plus the products of the k-packs [0, kPacks).
SmallVector<Value> TileMatmul::sum(RegisterBlock block, Value kPacks, const Operands &operands, ArrayRef<Value> acc) {
  Value zero = e.index(0), whole = e.roundDown(kPacks, tileSize);
  SmallVector<Value> sums = emitTileProduct(
      e, block, zero, whole, acc,
      [&](int64_t i, Value k) {
        return emitTileMemory(e, operands.lhs, {e.add(operands.row, i), columnOf(e, operands, k)});
      },
      [&](Value k, unsigned j) {
        return emitTileMemory(e, operands.panels, {operands.panel, e.add(operands.firstRHS, k), e.index(j * tileSize)});
      },
      products);
  if (products != PartProducts::Whole || isEqualConstantIntOrValue(whole, kPacks))
    return sums;
  return e.choose(
      e.isLess(whole, kPacks),
      [&] {
        copyLastStep(block, e.sub(kPacks, whole), operands, whole);
        return emitTileProduct(
            e, block, zero, e.index(tileSize), sums,
            [&](int64_t i, Value k) { return emitTileMemory(e, lastLHS, {e.index(i), k}); },
            [&](Value k, unsigned j) { return emitTileMemory(e, lastRHS, {k, e.index(j * tileSize)}); });
      },
      [&] { return sums; });
}

void TileMatmul::add(RegisterBlock block, const Operands &operands, Value begin, Value kPacks, Value result, Value row,
                     Value column, function_ref<SmallVector<Value>()> start) {
  Value zero = e.index(0), isChain = e.isLess(begin, e.index(chain));
  SmallVector<Value> acc = e.choose(isChain, start, [&] { return emitZeroTiles(e, block); });
  acc = sum(block, kPacks, operands, acc);
  e.ifElse(
      isChain, [&] { emitStoreTiles(e, block, acc, result, row, column); },
      [&] {
        emitStoreTiles(e, block, acc, partSums, zero, zero);
        e.loop(zero, e.index(block.rows), 1, [&](Value r) {
          for (unsigned j = 0; j < block.vectors; ++j) {
            SmallVector<Value> at = {e.add(row, r), e.add(column, j * tileSize)};
            Value products = e.loadVector(partSums, {r, e.index(j * tileSize)});
            e.storeVector(e.addf(e.loadVector(result, at), products), result, at);
          }
        });
      });
}

//===----------------------------------------------------------------------===//
// Forms
//===----------------------------------------------------------------------===//

namespace {

/// Pairs of bf16 in tile registers.
class Tiles : public Product {
public:
  Tiles(attn::ProductForm form = attn::ProductForm::Tiles) : Product(form) {}

  int64_t paddedUnits(int64_t depth) const override { return llvm::alignTo(traits.units(depth), tileSize); }
  /// Products begin with a whole step.
  Value firstUnit(Emitter &e, Value begin) const override {
    return e.mul(e.roundDown(Product::firstUnit(e, begin), tileSize), traits.parts);
  }
  Value endUnit(Emitter &e, Value end) const override { return e.mul(Product::endUnit(e, end), traits.parts); }
  void clearPadding(Emitter &e, int64_t depth, Value queries, Value keys, Value query, Value key,
                    Value value) const override;
  int64_t tailRows() const override { return tileSize; }
  RegisterBlock scoreBlock(const CPUTarget &, int64_t rows, bool) const override {
    return {unsigned(rows), maxTileBlock.vectors};
  }
  RegisterBlock valueBlock(const CPUTarget &, int64_t rows, bool, int64_t vectors) const override {
    return {unsigned(rows), std::min<unsigned>(vectors, maxTileBlock.vectors)};
  }
  SmallVector<Value> multiplyPanel(Emitter &e, RegisterBlock block, int64_t units, Value rows, Value row, Value panels,
                                   Value panel) const override {
    return emitTileProduct(
        e, block, e.index(0), e.index(units), emitZeroTiles(e, block),
        [&](int64_t i, Value d) { return emitTileMemory(e, rows, {e.add(row, i), d}); },
        [&](Value d, unsigned j) { return emitTileMemory(e, panels, {panel, d, e.index(j * tileSize)}); },
        scoreProducts());
  }
  SmallVector<Value> multiplyColumns(Emitter &e, RegisterBlock block, Value begin, Value end, ArrayRef<Value> acc,
                                     Value weights, Value row, Value columns, Value column) const override {
    return emitTileProduct(
        e, block, begin, end, acc, [&](int64_t i, Value k) { return emitTileMemory(e, weights, {e.add(row, i), k}); },
        [&](Value k, unsigned j) { return emitTileMemory(e, columns, {k, e.add(column, j * tileSize)}); },
        roundedProducts(traits));
  }
  void storeWeights(Emitter &e, ArrayRef<Value> weights, Value scores, Value row, Value column) const override {
    storePairs(e, weights, scores, row, column);
  }

protected:
  virtual PartProducts scoreProducts() const { return PartProducts::Whole; }
};

/// Pairs of f16, each of which is the sum of two bf16.
class SplitTiles : public Tiles {
public:
  SplitTiles() : Tiles(attn::ProductForm::SplitTiles) {}

  /// Packing clears the padding.
  void clearPadding(Emitter &, int64_t, Value, Value, Value, Value, Value) const override {}

  /// Weights of two parts take the place of their scores.
  void storeWeights(Emitter &e, ArrayRef<Value> weights, Value scores, Value row, Value column) const override {
    forPairs(e, weights, [&](unsigned i, Value first, Value second, bool) {
      auto [rounded, rest] = emitSplitToPairs(e, first, second);
      Value place = e.add(column, i * e.lanes());
      e.storeVector(rounded, scores, {row, place});
      e.storeVector(rest, scores, {row, e.add(place, e.lanes())});
    });
  }

protected:
  /// An omitted product would be an absolute error of the exponent, so large scores need all.
  PartProducts scoreProducts() const override { return PartProducts::Exact; }
};

} // namespace

void Tiles::clearPadding(Emitter &e, int64_t depth, Value queries, Value keys, Value query, Value key,
                         Value value) const {
  int64_t depthKPacks = traits.units(depth), paddedKPacks = paddedUnits(depth);
  int64_t columns = cast<MemRefType>(value.getType()).getDimSize(1);
  Value zeros = e.splat(0.0);
  if (depthKPacks < paddedKPacks) {
    e.loop(e.index(0), e.roundUp(queries, traits.groupRows()), 1,
           [&](Value r) { e.storeVector(zeros, query, {r, e.index(paddedKPacks - tileSize)}); });
    e.loop(e.index(0), e.ceilDiv(keys, 2 * e.lanes()), 1, [&](Value panel) {
      for (int64_t w = depthKPacks; w < paddedKPacks; ++w)
        for (int64_t lane = 0; lane < 2 * e.lanes(); lane += e.lanes())
          e.storeVector(zeros, key, {panel, e.index(w), e.index(lane)});
    });
  }
  Value kPacks = emitUnits(e, traits, keys);
  e.loop(kPacks, e.roundUp(kPacks, tileSize), 1, [&](Value k) {
    for (int64_t c = 0; c < columns; c += e.lanes())
      e.storeVector(zeros, value, {k, e.index(c)});
  });
}

const Product &cpu::tileProduct() {
  static const Tiles product;
  return product;
}

const Product &cpu::splitTileProduct() {
  static const SplitTiles product;
  return product;
}
