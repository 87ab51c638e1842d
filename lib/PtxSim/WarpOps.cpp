//===- WarpOps.cpp - Shuffles, votes, matches and warp reductions ---------===//

#include "TypeDispatch.h"
#include <algorithm>

using namespace saccade::ptxsim;

namespace {

/// Checks that all live lanes of each member mask are active, and that each lane is in its own mask.
bool membersPresent(Warp &warp, Slot members, uint32_t mask) {
  if (!warp.requireDefined(members, mask, "the member mask"))
    return false;
  const uint32_t *row = warp.row<uint32_t>(members);
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    unsigned lane = __builtin_ctz(rest);
    if (!(row[lane] >> lane & 1)) {
      warp.fail(FindingKind::BadOperand, "the member mask does not include the lane itself", lane);
      return false;
    }
    if (uint32_t missing = row[lane] & warp.live() & ~mask) {
      warp.fail(FindingKind::Divergence,
                "the member mask names lane " + llvm::Twine(__builtin_ctz(missing)) +
                    ", which has not reached the instruction",
                lane);
      return false;
    }
  }
  return true;
}

enum Shuffle { up, down, butterfly, indexed };

/// Inputs: a, b, c, members; results: d and optionally p. numbers[0]: the kind.
void shuffle(Warp &warp, const Op &op, uint32_t mask) {
  if (!membersPresent(warp, op.input(3), mask) || !warp.requireDefined(op.input(1), mask, "the source lane") ||
      !warp.requireDefined(op.input(2), mask, "the clamp and segment mask"))
    return;
  const uint32_t *a = warp.row<uint32_t>(op.input(0)), *b = warp.row<uint32_t>(op.input(1)),
                 *c = warp.row<uint32_t>(op.input(2)), *members = warp.row<uint32_t>(op.input(3));
  uint32_t values[32] = {}, inside = 0, undefined = 0, undefinedInput = warp.undefined(op.input(0));
  forLanes(mask, [&](unsigned lane) {
    uint32_t amount = b[lane] & 31, clamp = c[lane] & 31, segment = c[lane] >> 8 & 31;
    uint32_t minLane = lane & segment, maxLane = minLane | (clamp & ~segment);
    int from;
    bool good;
    switch (op.numbers[0]) {
    case up:
      from = int(lane) - int(amount), good = from >= int(maxLane);
      break;
    case down:
      from = lane + amount, good = from <= int(maxLane);
      break;
    case butterfly:
      from = lane ^ amount, good = from <= int(maxLane);
      break;
    default:
      from = minLane | (amount & ~segment), good = from <= int(maxLane);
    }
    if (!good)
      from = lane;
    inside |= uint32_t(good) << lane;
    values[lane] = a[from];
    bool readable = (mask & members[lane]) >> from & 1;
    undefined |= uint32_t(!readable || (undefinedInput >> from & 1)) << lane;
  });
  assign(warp.row<uint32_t>(op.result(0)), values, mask);
  warp.setUndefined(op.result(0), undefined, mask);
  if (op.results > 1) {
    warp.setPredicate(op.result(1), inside, mask);
    warp.setUndefined(op.result(1), 0, mask);
  }
}

bool decodeShuffle(Decoder &d) {
  if (!d.take("sync"))
    return d.fail("expected .sync");
  int kind = d.takeOneOf({"up", "down", "bfly", "idx"});
  if (kind < 0 || d.type() != Type::B32 || !d.expectOperands(5))
    return d.fail("expected .up, .down, .bfly or .idx, then .b32, and five operands");
  bool pair = d.at(0).kind == Operand::Pair;
  d.result(pair ? d.at(0).parts[0] : d.at(0), Type::B32);
  if (pair)
    d.result(d.at(0).parts[1], Type::Pred);
  for (unsigned index = 1; index < 5; ++index)
    d.input(d.at(index), Type::B32);
  d.op.numbers[0] = kind;
  d.op.tracksUndefined = true;
  return d.emit(shuffle);
}

enum Vote { all, any, uni, ballot };

