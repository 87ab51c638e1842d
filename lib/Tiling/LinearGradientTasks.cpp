//===- LinearGradientTasks.cpp - The gradients of linear attention ------------===//
//
// The gradients of a chunk, given the state S before it and the gradient G of the state after it. With the keys K, the
// queries Q, the erase keys E, the values U that are written, the output gradient dO, and products of decays as in the
// forward pass:
//
//     dU = (down·K) G + Aᵀ dO,  A = D ∘ Q Kᵀ
//     delta rule: dY = (I + beta · L)⁻ᵀ dU, L = D ∘ E Kᵀ below the diagonal, dV = beta · dY, dbeta = dY · remainder
//     dQ = up·(dO Sᵀ) + (D ∘ dO Uᵀ) K,  dE = −up·(dV Sᵀ) − (D ∘ dV Uᵀ) K
//     dK = down·(U Gᵀ) + (D ∘ dO Uᵀ)ᵀ Q − (D ∘ dV Uᵀ)ᵀ E
//     G before it = whole·G + (up·Q)ᵀ dO − (up·E)ᵀ dV
//
// With the sum c of the logarithms of decays up to a position, D[i, j] = exp(c[i] − c[j]). So the gradient of c[i] is
// Q·dQ + E·dE − K·dK at i, at the last position also that of the decay of the state, and the gradient of a decay is the
// sum over later positions (Yang et al. 2024, "Gated Linear Attention Transformers", appendix C). The sums are taken
// within a chunk.
//
//===----------------------------------------------------------------------===//
#include "LinearGradientTasks.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

//===----------------------------------------------------------------------===//
// Records
//===----------------------------------------------------------------------===//

/// The values of `members` that are not null, and the same members with `values`.
template <typename T> static SmallVector<Value> valuesOf(const T &record, ArrayRef<Value T::*> members) {
  SmallVector<Value> values;
  for (Value T::*member : members)
    if (record.*member)
      values.push_back(record.*member);
  return values;
}
template <typename T> static T withValues(T record, ArrayRef<Value T::*> members, ValueRange values) {
  unsigned next = 0;
  for (Value T::*member : members)
    if (record.*member)
      record.*member = values[next++];
  return record;
}

SmallVector<Value> LinearGradientTasks::Results::getValues() const {
  using R = Results;
  return valuesOf<R>(*this, {&R::query, &R::key, &R::value, &R::decay, &R::beta, &R::erase, &R::state});
}
LinearGradientTasks::Results LinearGradientTasks::Results::with(ValueRange values) const {
  using R = Results;
  return withValues<R>(*this, {&R::query, &R::key, &R::value, &R::decay, &R::beta, &R::erase, &R::state}, values);
}
SmallVector<Value> LinearGradientTasks::Sums::getValues() const {
  return valuesOf<Sums>(*this, {&Sums::keys, &Sums::values, &Sums::decay, &Sums::state, &Sums::query});
}
LinearGradientTasks::Sums LinearGradientTasks::Sums::with(ValueRange values) const {
  return withValues<Sums>(*this, {&Sums::keys, &Sums::values, &Sums::decay, &Sums::state, &Sums::query}, values);
}

//===----------------------------------------------------------------------===//
// Parts of a chunk
//===----------------------------------------------------------------------===//

Value LinearGradientTasks::outputGradient(Value head, Value begin) {
  Value x = loadColumns(gradient.getOutputGradient(), gradient.getOutputDims(), head, begin, firstColumn, taskColumns,
                        operandType(gradient.getOutputGradient()));
  if (!gradient.getScale())
    return x;
  // Not in place: rows without conversion are slices of the caller's tensor.
  return apply(2, 0, {{x, {0, 1}}}, {{temporary({-1, taskColumns}, productType), {0, 1}}},
               [&](ValueRange args) -> SmallVector<Value> {
                 Value factor = scalar(gradient.getScale()->convertToDouble());
                 return {convert(arith::MulFOp::create(b, loc, convert(args[0], type), factor), productType)};
               })[0];
}

Value LinearGradientTasks::timesFactor(Value x, const Chunk &chunk, Value factor) {
  return factor ? scaled(x, {factor, chunk.decay.loops(0, 1)}) : x;
}

Value LinearGradientTasks::addToDecay(Value sums, Value x, Value y, bool isNegative) {
  if (!sums)
    return sums;
  bool isMatrix = op.hasMatrixDecay();
  return apply(2, isMatrix ? 0 : 1, {{x, {0, 1}}, {y, {0, 1}}},
               {{sums, isMatrix ? SmallVector<unsigned>{0, 1} : SmallVector<unsigned>{0}}},
               [&](ValueRange args) -> SmallVector<Value> {
                 Value product = arith::MulFOp::create(b, loc, convert(args[0], type), convert(args[1], type));
                 if (isNegative)
                   return {arith::SubFOp::create(b, loc, args[2], product)};
                 return {arith::AddFOp::create(b, loc, args[2], product)};
               })[0];
}

