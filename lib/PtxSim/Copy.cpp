//===- Copy.cpp - cp.async and its groups ---------------------------------===//
//
// A copy is under way from its issue until its thread waits for it. Its destination must not be touched in between,
// by anyone; afterwards it counts as written by that thread at the wait.
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

/// Inputs: destination, source, and by numbers[4]: 1 the size of the source, 2 a predicate that ignores it.
/// Numbers: size, offset of the destination, width of its addresses, width of the source's.
void copy(Warp &warp, const Op &op, uint32_t mask) {
  if (!warp.requireDefined(op.input(0), mask, "the address of the destination"))
    return;
  uint32_t size = op.numbers[0];
  Warp::Copy copy;
  copy.op = &op, copy.lanes = mask, copy.size = size;
  copy.sourceSize.fill(size);
  copy.group = warp.committedGroups;
  if (op.numbers[4] && !warp.requireDefined(op.input(2), mask, "how much to copy"))
    return;
  if (op.numbers[4] == 1)
    std::memcpy(copy.sourceSize.data(), warp.row<uint32_t>(op.input(2)), 128);
  if (op.numbers[4] == 2)
    forLanes(mask & warp.predicate(op.input(2)), [&](unsigned lane) { copy.sourceSize[lane] = 0; });

  uint64_t addresses[32];
  Op view = op;
  view.numbers[5] = op.numbers[3];
  uint32_t whole = 0;
  // A source of which nothing is read may lie anywhere.
  forLanes(mask, [&](unsigned lane) { whole |= uint32_t(copy.sourceSize[lane] != 0) << lane; });
  if (!warp.requireDefined(op.input(1), whole, "the address of the source"))
    return;
  laneAddresses(warp, view, op.input(1), mask, addresses);
  forLanes(mask, [&](unsigned lane) {
    uint32_t bytes = copy.sourceSize[lane];
    if (bytes > size)
      return warp.fail(FindingKind::BadOperand, llvm::Twine(bytes) + " bytes of the source for " + llvm::Twine(size),
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
    // NaN in every format, and known to be nothing.
    std::memset(copy.destination[lane].bytes, 0xff, size);
    std::fill_n(copy.destination[lane].states, size, ByteState::Undefined);
  });
  warp.copies.push_back(copy);
}

/// Completes, for the lanes of `mask`, the groups before the last `pending` ones; with ~0 all that was issued.
void wait(Warp &warp, uint32_t mask, uint32_t pending) {
  for (Warp::Copy &copy : warp.copies) {
    forLanes(copy.lanes & mask, [&](unsigned lane) {
      if (pending != ~uint32_t(0) && copy.group[lane] + pending >= warp.committedGroups[lane])
        return;
      if (warp.block.launch.async == AsyncMode::Late)
        move(copy, lane);
      if (warp.block.launch.checkRaces)
        warp.block.shadow.completeCopy(warp.clockView(), copy.destination[lane].bytes - warp.block.shared.data(), copy.size);
      copy.lanes &= ~(uint32_t(1) << lane);
    });
  }
  std::erase_if(warp.copies, [](const Warp::Copy &copy) { return !copy.lanes; });
}

void commit(Warp &warp, const Op &op, uint32_t mask) {
  forLanes(mask, [&](unsigned lane) { ++warp.committedGroups[lane]; });
}
void waitGroup(Warp &warp, const Op &op, uint32_t mask) { wait(warp, mask, op.numbers[0]); }
void waitAll(Warp &warp, const Op &op, uint32_t mask) { wait(warp, mask, ~uint32_t(0)); }

bool decodeCopy(Decoder &d) {
  if (!d.take("async"))
    return d.fail("only cp.async is simulated");
  if (d.take("commit_group"))
    return d.wantOperands(0) && d.emit(commit);
  if (d.take("wait_all"))
    return d.wantOperands(0) && d.emit(waitAll);
  if (d.take("wait_group")) {
    if (!d.wantOperands(1))
      return false;
    d.op.numbers[0] = d.immediate(d.at(0));
    return d.emit(waitGroup);
  }
  int cache = d.takeOneOf({"ca", "cg"});
  if (cache < 0 || d.takeOneOf({"shared", "shared::cta"}) < 0 || !d.take("global"))
    return d.fail("this asynchronous copy is not simulated");
  d.takeOneOf({"L2::cache_hint"});
  d.takeOneOf({"L2::64B", "L2::128B", "L2::256B"});
  if (!d.wantOperands(3, 4))
    return false;
  int64_t size = d.immediate(d.at(2));
  if (size != 16 && (cache == 1 || (size != 4 && size != 8)))
    return d.fail("wanted 16 bytes, or with .ca 4 or 8");
  if (d.address(d.at(0), Space::Shared) != Space::Shared)
    return d.fail("the destination lies in another space");
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