void vote(Warp &warp, const Op &op, uint32_t mask) {
  if (!membersPresent(warp, op.input(1), mask) || !warp.requireDefined(op.input(0), mask, "the predicate"))
    return;
  uint32_t p = warp.predicate(op.input(0)) & mask;
  const uint32_t *members = warp.row<uint32_t>(op.input(1));
  uint32_t bits = 0;
  forLanes(mask, [&](unsigned lane) {
    uint32_t present = members[lane] & mask, yes = p & present;
    if (op.numbers[0] == ballot)
      warp.row<uint32_t>(op.result(0))[lane] = yes;
    bool result = op.numbers[0] == all ? yes == present : op.numbers[0] == any ? yes != 0 : yes == 0 || yes == present;
    bits |= uint32_t(result) << lane;
  });
  if (op.numbers[0] != ballot)
    warp.setPredicate(op.result(0), bits, mask);
  warp.setUndefined(op.result(0), 0, mask);
}

bool decodeVote(Decoder &d) {
  if (!d.take("sync"))
    return d.fail("expected .sync");
  int kind = d.takeOneOf({"all", "any", "uni", "ballot"});
  Type type = d.type();
  if (kind < 0 || type != (kind == ballot ? Type::B32 : Type::Pred) || !d.expectOperands(3))
    return d.fail("expected .all.pred, .any.pred, .uni.pred or .ballot.b32, and three operands");
  d.result(d.at(0), type);
  d.input(d.at(1), Type::Pred);
  d.input(d.at(2), Type::B32);
  d.op.numbers[0] = kind;
  d.op.tracksUndefined = true;
  return d.emit(vote);
}

enum Reduction { add, min, max, bitAnd, bitOr, bitXor };

/// Numbers: operation, signed.
void reduce(Warp &warp, const Op &op, uint32_t mask) {
  if (!membersPresent(warp, op.input(1), mask))
    return;
  const uint32_t *a = warp.row<uint32_t>(op.input(0)), *members = warp.row<uint32_t>(op.input(1));
  uint32_t undefinedInput = warp.undefined(op.input(0)), undefined = 0, values[32] = {};
  forLanes(mask, [&](unsigned lane) {
    uint32_t present = members[lane] & mask, sum = a[__builtin_ctz(present)];
    undefined |= uint32_t((undefinedInput & present) != 0) << lane;
    forLanes(present & (present - 1), [&](unsigned other) {
      uint32_t value = a[other];
      bool less = op.numbers[1] ? int32_t(value) < int32_t(sum) : value < sum;
      switch (op.numbers[0]) {
      case add:
        sum += value;
        break;
      case min:
        sum = less ? value : sum;
        break;
      case max:
        sum = less ? sum : value;
        break;
      case bitAnd:
        sum &= value;
        break;
      case bitOr:
        sum |= value;
        break;
      default:
        sum ^= value;
      }
    });
    values[lane] = sum;
  });
  assign(warp.row<uint32_t>(op.result(0)), values, mask);
  warp.setUndefined(op.result(0), undefined, mask);
}

bool decodeReduce(Decoder &d) {
  if (!d.take("sync"))
    return d.fail("expected .sync");
  int operation = d.takeOneOf({"add", "min", "max", "and", "or", "xor"});
  Type type = d.type();
  bool logic = operation >= bitAnd;
  if (operation < 0 || !d.expectOperands(3) || (logic ? type != Type::B32 : type != Type::U32 && type != Type::S32))
    return d.fail("expected an operation on a 32-bit type and three operands");
  d.result(d.at(0), type);
  d.input(d.at(1), type);
  d.input(d.at(2), Type::B32);
  d.op.numbers[0] = operation, d.op.numbers[1] = isSigned(type);
  d.op.tracksUndefined = true;
  return d.emit(reduce);
}

