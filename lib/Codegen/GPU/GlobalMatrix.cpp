//===- GlobalMatrix.cpp - Operands of kernels in memory -----------------------===//
//
// Pointers are created in the address space of their memory, so that accesses need no generic addressing.
//
//===----------------------------------------------------------------------===//
#include "GlobalMatrix.h"
#include "BufferAnalysis.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

/// The attn.load_pages that writes `tile`, or null.
static LoadPagesOp findPages(Value tile) {
  for (Operation *user : tile.getUsers())
    if (auto op = dyn_cast<LoadPagesOp>(user); op && op.getTile() == tile)
      return op;
  return {};
}

bool device::isInPages(Value tile) { return bool(findPages(tile)); }

void device::erasePages(Value tile) {
  LoadPagesOp op = findPages(tile);
  if (!op || !llvm::hasSingleElement(tile.getUses()))
    return;
  op.erase();
  Operation *memory = tile.getDefiningOp();
  while (memory && memory->use_empty() && isa<memref::SubViewOp, memref::AllocOp>(memory)) {
    auto view = dyn_cast<memref::SubViewOp>(memory);
    Operation *source = view ? view.getSource().getDefiningOp() : nullptr;
    memory->erase();
    memory = source;
  }
}

GlobalMatrix::GlobalMatrix(Emitter &e, Value memref, DimsAttr dims) {
  if (LoadPagesOp op = findPages(memref)) {
    DimsAttr ofPool = op.getDims();
    SmallVector<OpFoldResult> strides = read(e, op.getPool(), *ofPool.position(Dim::Seq), *ofPool.position(Dim::Depth));
    pages = op;
    pageStride = getValueOrCreateConstantIndexOp(e.b, e.loc, strides[*ofPool.position(Dim::Batch)]);
    rows = e.size(memref, *dims.position(Dim::Seq));
    return;
  }
  read(e, memref, *dims.position(Dim::Seq), *dims.position(Dim::Depth), dims.position(Dim::Head));
}

GlobalMatrix::GlobalMatrix(Emitter &e, Value memref) {
  bool isVector = cast<MemRefType>(memref.getType()).getRank() == 1;
  read(e, memref, 0, isVector ? std::nullopt : std::optional<unsigned>(1));
}

GlobalMatrix::GlobalMatrix(Emitter &e, Value memref, unsigned rowDim, unsigned columnDim, ArrayRef<Value> at) {
  SmallVector<OpFoldResult> strides = read(e, memref, rowDim, columnDim);
  Value offset = e.index(0);
  for (auto [position, stride] : llvm::zip_equal(at, strides))
    offset = e.add(offset, e.mul(position, getValueOrCreateConstantIndexOp(e.b, e.loc, stride)));
  base = e.advance(base, element, offset);
}

SmallVector<OpFoldResult> GlobalMatrix::read(Emitter &e, Value memref, unsigned rowDim,
                                             std::optional<unsigned> columnDim, std::optional<unsigned> headDim) {
  auto type = cast<MemRefType>(memref.getType());
  element = type.getElementType();
  columns = columnDim ? type.getDimSize(*columnDim) : 1;
  rows = e.size(memref, rowDim);
  auto metadata = memref::ExtractStridedMetadataOp::create(e.b, e.loc, memref);
  Value address = memref::ExtractAlignedPointerAsIndexOp::create(e.b, e.loc, memref);
  Value bits = arith::IndexCastOp::create(e.b, e.loc, e.b.getI64Type(), address);
  MLIRContext *context = e.b.getContext();
  isInShared = isShared(memref);
  Value start;
  if (isInShared) {
    // The memref holds a generic address.
    Value generic = LLVM::IntToPtrOp::create(e.b, e.loc, LLVM::LLVMPointerType::get(context), bits);
    auto pointer = LLVM::LLVMPointerType::get(context, sharedSpace);
    start = LLVM::AddrSpaceCastOp::create(e.b, e.loc, pointer, generic);
  } else {
    start = LLVM::IntToPtrOp::create(e.b, e.loc, LLVM::LLVMPointerType::get(context, globalSpace), bits);
  }
  base = e.advance(start, element, getValueOrCreateConstantIndexOp(e.b, e.loc, metadata.getConstifiedMixedOffset()));
  SmallVector<OpFoldResult> strides = metadata.getConstifiedMixedStrides();
  rowStride = getValueOrCreateConstantIndexOp(e.b, e.loc, strides[rowDim]);
  columnStride = columnDim ? getValueOrCreateConstantIndexOp(e.b, e.loc, strides[*columnDim]) : e.index(1);
  if (!headDim)
    return strides;
  heads = e.size(memref, *headDim);
  headStride = getValueOrCreateConstantIndexOp(e.b, e.loc, strides[*headDim]);
  rows = e.mul(rows, heads);
  return strides;
}

Value GlobalMatrix::address(Emitter &e, Value row, Value column) const {
  if (pages) {
    LoadPagesOp op = pages;
    auto clamp = [&](Value x, Value count) { return e.max(e.index(0), e.min(x, e.sub(count, e.index(1)))); };
    auto sizeOf = [&](Dim dim) { return e.size(op.getPool(), *op.getDims().position(dim)); };
    // Positions of a sequence fit in 32 bits, whose division is several times cheaper than that of 64 bits.
    Value position = e.toI32(e.max(e.add(op.getBegin(), row), e.index(0))), pageSize = e.toI32(sizeOf(Dim::Seq));
    Value entry = clamp(e.toIndex(e.div(position, pageSize)), e.size(op.getPages(), 0));
    Value page = clamp(e.asIndex(e.load(op.getPages(), {entry})), sizeOf(Dim::Batch));
    Value ofPage = e.add(e.mul(page, pageStride), e.mul(e.toIndex(e.rem(position, pageSize)), rowStride));
    return e.advance(base, element, e.add(ofPage, e.mul(column, columnStride)));
  }
  if (heads) {
    // The row index fits in 32 bits, whose division is several times cheaper than that of 64 bits.
    Value row32 = e.toI32(row), count = e.toI32(heads);
    Value position = e.b.createOrFold<arith::DivUIOp>(e.loc, row32, count);
    Value head = e.b.createOrFold<arith::RemUIOp>(e.loc, row32, count);
    Value ofRow = e.add(e.mul(e.toIndex(position), rowStride), e.mul(e.toIndex(head), headStride));
    return e.advance(base, element, e.add(ofRow, e.mul(column, columnStride)));
  }
  return e.advance(base, element, e.add(e.mul(row, rowStride), e.mul(column, columnStride)));
}

Value GlobalMatrix::isAligned(Emitter &e, int64_t bytes) const {
  int64_t elements = bytes * 8 / element.getIntOrFloatBitWidth();
  Value address = LLVM::PtrToIntOp::create(e.b, e.loc, e.b.getI64Type(), base);
  Value rest = e.rem(arith::IndexCastOp::create(e.b, e.loc, e.b.getIndexType(), address), bytes);
  auto isZero = [&](Value x) { return e.compare(arith::CmpIPredicate::eq, x, e.index(0)); };
  Value isContiguous = e.compare(arith::CmpIPredicate::eq, columnStride, e.index(1));
  Value areRows = isZero(e.rem(rowStride, elements));
  for (Value stride : {headStride, pageStride})
    if (stride)
      areRows = e.andi(areRows, isZero(e.rem(stride, elements)));
  return e.andi(isContiguous, e.andi(isZero(rest), areRows));
}
