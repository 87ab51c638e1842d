//===- CaptureGradients.cpp - Gradients of captured tensors -------------------===//
#include "CaptureGradients.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

/// The relative positions whose elements are found at a time.
static constexpr int64_t relativeChunk = 256;

/// Emits `body` if `condition` holds; its result, else `otherwise`.
static Value emitIf(StructuredEmitter &e, Value condition, Value otherwise, function_ref<Value()> body) {
  if (getConstantIntValue(condition))
    return *getConstantIntValue(condition) ? body() : otherwise;
  return e.choose(
      condition, [&] { return SmallVector<Value>{body()}; }, [&] { return SmallVector<Value>{otherwise}; })[0];
}

static Value both(StructuredEmitter &e, Value x, Value y) { return e.b.createOrFold<arith::AndIOp>(e.loc, x, y); }

//===----------------------------------------------------------------------===//
// Reads
//===----------------------------------------------------------------------===//

static bool readsTensor(Value value) {
  llvm::SetVector<Operation *> producers;
  if (Operation *op = value.getDefiningOp())
    producers.insert(op);
  for (unsigned i = 0; i < producers.size(); ++i)
    for (Value operand : producers[i]->getOperands())
      if (Operation *op = operand.getDefiningOp())
        producers.insert(op);
  return llvm::any_of(producers, llvm::IsaPred<tensor::ExtractOp>);
}

CaptureGradients::Access CaptureGradients::accessOf(ValueRange indices) {
  PositionDependences dependences(op.getGradient(), /*numbers=*/4);
  auto all = [&](ValueRange values, function_ref<bool(const PositionDependence &)> holds) {
    return llvm::all_of(values, [&](Value value) { return holds(dependences.of(value)); });
  };
  bool areScalar = llvm::none_of(indices, readsTensor);
  auto isOfRow = [](const PositionDependence &value) { return value.isKnown && !value.usesKey; };
  if (areScalar && all(indices, [](const PositionDependence &value) { return value.isUniform(); }))
    return Access::Element;
  if (areScalar && all(indices, isOfRow))
    return Access::Row;
  PositionDependence last = dependences.of(indices.back());
  if (areScalar && last.isKnown && last.isLinear && last.key == 1 && all(indices.drop_back(), isOfRow))
    return Access::Run;
  if (all(indices, [](const PositionDependence &value) { return value.isTerm(); }))
    return Access::Relative;
  return Access::Any;
}

CaptureGradients::CaptureGradients(StructuredEmitter &e, GradientOp op) : e(e), op(op) {
  SmallVector<int64_t> numbers = op.getDifferentiatedCaptures();
  for (int64_t number : numbers)
    captures.push_back({op.getCaptures()[number], true, true, std::nullopt, std::nullopt});
  if (op.getReads().empty())
    return;
  RegionArguments args = getRegionArguments(op.getGradient(), /*numbers=*/4);
  ValueRange yielded = op.getGradient().front().getTerminator()->getOperands();
  yielded = yielded.drop_front();
  for (int64_t number : op.getReads()) {
    unsigned capture = llvm::find(numbers, number) - numbers.begin();
    ValueRange indices = yielded.take_front(captures[capture].rank());
    yielded = yielded.drop_front(indices.size() + 1);
    Access access = accessOf(indices);
    unsigned accumulator = access == Access::Relative ? numbers.size() + relative++ : capture;
    reads.push_back({capture, indices, access, accumulator});
  }
  // A dimension that every read indexes by batch or by head separates the tasks.
  for (auto [i, capture] : llvm::enumerate(captures)) {
    auto separates = [&](Value position) -> std::optional<unsigned> {
      for (int64_t dim = 0; dim < capture.rank(); ++dim)
        if (llvm::all_of(reads, [&](const Read &read) { return read.capture != i || read.indices[dim] == position; }))
          return dim;
      return std::nullopt;
    };
    capture.batchDim = separates(args.batch), capture.headDim = separates(args.head);
    capture.perBatch = !capture.batchDim, capture.perHead = !capture.headDim;
  }
}