/// match.any: mask of the members with the same value; match.all: mask of all members if their values agree, else 0.
/// numbers[0]: match.all.
template <typename T> void match(Warp &warp, const Op &op, uint32_t mask) {
  if (!membersPresent(warp, op.input(1), mask) || !warp.requireDefined(op.input(0), mask, "the value"))
    return;
  const T *a = warp.row<T>(op.input(0));
  const uint32_t *members = warp.row<uint32_t>(op.input(1));
  uint32_t *result = warp.row<uint32_t>(op.result(0)), agree = 0;
  forLanes(mask, [&](unsigned lane) {
    uint32_t present = members[lane] & mask, same = 0;
    forLanes(present, [&](unsigned other) { same |= uint32_t(a[other] == a[lane]) << other; });
    agree |= uint32_t(same == present) << lane;
    result[lane] = op.numbers[0] && same != present ? 0 : same;
  });
  warp.setUndefined(op.result(0), 0, mask);
  if (op.results > 1) {
    warp.setPredicate(op.result(1), agree, mask);
    warp.setUndefined(op.result(1), 0, mask);
  }
}

bool decodeMatch(Decoder &d) {
  int kind = d.takeOneOf({"any", "all"});
  if (kind < 0 || !d.take("sync"))
    return d.fail("expected .any.sync or .all.sync");
  Type type = d.type();
  if ((type != Type::B32 && type != Type::B64) || !d.expectOperands(3))
    return d.fail("expected b32 or b64");
  bool pair = d.at(0).kind == Operand::Pair;
  if (pair && kind == 0)
    return d.fail("only .all has a predicate result");
  d.result(pair ? d.at(0).parts[0] : d.at(0), Type::B32);
  if (pair)
    d.result(d.at(0).parts[1], Type::Pred);
  d.input(d.at(1), type);
  d.input(d.at(2), Type::B32);
  d.op.numbers[0] = kind;
  d.op.tracksUndefined = true;
  return d.emit(type == Type::B64 ? match<uint64_t> : match<uint32_t>);
}

void activeMask(Warp &warp, const Op &op, uint32_t mask) {
  uint32_t *result = warp.row<uint32_t>(op.result(0));
  forLanes(mask, [&](unsigned lane) { result[lane] = mask; });
}

bool decodeActiveMask(Decoder &d) {
  if (d.type() != Type::B32 || !d.expectOperands(1))
    return d.fail("expected b32");
  d.result(d.at(0), Type::B32);
  return d.emit(activeMask);
}

/// elect.sync d|p, members. PTX does not specify the elected lane; the highest one exposes code that assumes the
/// lowest.
void elect(Warp &warp, const Op &op, uint32_t mask) {
  if (!membersPresent(warp, op.input(0), mask))
    return;
  const uint32_t *members = warp.row<uint32_t>(op.input(0));
  uint32_t leaders = 0, *result = warp.row<uint32_t>(op.result(0));
  forLanes(mask, [&](unsigned lane) {
    result[lane] = 31 - __builtin_clz(members[lane] & mask);
    leaders |= uint32_t(1) << result[lane];
  });
  warp.setPredicate(op.result(1), leaders, mask);
  warp.setUndefined(op.result(0), 0, mask);
  warp.setUndefined(op.result(1), 0, mask);
}

bool decodeElect(Decoder &d) {
  if (!d.take("sync") || !d.expectOperands(2) || d.at(0).kind != Operand::Pair)
    return d.fail("expected .sync with operands d|p, membermask");
  d.result(d.at(0).parts[0], Type::B32);
  d.result(d.at(0).parts[1], Type::Pred);
  d.input(d.at(1), Type::B32);
  d.op.tracksUndefined = true;
  return d.emit(elect);
}

} // namespace

void saccade::ptxsim::addWarpInstructions(InstructionTable &table) {
  table.add("shfl", TypeClass::Any, decodeShuffle);
  table.add("vote", TypeClass::Any, decodeVote);
  table.add("redux", TypeClass::Any, decodeReduce);
  table.add("match", TypeClass::Any, decodeMatch);
  table.add("activemask", TypeClass::Any, decodeActiveMask);
  table.add("elect", TypeClass::Any, decodeElect);
}
