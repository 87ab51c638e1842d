//===- Warp.cpp - Executes a warp with divergent lanes --------------------===//

#include "Warp.h"
#include "Block.h"
#include "Special.h"
#include "Warpgroup.h"
#include "llvm/ADT/StringExtras.h"
#include <algorithm>
#include <bit>
#include <cmath>

using namespace saccade::ptxsim;

void Warp::start(uint32_t lanes) {
  const Kernel &kernel = block.kernel;
  storage.resize(kernel.fileBytes + 64);
  file = reinterpret_cast<uint8_t *>((reinterpret_cast<uintptr_t>(storage.data()) + 63) / 64 * 64);
  std::copy(kernel.constants.begin(), kernel.constants.end(), file);
  undefinedLanes.assign(kernel.numSlots, ~uint32_t(0));
  undefinedLanes[0] = 0;
  for (auto [special, slot] : kernel.specials) {
    undefined(slot) = 0;
    for (unsigned lane = 0; lane < 32; ++lane)
      row<uint32_t>(slot)[lane] = specialValue(special, *this, lane);
  }
  stack.assign(1, {0, noTarget, lanes, 0});
  liveLanes = lanes;
  state = State::Ready;
  known = {};
  known.clocks.resize(block.numWarps);
  now = 0;
  fences.clear();
  partners = {}, partnersClock = {};
  copies.clear();
  committedGroups = {};
  clusterState = ClusterState::None;
  matrices = {};
  if (kernel.hasMatrices)
    matrices.registers.resize(kernel.numSlots);
  registers = block.launchRegisters();
  executed = 0;
  undefinedOrigin = 0;
  lastAllocation = nullptr;
  local.assign(size_t(32) * kernel.localBytes, 0);
  localStates.assign(local.size(), ByteState::Undefined);
}

uint32_t Warp::localSize() const { return block.kernel.localBytes; }

void Warp::fail(FindingKind kind, const llvm::Twine &message, unsigned lane) {
  if (block.finding)
    return;
  auto three = [](const std::array<uint32_t, 3> &index) {
    return "(" + std::to_string(index[0]) + ", " + std::to_string(index[1]) + ", " + std::to_string(index[2]) + ")";
  };
  std::string text = message.str() + ", in block " + three(block.index) + " warp " + std::to_string(id);
  if (lane < 32)
    text += " lane " + std::to_string(lane);
  unsigned line = current ? current->line : 0;
  const auto &lines = block.code.module.lines;
  block.finding = Finding{kind, line, line && line <= lines.size() ? lines[line - 1] : "", std::move(text)};
}

bool Warp::requireDefined(Slot slot, uint32_t mask, const char *what) {
  uint32_t lanes = undefined(slot) & mask;
  if (!lanes)
    return true;
  std::string origin =
      undefinedOrigin ? "; the last read of undefined memory is in line " + std::to_string(undefinedOrigin) : "";
  fail(FindingKind::Uninitialised, llvm::Twine(what) + " is undefined" + origin, __builtin_ctz(lanes));
  return false;
}

void Warp::widen(Slot slot, unsigned bytes, uint32_t mask, uint64_t values[32]) {
  switch (bytes) {
  case 8:
    std::memcpy(values, row<uint64_t>(slot), 256);
    return;
  case 4:
    for (unsigned lane = 0; lane < 32; ++lane)
      values[lane] = row<uint32_t>(slot)[lane];
    return;
  default:
    for (unsigned lane = 0; lane < 32; ++lane)
      values[lane] = row<uint16_t>(slot)[lane];
  }
}

void Warp::run(uint64_t budget) {
  const Op *ops = block.kernel.ops.data();
  uint64_t *counts = block.counts.data();
  while (budget-- && state == State::Ready) {
    Group &group = stack.back();
    if (group.next == group.reconvergence) {
      // The lanes of the group below wait at the same instruction.
      stack.pop_back();
      ++budget;
      continue;
    }
    const Op &op = ops[group.next];
    current = &op;
    ++group.next;
    ++counts[&op - ops];
    uint32_t mask = group.lanes;
    if (op.guarded) {
      if (undefined(op.guard) & mask) {
        requireDefined(op.guard, mask, "the guard predicate");
        return;
      }
      mask &= op.guardNegated ? ~predicate(op.guard) : predicate(op.guard);
      if (!mask)
        continue;
    }
    if (op.touchesMatrices) [[unlikely]] {
      matrices.touch(*this, op);
      if (block.finding)
        return;
    }
    if (!op.tracksUndefined) {
      uint32_t lanes = 0;
      for (unsigned index = 0; index < op.inputs; ++index)
        lanes |= undefined(op.input(index));
      lanes &= mask;
      if (lanes && op.needsDefined) {
        for (unsigned index = 0; index < op.inputs; ++index)
          if (!requireDefined(op.input(index), mask, "an operand"))
            return;
      }
      for (unsigned index = 0; index < op.results; ++index)
        setUndefined(op.result(index), lanes, mask);
    }
    op.run(*this, op, mask);
    if (op.approximate && block.launch.approximations == Approximations::Noisy)
      perturb(op, mask);
    if (block.finding) [[unlikely]]
      return;
    ++executed;
  }
}