//===----------------------------------------------------------------------===//
// Accumulators
//===----------------------------------------------------------------------===//

SmallVector<Value> CaptureGradients::inits(Value sequences) {
  OpBuilder &b = e.b;
  OpFoldResult batches = getAsOpFoldResult(sequences),
               kvHeads = getDimSize(b, e.loc, op.getKey(), op.getKeyDims(), Dim::Head);
  SmallVector<Value> accumulators;
  auto add = [&](ArrayRef<OpFoldResult> shape) {
    accumulators.push_back(e.filled(tensor::EmptyOp::create(b, e.loc, shape, e.type), 0.0));
  };
  for (const Capture &capture : captures) {
    SmallVector<OpFoldResult> shape;
    if (capture.perBatch)
      shape.push_back(batches);
    if (capture.perHead)
      shape.push_back(kvHeads);
    if (capture.rank())
      llvm::append_range(shape, tensor::getMixedSizes(b, e.loc, capture.value));
    add(shape);
  }
  Value positions = e.add(e.asIndex(getDimSize(b, e.loc, op.getQuery(), op.getQueryDims(), Dim::Seq)),
                          e.asIndex(getDimSize(b, e.loc, op.getKey(), op.getKeyDims(), Dim::Seq)));
  for (unsigned i = 0; i < relative; ++i)
    add({batches, kvHeads, getAsOpFoldResult(positions)});
  return accumulators;
}

SmallVector<StructuredEmitter::Place> CaptureGradients::places(const TaskPositions &at, ValueRange accumulators) {
  OpFoldResult zero = e.b.getIndexAttr(0), one = e.b.getIndexAttr(1);
  SmallVector<StructuredEmitter::Place> places;
  for (auto [i, accumulator] : llvm::enumerate(accumulators)) {
    StructuredEmitter::Place place;
    auto add = [&](OpFoldResult offset, OpFoldResult size) {
      place.offsets.push_back(offset), place.sizes.push_back(size);
    };
    bool isCapture = i < captures.size();
    if (!isCapture || captures[i].perBatch)
      add(at.batch, one);
    if (!isCapture || captures[i].perHead)
      add(at.kvHead, one);
    for (int64_t dim = place.offsets.size(), rank = cast<ShapedType>(accumulator.getType()).getRank(); dim < rank;
         ++dim) {
      unsigned inner = isCapture ? dim - captures[i].leading() : 0;
      if (isCapture && captures[i].batchDim == inner)
        add(at.absoluteBatch, one);
      else if (isCapture && captures[i].headDim == inner)
        add(e.add(e.sub(at.absoluteHead, at.head), e.mul(at.kvHead, at.group)), getAsOpFoldResult(at.group));
      else
        add(zero, tensor::getMixedSize(e.b, e.loc, accumulator, dim));
    }
    places.push_back(std::move(place));
  }
  return places;
}

Value CaptureGradients::extentOf(Value accumulator, const Capture &capture, unsigned dim) {
  return e.asIndex(tensor::getMixedSize(e.b, e.loc, accumulator, capture.leading() + dim));
}

SmallVector<Value> CaptureGradients::finish(ValueRange accumulators) {
  SmallVector<Value> gradients;
  for (auto [capture, accumulator, result] : llvm::zip(captures, accumulators, op.getCaptureGradients())) {
    unsigned rank = capture.rank(), leading = capture.leading();
    SmallVector<unsigned> kept = llvm::to_vector(llvm::seq<unsigned>(rank)), from;
    llvm::append_range(from, llvm::seq<unsigned>(rank, rank + leading));
    llvm::append_range(from, kept);
    Value sum = accumulator;
    if (leading) {
      SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(e.b, e.loc, accumulator);
      Value to = tensor::EmptyOp::create(e.b, e.loc, ArrayRef(sizes).drop_front(leading), e.type);
      sum = e.sum(rank + leading, leading, {accumulator, from}, {e.filled(to, 0.0), kept});
    }
    gradients.push_back(e.round(sum, cast<RankedTensorType>(result.getType())));
  }
  return gradients;
}

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