std::pair<Value, Value> LinearGradientTasks::pullScores(const Chunk &chunk, Value weights, Value x, Value ofX,
                                                        Value ofKeys) {
  if (op.hasMatrixDecay())
    return scoreGradients(weights, x, chunk.keys, chunk.decay.each, ofX, ofKeys);
  if (chunk.decay.between)
    weights = scaled(weights, {chunk.decay.between, {0, 1}});
  return {matmul({weights, {0, 2}}, {chunk.keys, {2, 1}}, ofX), matmul({weights, {2, 0}}, {x, {2, 1}}, ofKeys)};
}

Value LinearGradientTasks::decayOfState(const Chunk &chunk, Value state, Value after, Value ofKeys) {
  // The state after the chunk times its gradient: of the decayed state before it, and of the keys of the chunk.
  Value kept = decayState(chunk, rowSums({{state, {0, 1}}, {after, {0, 1}}}, filled({depth}, 0.0)));
  return rowSums({{chunk.keys, {1, 0}}, {ofKeys, {1, 0}}}, kept);
}

Value LinearGradientTasks::storeDecay(const Chunk &chunk, Value sums, Value ofState, Value into) {
  bool isMatrix = op.hasMatrixDecay();
  Value last = sub(asIndex(size), index(1)), total = ofState;
  if (!isMatrix) {
    Value zero = StructuredEmitter::filled(tensor::EmptyOp::create(b, loc, ArrayRef<int64_t>{}, type), 0.0);
    Value sum = apply(1, 1, {{ofState, {0}}}, {{zero, {}}}, [&](ValueRange args) -> SmallVector<Value> {
      return {arith::AddFOp::create(b, loc, args[1], args[0])};
    })[0];
    total = tensor::ExtractOp::create(b, loc, sum, ValueRange());
  }
  sums = loop(index(0), asIndex(size), 1, {total, sums}, [&](Value step, ValueRange carried) -> SmallVector<Value> {
    Value i = sub(last, step);
    if (!isMatrix) {
      Value next = arith::AddFOp::create(b, loc, carried[0], tensor::ExtractOp::create(b, loc, carried[1], i));
      return {next, tensor::InsertOp::create(b, loc, next, carried[1], i)};
    }
    SmallVector<Value> next =
        apply(1, 0, {}, {{carried[0], {0}}, {row(carried[1], i), {0}}}, [&](ValueRange args) -> SmallVector<Value> {
          Value sum = arith::AddFOp::create(b, loc, args[0], args[1]);
          return {sum, sum};
        });
    return {next[0], insertRow(next[1], carried[1], i)};
  })[1];
  SmallVector<unsigned> loops = isMatrix ? SmallVector<unsigned>{0, 1} : SmallVector<unsigned>{0};
  // A decay factor of 0 has derivative 0, which rounding errors of the sums must not change.
  return storeRows(into, gradient.getFactorDims(isMatrix), index(0), beginOfStores(chunk.begin),
                   {{sums, loops}, {chunk.decay.each, loops}}, [&](ValueRange args) -> Value {
                     Value isZero = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, args[1], scalar(0.0));
                     return select(isZero, scalar(0.0), args[0]);
                   });
}

//===----------------------------------------------------------------------===//
// Chunks
//===----------------------------------------------------------------------===//

LinearGradientTasks::Sums LinearGradientTasks::addQueryHead(const Chunk &chunk, const Saved &saved, Value head,
                                                            Value member, Sums sums) {
  Value queries = loadFeatures(op.getQuery(), op.getQueryDims(), head, chunk.begin);
  Value outputHead = add(mul(stateHead, group), member);
  Value ofOutput = outputGradient(outputHead, chunk.begin);
  if (sums.state)
    sums.values = matmul({scores(queries, chunk), {2, 0}}, {ofOutput, {2, 1}}, sums.values);
  Value ofQueries;
  if (sums.keys) {
    Value weights = matmul({ofOutput, {0, 2}}, {saved.written, {1, 2}}, filled({-1, -1}, 0.0));
    if (!chunk.decay.between)
      weights = lowerTriangle(weights, /*isStrict=*/false);
    ofQueries = matmul({ofOutput, {0, 2}}, {saved.state, {1, 2}}, filled({-1, depth}, 0.0));
    ofQueries = timesFactor(ofQueries, chunk, chunk.decay.entering);
    std::tie(ofQueries, sums.keys) = pullScores(chunk, weights, queries, ofQueries, sums.keys);
  }
  if (sums.state) {
    Value entering = decayed(queries, chunk.decay, chunk.decay.entering, depth);
    sums.state = matmul({entering, {2, 0}}, {ofOutput, {2, 1}}, sums.state);
  }
  if (sums.keys) {
    sums.decay = addToDecay(sums.decay, queries, ofQueries, /*isNegative=*/false);
    sums.query = storeRows(sums.query, op.getQueryDims().getDims(), member, beginOfStores(chunk.begin), ofQueries);
  }
  return sums;
}

