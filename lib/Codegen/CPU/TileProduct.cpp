//===- TileProduct.cpp - Matmuls in tile registers ----------------------------===//
//
// LLVM allocates the registers and configures their shapes where a function first uses them. All have 16 rows of 64
// bytes, so that there is one configuration.
//
//===----------------------------------------------------------------------===//
#include "TileProduct.h"
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
  Value offset = metadata.getOffset();
  for (auto [index, stride] : llvm::zip_equal(at, metadata.getStrides()))
    offset = e.add(offset, e.b.createOrFold<arith::MulIOp>(e.loc, index, stride));
  Value base = memref::ExtractAlignedPointerAsIndexOp::create(e.b, e.loc, metadata.getBaseBuffer());
  int64_t bytes = cast<MemRefType>(memref.getType()).getElementTypeBitWidth() / 8;
  return {e.add(base, e.mul(offset, bytes)), e.mul(metadata.getStrides().drop_back().back(), bytes)};
}

SmallVector<Value> cpu::emitZeroTiles(Emitter &e, RegisterBlock block) {
  SmallVector<Value> tiles;
  for (int64_t i = 0; i < int64_t(block.rows) / tileSize * block.vectors; ++i)
    tiles.push_back(callTile(e, "tilezero", 2, {})->getResult(0));
  return tiles;
}

SmallVector<Value> cpu::emitTileProduct(Emitter &e, RegisterBlock block, Value begin, Value end, ArrayRef<Value> acc,
                                        function_ref<TileMemory(int64_t, Value)> a,
                                        function_ref<TileMemory(Value, unsigned)> b) {
  int64_t tileRows = block.rows / tileSize;
  assert(int64_t(acc.size()) == tileRows * block.vectors && "expected one register per tile of the block");
  return e.loop(begin, end, tileSize, acc, [&](Value k, ValueRange carried) {
    SmallVector<Value> result(carried), lhs, rhs;
    for (int64_t i = 0; i < tileRows; ++i)
      lhs.push_back(loadTile(e, a(i * tileSize, k)));
    for (unsigned j = 0; j < block.vectors; ++j)
      rhs.push_back(loadTile(e, b(k, j)));
    for (int64_t i = 0; i < tileRows; ++i)
      for (unsigned j = 0; j < block.vectors; ++j) {
        Value &sum = result[i * block.vectors + j];
        sum = callTile(e, "tdpbf16ps", 3, {sum, lhs[i], rhs[j]})->getResult(0);
      }
    return result;
  });
}

void cpu::emitStoreTiles(Emitter &e, RegisterBlock block, ArrayRef<Value> tiles, Value matrix, Value row,
                         Value column) {
  for (int64_t i = 0; i < int64_t(block.rows) / tileSize; ++i)
    for (unsigned j = 0; j < block.vectors; ++j) {
      SmallVector<Value> operands =
          operandsOf(e, emitTileMemory(e, matrix, {e.add(row, i * tileSize), e.add(column, j * tileSize)}));
      operands.push_back(tiles[i * block.vectors + j]);
      callTile(e, "tilestored64", 2, operands, /*hasResult=*/false);
    }
}