/// Emits an index of a pair of absolute positions. Its producers do not read tensors.
Value CaptureGradients::emitScalar(const TaskPositions &at, Value value, Value query, Value key, IRMapping &mapping) {
  RegionArguments args = getRegionArguments(op.getGradient(), /*numbers=*/4);
  Value from[] = {args.batch, args.head, args.query, args.key};
  Value to[] = {at.absoluteBatch, at.absoluteHead, query, key};
  mapping.map(from, to);
  mapping.map(args.captures, op.getCaptures());
  std::function<void(Value)> emit = [&](Value needed) {
    Operation *producer = needed.getDefiningOp();
    if (!producer || mapping.contains(needed))
      return;
    if (auto length = dyn_cast<LengthOp>(producer))
      return mapping.map(needed, length.getRole() == Role::Query ? at.queryEnd : at.keyEnd);
    for (Value operand : producer->getOperands())
      emit(operand);
    e.b.clone(*producer, mapping);
  };
  emit(value);
  return mapping.lookupOrDefault(value);
}

CaptureGradients::Element CaptureGradients::elementAt(const TaskPositions &at, const Capture &capture,
                                                      Value accumulator, function_ref<Value(unsigned)> index,
                                                      bool isRun) {
  Element element;
  element.indices.assign(capture.leading(), e.index(0));
  element.exists = arith::ConstantIntOp::create(e.b, e.loc, 1, 1);
  for (int64_t dim = 0; dim < capture.rank(); ++dim) {
    if (capture.batchDim == dim) {
      element.indices.push_back(e.index(0));
      continue;
    }
    if (capture.headDim == dim) {
      element.indices.push_back(e.sub(at.head, e.mul(at.kvHead, at.group)));
      continue;
    }
    Value found = index(dim);
    element.indices.push_back(found);
    if (isRun && dim + 1 == capture.rank())
      continue;
    // A negative index is a large unsigned number.
    Value isIn =
        arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::ult, found, extentOf(accumulator, capture, dim));
    element.exists = both(e, element.exists, isIn);
  }
  return element;
}

/// The element that `read` touches for a pair.
CaptureGradients::Element CaptureGradients::elementAt(const TaskPositions &at, const Read &read, Value query, Value key,
                                                      Value accumulator, bool isRun) {
  IRMapping mapping;
  auto index = [&](unsigned dim) { return emitScalar(at, read.indices[dim], query, key, mapping); };
  return elementAt(at, captures[read.capture], accumulator, index, isRun);
}

/// accumulator[element] += Σ amounts, a vector or a matrix.
Value CaptureGradients::addSum(const Capture &capture, Value accumulator, const Element &element, Value amounts) {
  return emitIf(e, element.exists, accumulator, [&] {
    SmallVector<OpFoldResult> offsets = getAsOpFoldResult(element.indices), ones(offsets.size(), e.b.getIndexAttr(1));
    Value before = e.slice(accumulator, offsets, ones, SmallVector<bool>(offsets.size(), false));
    unsigned rank = cast<ShapedType>(amounts.getType()).getRank();
    Value sum = e.sum(rank, rank, {amounts, llvm::to_vector(llvm::seq<unsigned>(rank))}, {before, {}});
    return tensor::InsertSliceOp::create(e.b, e.loc, sum, accumulator, offsets, ones, ones).getResult();
  });
}