LinearGradientTasks::Sums LinearGradientTasks::addQueries(const Chunk &chunk, const Saved &saved, Sums sums) {
  return sums.with(overQueryHeads(sums.getValues(), [&](Value head, Value member, ValueRange carried) {
    return addQueryHead(chunk, saved, head, member, sums.with(carried)).getValues();
  }));
}

Value LinearGradientTasks::solvedGradient(const Chunk &chunk, Value ofValues) {
  Value solved = inverse(negativeSystem(chunk, /*ofEarlier=*/false));
  return matmul({solved, {2, 0}}, {ofValues, {2, 1}}, filled({-1, taskColumns}, 0.0));
}

LinearGradientTasks::Sums LinearGradientTasks::addDeltaRule(const Chunk &chunk, const Saved &saved, Value ofRemainders,
                                                            Sums sums, Results &results) {
  if (results.beta) {
    Value ofBeta = rowSums({{ofRemainders, {0, 1}}, {saved.remainders, {0, 1}}}, filled({-1}, 0.0));
    results.beta = storeRows(results.beta, gradient.getFactorDims(/*isMatrix=*/false), index(0),
                             beginOfStores(chunk.begin), ofBeta);
  }
  sums.values = timesBeta(chunk, ofRemainders);
  Value negative =
      apply(2, 0, {{sums.values, {0, 1}}}, {{temporary({-1, taskColumns}), {0, 1}}},
            [&](ValueRange args) -> SmallVector<Value> { return {arith::NegFOp::create(b, loc, args[0])}; })[0];
  Value ofErase;
  if (sums.keys) {
    Value weights = matmul({negative, {0, 2}}, {saved.written, {1, 2}}, filled({-1, -1}, 0.0));
    weights = lowerTriangle(weights, /*isStrict=*/true);
    ofErase = matmul({negative, {0, 2}}, {saved.state, {1, 2}}, filled({-1, depth}, 0.0));
    ofErase = timesFactor(ofErase, chunk, chunk.decay.entering);
    std::tie(ofErase, sums.keys) = pullScores(chunk, weights, chunk.erase, ofErase, sums.keys);
  }
  if (sums.state) {
    Value entering = decayed(chunk.erase, chunk.decay, chunk.decay.entering, depth);
    sums.state = matmul({entering, {2, 0}}, {negative, {2, 1}}, sums.state);
  }
  if (!sums.keys)
    return sums;
  sums.decay = addToDecay(sums.decay, chunk.erase, ofErase, /*isNegative=*/false);
  sums.decay = addToDecay(sums.decay, chunk.keys, sums.keys, /*isNegative=*/true);
  if (results.erase)
    results.erase =
        storeRows(results.erase, op.getEraseDimsAttr().getDims(), index(0), beginOfStores(chunk.begin), ofErase);
  else
    sums.keys = sum(sums.keys, ofErase);
  return sums;
}

LinearGradientTasks::Sums LinearGradientTasks::beginSums(const Chunk &chunk, const Saved &saved, Value after,
                                                         const Results &results, Value &ofState) {
  Sums sums;
  sums.keys = matmul({saved.written, {0, 2}}, {after, {1, 2}}, filled({-1, depth}, 0.0));
  sums.keys = timesFactor(sums.keys, chunk, chunk.decay.leaving);
  if (results.decay) {
    ofState = decayOfState(chunk, saved.state, after, sums.keys);
    sums.decay = op.hasMatrixDecay() ? filled({-1, depth}, 0.0) : filled({-1}, 0.0);
  }
  sums.query = results.query;
  return sums;
}

LinearGradientTasks::Results LinearGradientTasks::storeChunk(const Chunk &chunk, const Sums &sums, Value ofState,
                                                             Results results) {
  Value begin = beginOfStores(chunk.begin);
  results.key = storeRows(results.key, op.getKeyDims().getDims(), index(0), begin, sums.keys);
  if (results.value)
    results.value = storeRows(results.value, op.getValueDims().getDims(), index(0), begin, sums.values);
  if (results.decay)
    results.decay = storeDecay(chunk, sums.decay, ofState, results.decay);
  return results;
}

