//===- GroupQueryAttention.cpp - GroupQueryAttention of com.microsoft -----===//
//
// As ONNX Runtime 1.31 computes it on a CPU: one causal attn.attention on a cache, behind whose rows of each sequence
// the new keys and values are put. Sequences start at row 0 of the cache and have lengths of their own.
//
//===----------------------------------------------------------------------===//
#include "AttentionOperands.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using attn::Dim;
using frontend::Extents;
using frontend::sliceLastDim;
using Predicate = arith::CmpIPredicate;

namespace {

class GroupQueryAttention {
public:
  GroupQueryAttention(FrontendOp &op) : op(op), b(op.builder()) {}
  LogicalResult translate(Values &results);

private:
  LogicalResult checkAttributes();
  LogicalResult readOperands();
  LogicalResult readLengths();
  LogicalResult readBias();
  LogicalResult rotate();
  FailureOr<Value> appended(Value past, const AttentionOperand &fresh, StringRef role);
  attn::AttentionOp build();
  Value indexOf(OpFoldResult extent) { return getValueOrCreateConstantIndexOp(b, b.getLoc(), extent); }
  /// Rows of the cache that sequence `batch` has before this call.
  Value pastLength(OpBuilder &nested, Location loc, Value all, Value fresh, Value batch);

  FrontendOp &op;
  ImplicitLocOpBuilder &b;
  AttentionOperand query, key, value;
  Value lengths;        ///< of sequences with the new positions, [b] of i32
  OpFoldResult queries; ///< new positions
  OpFoldResult total;   ///< of the longest sequence
  Value present, presentOfValues;
  double softcap = 0;
  int64_t window = -1;
  bool isCausal = true;
  RegionCaptures captures;
  int bias = -1, lengthsAt = -1; ///< indices into captures, or -1
};

} // namespace

LogicalResult GroupQueryAttention::checkAttributes() {
  if (failed(refuseInputs(op, {{12, "k_scale"}, {13, "v_scale"}, {14, "q_norm_weight"}, {15, "k_norm_weight"}})))
    return failure();
  for (StringRef name : {"k_quant_type", "v_quant_type"})
    if (op.text(name, "NONE") != "NONE")
      return op.error() << "'" << name << "' is '" << op.text(name, "NONE") << "', expected 'NONE'";
  for (StringRef name : {"kv_cache_bit_width", "sliding_window_cache"})
    if (op.integer(name, 0) != 0)
      return op.error() << "'" << name << "' is " << op.integer(name, 0) << ", expected 0";
  (void)op.integer("qk_output", 0);
  if (op.isUsed(3))
    return op.error() << "the result 'output_qk' is not supported";
  isCausal = op.integer("causal", 1) != 0;
  window = op.integer("local_window_size", -1);
  if (!isCausal && window > 0)
    return op.error() << "'local_window_size' is " << window << " without a causal mask, expected -1";
  softcap = op.number("softcap", 0);
  if (!std::isfinite(softcap) || softcap < 0)
    return op.error() << "softcap is " << softcap << ", expected a finite number that is not negative";
  return success();
}

