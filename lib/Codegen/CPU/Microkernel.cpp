//===- Microkernel.cpp - Register-blocked matmul ------------------------------===//
//
// Accumulators are loop-carried values in registers. Each iteration broadcasts one k-pack per row and loads one vector
// per column block (the outer-product form of Goto and van de Geijn, 2008).
//
//===----------------------------------------------------------------------===//
#include "Microkernel.h"
#include "Pack.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::cpu;

RegisterBlock cpu::panelBlock(const CPUTarget &target, bool isTail) {
  if (isTail)
    return {unsigned(rowTail), 2};
  return {target.shapes.blockRows, 2};
}

RegisterBlock cpu::rowBlock(const CPUTarget &target, bool isTail, int64_t vectors) {
  unsigned width = std::min<int64_t>(target.shapes.blockVectors, vectors);
  if (isTail)
    return {unsigned(rowTail), width};
  return {width <= 2 ? target.shapes.blockRows : target.shapes.wideBlockRows, width};
}

Value cpu::emitOpaqueIndex(Emitter &e, Value index) {
  Type i64 = e.b.getI64Type();
  Value number = arith::IndexCastOp::create(e.b, e.loc, i64, index);
  auto statement = LLVM::InlineAsmOp::create(
      e.b, e.loc, i64, number, /*asm_string=*/"", /*constraints=*/"=r,0", /*has_side_effects=*/false,
      /*is_align_stack=*/false, LLVM::tailcallkind::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr());
  return arith::IndexCastOp::create(e.b, e.loc, e.b.getIndexType(), statement.getResult(0));
}

/// Adds the outer product of k-pack k.
static SmallVector<Value> multiplyKPack(RegisterBlock block, Value k, ArrayRef<Value> acc,
                                        function_ref<Value(unsigned, Value)> a, function_ref<Value(Value, unsigned)> b,
                                        MultiplyAddBody multiplyAdd) {
  SmallVector<Value> rhs, result(acc);
  for (unsigned j = 0; j < block.vectors; ++j)
    rhs.push_back(b(k, j));
  for (unsigned i = 0; i < block.rows; ++i) {
    Value lhs = a(i, k);
    for (unsigned j = 0; j < block.vectors; ++j) {
      Value &sum = result[i * block.vectors + j];
      sum = multiplyAdd(lhs, rhs[j], sum);
    }
  }
  return result;
}

SmallVector<Value> cpu::emitMicrokernel(Emitter &e, RegisterBlock block, Value begin, Value end, ArrayRef<Value> acc,
                                        function_ref<Value(unsigned, Value)> a, function_ref<Value(Value, unsigned)> b,
                                        MultiplyAddBody multiplyAdd) {
  assert(acc.size() == block.rows * block.vectors && "expected one accumulator per element of the block");
  std::optional<int64_t> first = getConstantIntValue(begin), last = getConstantIntValue(end);
  int64_t unroll = first && last ? e.target.shapes.unrolledPacks : 1;
  Value unrolledEnd = first && last ? e.index(*first + (*last - *first) / unroll * unroll) : end;
  SmallVector<Value> result = e.loop(begin, unrolledEnd, unroll, acc, [&](Value k, ValueRange carried) {
    SmallVector<Value> sums(carried);
    for (int64_t u = 0; u < unroll; ++u)
      sums = multiplyKPack(block, e.add(k, u), sums, a, b, multiplyAdd);
    return sums;
  });
  if (first && last)
    for (int64_t k = *first + (*last - *first) / unroll * unroll; k < *last; ++k)
      result = multiplyKPack(block, e.index(k), result, a, b, multiplyAdd);
  return result;
}

Value cpu::loadAhead(Emitter &e, Value panels, Value panel, Value k, Value column) {
  if (int64_t ahead = e.target.shapes.prefetchedPacks)
    memref::PrefetchOp::create(e.b, e.loc, panels, ValueRange{panel, e.add(k, ahead), column}, /*isWrite=*/false,
                               /*localityHint=*/3, /*isDataCache=*/true);
  return e.loadVector(panels, {panel, k, column});
}

/// The block of `tile` that starts at (row, column). With a static stride its elements have constant distances from the
/// first one, so that their addresses take no instructions.
static Value blockOf(Emitter &e, RegisterBlock block, Value tile, Value row, Value column) {
  if (isConstantIntValue(row, 0) && isConstantIntValue(column, 0))
    return tile;
  SmallVector<OpFoldResult> ones(2, e.b.getIndexAttr(1));
  SmallVector<OpFoldResult> sizes = {e.b.getIndexAttr(block.rows), e.b.getIndexAttr(block.vectors * e.lanes())};
  return memref::SubViewOp::create(e.b, e.loc, tile, getAsOpFoldResult(ValueRange{row, column}), sizes, ones);
}

SmallVector<Value> cpu::addBlock(Emitter &e, RegisterBlock block, ArrayRef<Value> acc, Value tile, Value row,
                                 Value column) {
  SmallVector<Value> sums;
  Value before = blockOf(e, block, tile, row, column);
  for (unsigned i = 0; i < block.rows; ++i)
    for (unsigned j = 0; j < block.vectors; ++j)
      sums.push_back(e.addf(e.loadVector(before, {e.index(i), e.index(j * e.lanes())}), acc[i * block.vectors + j]));
  return sums;
}

void cpu::storeBlock(Emitter &e, RegisterBlock block, ArrayRef<Value> acc, Value tile, Value row, Value column) {
  Value into = blockOf(e, block, tile, row, column);
  for (unsigned i = 0; i < block.rows; ++i)
    for (unsigned j = 0; j < block.vectors; ++j) {
      Value sums = emitFromCompute(e, acc[i * block.vectors + j], getElementTypeOrSelf(tile));
      e.storeVector(sums, into, {e.index(i), e.index(j * e.lanes())});
    }
}

void cpu::emitParts(Emitter &e, Value first, Value depth, int64_t partLength, bool hasConstantParts, PartBody addPart) {
  if (!hasConstantParts)
    return e.loop(first, depth, partLength,
                  [&](Value begin) { addPart(begin, e.min(e.sub(depth, begin), e.index(partLength))); });
  // Whole parts are unrolled, and their constant trip count lets the processor predict the end of the loop.
  Value whole = e.roundDown(depth, partLength);
  e.loop(first, whole, partLength, [&](Value begin) { addPart(begin, e.index(partLength)); });
  Value rest = e.max(first, whole);
  e.ifElse(e.isLess(rest, depth), [&] { addPart(rest, e.sub(depth, rest)); });
}

void cpu::emitSumInParts(Emitter &e, RegisterBlock block, Value depth, int64_t partLength, Value tile, Value row,
                         Value column, SumPart sum, bool isFromZero, bool hasConstantParts) {
  Value first = isFromZero ? e.min(e.index(partLength), depth) : e.index(0);
  if (isFromZero)
    storeBlock(e, block, sum(e.index(0), first), tile, row, column);
  std::optional<int64_t> count = getConstantIntValue(depth);
  if (isFromZero && count && *count <= partLength)
    return;
  emitParts(e, first, depth, partLength, hasConstantParts, [&](Value begin, Value length) {
    storeBlock(e, block, addBlock(e, block, sum(begin, length), tile, row, column), tile, row, column);
  });
}