std::pair<Value, LinearGradientTasks::Results> LinearGradientTasks::visit(const Chunk &chunk, const Saved &saved,
                                                                          Value after, Results results) {
  Value leaving = decayed(chunk.keys, chunk.decay, chunk.decay.leaving, depth), ofState;
  Value ofValues = matmul({leaving, {0, 2}}, {after, {2, 1}}, filled({-1, valueDepth}, 0.0));
  Sums sums = beginSums(chunk, saved, after, results, ofState);
  sums.values = ofValues;
  sums.state = decayState(chunk, after);
  sums = addQueries(chunk, saved, sums);
  results.query = sums.query;
  if (op.hasDeltaRule())
    sums = addDeltaRule(chunk, saved, solvedGradient(chunk, sums.values), sums, results);
  else
    sums.decay = addToDecay(sums.decay, chunk.keys, sums.keys, /*isNegative=*/true);
  return {sums.state, storeChunk(chunk, sums, ofState, results)};
}

//===----------------------------------------------------------------------===//
// Tasks
//===----------------------------------------------------------------------===//

std::pair<Value, Value> LinearGradientTasks::emitStates() {
  SmallVector<Value> inits = {emptyStates()};
  if (op.hasDeltaRule())
    inits.push_back(emptyRemainders());
  auto places = [&]() -> SmallVector<Place> {
    takeColumns();
    SmallVector<Place> found = {placeOfChunks()};
    if (op.hasDeltaRule())
      found.push_back(placeOfRemainders());
    return found;
  };
  auto visitChunk = [&](Value begin, ValueRange carried) -> SmallVector<Value> {
    Chunk chunk = loadChunk(begin);
    Value state = carried[0], values = chunk.values;
    SmallVector<Value> next = {state, storeOfChunk(state, carried[1], begin)};
    if (op.hasDeltaRule()) {
      Value left = remainders(chunk, state);
      next.push_back(storeOfPositions(left, carried[2], begin));
      values = timesBeta(chunk, left);
    }
    Value keys = decayed(chunk.keys, chunk.decay, chunk.decay.leaving, depth);
    next[0] = matmul({keys, {2, 0}}, {values, {2, 1}}, decayState(chunk, state));
    return next;
  };
  auto body = [&](ValueRange parts) {
    SmallVector<Value> carried = {stateOrZeros(op.getState())};
    llvm::append_range(carried, parts);
    carried = overChunks(/*isForward=*/true, carried, visitChunk);
    return SmallVector<Value>(llvm::drop_begin(carried));
  };
  scf::ForallOp loop = overTasks("linear_attention_gradient.states", inits, places, body, parts());
  return {loop.getResult(0), op.hasDeltaRule() ? Value(loop.getResult(1)) : Value()};
}

LinearGradientTasks::Saved LinearGradientTasks::savedOf(const Chunk &chunk, Value states, Value remainders) {
  Saved saved;
  saved.state = loadOfChunk(states, chunk.begin);
  saved.written = chunk.values;
  if (remainders) {
    saved.remainders = loadOfPositions(remainders, chunk.begin);
    saved.written = timesBeta(chunk, saved.remainders);
  }
  return saved;
}

LinearGradientTasks::Results LinearGradientTasks::visitChunks(Value states, Value remainders, Results results) {
  SmallVector<Value> carried = {stateOrZeros(gradient.getStateGradient())};
  llvm::append_range(carried, results.getValues());
  carried = overChunks(/*isForward=*/false, carried, [&](Value begin, ValueRange before) {
    Chunk chunk = loadChunk(begin);
    auto [next, done] = visit(chunk, savedOf(chunk, states, remainders), before[0], results.with(before.drop_front()));
    SmallVector<Value> all = {next};
    llvm::append_range(all, done.getValues());
    return all;
  });
  results = results.with(ArrayRef(carried).drop_front());
  if (results.state)
    results.state = storeState(carried[0], results.state, 0);
  return results;
}