LogicalResult GroupQueryAttention::readOperands() {
  int64_t heads = op.integer("num_heads", 0), kvHeads = op.integer("kv_num_heads", 0);
  if (heads <= 0 || kvHeads <= 0 || heads % kvHeads)
    return op.error() << "found " << heads << " query heads, expected a multiple of the " << kvHeads << " KV heads";
  Value packed = op.operand(0), keys = op.operand(1), values = op.operand(2);
  if (bool(keys) != bool(values))
    return op.error() << "found only one of key and value, expected both or none";
  if (rankOf(packed) != 3 || (keys && (rankOf(keys) != 3 || rankOf(values) != 3)))
    return op.error() << "the query is " << packed.getType() << ", expected [batch, position, heads * size], and "
                      << "three dimensions of key and value";
  if (!keys) {
    int64_t width = cast<ShapedType>(packed.getType()).getDimSize(2), all = heads + 2 * kvHeads;
    if (ShapedType::isDynamic(width) || width % all != 0)
      return op.error() << "the packed query is " << packed.getType() << ", expected a last dimension divisible by "
                        << all << " heads";
    int64_t size = width / all;
    keys = sliceLastDim(b, packed, heads * size, kvHeads * size);
    values = sliceLastDim(b, packed, (heads + kvHeads) * size, kvHeads * size);
    packed = sliceLastDim(b, packed, 0, heads * size);
  }
  FailureOr<AttentionOperand> q = splitHeads(op, packed, heads, "the query"),
                              k = splitHeads(op, keys, kvHeads, "the key"),
                              v = splitHeads(op, values, kvHeads, "the value");
  if (failed(q) || failed(k) || failed(v))
    return failure();
  query = *q, key = *k, value = *v, queries = query.extent(Dim::Seq);
  std::optional<int64_t> found = getConstantIntValue(key.extent(Dim::Seq)), expected = getConstantIntValue(queries);
  if (found && expected && *found != *expected)
    return op.error() << "the key has " << *found << " positions, expected those of the query, " << *expected;
  return requireFit(op, query, key, value);
}

LogicalResult GroupQueryAttention::readLengths() {
  lengths = op.operand(5);
  if (rankOf(lengths) != 1 || !elementOf(lengths).isInteger(32))
    return op.error() << "seqlens_k is " << lengths.getType() << ", expected one i32 per batch";
  FailureOr<OpFoldResult> found = requireExtent(op, 6, "total_sequence_length");
  if (failed(found))
    return failure();
  total = *found;
  Type type = elementOf(lengths);
  lengths = frontend::elementwise(b, lengths, type, [&](OpBuilder &nested, Location loc, ValueRange x) {
    return frontend::add(nested, loc, x[0], frontend::makeNumber(nested, loc, type, 1));
  });
  lengthsAt = captures.add(lengths);
  captures.addExtent(queries);
  return success();
}

LogicalResult GroupQueryAttention::readBias() {
  Value given = op.operand(10);
  if (!given)
    return success();
  OpFoldResult extents[] = {query.extent(Dim::Batch), query.extent(Dim::Head), queries, total};
  if (failed(requireScoreBias(op, given, extents)))
    return failure();
  bias = captures.add(given);
  return success();
}

Value GroupQueryAttention::pastLength(OpBuilder &nested, Location loc, Value all, Value fresh, Value batch) {
  Value length = tensor::ExtractOp::create(nested, loc, all, batch);
  length = arith::IndexCastOp::create(nested, loc, nested.getIndexType(), length);
  // A sequence of the first prompt may be shorter than the longest one.
  return frontend::maximum(nested, loc, frontend::sub(nested, loc, length, fresh),
                           arith::ConstantIndexOp::create(nested, loc, 0));
}

