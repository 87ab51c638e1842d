//===- Atomic.cpp - atom and red ------------------------------------------===//

#include "Atomic.h"
#include "Block.h"
#include "MemoryDecode.h"
#include "Numbers.h"
#include "TypeDispatch.h"
#include <algorithm>
#include <mutex>

using namespace saccade::ptxsim;

uint64_t saccade::ptxsim::combine(AtomicOperation operation, Type type, uint64_t old, uint64_t a, uint64_t b,
                                  bool inGlobal) {
  auto extend = [&](uint64_t bits) { return bytesOf(type) == 4 ? uint64_t(int64_t(int32_t(bits))) : bits; };
  switch (operation) {
  case AtomicOperation::Add:
    if (type == Type::F32) {
      float x = floatOf(uint32_t(old)), y = floatOf(uint32_t(a));
      // Global atomics flush subnormal values; shared ones do not.
      return bitsOf(inGlobal ? canonical(flush(flush(x) + flush(y))) : canonical(x + y));
    }
    if (type == Type::F64)
      return bitsOf(doubleOf(old) + doubleOf(a));
    if (isHalf(type)) {
      uint64_t result = 0;
      Format format = formatOf(type);
      for (unsigned half = 0; half < bytesOf(type) / 2; ++half) {
        double sum = addToOdd(widen(old >> (16 * half) & 0xffff, format), widen(a >> (16 * half) & 0xffff, format));
        result |= uint64_t(roundTo(sum, format)) << (16 * half);
      }
      return result;
    }
    return old + a;
  case AtomicOperation::Min:
  case AtomicOperation::Max: {
    bool less = isSigned(type) ? int64_t(extend(old)) < int64_t(extend(a)) : old < a;
    return less == (operation == AtomicOperation::Min) ? old : a;
  }
  case AtomicOperation::And:
    return old & a;
  case AtomicOperation::Or:
    return old | a;
  case AtomicOperation::Xor:
    return old ^ a;
  case AtomicOperation::Exchange:
    return a;
  case AtomicOperation::CompareAndSwap:
    return old == a ? b : old;
  case AtomicOperation::Inc:
    return old >= a ? 0 : old + 1;
  case AtomicOperation::Dec:
    return old == 0 || old > a ? a : old - 1;
  }
  return old;
}

std::optional<AtomicOperation> saccade::ptxsim::takeOperation(Decoder &d) {
  int operation = d.takeOneOf({"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"});
  return operation < 0 ? std::nullopt : std::optional(AtomicOperation(operation));
}

bool saccade::ptxsim::isAtomicOn(AtomicOperation operation, Type type, bool noFlush) {
  bool isFloat = isHalf(type) || type == Type::F32 || type == Type::F64;
  if (bytesOf(type) < 2)
    return false;
  switch (operation) {
  case AtomicOperation::Add:
    return isFloat ? isHalf(type) == noFlush : isInteger(type) && type != Type::U16 && type != Type::S16;
  case AtomicOperation::Min:
  case AtomicOperation::Max:
    return isInteger(type) && bytesOf(type) >= 4;
  case AtomicOperation::Inc:
  case AtomicOperation::Dec:
    return type == Type::U32;
  case AtomicOperation::CompareAndSwap:
  case AtomicOperation::Exchange:
    return isBits(type) && bytesOf(type) <= 8 && (operation == AtomicOperation::CompareAndSwap || bytesOf(type) >= 4);
  default:
    return type == Type::B32 || type == Type::B64;
  }
}

namespace {

/// Lanes execute in ascending order. Numbers: space, operation | type << 8, whether the access is relaxed.
template <typename T> void atomic(Warp &warp, const Op &op, uint32_t mask) {
  for (unsigned index = 0; index < op.inputs; ++index)
    if (!warp.requireDefined(op.input(index), mask, index ? "an operand" : "the address"))
      return;
  uint64_t addresses[32];
  Place places[32];
  laneAddresses(warp, op, op.input(0), mask, addresses);
  Request request{Space(op.numbers[0]), sizeof(T), sizeof(T), Access::AtomicWrite};
  request.isRelaxed = op.numbers[2];
  if (!warp.resolve(request, addresses, mask, places))
    return;
  Type type = Type(op.numbers[1] >> 8);
  auto operation = AtomicOperation(op.numbers[1] & 0xff);
  const T *a = warp.row<T>(op.input(1)), *b = op.inputs > 2 ? warp.row<T>(op.input(2)) : a;
  T old[32] = {};
  uint32_t undefined = 0;
  std::lock_guard lock(warp.block.code.device->atomics);
  forLanes(mask, [&](unsigned lane) {
    const Place &place = places[lane];
    if (std::find(place.states, place.states + sizeof(T), ByteState::Undefined) != place.states + sizeof(T))
      undefined |= uint32_t(operation != AtomicOperation::Exchange) << lane;
    std::memcpy(&old[lane], place.bytes, sizeof(T));
    bool inGlobal =
        request.space == Space::Global || (request.space == Space::Generic && !(addresses[lane] & windowMask));
    T value = T(combine(operation, type, old[lane], a[lane], b[lane], inGlobal));
    std::memcpy(place.bytes, &value, sizeof(T));
    std::fill_n(place.states, sizeof(T), ByteState::WrittenByLaunch);
  });
  if (undefined)
    return warp.fail(FindingKind::Uninitialised, "atomic operation on uninitialised memory", __builtin_ctz(undefined));
  if (op.results) {
    assign(warp.row<T>(op.result(0)), old, mask);
    warp.setUndefined(op.result(0), 0, mask);
  }
}

bool takeAll(Decoder &d, bool returns) {
  bool isRelaxed = d.takeOneOf({"relaxed", "acquire", "release", "acq_rel"}) < 2;
  d.takeOneOf({"cta", "cluster", "gpu", "sys"});
  Space space = takeSpace(d).value_or(Space::Generic);
  std::optional<AtomicOperation> operation = takeOperation(d);
  bool noFlush = d.take("noftz");
  Type type = d.type();
  if (!operation)
    return d.fail("expected an operation");
  if (!isAtomicOn(*operation, type, noFlush))
    return d.fail("this operation on this type is not simulated");
  unsigned first = returns ? 1 : 0, inputs = *operation == AtomicOperation::CompareAndSwap ? 2 : 1;
  if (!d.expectOperands(first + 1 + inputs))
    return false;
  if (returns)
    d.result(d.at(0), type);
  d.op.numbers[0] = uint32_t(d.address(d.at(first), space));
  for (unsigned index = 0; index < inputs; ++index)
    d.input(d.at(first + 1 + index), type);
  d.op.numbers[1] = uint32_t(*operation) | uint32_t(type) << 8;
  d.op.numbers[2] = isRelaxed;
  d.op.tracksUndefined = true;
  return d.emit(bytesOf(type) == 8 ? atomic<uint64_t> : bytesOf(type) == 4 ? atomic<uint32_t> : atomic<uint16_t>);
}

bool decodeAtom(Decoder &d) { return takeAll(d, true); }
bool decodeRed(Decoder &d) { return takeAll(d, false); }

} // namespace

void saccade::ptxsim::addAtomicInstructions(InstructionTable &table) {
  table.add("atom", TypeClass::Any, decodeAtom);
  table.add("red", TypeClass::Any, decodeRed);
}
