//===- GlobalMatrix.cpp - Operands of attention in global memory --------------===//
//
// Pointers are made in the global address space at once, so that no access has to find out where it goes.
//
//===----------------------------------------------------------------------===//
#include "GlobalMatrix.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

GlobalMatrix::GlobalMatrix(Emitter &e, Value memref, DimsAttr dims) {
  read(e, memref, *dims.position(Dim::Seq), *dims.position(Dim::Depth));
}

GlobalMatrix::GlobalMatrix(Emitter &e, Value memref) {
  bool isVector = cast<MemRefType>(memref.getType()).getRank() == 1;
  read(e, memref, 0, isVector ? std::nullopt : std::optional<unsigned>(1));
}

void GlobalMatrix::read(Emitter &e, Value memref, unsigned rowDim, std::optional<unsigned> columnDim) {
  auto type = cast<MemRefType>(memref.getType());
  element = type.getElementType();
  columns = columnDim ? type.getDimSize(*columnDim) : 1;
  rows = e.size(memref, rowDim);
  auto metadata = memref::ExtractStridedMetadataOp::create(e.b, e.loc, memref);
  Value address = memref::ExtractAlignedPointerAsIndexOp::create(e.b, e.loc, memref);
  Value bits = arith::IndexCastOp::create(e.b, e.loc, e.b.getI64Type(), address);
  auto pointer = LLVM::LLVMPointerType::get(e.b.getContext(), globalSpace);
  Value start = LLVM::IntToPtrOp::create(e.b, e.loc, pointer, bits);
  base = e.advance(start, element, getValueOrCreateConstantIndexOp(e.b, e.loc, metadata.getConstifiedMixedOffset()));
  SmallVector<OpFoldResult> strides = metadata.getConstifiedMixedStrides();
  rowStride = getValueOrCreateConstantIndexOp(e.b, e.loc, strides[rowDim]);
  columnStride = columnDim ? getValueOrCreateConstantIndexOp(e.b, e.loc, strides[*columnDim]) : e.index(1);
}

Value GlobalMatrix::address(Emitter &e, Value row, Value column) const {
  return e.advance(base, element, e.add(e.mul(row, rowStride), e.mul(column, columnStride)));
}

Value GlobalMatrix::isAligned(Emitter &e, int64_t bytes) const {
  int64_t elements = bytes * 8 / element.getIntOrFloatBitWidth();
  Value address = LLVM::PtrToIntOp::create(e.b, e.loc, e.b.getI64Type(), base);
  Value rest = e.rem(arith::IndexCastOp::create(e.b, e.loc, e.b.getIndexType(), address), bytes);
  auto isZero = [&](Value x) { return e.compare(arith::CmpIPredicate::eq, x, e.index(0)); };
  Value isContiguous = e.compare(arith::CmpIPredicate::eq, columnStride, e.index(1));
  return e.both(isContiguous, e.both(isZero(rest), isZero(e.rem(rowStride, elements))));
}
