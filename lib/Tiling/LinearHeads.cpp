//===- LinearHeads.cpp - Heads of linear attention that share keys ------------===//
//
// The products of the queries of a chunk with its keys do not depend on the values. A task takes several heads of
// values that share queries and keys, as those of Mamba-2 do, and computes the products once for them.
//
//===----------------------------------------------------------------------===//
#include "LinearForwardTasks.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <numeric>

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

/// The most heads of a task: the products then cost a few percent of the time, and there are enough tasks for threads.
static constexpr int64_t maxHeads = 8;

int64_t LinearForwardTasks::headsOfTask(LinearOp op) {
  // Decays of rows are part of the products, and normalized outputs have a second state.
  if (!op.getCausal() || op.getNormalize() || op.hasMatrixDecay())
    return 1;
  int64_t states = getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Head), sharing = 0;
  int64_t extent = getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Seq);
  bool isStep = !ShapedType::isDynamic(extent) && extent <= stepPositions;
  if (isStep || ShapedType::isDynamic(states))
    return 1;
  auto share = [&](Value tensor, DimsAttr dims) {
    int64_t own = getStaticDimSize(tensor, dims, Dim::Head);
    bool isKnown = !ShapedType::isDynamic(own) && own > 0;
    sharing = std::gcd(sharing, isKnown && states >= own ? states / own : 1);
  };
  share(op.getQuery(), op.getQueryDims());
  share(op.getKey(), op.getKeyDims());
  if (op.getErase())
    share(op.getErase(), op.getEraseDimsAttr());
  int64_t count = std::min(sharing, maxHeads);
  while (count > 1 && sharing % count != 0)
    --count;
  return std::max<int64_t>(count, 1);
}

Value LinearForwardTasks::part(Value tensor, Value number) {
  SmallVector<OpFoldResult> extents = tensor::getMixedSizes(b, loc, tensor), offsets(extents.size(), b.getIndexAttr(0));
  SmallVector<bool> isKept(extents.size(), true);
  offsets[0] = getAsOpFoldResult(number), extents[0] = b.getIndexAttr(1), isKept[0] = false;
  return slice(tensor, offsets, extents, isKept);
}

Value LinearForwardTasks::insertPart(Value part, Value tensor, Value number) {
  SmallVector<OpFoldResult> extents = tensor::getMixedSizes(b, loc, tensor), offsets(extents.size(), b.getIndexAttr(0)),
                            ones(extents.size(), b.getIndexAttr(1));
  offsets[0] = getAsOpFoldResult(number), extents[0] = ones[0];
  return tensor::InsertSliceOp::create(b, loc, part, tensor, offsets, extents, ones);
}

SmallVector<Value> LinearForwardTasks::overHeads(ValueRange carried,
                                                 llvm::function_ref<SmallVector<Value>(ValueRange)> body) {
  if (heads == 1)
    return body(carried);
  SmallVector<Value> done =
      loop(index(0), index(heads), 1, carried, [&](Value head, ValueRange before) -> SmallVector<Value> {
        headInTask = head, stateHead = add(firstHead, head);
        SmallVector<Value> ofHead(before);
        ofHead[0] = part(before[0], head);
        SmallVector<Value> next = body(ofHead);
        next[0] = insertPart(next[0], before[0], head);
        return next;
      });
  headInTask = index(0), stateHead = firstHead;
  return done;
}

LinearTasks::Chunk LinearForwardTasks::loadShared(Value begin) {
  Chunk chunk = loadKeys(begin);
  chunk.queries = loadFeatures(op.getQuery(), op.getQueryDims(), div(firstHead, repetitions), begin);
  chunk.queryProducts = productsWithKeys(chunk.queries, chunk);
  if (op.hasDeltaRule())
    chunk.eraseProducts = productsWithKeys(chunk.erase, chunk);
  return chunk;
}

StructuredEmitter::Place LinearForwardTasks::placeOfAll() { return atBegin(placeOfState(valueDepth)); }

Value LinearForwardTasks::initialStates(ValueRange parts) {
  Value before = linear.getState();
  Place place = placeOfAll();
  SmallVector<bool> isKept;
  for (Dim dim : op.getStateDims())
    isKept.push_back(dim == Dim::Head);
  isKept.append(2, true);
  if (isInPlace()) {
    Value states = slice(parts[1], place.offsets, place.sizes, isKept);
    return before ? states : StructuredEmitter::filled(states, 0.0);
  }
  if (!before)
    return filled({heads, depth, valueDepth}, 0.0);
  place = placeOfState(valueDepth);
  return apply(3, 0, {{slice(before, place.offsets, place.sizes, isKept), {0, 1, 2}}},
               {{temporary({heads, depth, valueDepth}), {0, 1, 2}}},
               [&](ValueRange args) -> SmallVector<Value> { return {convert(args[0], type)}; })[0];
}
