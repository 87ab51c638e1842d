//===- Warpgroup.cpp - Groups of wgmma, setmaxnreg ------------------------===//

#include "Warpgroup.h"
#include "Block.h"
#include "Decoder.h"
#include <algorithm>

using namespace saccade::ptxsim;

bool saccade::ptxsim::requireAllLanes(Warp &warp, uint32_t mask) {
  if (mask == ~uint32_t(0))
    return true;
  warp.fail(FindingKind::Divergence,
            "only " + llvm::Twine(__builtin_popcount(mask)) + " of 32 lanes reach the instruction");
  return false;
}

/// Whether the warps of a warpgroup have executed the same wgmma.fence, commit_group and wait_group since they last
/// met; reports a finding otherwise.
static bool haveExecutedTheSame(Warp &warp) {
  Block &block = warp.block;
  uint32_t first = warp.id / Warpgroup::size * Warpgroup::size;
  const std::vector<const Op *> &expected = block.warps[first]->matrices.executed;
  for (uint32_t other = first + 1; other < first + Warpgroup::size; ++other) {
    const std::vector<const Op *> &found = block.warps[other]->matrices.executed;
    auto [one, two] = std::mismatch(expected.begin(), expected.end(), found.begin(), found.end());
    if (one == expected.end() && two == found.end())
      continue;
    // Report the instruction that only one of the two warps executes.
    bool isFirst = one != expected.end() && std::find(two, found.end(), *one) == found.end();
    warp.fail(FindingKind::Divergence, "warp " + llvm::Twine(isFirst ? first : other) +
                                           " has executed the wgmma of line " +
                                           llvm::Twine((isFirst ? *one : *two)->line) + ", warp " +
                                           llvm::Twine(isFirst ? other : first) + " of the warpgroup has not");
    return false;
  }
  for (uint32_t each = first; each < first + Warpgroup::size; ++each)
    block.warps[each]->matrices.executed.clear();
  return true;
}

void saccade::ptxsim::leaveWarpgroup(Warp &warp) {
  uint32_t first = warp.id / Warpgroup::size * Warpgroup::size;
  if (first + Warpgroup::size > warp.block.numWarps)
    return;
  for (uint32_t other = first; other < first + Warpgroup::size; ++other)
    if (warp.block.warps[other]->state != Warp::State::Done)
      return;
  haveExecutedTheSame(warp);
}

bool saccade::ptxsim::meet(Warp &warp, const Op &op, uint32_t mask) {
  if (!requireAllLanes(warp, mask))
    return false;
  Block &block = warp.block;
  uint32_t first = warp.id / Warpgroup::size * Warpgroup::size;
  if (first + Warpgroup::size > block.numWarps) {
    warp.fail(FindingKind::Divergence, "the warpgroup has less than four warps");
    return false;
  }
  Warpgroup &group = block.warpgroups[warp.id / Warpgroup::size];
  if (group.arrived && group.op != &op) {
    warp.fail(FindingKind::Divergence, "another warp of the warpgroup is at line " + llvm::Twine(group.op->line));
    return false;
  }
  for (uint32_t other = first; other < first + Warpgroup::size; ++other)
    if (block.warps[other]->state == Warp::State::Done) {
      warp.fail(FindingKind::Divergence, "warp " + llvm::Twine(other) + " of the warpgroup has exited");
      return false;
    }
  group.op = &op;
  group.arrived |= uint32_t(1) << warp.id;
  warp.state = Warp::State::Waiting;
  return unsigned(__builtin_popcount(group.arrived)) == Warpgroup::size && haveExecutedTheSame(warp);
}

void saccade::ptxsim::proceed(Block &block, Warpgroup &group) {
  forLanes(group.arrived, [&](unsigned warp) { block.warps[warp]->state = Warp::State::Ready; });
  group.arrived = 0;
  ++block.events;
}

void MatrixRegisters::touch(Warp &warp, const Op &op) {
  auto use = [&](const Slot &slot) {
    Register &one = registers[slot.number];
    if (one.results || one.operands) {
      for (const Operation &operation : operations) {
        MatrixOperands operands = matrixOperands(*operation.op);
        auto has = [&](unsigned first, unsigned count) {
          const Slot *slots = operation.op->slots + first;
          return std::any_of(slots, slots + count, [&](const Slot &other) { return other.number == slot.number; });
        };
        bool isResult = has(0, operands.results);
        if (isResult || has(operands.results + operands.firstOfA, operands.registersOfA))
          return warp.fail(FindingKind::Race, llvm::Twine("use of a register that ") +
                                                  (isResult ? "holds sums" : "is an operand") +
                                                  " of the wgmma of line " + llvm::Twine(operation.op->line) +
                                                  ", which the warp has not waited for");
      }
    }
    one.touched = fences + 1;
  };
  for (unsigned index = 0; index < unsigned(op.results) + op.inputs; ++index)
    use(op.slots[index]);
  if (op.guarded)
    use(op.guard);
}