/// Adds row `row` of the amounts to consecutive elements, as far as they exist.
Value CaptureGradients::addRun(const TaskPositions &at, const Read &read, const PairTile &tile, Value row,
                               Value amounts, Value accumulator) {
  Element element;
  Value query = e.add(tile.query, row), extent;
  if (read.access == Access::Relative) {
    Value first = e.add(e.sub(tile.key, query), e.sub(at.queries, e.index(1)));
    element = {{e.index(0), e.index(0), first}, arith::ConstantIntOp::create(e.b, e.loc, 1, 1)};
    extent = e.add(at.queries, at.keys);
  } else {
    element = elementAt(at, read, e.add(at.firstQuery, query), e.add(at.firstKey, tile.key), accumulator,
                        /*isRun=*/true);
    extent = extentOf(accumulator, captures[read.capture], read.indices.size() - 1);
  }
  Value zero = e.index(0), first = element.indices.back();
  Value begin = e.max(zero, e.sub(zero, first)), end = e.min(e.asIndex(tile.keys.size), e.sub(extent, first));
  Value count = e.select(element.exists, e.max(zero, e.sub(end, begin)), zero);
  begin = e.min(begin, e.asIndex(tile.keys.size));
  element.indices.back() = e.select(e.isLess(zero, count), e.add(first, begin), zero);
  for (Value &index : MutableArrayRef(element.indices).drop_back())
    index = e.select(element.exists, index, zero);
  OpFoldResult one = e.b.getIndexAttr(1);
  SmallVector<OpFoldResult> offsets = getAsOpFoldResult(element.indices), sizes(offsets.size(), one),
                            ones(offsets.size(), one);
  SmallVector<bool> isKept(offsets.size(), false);
  sizes.back() = count, isKept.back() = true;
  Value before = e.slice(accumulator, offsets, sizes, isKept);
  Value numbers = e.slice(amounts, {row, begin}, {one, count}, {false, true});
  Value sum = e.sum(1, 0, {numbers, {0}}, {before, {0}});
  return tensor::InsertSliceOp::create(e.b, e.loc, sum, accumulator, offsets, sizes, ones);
}

