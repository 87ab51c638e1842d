//===- ComputedRows.cpp - Rows that are computed on load ----------------------===//
//
// Inputs are loaded before elements are computed, so that the loads of a thread overlap.
//
//===----------------------------------------------------------------------===//
#include "ComputedRows.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

linalg::GenericOp device::findComputation(Value tile) {
  for (Operation *user : tile.getUsers())
    if (auto op = dyn_cast<linalg::GenericOp>(user);
        op && op.getDpsInits()[0] == tile && !op.payloadUsesValueFromOperand(op.getDpsInitOperand(0)))
      return op;
  return {};
}

static GlobalMatrix pagesOf(Emitter &e, Value tile) {
  return GlobalMatrix(e, tile, DimsAttr::get(e.b.getContext(), {Dim::Seq, Dim::Depth}));
}

ComputedRows::Input ComputedRows::readInput(Emitter &e, Value operand, AffineMap map) {
  Input input;
  input.map = map;
  auto type = dyn_cast<MemRefType>(operand.getType());
  if (!type) {
    input.scalar = operand;
    return input;
  }
  input.element = type.getElementType();
  if (findPages(operand)) {
    input.pages = pagesOf(e, operand);
    return input;
  }
  GlobalMemory memory(e, operand);
  input.base = memory.base;
  input.strides = memory.strides;
  return input;
}

ComputedRows::ComputedRows(Emitter &e, linalg::GenericOp op) : body(op.getBody()) {
  for (OpOperand *operand : op.getDpsInputOperands())
    inputs.push_back(readInput(e, operand->get(), op.getMatchingIndexingMap(operand)));
  for (auto load : body->getOps<memref::LoadOp>())
    if (findPages(load.getMemRef()) && !tilesInPages.contains(load.getMemRef()))
      tilesInPages.insert({load.getMemRef(), pagesOf(e, load.getMemRef())});
}

Value ComputedRows::Input::address(Emitter &e, Value row, Value column) const {
  auto indexOf = [&](AffineExpr expr) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    return !dim ? e.index(0) : dim.getPosition() == 0 ? row : column;
  };
  if (pages)
    return pages->address(e, indexOf(map.getResult(0)), indexOf(map.getResult(1)));
  Value offset = e.index(0);
  for (auto [expr, stride] : llvm::zip_equal(map.getResults(), strides))
    offset = e.add(offset, e.mul(indexOf(expr), stride));
  return e.advance(base, element, offset);
}

Value ComputedRows::Input::canLoadAtOnce(Emitter &e, int64_t count) const {
  if (count == 1 || map.getNumResults() == 0 || map.getResult(map.getNumResults() - 1) != e.b.getAffineDimExpr(1))
    return {};
  unsigned bits = element.getIntOrFloatBitWidth();
  if (bits < 8 || bits > 32)
    return {};
  int64_t bytes = count * bits / 8;
  if (pages)
    return pages->isAligned(e, bytes);
  Value isAligned = isAlignedAddress(e, base, bytes);
  for (auto [i, stride] : llvm::enumerate(strides))
    isAligned = e.andi(isAligned, i + 1 == strides.size() ? e.isEqual(stride, e.index(1))
                                                          : e.isEqual(e.rem(stride, count), e.index(0)));
  return isAligned;
}

static Value loadElement(Emitter &e, Type element, Value address) {
  Value x = LLVM::LoadOp::create(e.b, e.loc, Emitter::inMemory(element), address);
  return x.getType() == element ? x : arith::BitcastOp::create(e.b, e.loc, element, x).getResult();
}

/// Loads `count` successive elements at a multiple of their size by words of 64 bits, which LLVM's vectorizer joins. Of
/// a vector LLVM would load each element.
static SmallVector<Value> loadElements(Emitter &e, Type element, Value address, int64_t count) {
  int64_t bits = element.getIntOrFloatBitWidth(), perWord = 64 / bits;
  Type ofBits = e.b.getIntegerType(bits), wordType = e.b.getI64Type();
  SmallVector<Value> elements;
  for (int64_t i = 0; i < count; i += perWord) {
    Value word =
        LLVM::LoadOp::create(e.b, e.loc, wordType, e.advance(address, wordType, static_cast<int32_t>(i / perWord)),
                             static_cast<unsigned>(i == 0 ? count * bits / 8 : 8));
    for (int64_t j = 0; j < perWord; ++j) {
      Value begin = arith::ConstantIntOp::create(e.b, e.loc, j * bits, 64);
      Value x = arith::TruncIOp::create(e.b, e.loc, ofBits, arith::ShRUIOp::create(e.b, e.loc, word, begin));
      elements.push_back(element.isInteger() ? x : arith::BitcastOp::create(e.b, e.loc, element, x).getResult());
    }
  }
  return elements;
}

ComputedRows::Loaded ComputedRows::load(Emitter &e, Value row, Value column, int64_t count) const {
  Loaded loaded{row, column, {}};
  for (const Input &input : inputs) {
    SmallVector<Value> &elements = loaded.elements.emplace_back();
    if (input.scalar) {
      elements.push_back(input.scalar);
      continue;
    }
    auto loadEach = [&] {
      SmallVector<Value> each;
      for (int64_t i = 0; i < (input.hasDepth() ? count : 1); ++i)
        each.push_back(loadElement(e, input.element, input.address(e, row, e.add(column, i))));
      return each;
    };
    auto loadAtOnce = [&] { return loadElements(e, input.element, input.address(e, row, column), count); };
    Value canLoad = input.canLoadAtOnce(e, count);
    elements = canLoad ? e.choose(canLoad, loadAtOnce, loadEach) : loadEach();
  }
  return loaded;
}

Value ComputedRows::read(Emitter &e, memref::LoadOp load, ValueRange indices) const {
  auto found = tilesInPages.find(load.getMemRef());
  if (found == tilesInPages.end())
    return e.load(load.getMemRef(), indices);
  return loadElement(e, found->second.element, found->second.address(e, indices[0], indices[1]));
}

Value ComputedRows::compute(Emitter &e, const Loaded &loaded, int64_t i) const {
  IRMapping values;
  for (auto [argument, elements] : llvm::zip(body->getArguments(), loaded.elements))
    values.map(argument, elements.size() == 1 ? elements[0] : elements[i]);
  for (Operation &original : body->without_terminator()) {
    if (auto index = dyn_cast<linalg::IndexOp>(original)) {
      values.map(index.getResult(), index.getDim() == 0 ? loaded.row : e.add(loaded.column, i));
      continue;
    }
    if (auto inner = dyn_cast<memref::LoadOp>(original)) {
      auto indices = llvm::map_to_vector(inner.getIndices(), [&](Value x) { return values.lookupOrDefault(x); });
      values.map(inner.getResult(), read(e, inner, indices));
      continue;
    }
    e.b.clone(original, values);
  }
  return values.lookupOrDefault(body->getTerminator()->getOperand(0));
}