namespace {

void fenceMatrices(Warp &warp, const Op &op, uint32_t mask) {
  if (!requireAllLanes(warp, mask))
    return;
  ++warp.matrices.fences;
  warp.matrices.executed.push_back(&op);
}

void commitMatrices(Warp &warp, const Op &op, uint32_t mask) {
  if (!requireAllLanes(warp, mask))
    return;
  ++warp.matrices.group;
  warp.matrices.executed.push_back(&op);
}

/// numbers[0]: groups that may be pending.
void waitForMatrices(Warp &warp, const Op &op, uint32_t mask) {
  MatrixRegisters &matrices = warp.matrices;
  if (!requireAllLanes(warp, mask))
    return;
  matrices.executed.push_back(&op);
  if (matrices.group <= op.numbers[0])
    return;
  uint32_t complete = matrices.group - op.numbers[0];
  const Warpgroup &group = warp.block.warpgroups[warp.id / Warpgroup::size];
  if (group.agent)
    warp.known.learn(group.agent, complete);
  std::erase_if(matrices.operations, [&](const MatrixRegisters::Operation &operation) {
    if (operation.group >= complete)
      return false;
    MatrixOperands operands = matrixOperands(*operation.op);
    for (unsigned index = 0; index < operands.results; ++index)
      --matrices.registers[operation.op->result(index).number].results;
    for (unsigned index = 0; index < operands.registersOfA; ++index)
      --matrices.registers[operation.op->input(operands.firstOfA + index).number].operands;
    return true;
  });
}

/// Lets warpgroups go on that wait for registers.
void giveRegisters(Block &block) {
  for (size_t number = 0; number < block.warpgroups.size(); ++number) {
    Warpgroup &group = block.warpgroups[number];
    if (unsigned(__builtin_popcount(group.arrived)) != Warpgroup::size || !group.op->numbers[1])
      continue;
    uint32_t &registers = block.warps[number * Warpgroup::size]->registers, requested = group.op->numbers[0];
    uint32_t missing = (requested - registers) * 32 * Warpgroup::size;
    if (missing > block.freeRegisters)
      continue;
    block.freeRegisters -= missing;
    for (unsigned warp = 0; warp < Warpgroup::size; ++warp)
      block.warps[number * Warpgroup::size + warp]->registers = requested;
    proceed(block, group);
  }
}

/// Numbers: registers of a thread, increases.
void setMaxRegisters(Warp &warp, const Op &op, uint32_t mask) {
  uint32_t requested = op.numbers[0], has = warp.registers;
  bool increases = op.numbers[1];
  if (increases ? requested < has : requested > has)
    return warp.fail(FindingKind::BadOperand, "found " + llvm::Twine(requested) + " registers, expected at " +
                                                  (increases ? "least" : "most") + " the " + llvm::Twine(has) +
                                                  " that the thread has");
  if (!meet(warp, op, mask))
    return;
  Block &block = warp.block;
  Warpgroup &group = block.warpgroups[warp.id / Warpgroup::size];
  if (!increases) {
    block.freeRegisters += (has - requested) * 32 * Warpgroup::size;
    forLanes(group.arrived, [&](unsigned other) { block.warps[other]->registers = requested; });
    proceed(block, group);
  }
  giveRegisters(block);
}

/// These instructions exist for sm_90a only.
bool requireTarget(Decoder &d) {
  return llvm::StringRef(d.builder.code.module.target).starts_with("sm_90a") || d.fail("expected target sm_90a");
}

bool decodeSetMaxRegisters(Decoder &d) {
  if (!requireTarget(d))
    return false;
  int kind = d.takeOneOf({"inc", "dec"});
  if (kind < 0 || !d.take("sync") || !d.take("aligned") || d.type() != Type::U32 || !d.expectOperands(1))
    return d.fail("expected .inc or .dec, then .sync.aligned.u32");
  int64_t registers = d.immediate(d.at(0));
  if (registers < 24 || registers > 256 || registers % 8)
    return d.fail("found " + llvm::Twine(registers) + " registers, expected a multiple of 8 from 24 to 256");
  if (!d.function.hasThreadLimit && !d.function.maxRegisters)
    return d.fail("ptxas ignores it in a kernel without .reqntid, .maxntid or .maxnreg");
  d.builder.kernel.usesAsync = true;
  d.op.numbers[0] = uint32_t(registers), d.op.numbers[1] = kind == 0;
  return d.emit(setMaxRegisters);
}

bool decodeMatrices(Decoder &d) {
  if (!requireTarget(d))
    return false;
  d.builder.kernel.usesAsync = true;
  d.op.tracksUndefined = true;
  int kind = d.takeOneOf({"fence", "commit_group", "wait_group", "mma_async"});
  if (kind < 0 || !d.take("sync") || !d.take("aligned"))
    return d.fail("expected .fence, .commit_group, .wait_group or .mma_async, then .sync.aligned");
  if (kind == 3)
    return decodeMatrixMultiply(d);
  if (!d.expectOperands(kind == 2))
    return false;
  if (kind == 2) {
    int64_t pending = d.immediate(d.at(0));
    if (pending < 0 || pending > 7)
      return d.fail("found " + llvm::Twine(pending) + " groups, expected 0 to 7");
    d.op.numbers[0] = uint32_t(pending);
  }
  return d.emit(kind == 0 ? fenceMatrices : kind == 1 ? commitMatrices : waitForMatrices);
}

} // namespace

void saccade::ptxsim::addWarpgroupInstructions(InstructionTable &table) {
  table.add("wgmma", TypeClass::Any, decodeMatrices);
  table.add("setmaxnreg", TypeClass::Any, decodeSetMaxRegisters);
}