SmallVector<Value> LinearGradientTasks::emitNonCausal(Results results) {
  bool isDense = !starts && !op.getKvLen();
  OpFoldResult keys = length;
  Value state = stateOrZeros(op.getState());
  state = overChunks(/*isForward=*/true, {state}, [&](Value begin, ValueRange carried) -> SmallVector<Value> {
    Chunk chunk = loadChunk(begin);
    return {matmul({chunk.keys, {2, 0}}, {chunk.values, {2, 1}}, carried[0])};
  })[0];
  state = asOperand(state);
  Value after = stateOrZeros(gradient.getStateGradient());
  if (isDense)
    length = getDimSize(b, loc, op.getQuery(), op.getQueryDims(), Dim::Seq);
  auto visitQueries = [&](Value begin, ValueRange carried) -> SmallVector<Value> {
    return overQueryHeads(carried, [&](Value head, Value member, ValueRange before) -> SmallVector<Value> {
      Value queries = loadRows(op.getQuery(), op.getQueryDims(), head, begin);
      Value ofOutput = outputGradient(add(mul(stateHead, group), member), begin);
      Value found = matmul({ofOutput, {0, 2}}, {state, {1, 2}}, filled({-1, depth}, 0.0));
      return {matmul({queries, {2, 0}}, {ofOutput, {2, 1}}, before[0]),
              storeRows(before[1], op.getQueryDims().getDims(), member, begin, found)};
    });
  };
  SmallVector<Value> done = overChunks(/*isForward=*/true, {after, results.query}, visitQueries);
  Value ofState = done[0];
  results.query = done[1];
  if (results.state)
    results.state = storeState(ofState, results.state, 0);
  ofState = asOperand(ofState);
  length = keys;
  auto visitKeys = [&](Value begin, ValueRange carried) -> SmallVector<Value> {
    Chunk chunk = loadChunk(begin);
    Value ofKeys = matmul({chunk.values, {0, 2}}, {ofState, {1, 2}}, filled({-1, depth}, 0.0));
    Value ofValues = matmul({chunk.keys, {0, 2}}, {ofState, {2, 1}}, filled({-1, valueDepth}, 0.0));
    return {storeRows(carried[0], op.getKeyDims().getDims(), index(0), begin, ofKeys),
            storeRows(carried[1], op.getValueDims().getDims(), index(0), begin, ofValues)};
  };
  done = overChunks(/*isForward=*/true, {results.key, results.value}, visitKeys);
  results.key = done[0], results.value = done[1];
  return results.getValues();
}

SmallVector<StructuredEmitter::Place> LinearGradientTasks::places(const Results &results, Value first, Value count) {
  SmallVector<Place> found;
  auto take = [&](ArrayRef<Dim> dims, Place place) {
    unsigned seq = llvm::find(dims, Dim::Seq) - dims.begin();
    if (count) {
      place.offsets[seq] = getAsOpFoldResult(add(asIndex(place.offsets[seq]), first));
      place.sizes[seq] = getAsOpFoldResult(count);
    }
    found.push_back(place);
  };
  auto takeRows = [&](ArrayRef<Dim> dims, int64_t columns) {
    take(dims, placeOfRows(dims, stateHead, index(1), columns));
  };
  take(op.getQueryDims().getDims(), placeOfQueries(op.getQueryDims(), depth));
  takeRows(op.getKeyDims().getDims(), depth);
  if (results.value)
    takeRows(op.getValueDims().getDims(), valueDepth);
  if (results.decay)
    takeRows(gradient.getFactorDims(op.hasMatrixDecay()), depth);
  if (results.beta)
    takeRows(gradient.getFactorDims(/*isMatrix=*/false), 1);
  if (results.erase)
    takeRows(op.getEraseDimsAttr().getDims(), depth);
  if (results.state)
    found.push_back(placeOfState(valueDepth));
  return found;
}

LogicalResult LinearGradientTasks::rewrite() {
  bool isEmpty = false;
  FailureOr<SmallVector<Value>> inits = prepare(op->getNumResults() - (op.getState() ? 1 : 0), isEmpty);
  if (failed(inits))
    return failure();
  if (isEmpty) {
    rewriter.replaceOp(op, *inits);
    return success();
  }
  Results named;
  Value any = inits->front();
  named.query = named.key = named.value = any;
  named.decay = op.getDecay() ? any : Value();
  named.beta = op.getBeta() ? any : Value();
  named.erase = op.getErase() ? any : Value();
  named.state = op.getState() ? any : Value();
  std::pair<Value, Value> saved;
  if (op.getCausal())
    saved = emitStates();
  if (op.getCausal() && onDevice) {
    rewriter.replaceOp(op, emitParts(saved.first, saved.second, named.with(*inits)).getValues());
    return success();
  }
  scf::ForallOp loop = overTasks(
      "linear_attention_gradient", *inits, [&] { return places(named); },
      [&](ValueRange parts) {
        Results results = named.with(parts);
        return op.getCausal() ? visitChunks(saved.first, saved.second, results).getValues() : emitNonCausal(results);
      });
  rewriter.replaceOp(op, loop.getResults());
  return success();
}
