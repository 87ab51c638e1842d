//===- GlobalMatrix.cpp - Operands of kernels in memory -----------------------===//
//
// Pointers are created in the address space of their memory, so that accesses need no generic addressing.
//
//===----------------------------------------------------------------------===//
#include "GlobalMatrix.h"
#include "BufferAnalysis.h"
#include "ComputedRows.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

LoadPagesOp device::findPages(Value tile) {
  for (Operation *user : tile.getUsers())
    if (auto op = dyn_cast<LoadPagesOp>(user); op && op.getTile() == tile)
      return op;
  return {};
}

void device::eraseWriter(Value tile) {
  Operation *writer = findPages(tile);
  if (!writer)
    writer = findComputation(tile);
  if (!writer || !llvm::hasSingleElement(tile.getUses()))
    return;
  llvm::SetVector<Value> sources(llvm::from_range, writer->getOperands());
  writer->walk([&](memref::LoadOp load) { sources.insert(load.getMemRef()); });
  writer->erase();
  sources.remove(tile);
  Operation *memory = tile.getDefiningOp();
  while (memory && memory->use_empty() && isa<memref::SubViewOp, memref::AllocOp>(memory)) {
    auto view = dyn_cast<memref::SubViewOp>(memory);
    Operation *source = view ? view.getSource().getDefiningOp() : nullptr;
    memory->erase();
    memory = source;
  }
  for (Value source : sources)
    eraseWriter(source);
}

GlobalMatrix::GlobalMatrix(Emitter &e, Value memref, DimsAttr dims, bool isOpaque) {
  if (linalg::GenericOp op = findComputation(memref)) {
    auto type = cast<MemRefType>(memref.getType());
    element = type.getElementType();
    columns = type.getDimSize(*dims.position(Dim::Depth));
    rows = e.size(memref, *dims.position(Dim::Seq));
    computed = std::make_shared<const ComputedRows>(e, op);
    return;
  }
  if (LoadPagesOp op = findPages(memref)) {
    DimsAttr ofPool = op.getDims();
    SmallVector<Value> strides = read(e, op.getPool(), *ofPool.position(Dim::Seq), *ofPool.position(Dim::Depth));
    pages = op;
    pageStride = strides[*ofPool.position(Dim::Batch)];
    rows = e.size(memref, *dims.position(Dim::Seq));
    return;
  }
  read(e, memref, *dims.position(Dim::Seq), *dims.position(Dim::Depth), dims.position(Dim::Head), isOpaque);
}

GlobalMatrix::GlobalMatrix(Emitter &e, Value memref) {
  bool isVector = cast<MemRefType>(memref.getType()).getRank() == 1;
  read(e, memref, 0, isVector ? std::nullopt : std::optional<unsigned>(1));
}

GlobalMatrix::GlobalMatrix(Emitter &e, Value memref, unsigned rowDim, unsigned columnDim, ArrayRef<Value> at) {
  SmallVector<Value> strides = read(e, memref, rowDim, columnDim);
  Value offset = e.index(0);
  for (auto [position, stride] : llvm::zip_equal(at, strides))
    offset = e.add(offset, e.mul(position, stride));
  base = e.advance(base, element, offset);
}

GlobalMemory::GlobalMemory(Emitter &e, Value memref, bool isOpaque) : isInShared(isShared(memref)) {
  auto metadata = memref::ExtractStridedMetadataOp::create(e.b, e.loc, memref);
  Value address = memref::ExtractAlignedPointerAsIndexOp::create(e.b, e.loc, memref);
  auto toI64 = [&](Value x) -> Value { return arith::IndexCastOp::create(e.b, e.loc, e.b.getI64Type(), x); };
  Value bits = isOpaque ? e.optimizationBarrier(toI64(address)) : toI64(address);
  MLIRContext *context = e.b.getContext();
  Value start;
  if (isInShared) {
    // The memref holds a generic address.
    Value generic = LLVM::IntToPtrOp::create(e.b, e.loc, LLVM::LLVMPointerType::get(context), bits);
    auto pointer = LLVM::LLVMPointerType::get(context, sharedSpace);
    start = LLVM::AddrSpaceCastOp::create(e.b, e.loc, pointer, generic);
  } else {
    start = LLVM::IntToPtrOp::create(e.b, e.loc, LLVM::LLVMPointerType::get(context, globalSpace), bits);
  }
  auto toValue = [&](OpFoldResult x) { return getValueOrCreateConstantIndexOp(e.b, e.loc, x); };
  Type element = cast<MemRefType>(memref.getType()).getElementType();
  Value offset = toValue(metadata.getConstifiedMixedOffset());
  if (isOpaque)
    offset = e.optimizationBarrier(toI64(offset));
  base = e.advance(start, element, offset);
  strides = llvm::map_to_vector(metadata.getConstifiedMixedStrides(), toValue);
}

SmallVector<Value> GlobalMatrix::read(Emitter &e, Value memref, unsigned rowDim, std::optional<unsigned> columnDim,
                                      std::optional<unsigned> headDim, bool isOpaque) {
  auto type = cast<MemRefType>(memref.getType());
  element = type.getElementType();
  columns = columnDim ? type.getDimSize(*columnDim) : 1;
  rows = e.size(memref, rowDim);
  GlobalMemory memory(e, memref, isOpaque);
  base = memory.base, isInShared = memory.isInShared;
  rowStride = memory.strides[rowDim];
  columnStride = columnDim ? memory.strides[*columnDim] : e.index(1);
  if (headDim) {
    heads = e.size(memref, *headDim);
    headStride = memory.strides[*headDim];
    rows = e.mul(rows, heads);
  }
  return memory.strides;
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

Value GlobalMatrix::load(Emitter &e, Value row, Value column) const {
  if (computed)
    return computed->compute(e, computed->load(e, row, column, /*count=*/1), 0);
  return LLVM::LoadOp::create(e.b, e.loc, element, address(e, row, column));
}

Value device::isAlignedAddress(Emitter &e, Value pointer, int64_t bytes) {
  Value address = LLVM::PtrToIntOp::create(e.b, e.loc, e.b.getI64Type(), pointer);
  Value rest = e.rem(arith::IndexCastOp::create(e.b, e.loc, e.b.getIndexType(), address), bytes);
  return e.isEqual(rest, e.index(0));
}

Value GlobalMatrix::isAligned(Emitter &e, int64_t bytes) const {
  if (computed)
    return {};
  int64_t elements = bytes * 8 / element.getIntOrFloatBitWidth();
  Value isBaseAligned = isAlignedAddress(e, base, bytes);
  auto isZero = [&](Value x) { return e.isEqual(x, e.index(0)); };
  Value isContiguous = e.compare(arith::CmpIPredicate::eq, columnStride, e.index(1));
  Value areRows = isZero(e.rem(rowStride, elements));
  for (Value stride : {headStride, pageStride})
    if (stride)
      areRows = e.andi(areRows, isZero(e.rem(stride, elements)));
  return e.andi(isContiguous, e.andi(isBaseAligned, areRows));
}