/// Adds one amount at a time. `tiles` are matrices of the indices that batch and head do not give, and of the amounts.
Value CaptureGradients::scatter(const TaskPositions &at, const Read &read, ValueRange tiles, Value rows, Value columns,
                                Value accumulator) {
  const Capture &capture = captures[read.capture];
  Value zero = e.index(0), isAny = arith::ConstantIntOp::create(e.b, e.loc, 1, 1);
  for (int64_t dim = 0; dim < capture.rank(); ++dim)
    isAny = both(e, isAny, e.isLess(zero, extentOf(accumulator, capture, dim)));
  return e.loop(zero, e.select(isAny, rows, zero), 1, accumulator, [&](Value i, ValueRange carried) {
    return e.loop(zero, columns, 1, carried, [&](Value j, ValueRange carried) -> SmallVector<Value> {
      ValueRange indices = tiles.drop_back();
      Element element = elementAt(at, capture, accumulator, [&](unsigned) -> Value {
        Value found = tensor::ExtractOp::create(e.b, e.loc, indices.front(), ValueRange{i, j});
        indices = indices.drop_front();
        return arith::IndexCastOp::create(e.b, e.loc, e.b.getIndexType(), found);
      });
      for (Value &index : element.indices)
        index = e.select(element.exists, index, zero);
      Value amount = tensor::ExtractOp::create(e.b, e.loc, tiles.back(), ValueRange{i, j});
      amount = e.select(element.exists, amount, e.scalar(0.0));
      Value before = tensor::ExtractOp::create(e.b, e.loc, carried[0], element.indices);
      Value sum = arith::AddFOp::create(e.b, e.loc, before, amount);
      return {tensor::InsertOp::create(e.b, e.loc, sum, carried[0], element.indices)};
    });
  })[0];
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

SmallVector<Type> CaptureGradients::neededTypes() {
  SmallVector<Type> types;
  for (const Read &read : reads) {
    const Capture &capture = captures[read.capture];
    for (unsigned dim = 0; dim < read.indices.size(); ++dim) {
      bool isStored = read.access == Access::Any && capture.batchDim != dim && capture.headDim != dim;
      types.push_back(isStored ? e.b.getI32Type() : Type());
    }
    types.push_back(e.type);
  }
  return types;
}

SmallVector<Value> CaptureGradients::add(const TaskPositions &at, const PairTile &tile, ValueRange tiles,
                                         ValueRange accumulators) {
  SmallVector<Value> next(accumulators);
  Value rows = e.asIndex(tile.queries.size), columns = e.asIndex(tile.keys.size), zero = e.index(0);
  OpFoldResult one = e.b.getIndexAttr(1);
  for (const Read &read : reads) {
    const Capture &capture = captures[read.capture];
    Value &accumulator = next[read.accumulator];
    if (read.access == Access::Any) {
      unsigned count = 1 + capture.rank() - capture.batchDim.has_value() - capture.headDim.has_value();
      accumulator = scatter(at, read, tiles.take_front(count), rows, columns, accumulator);
      tiles = tiles.drop_front(count);
      continue;
    }
    Value amounts = tiles.front();
    tiles = tiles.drop_front();
    Value firstKey = e.add(at.firstKey, tile.key), firstQuery = e.add(at.firstQuery, tile.query);
    if (read.access == Access::Element) {
      Element element = elementAt(at, read, firstQuery, firstKey, accumulator, /*isRun=*/false);
      accumulator = addSum(capture, accumulator, element, amounts);
      continue;
    }
    accumulator = e.loop(zero, rows, 1, accumulator, [&](Value row, ValueRange carried) -> SmallVector<Value> {
      if (read.access != Access::Row)
        return {addRun(at, read, tile, row, amounts, carried[0])};
      Element element = elementAt(at, read, e.add(firstQuery, row), firstKey, carried[0], /*isRun=*/false);
      Value numbers = e.slice(amounts, {row, e.b.getIndexAttr(0)}, {one, getAsOpFoldResult(columns)}, {false, true});
      return {addSum(capture, carried[0], element, numbers)};
    })[0];
  }
  return next;
}

SmallVector<Value> CaptureGradients::endHead(const TaskPositions &at, ValueRange accumulators) {
  SmallVector<Value> next(accumulators);
  for (const Read &read : reads) {
    if (read.access != Access::Relative)
      continue;
    const Capture &capture = captures[read.capture];
    Value count = e.add(at.queries, at.keys), zero = e.index(0);
    OpFoldResult none = e.b.getIndexAttr(0), one = e.b.getIndexAttr(1);
    next[read.capture] = e.loop(
        zero, count, relativeChunk, next[read.capture], [&](Value begin, ValueRange carried) -> SmallVector<Value> {
          Value size = e.min(e.index(relativeChunk), e.sub(count, begin));
          StructuredEmitter::Extent extents[] = {{one, 1}, {getAsOpFoldResult(size), relativeChunk}};
          SmallVector<StructuredEmitter::IndexedOperand> outputs;
          SmallVector<Value> needed;
          for (auto [dim, value] : llvm::enumerate(read.indices))
            if (capture.batchDim != dim && capture.headDim != dim) {
              outputs.push_back({e.temporary(extents, e.b.getI32Type()), {0, 1}});
              needed.push_back(value);
            }
          SmallVector<Value> tiles;
          if (!outputs.empty())
            tiles = e.apply(2, 0, {}, outputs, [&](ValueRange) {
              // The indices depend on key − query only, so evaluate them for query 0.
              Value distance =
                  e.sub(e.sub(e.add(begin, linalg::IndexOp::create(e.b, e.loc, 1)), e.sub(at.queries, e.index(1))),
                        e.sub(at.firstQuery, at.firstKey));
              IRMapping mapping;
              SmallVector<Value> results;
              for (Value value : needed)
                results.push_back(arith::IndexCastOp::create(e.b, e.loc, e.b.getI32Type(),
                                                             emitScalar(at, value, zero, distance, mapping)));
              return results;
            });
          OpFoldResult sizes[] = {one, one, getAsOpFoldResult(size)}, offsets[] = {none, none, begin};
          tiles.push_back(e.slice(next[read.accumulator], offsets, sizes, {false, true, true}));
          return {scatter(at, read, tiles, e.index(1), size, carried[0])};
        })[0];
    next[read.accumulator] = e.filled(next[read.accumulator], 0.0);
  }
  return next;
}