/// Perturbs f32 results by a pseudo-random number of ulp that depends on the result and the line. Nothing changes if
/// the result or the operand is 0, subnormal, infinite or NaN, or if the result is exact.
void Warp::perturb(const Op &op, uint32_t mask) {
  uint32_t *result = row<uint32_t>(op.result(0)), *input = row<uint32_t>(op.input(op.inputs - 1));
  forLanes(mask, [&](unsigned lane) {
    auto isOrdinary = [](uint32_t bits) { return (bits & 0x7f800000) != 0 && (bits & 0x7f800000) != 0x7f800000; };
    if (!isOrdinary(result[lane]) || !isOrdinary(input[lane]))
      return;
    float operand = std::bit_cast<float>(input[lane]);
    if (op.exactForIntegers && operand == std::trunc(operand))
      return;
    uint32_t hash = (result[lane] ^ op.line * 0x9e3779b9u) * 0x85ebca6bu;
    uint32_t moved = result[lane] + (hash ^ hash >> 15) % (2 * op.approximate + 1) - op.approximate;
    if (isOrdinary(moved))
      result[lane] = moved;
  });
}

void Warp::dropEmptyGroups() {
  while (!stack.empty() && !stack.back().lanes)
    stack.pop_back();
  if (stack.empty()) {
    state = State::Done;
    leaveWarpgroup(*this);
    ++block.events;
    block.warpEnded();
  }
}

void Warp::branch(uint32_t target, uint32_t taken, uint32_t reconvergence) {
  Group &group = stack.back();
  if (taken == group.lanes)
    group.next = target;
  else
    branch({{target, taken}, {group.next, group.lanes & ~taken}}, reconvergence);
}

void Warp::branch(const std::vector<std::pair<uint32_t, uint32_t>> &targetsAndLanes, uint32_t reconvergence) {
  Group rest = stack.back();
  stack.pop_back();
  // A group at the reconvergence point collects all lanes, unless an outer group already reconverges there.
  if (rest.reconvergence != reconvergence || reconvergence == noTarget)
    if (reconvergence != noTarget)
      stack.push_back({reconvergence, rest.reconvergence, rest.lanes, rest.depth});
  for (auto [target, lanes] : targetsAndLanes)
    if (lanes && target != reconvergence)
      stack.push_back({target, reconvergence, lanes, rest.depth});
}

void Warp::call(uint32_t target, uint32_t lanes) { stack.push_back({target, noTarget, lanes, stack.back().depth + 1}); }

void Warp::leave(uint32_t lanes) {
  uint32_t depth = stack.back().depth;
  if (depth == 0)
    return end(lanes);
  for (auto group = stack.rbegin(); group != stack.rend() && group->depth == depth; ++group)
    group->lanes &= ~lanes;
  while (!stack.back().lanes)
    stack.pop_back();
}

void Warp::end(uint32_t lanes) {
  for (const Copy &copy : copies)
    if (uint32_t unwaited = copy.lanes & lanes)
      return fail(FindingKind::Unwaited,
                  "a thread exits before waiting for its cp.async of line " + llvm::Twine(copy.op->line),
                  __builtin_ctz(unwaited));
  for (const BulkCopy &copy : block.copies.stores)
    if (copy.warp == this && (lanes >> copy.lane & 1))
      return fail(FindingKind::Unwaited,
                  "a thread exits before waiting for its bulk store of line " + llvm::Twine(copy.op->line), copy.lane);
  if (!matrices.operations.empty())
    return fail(FindingKind::Unwaited,
                "a thread exits before waiting for its wgmma of line " + llvm::Twine(matrices.operations[0].op->line));
  for (Group &group : stack)
    group.lanes &= ~lanes;
  liveLanes &= ~lanes;
  dropEmptyGroups();
}

void Warp::synchronise(uint32_t lanes) {
  ++now;
  if (lanes == liveLanes) {
    known.clocks[id] = now;
    return;
  }
  forLanes(lanes, [&](unsigned lane) {
    partners[lane] = lanes;
    partnersClock[lane] = now;
  });
}

void Warp::release(Knowledge &to, uint32_t lanes) {
  ++now;
  if (lanes == liveLanes)
    known.clocks[id] = now;
  to.join(known);
  if (lanes != liveLanes)
    forLanes(lanes, [&](unsigned lane) { to.learnLane({id, lane, now}); });
}

void Warp::fence(uint8_t kinds, uint32_t lanes) {
  fences.push_back({++now, lanes, kinds});
  if (kinds & proxyFence)
    known.fence();
}

bool Warp::knowsFence(uint32_t writer, uint32_t lane, uint32_t clock, uint8_t kind) const {
  const std::vector<Fence> &all = block.warps[writer]->fences;
  for (auto fence = std::upper_bound(all.begin(), all.end(), clock,
                                     [](uint32_t clock, const Fence &fence) { return clock < fence.clock; });
       fence != all.end(); ++fence)
    if ((fence->lanes >> lane & 1) && (fence->kinds & kind))
      return writer == id || fence->clock <= known.clocks[writer] || known.knowsLane(writer, lane, fence->clock - 1);
  return false;
}

bool Warp::checkAsync(uint32_t offset, unsigned lane, bool isWrite) {
  auto isFenced = [&](uint32_t writer, uint32_t writingLane, uint32_t clock) {
    return (writer < known.fenced.size() && clock < known.fenced[writer]) ||
           knowsFence(writer, writingLane, clock, proxyFence);
  };
  auto report = [&](const std::string &conflict) {
    fail(FindingKind::Race,
         std::string(isWrite ? "asynchronous write to" : "asynchronous read of") + " shared memory at 0x" +
             llvm::utohexstr(offset + sharedStart, /*LowerCase=*/true) + ", " + conflict,
         lane);
    return false;
  };
  if (!block.asyncShadow.check(known, offset, isWrite))
    return report(block.asyncShadow.conflict);
  return block.shadow.checkAsync(clockView(), lane, offset, isWrite, isFenced) || report(block.shadow.conflict);
}

ClockView Warp::clockView() const {
  return {id, now, current->line, known.clocks.data(), &known, partners.data(), partnersClock.data()};
}