LogicalResult GroupQueryAttention::rotate() {
  bool isInterleaved = op.integer("rotary_interleaved", 0) != 0;
  Value cosines = op.operand(7), sines = op.operand(8), given = op.operand(9);
  if (op.integer("do_rotary", 0) == 0)
    return success();
  int64_t depth = *getConstantIntValue(query.extent(Dim::Depth));
  for (Value table : {cosines, sines}) {
    auto type = table ? cast<RankedTensorType>(table.getType()) : RankedTensorType();
    bool fits = table && type.getRank() == 2 && isa<FloatType>(type.getElementType()) && !type.isDynamicDim(1) &&
                2 * type.getDimSize(1) <= depth && table.getType() == cosines.getType();
    if (!fits)
      return op.error() << "cos_cache and sin_cache have to be [positions, at most " << depth / 2
                        << "] of floating point with do_rotary";
  }
  auto fitsQuery = [&](RankedTensorType found) {
    auto expected = cast<RankedTensorType>(frontend::typeOf({query.extent(Dim::Batch), queries}, b.getI64Type()));
    return found.getElementType().isInteger(64) && succeeded(verifyCompatibleShape(found, expected));
  };
  if (given && !fitsQuery(cast<RankedTensorType>(given.getType())))
    return op.error() << "position_ids is " << given.getType() << ", expected i64 [batch, position]";
  Type type = b.getI64Type();
  Value fresh = indexOf(queries);
  Value isPrompt = frontend::compare(b, b.getLoc(), Predicate::eq, fresh, indexOf(total));
  Extents extents = {query.extent(Dim::Batch), queries};
  Value positions =
      frontend::generate(b, extents, ValueRange(), type, [&](OpBuilder &nested, Location loc, ValueRange x) -> Value {
        Value past = pastLength(nested, loc, lengths, fresh, x[0]);
        auto asInteger = [&](Value index) { return arith::IndexCastOp::create(nested, loc, type, index).getResult(); };
        if (!given)
          return asInteger(frontend::add(nested, loc, past, x[1]));
        // The first prompt counts from its first position, for every sequence.
        Value zero = arith::ConstantIndexOp::create(nested, loc, 0);
        Value first = tensor::ExtractOp::create(nested, loc, given, ValueRange{zero, zero});
        Value own = tensor::ExtractOp::create(nested, loc, given, ValueRange{x[0], x[1]});
        first = frontend::add(nested, loc, frontend::convert(nested, loc, first, type), asInteger(x[1]));
        return frontend::select(nested, loc, isPrompt, first, frontend::convert(nested, loc, own, type));
      });
  auto rows = [&](Value table) { return frontend::unsqueeze(b, frontend::gather(b, table, positions, 0), {2}); };
  Value cosineRows = rows(cosines), sineRows = rows(sines);
  int64_t half = cast<ShapedType>(cosines.getType()).getDimSize(1);
  for (AttentionOperand *each : {&query, &key})
    each->tensor = rotateHeads(b, *each, cosineRows, sineRows, half, isInterleaved);
  return success();
}

/// The cache [b,h,s,d] with the new rows of each sequence; 0 behind them.
FailureOr<Value> GroupQueryAttention::appended(Value past, const AttentionOperand &fresh, StringRef role) {
  AttentionOperand own = toBHSD(b, fresh);
  if (!past)
    return own.tensor;
  // The rows of a sequence are those before its length in the old cache, then new ones. Both are read from one tensor,
  // since the old cache may have no rows.
  FailureOr<AttentionOperand> all = appendToCache(op, past, own, role);
  if (failed(all))
    return failure();
  OpFoldResult held = frontend::extentsOf(b, past)[2];
  if (isConstantIntValue(held, 0))
    return own.tensor;
  // A cache of as many positions keeps its size.
  Value oldRows = indexOf(held), added = indexOf(own.extents[2]);
  Value isKept = frontend::compare(b, b.getLoc(), Predicate::sge, oldRows, indexOf(total));
  Value rows = frontend::select(b, b.getLoc(), isKept, oldRows, frontend::add(b, b.getLoc(), oldRows, added));
  Extents extents = own.extents;
  extents[2] = getAsOpFoldResult(rows);
  Type element = elementOf(past);
  auto body = [&](OpBuilder &nested, Location loc, ValueRange x) -> Value {
    Value before = pastLength(nested, loc, lengths, added, x[0]), place = frontend::sub(nested, loc, x[2], before);
    Value isOld = frontend::compare(nested, loc, Predicate::slt, x[2], before);
    Value isNew = frontend::compare(nested, loc, Predicate::slt, place, added);
    Value last = frontend::sub(nested, loc, added, arith::ConstantIndexOp::create(nested, loc, 1));
    Value newRow = frontend::add(nested, loc, oldRows, frontend::minimum(nested, loc, place, last));
    Value row = frontend::select(nested, loc, isOld, x[2], newRow);
    Value found = tensor::ExtractOp::create(nested, loc, all->tensor, ValueRange{x[0], x[1], row, x[3]});
    Value isFilled = arith::OrIOp::create(nested, loc, isOld, isNew);
    return frontend::select(nested, loc, isFilled, found, frontend::makeNumber(nested, loc, element, 0));
  };
  return frontend::generate(b, extents, ValueRange(), element, body);
}

