//===- Compare.cpp - Comparisons and selections ---------------------------===//

#include "Numbers.h"
#include "TypeDispatch.h"
#include <cmath>

using namespace saccade::ptxsim;

namespace {

enum Comparison { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };

template <typename T> uint32_t compareRows(unsigned comparison, const T *a, const T *b) {
  auto where = [&](auto test) { return lanesWhere([&](unsigned lane) { return test(a[lane], b[lane]); }); };
  switch (comparison) {
  case eq:
    return where([](T x, T y) { return x == y; });
  case ne:
    // Ordered: false if either operand is NaN.
    return where([](T x, T y) { return x < y || x > y; });
  case lt:
    return where([](T x, T y) { return x < y; });
  case le:
    return where([](T x, T y) { return x <= y; });
  case gt:
    return where([](T x, T y) { return x > y; });
  case ge:
    return where([](T x, T y) { return x >= y; });
  case equ:
    return where([](T x, T y) { return !(x < y || x > y); });
  case neu:
    return where([](T x, T y) { return !(x == y); });
  case ltu:
    return where([](T x, T y) { return !(x >= y); });
  case leu:
    return where([](T x, T y) { return !(x > y); });
  case gtu:
    return where([](T x, T y) { return !(x <= y); });
  case geu:
    return where([](T x, T y) { return !(x < y); });
  case num:
    return where([](T x, T y) { return !std::isnan(x) && !std::isnan(y); });
  default:
    return where([](T x, T y) { return std::isnan(x) || std::isnan(y); });
  }
}

template <bool isBF16> uint32_t compareHalves(unsigned comparison, const uint16_t *a, const uint16_t *b) {
  float x[32], y[32];
  for (unsigned lane = 0; lane < 32; ++lane) {
    x[lane] = isBF16 ? fromBF16(a[lane]) : fromHalf(a[lane]);
    y[lane] = isBF16 ? fromBF16(b[lane]) : fromHalf(b[lane]);
  }
  return compareRows(comparison, x, y);
}

/// Compares the lower halves of pairs, or the upper ones with `upper`.
template <bool isBF16> uint32_t comparePairs(unsigned comparison, const uint32_t *a, const uint32_t *b, bool upper) {
  uint16_t x[32], y[32];
  for (unsigned lane = 0; lane < 32; ++lane)
    x[lane] = uint16_t(a[lane] >> (16 * upper)), y[lane] = uint16_t(b[lane] >> (16 * upper));
  return compareHalves<isBF16>(comparison, x, y);
}

uint32_t compare(Warp &warp, const Op &op, Type type, unsigned comparison, bool ftz) {
  Slot a = op.input(0), b = op.input(1);
  auto rows = [&]<typename T>() { return compareRows(comparison, warp.row<T>(a), warp.row<T>(b)); };
  switch (type) {
  case Type::U16:
  case Type::B16:
    return rows.template operator()<uint16_t>();
  case Type::S16:
    return rows.template operator()<int16_t>();
  case Type::U32:
  case Type::B32:
    return rows.template operator()<uint32_t>();
  case Type::S32:
    return rows.template operator()<int32_t>();
  case Type::U64:
  case Type::B64:
    return rows.template operator()<uint64_t>();
  case Type::S64:
    return rows.template operator()<int64_t>();
  case Type::F64:
    return rows.template operator()<double>();
  case Type::F16:
    return compareHalves<false>(comparison, warp.row<uint16_t>(a), warp.row<uint16_t>(b));
  case Type::BF16:
    return compareHalves<true>(comparison, warp.row<uint16_t>(a), warp.row<uint16_t>(b));
  default: {
    const float *x = warp.row<float>(a), *y = warp.row<float>(b);
    if (!ftz)
      return compareRows(comparison, x, y);
    float flushedX[32], flushedY[32];
    for (unsigned lane = 0; lane < 32; ++lane)
      flushedX[lane] = flush(x[lane]), flushedY[lane] = flush(y[lane]);
    return compareRows(comparison, flushedX, flushedY);
  }
  }
}

uint32_t combine(unsigned combination, uint32_t a, uint32_t b) {
  return combination == 0 ? a & b : combination == 1 ? a | b : combination == 2 ? a ^ b : a;
}

/// Numbers: type, comparison, ftz, combination (3: none).
void setPredicate(Warp &warp, const Op &op, uint32_t mask) {
  uint32_t bits = compare(warp, op, Type(op.numbers[0]), op.numbers[1], op.numbers[2]);
  uint32_t other = op.numbers[3] < 3 ? warp.predicate(op.input(2)) : 0;
  uint32_t first = combine(op.numbers[3], bits, other), second = combine(op.numbers[3], ~bits, other);
  warp.setPredicate(op.result(0), first, mask);
  if (op.results > 1)
    warp.setPredicate(op.result(1), second, mask);
}

/// setp.lt.f16x2 p|q: p from the lower halves, q from the upper ones.
void setPredicates(Warp &warp, const Op &op, uint32_t mask) {
  const uint32_t *a = warp.row<uint32_t>(op.input(0)), *b = warp.row<uint32_t>(op.input(1));
  uint32_t other = op.numbers[3] < 3 ? warp.predicate(op.input(2)) : 0, bits[2];
  for (bool upper : {false, true})
    bits[upper] = combine(op.numbers[3],
                          Type(op.numbers[0]) == Type::BF16x2 ? comparePairs<true>(op.numbers[1], a, b, upper)
                                                              : comparePairs<false>(op.numbers[1], a, b, upper),
                          other);
  for (unsigned half = 0; half < 2; ++half)
    warp.setPredicate(op.result(half), bits[half], mask);
}

/// Numbers: as `setPredicate`, then whether the result is f32.
void setNumber(Warp &warp, const Op &op, uint32_t mask) {
  uint32_t bits = compare(warp, op, Type(op.numbers[0]), op.numbers[1], op.numbers[2]);
  bits = combine(op.numbers[3], bits, op.numbers[3] < 3 ? warp.predicate(op.input(2)) : 0);
  uint32_t *result = warp.row<uint32_t>(op.result(0)), truth = op.numbers[4] ? bitsOf(1.0f) : ~uint32_t(0);
  forLanes(mask, [&](unsigned lane) { result[lane] = bits >> lane & 1 ? truth : 0; });
}

/// Consumes the modifiers of a comparison. lo, ls, hi and hs are aliases for unsigned integers.
bool takeComparison(Decoder &d) {
  int comparison =
      d.takeOneOf({"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"});
  if (comparison < 0) {
    constexpr Comparison same[] = {lt, le, gt, ge};
    int other = d.takeOneOf({"lo", "ls", "hi", "hs"});
    if (other < 0)
      return d.fail("expected a comparison operator");
    comparison = same[other];
  }
  int combination = d.takeOneOf({"and", "or", "xor"});
  d.op.numbers[1] = comparison;
  d.op.numbers[3] = combination < 0 ? 3 : combination;
  d.op.numbers[2] = d.take("ftz");
  return true;
}

bool finishComparison(Decoder &d, Type type, Handler handler) {
  if ((isPair(type) && (handler != setPredicates || d.op.numbers[2])) || bytesOf(type) < 2 ||
      (isBits(type) && d.op.numbers[1] > ne))
    return d.fail("this comparison is not simulated for this type");
  d.op.numbers[0] = uint32_t(type);
  bool combines = d.op.numbers[3] < 3;
  if (!d.expectOperands(combines ? 4 : 3))
    return false;
  d.input(d.at(1), type);
  d.input(d.at(2), type);
  if (combines)
    d.input(d.at(3), Type::Pred);
  return d.emit(handler);
}

bool decodeSetp(Decoder &d) {
  if (!takeComparison(d) || !d.expectOperands(3, 4))
    return false;
  Type type = d.type();
  bool pair = d.at(0).kind == Operand::Pair;
  d.result(pair ? d.at(0).parts[0] : d.at(0), Type::Pred);
  if (pair)
    d.result(d.at(0).parts[1], Type::Pred);
  if (isPair(type) && !pair)
    return d.fail("found one result, expected two for a packed type");
  return finishComparison(d, type, isPair(type) ? setPredicates : setPredicate);
}

bool decodeSet(Decoder &d) {
  if (!takeComparison(d) || !d.expectOperands(3, 4))
    return false;
  Type to = d.type(), type = d.type();
  if (to != Type::U32 && to != Type::S32 && to != Type::F32)
    return d.fail("expected a 32-bit result type");
  d.op.numbers[4] = to == Type::F32;
  d.result(d.at(0), to);
  return finishComparison(d, type, setNumber);
}

/// selp d, a, b, p. Only the selected operand must be defined.
template <typename T> void select(Warp &warp, const Op &op, uint32_t mask) {
  const T *a = warp.row<T>(op.input(0)), *b = warp.row<T>(op.input(1));
  uint32_t choice = warp.predicate(op.input(2));
  T values[32];
  for (unsigned lane = 0; lane < 32; ++lane)
    values[lane] = choice >> lane & 1 ? a[lane] : b[lane];
  uint32_t undefined =
      (warp.undefined(op.input(0)) & choice) | (warp.undefined(op.input(1)) & ~choice) | warp.undefined(op.input(2));
  assign(warp.row<T>(op.result(0)), values, mask);
  warp.setUndefined(op.result(0), undefined, mask);
}

bool decodeSelp(Decoder &d) {
  Type type = d.type();
  if (!d.expectOperands(4))
    return false;
  d.result(d.at(0), type);
  d.input(d.at(1), type);
  d.input(d.at(2), type);
  d.input(d.at(3), Type::Pred);
  d.op.tracksUndefined = true;
  switch (bytesOf(type)) {
  case 2:
    return d.emit(select<uint16_t>);
  case 4:
    return d.emit(select<uint32_t>);
  case 8:
    return d.emit(select<uint64_t>);
  default:
    return d.fail("the type is not simulated for this instruction");
  }
}

/// slct d, a, b, c: a if c >= 0, else b; -0 selects a, NaN selects b.
template <typename T, typename C> void selectBySign(Warp &warp, const Op &op, uint32_t mask) {
  const T *a = warp.row<T>(op.input(0)), *b = warp.row<T>(op.input(1));
  const C *c = warp.row<C>(op.input(2));
  T *result = warp.row<T>(op.result(0));
  forLanes(mask, [&](unsigned lane) {
    C sign = op.numbers[0] ? C(flush(float(c[lane]))) : c[lane];
    result[lane] = sign >= 0 ? a[lane] : b[lane];
  });
}

bool decodeSlct(Decoder &d) {
  bool ftz = d.take("ftz");
  Type type = d.type(), by = d.type();
  if (!d.expectOperands(4) || (by != Type::S32 && by != Type::F32) || bytesOf(type) < 4)
    return d.fail("expected a 32- or 64-bit type, then .s32 or .f32");
  d.result(d.at(0), type);
  d.input(d.at(1), type);
  d.input(d.at(2), type);
  d.input(d.at(3), by);
  d.op.numbers[0] = ftz;
  if (by == Type::S32)
    return d.emit(bytesOf(type) == 8 ? selectBySign<uint64_t, int32_t> : selectBySign<uint32_t, int32_t>);
  return d.emit(bytesOf(type) == 8 ? selectBySign<uint64_t, float> : selectBySign<uint32_t, float>);
}

} // namespace

void saccade::ptxsim::addCompareInstructions(InstructionTable &table) {
  table.add("setp", TypeClass::Any, decodeSetp);
  table.add("set", TypeClass::Any, decodeSet);
  table.add("selp", TypeClass::Any, decodeSelp);
  table.add("slct", TypeClass::Any, decodeSlct);
}
