//===- Move.cpp - Moves, packing, and addresses between spaces ------------===//

#include "Block.h"
#include "TypeDispatch.h"

using namespace saccade::ptxsim;

namespace {

template <typename T> void copyRow(Warp &warp, const Op &op, uint32_t mask) {
  T values[32];
  std::memcpy(values, warp.row<T>(op.input(0)), sizeof(values));
  assign(warp.row<T>(op.result(0)), values, mask);
}

void copyPredicate(Warp &warp, const Op &op, uint32_t mask) {
  warp.setPredicate(op.result(0), warp.predicate(op.input(0)), mask);
}

/// numbers[0]: bytes per part.
void pack(Warp &warp, const Op &op, uint32_t mask) {
  uint64_t packed[32] = {}, part[32];
  unsigned bytes = op.numbers[0];
  for (unsigned index = 0; index < op.inputs; ++index) {
    warp.widen(op.input(index), bytes, mask, part);
    for (unsigned lane = 0; lane < 32; ++lane)
      packed[lane] |= part[lane] << (8 * bytes * index);
  }
  if (bytes * op.inputs == 8)
    return assign(warp.row<uint64_t>(op.result(0)), packed, mask);
  uint32_t narrow[32];
  for (unsigned lane = 0; lane < 32; ++lane)
    narrow[lane] = uint32_t(packed[lane]);
  assign(warp.row<uint32_t>(op.result(0)), narrow, mask);
}

void unpack(Warp &warp, const Op &op, uint32_t mask) {
  uint64_t packed[32];
  unsigned bytes = op.numbers[0];
  warp.widen(op.input(0), bytes * op.results, mask, packed);
  for (unsigned index = 0; index < op.results; ++index) {
    if (bytes == 4) {
      uint32_t *result = warp.row<uint32_t>(op.result(index));
      forLanes(mask, [&](unsigned lane) { result[lane] = uint32_t(packed[lane] >> (32 * index)); });
    } else {
      uint16_t *result = warp.row<uint16_t>(op.result(index));
      forLanes(mask, [&](unsigned lane) { result[lane] = uint16_t(packed[lane] >> (16 * index)); });
    }
  }
}

/// %clock and similar: time is not simulated, so counters return the number of executed instructions.
template <typename T> void readCounter(Warp &warp, const Op &op, uint32_t mask) {
  T *result = warp.row<T>(op.result(0));
  forLanes(mask, [&](unsigned lane) { result[lane] = T(warp.executed); });
}

bool decodeMove(Decoder &d) {
  Type type = d.type();
  if (!d.expectOperands(2))
    return false;
  const Operand &to = d.at(0), &from = d.at(1);
  bool packs = from.kind == Operand::Vector, unpacks = to.kind == Operand::Vector;
  if (packs || unpacks) {
    unsigned parts = (packs ? from : to).parts.size();
    unsigned bytes = parts ? bytesOf(type) / parts : 0;
    if ((bytes != 2 && bytes != 4) || bytes * parts != bytesOf(type) || (packs && unpacks))
      return d.fail("only parts of 16 or 32 bits are simulated");
    Type part = bytes == 2 ? Type::B16 : Type::B32;
    d.op.numbers[0] = bytes;
    if (packs) {
      d.result(to, type);
      for (const Operand &one : from.parts)
        d.input(one, part);
      return d.emit(pack);
    }
    for (const Operand &one : to.parts)
      d.result(one, part);
    d.input(from, type);
    return d.emit(unpack);
  }
  d.result(to, type);
  if (from.kind == Operand::Special && (from.name == "%clock64" || from.name == "%globaltimer") && bytesOf(type) == 8)
    return d.emit(readCounter<uint64_t>);
  if (from.kind == Operand::Special && (from.name == "%clock" || from.name == "%clock_hi"))
    return d.emit(readCounter<uint32_t>);
  d.input(from, type);
  switch (rowBytes(type)) {
  case 0:
    return d.emit(copyPredicate);
  case 2:
    return d.emit(copyRow<uint16_t>);
  case 4:
    return d.emit(copyRow<uint32_t>);
  case 8:
    return d.emit(copyRow<uint64_t>);
  default:
    return d.fail("the type is not simulated for this instruction");
  }
}

uint64_t windowOf(unsigned space) {
  constexpr uint64_t windows[] = {0, sharedWindow, localWindow, paramWindow, 0};
  return windows[space];
}

/// numbers[0]: state space; numbers[1]: the conversion is from generic to that space.
void convertAddress(Warp &warp, const Op &op, uint32_t mask) {
  uint64_t window = windowOf(op.numbers[0]);
  const uint64_t *a = warp.row<uint64_t>(op.input(0));
  uint64_t *result = warp.row<uint64_t>(op.result(0));
  bool toSpace = op.numbers[1];
  forLanes(mask, [&](unsigned lane) {
    if (toSpace && (a[lane] & windowMask) != window)
      return warp.fail(FindingKind::BadOperand, "the generic address is in another state space", lane);
    result[lane] = toSpace ? a[lane] & ~windowMask : a[lane] | window;
  });
}

/// cvta.shared.u64 and cvta.to.shared.u64.
bool decodeConvertAddress(Decoder &d) {
  d.op.numbers[1] = d.take("to");
  int space = d.takeOneOf({"global", "shared", "local", "param", "const", "shared::cta", "shared::cluster"});
  if (space < 0)
    return d.fail("this state space is not simulated");
  d.op.numbers[0] = space >= 5 ? 1 : space;
  Type type = d.type();
  if (type != Type::U64)
    return d.fail("expected .u64");
  return emitSame(d, type, 1, convertAddress);
}

/// mapa: the address in the block of that rank in the cluster, which has one block.
template <typename T> void mapAddress(Warp &warp, const Op &op, uint32_t mask) {
  const T *a = warp.row<T>(op.input(0));
  const uint32_t *ranks = warp.row<uint32_t>(op.input(1));
  T *result = warp.row<T>(op.result(0));
  forLanes(mask, [&](unsigned lane) {
    if (ranks[lane] != 0)
      return warp.fail(FindingKind::BadOperand, "found rank " + llvm::Twine(ranks[lane]) + " in a cluster of one block",
                       lane);
    result[lane] = a[lane];
  });
}

bool decodeMapAddress(Decoder &d) {
  d.take("shared::cluster");
  Type type = d.type();
  if ((type != Type::U32 && type != Type::U64) || !d.expectOperands(3))
    return d.fail("expected .u32 or .u64");
  d.result(d.at(0), type);
  d.input(d.at(1), type);
  d.input(d.at(2), Type::U32);
  d.op.needsDefined = true;
  return d.emit(type == Type::U32 ? mapAddress<uint32_t> : mapAddress<uint64_t>);
}

void isInSpace(Warp &warp, const Op &op, uint32_t mask) {
  const uint64_t *a = warp.row<uint64_t>(op.input(0));
  uint64_t window = windowOf(op.numbers[0]);
  warp.setPredicate(op.result(0), lanesWhere([&](unsigned lane) { return (a[lane] & windowMask) == window; }), mask);
}

bool decodeIsSpace(Decoder &d) {
  int space = d.takeOneOf({"global", "shared", "local", "param", "shared::cta", "shared::cluster"});
  if (space < 0 || !d.expectOperands(2))
    return d.fail("this state space is not simulated");
  d.op.numbers[0] = space >= 4 ? 1 : space;
  d.result(d.at(0), Type::Pred);
  d.input(d.at(1), Type::U64);
  return d.emit(isInSpace);
}

} // namespace

void saccade::ptxsim::addMoveInstructions(InstructionTable &table) {
  table.add("mov", TypeClass::Any, decodeMove);
  table.add("cvta", TypeClass::Any, decodeConvertAddress);
  table.add("mapa", TypeClass::Any, decodeMapAddress);
  table.add("isspacep", TypeClass::Any, decodeIsSpace);
}