attn::AttentionOp GroupQueryAttention::build() {
  auto cache = [&](Value tensor) {
    return AttentionOperand{tensor, bhsdDims(b.getContext()), frontend::extentsOf(b, tensor)};
  };
  attn::AttentionFields fields = makeFields(b, query, cache(present), cache(presentOfValues), scaleOf(op, query));
  Type type = attn::getScoreType(elementOf(query.tensor)), index = b.getIndexType();
  fields.kvLen = lengths;
  if (Value sink = op.operand(11))
    fields.sink = frontend::castElements(b, sink, type);
  else if (op.integer("smooth_softmax", 0) == 1)
    fields.sink = frontend::splat(b, {query.extent(Dim::Head)}, type, 0);
  fields.captures = captures.getValues();
  attn::AttentionOp made = fields.create(b, b.getLoc());
  if (softcap > 0 || bias >= 0)
    fillRegion(b, made.getScore(), {type, index, index, index, index}, captures.getValues(),
               [&](OpBuilder &nested, Location loc, Block &block) {
                 auto inputs = block.getArguments();
                 Value score = softcapped(nested, loc, inputs[0], softcap);
                 return bias < 0 ? score
                                 : addScoreBias(nested, loc, score, inputs[5 + bias],
                                                SmallVector<Value, 4>(inputs.begin() + 1, inputs.begin() + 5));
               });
  if (isCausal)
    fillRegion(b, made.getMask(), {index, index, index, index}, captures.getValues(),
               [&](OpBuilder &nested, Location loc, Block &block) {
                 auto inputs = block.getArguments();
                 ValueRange inside = inputs.drop_front(4);
                 Value past = pastLength(nested, loc, inside[lengthsAt], captures.extent(nested, loc, queries, inside),
                                         inputs[0]);
                 Value own = frontend::add(nested, loc, past, inputs[2]);
                 Value visible = frontend::compare(nested, loc, Predicate::sle, inputs[3], own);
                 if (window <= 0)
                   return visible;
                 Value first = frontend::sub(nested, loc, own, arith::ConstantIndexOp::create(nested, loc, window));
                 return arith::AndIOp::create(nested, loc, visible,
                                              frontend::compare(nested, loc, Predicate::sgt, inputs[3], first))
                     .getResult();
               });
  return made;
}

LogicalResult GroupQueryAttention::translate(Values &results) {
  if (failed(checkAttributes()) || failed(readOperands()) || failed(readLengths()) || failed(readBias()) ||
      failed(rotate()))
    return failure();
  if (bool(op.operand(3)) != bool(op.operand(4)))
    return op.error() << "found only one of past_key and past_value, expected both or none";
  FailureOr<Value> keys = appended(op.operand(3), key, "key");
  FailureOr<Value> values = failed(keys) ? keys : appended(op.operand(4), value, "value");
  if (failed(values))
    return failure();
  present = *keys, presentOfValues = *values;
  results.append({joinHeads(b, build().getOutput()), present, presentOfValues, Value()});
  return success();
}

static LogicalResult translateGroupQueryAttention(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 16)))
    return failure();
  for (unsigned i : {5u, 6u})
    if (!op.operand(i))
      return op.error() << "input " << i << " is missing";
  return GroupQueryAttention(op).translate(results);
}

void onnx::addGroupQueryAttention(frontend::Frontend &frontend) {
  frontend.translators["microsoft.GroupQueryAttention"] = translateGroupQueryAttention;
}
