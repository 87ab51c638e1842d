//===- Copy.cpp - cp.async and its groups ---------------------------------===//
//
// A copy is pending from its issue until its thread waits for it. Any access of the destination in between is a race;
// afterwards the destination counts as written by that thread at the wait.
//
//===----------------------------------------------------------------------===//

#include "Block.h"
#include "MemoryDecode.h"
#include <algorithm>
#include <cstring>

using namespace saccade::ptxsim;

namespace {

void move(const Warp::Copy &copy, unsigned lane) {
  const Place &to = copy.destination[lane], &from = copy.source[lane];
  uint32_t bytes = copy.sourceSize[lane];
  if (bytes) {
    std::memcpy(to.bytes, from.bytes, bytes);
    std::memcpy(to.states, from.states, bytes);
  }
  std::memset(to.bytes + bytes, 0, copy.size - bytes);
  std::fill_n(to.states + bytes, copy.size - bytes, ByteState::Defined);
}

/// Inputs: destination, source, and an optional third one: the source size (numbers[4] = 1) or the ignore-src predicate
/// (numbers[4] = 2). Numbers: size, destination offset, width of destination addresses, width of source addresses.
void copy(Warp &warp, const Op &op, uint32_t mask) {
  if (!warp.requireDefined(op.input(0), mask, "the destination address"))
    return;
  uint32_t size = op.numbers[0];
  Warp::Copy copy;
  copy.op = &op, copy.lanes = mask, copy.size = size;
  copy.sourceSize.fill(size);
  copy.group = warp.committedGroups;
  if (op.numbers[4] && !warp.requireDefined(op.input(2), mask, "the source size"))
    return;
  if (op.numbers[4] == 1)
    std::memcpy(copy.sourceSize.data(), warp.row<uint32_t>(op.input(2)), 128);
  if (op.numbers[4] == 2)
    forLanes(mask & warp.predicate(op.input(2)), [&](unsigned lane) { copy.sourceSize[lane] = 0; });

  uint64_t addresses[32];
  Op view = op;
  view.numbers[5] = op.numbers[3];
  uint32_t whole = 0;
  // A source of size 0 is not accessed, so its address is arbitrary.
  forLanes(mask, [&](unsigned lane) { whole |= uint32_t(copy.sourceSize[lane] != 0) << lane; });
  if (!warp.requireDefined(op.input(1), whole, "the source address"))
    return;
  laneAddresses(warp, view, op.input(1), mask, addresses);
  forLanes(mask, [&](unsigned lane) {
    uint32_t bytes = copy.sourceSize[lane];
    if (bytes > size)
      return warp.fail(FindingKind::BadOperand,
                       "found a source size of " + llvm::Twine(bytes) + ", expected at most " + llvm::Twine(size),
                       lane);
    if (bytes && bytes < size) {
      whole &= ~(uint32_t(1) << lane);
      warp.resolve({Space::Global, bytes, size, Access::Read}, addresses, uint32_t(1) << lane, copy.source.data());
    }
  });
  if (warp.block.finding ||
      !warp.resolve({Space::Global, size, size, Access::Read}, addresses, whole, copy.source.data()))
    return;
  view.numbers[5] = op.numbers[2];
  view.offset = int32_t(op.numbers[1]);
  laneAddresses(warp, view, op.input(0), mask, addresses);
  Request request{Space::Shared, size, size, Access::Write};
  request.asynchronous = true;
  if (!warp.resolve(request, addresses, mask, copy.destination.data()))
    return;
  forLanes(mask, [&](unsigned lane) {
    if (warp.block.launch.async == AsyncMode::Early)
      return move(copy, lane);
    // NaN in every format, and undefined.
    std::memset(copy.destination[lane].bytes, 0xff, size);
    std::fill_n(copy.destination[lane].states, size, ByteState::Undefined);
  });
  warp.copies.push_back(copy);
}

} // namespace

void Warp::completeCopies(uint32_t mask, uint32_t pending) {
  Warp &warp = *this;
  for (Warp::Copy &copy : warp.copies) {
    forLanes(copy.lanes & mask, [&](unsigned lane) {
      if (pending != ~uint32_t(0) && copy.group[lane] + pending >= warp.committedGroups[lane])
        return;
      if (warp.block.launch.async == AsyncMode::Late)
        move(copy, lane);
      if (warp.block.launch.checkRaces)
        warp.block.shadow.completeCopy(warp.clockView(), copy.destination[lane].bytes - warp.block.shared.data(),
                                       copy.size);
      copy.lanes &= ~(uint32_t(1) << lane);
    });
  }
  std::erase_if(warp.copies, [](const Warp::Copy &copy) { return !copy.lanes; });
}

namespace {

void commit(Warp &warp, const Op &op, uint32_t mask) {
  forLanes(mask, [&](unsigned lane) { ++warp.committedGroups[lane]; });
}
void waitGroup(Warp &warp, const Op &op, uint32_t mask) { warp.completeCopies(mask, op.numbers[0]); }
void waitAll(Warp &warp, const Op &op, uint32_t mask) { warp.completeCopies(mask, ~uint32_t(0)); }

bool decodeCopy(Decoder &d) {
  bool reduces = d.take("reduce");
  if (!d.take("async"))
    return d.fail("only cp.async is simulated");
  if (d.take("bulk"))
    return decodeBulkCopy(d, reduces);
  if (d.take("mbarrier"))
    return decodeCopyArrival(d);
  if (d.take("commit_group"))
    return d.expectOperands(0) && d.emit(commit);
  if (d.take("wait_all"))
    return d.expectOperands(0) && d.emit(waitAll);
  if (d.take("wait_group")) {
    if (!d.expectOperands(1))
      return false;
    d.op.numbers[0] = d.immediate(d.at(0));
    return d.emit(waitGroup);
  }
  int cache = d.takeOneOf({"ca", "cg"});
  if (cache < 0 || d.takeOneOf({"shared", "shared::cta"}) < 0 || !d.take("global"))
    return d.fail("this asynchronous copy is not simulated");
  d.takeOneOf({"L2::cache_hint"});
  d.takeOneOf({"L2::64B", "L2::128B", "L2::256B"});
  if (!d.expectOperands(3, 4))
    return false;
  int64_t size = d.immediate(d.at(2));
  if (size != 16 && (cache == 1 || (size != 4 && size != 8)))
    return d.fail("expected a copy of 16 bytes, or with .ca of 4 or 8");
  if (d.address(d.at(0), Space::Shared) != Space::Shared)
    return d.fail("the destination is not in shared memory");
  uint32_t width = d.op.numbers[5], offset = uint32_t(d.op.offset);
  d.address(d.at(1), Space::Global);
  d.op.numbers[3] = d.op.numbers[5];
  d.op.numbers[0] = uint32_t(size), d.op.numbers[1] = offset, d.op.numbers[2] = width;
  if (d.count() == 4) {
    bool isPredicate = d.at(3).kind == Operand::Register && d.widthOf(d.at(3)) == 0;
    d.input(d.at(3), isPredicate ? Type::Pred : Type::U32);
    d.op.numbers[4] = isPredicate ? 2 : 1;
  }
  d.op.tracksUndefined = true;
  return d.emit(copy);
}

} // namespace

void saccade::ptxsim::addCopyInstructions(InstructionTable &table) { table.add("cp", TypeClass::Any, decodeCopy); }
