//===- Control.cpp - Branches, calls and exits ----------------------------===//

#include "Block.h"
#include "Decoder.h"
#include <cstring>

using namespace saccade::ptxsim;

namespace {

void branch(Warp &warp, const Op &op, uint32_t mask) { warp.branch(op.target, mask, op.reconvergence); }

bool decodeBranch(Decoder &d) {
  bool uniform = d.take("uni");
  (void)uniform; // Lanes may diverge regardless.
  if (!d.expectOperands(1))
    return false;
  auto target = d.function.findLabel(d.at(0).name, d.instruction.scope);
  if (d.at(0).kind != Operand::Symbol || !target)
    return d.fail("'" + d.at(0).name + "' is not a label in this scope");
  d.op.target = *target;
  return d.emit(branch);
}

/// brx.idx; numbers[0] is the index of the branch table.
void branchIndexed(Warp &warp, const Op &op, uint32_t mask) {
  const std::vector<uint32_t> &table = warp.block.kernel.branchTables[op.numbers[0]];
  const uint32_t *index = warp.row<uint32_t>(op.input(0));
  std::map<uint32_t, uint32_t> groups;
  bool good = true;
  forLanes(mask, [&](unsigned lane) {
    if (index[lane] >= table.size()) {
      warp.fail(FindingKind::BadOperand,
                "found branch index " + llvm::Twine(index[lane]) + ", expected less than " + llvm::Twine(table.size()),
                lane);
      good = false;
    } else {
      groups[table[index[lane]]] |= uint32_t(1) << lane;
    }
  });
  if (!good)
    return;
  std::vector<std::pair<uint32_t, uint32_t>> targets(groups.begin(), groups.end());
  if (targets.size() == 1 && mask == warp.activeLanes())
    return warp.jump(targets[0].first);
  if (uint32_t others = warp.activeLanes() & ~mask)
    targets.push_back({warp.nextOp(), others});
  warp.branch(targets, op.reconvergence);
}

bool decodeBranchIndexed(Decoder &d) {
  if (!d.take("idx"))
    return d.fail("expected .idx");
  d.take("uni");
  if (!d.expectOperands(2))
    return false;
  auto list = d.function.branchTargets.find(d.at(1).name);
  if (list == d.function.branchTargets.end())
    return d.fail("'" + d.at(1).name + "' is not a .branchtargets list in this scope");
  std::vector<uint32_t> table;
  for (const std::string &label : list->second) {
    auto target = d.function.findLabel(label, d.instruction.scope);
    if (!target)
      return d.fail("'" + label + "' is not a label in this scope");
    table.push_back(*target);
  }
  d.input(d.at(0), Type::U32);
  d.op.needsDefined = true;
  d.op.numbers[0] = d.builder.kernel.branchTables.size();
  d.builder.kernel.branchTables.push_back(std::move(table));
  return d.emit(branchIndexed);
}

void transfer(Warp &warp, const Op &op, uint32_t mask) {
  for (const Transfer &transfer : warp.block.kernel.transfers[op.numbers[0]])
    forLanes(mask, [&](unsigned lane) {
      std::memcpy(warp.localBytes(lane, transfer.to), warp.localBytes(lane, transfer.from), transfer.size);
      std::memcpy(warp.localByteStates(lane, transfer.to), warp.localByteStates(lane, transfer.from), transfer.size);
    });
}

void call(Warp &warp, const Op &op, uint32_t mask) {
  transfer(warp, op, mask);
  warp.call(op.target, mask);
}

void leave(Warp &warp, const Op &op, uint32_t mask) { warp.leave(mask); }
void end(Warp &warp, const Op &op, uint32_t mask) { warp.end(mask); }
void trap(Warp &warp, const Op &op, uint32_t mask) { warp.fail(FindingKind::Trap, "trap", __builtin_ctz(mask)); }
void nothing(Warp &, const Op &, uint32_t) {}

/// call.uni (results), function, (parameters): one op copies the arguments and calls, a second one copies the results.
bool decodeCall(Decoder &d) {
  d.take("uni");
  const Operand *results = nullptr, *name = nullptr, *arguments = nullptr;
  for (const Operand &operand : d.instruction.operands) {
    if (operand.kind == Operand::Symbol && !operand.variable)
      name = &operand;
    else if (operand.kind == Operand::List)
      (name ? arguments : results) = &operand;
    else
      return d.fail("only direct calls with parameters in .param variables are simulated");
  }
  const Function *callee = name ? d.builder.callee(name->name) : nullptr;
  if (!callee)
    return d.fail("expected a function with a body in this module");
  auto match = [&](const Operand *list, const std::vector<const Variable *> &formals, bool into) {
    std::vector<Transfer> transfers;
    size_t given = list ? list->parts.size() : 0;
    if (given != formals.size()) {
      d.fail("found " + llvm::Twine(given) + " parameters or results, expected " + llvm::Twine(formals.size()));
      return transfers;
    }
    for (size_t index = 0; index < given; ++index) {
      const Variable *actual = list->parts[index].variable;
      if (!actual || actual->size != formals[index]->size) {
        d.fail("expected a .param variable of the formal parameter's size");
        return transfers;
      }
      uint32_t outer = d.builder.addressOf(*actual) - localStart,
               inner = d.builder.addressOf(*formals[index]) - localStart;
      transfers.push_back({into ? outer : inner, into ? inner : outer, uint32_t(actual->size)});
    }
    return transfers;
  };
  auto &transfers = d.builder.kernel.transfers;
  transfers.push_back(match(arguments, callee->parameters, true));
  transfers.push_back(match(results, callee->results, false));
  if (d.failed())
    return false;
  d.op.numbers[0] = transfers.size() - 2;
  d.op.run = call;
  d.builder.calls.push_back({uint32_t(d.builder.kernel.ops.size()), callee});
  d.next();
  d.op.numbers[0] = transfers.size() - 1;
  return d.emit(transfer);
}

bool decodeLeave(Decoder &d) {
  d.take("uni");
  return d.expectOperands(0) && d.emit(leave);
}
bool decodeEnd(Decoder &d) { return d.expectOperands(0) && d.emit(end); }
bool decodeTrap(Decoder &d) { return d.expectOperands(0) && d.emit(trap); }
/// Time is not simulated.
bool decodeSleep(Decoder &d) {
  d.takeType();
  return d.emit(nothing);
}

/// Launches are executed one after another.
bool decodeDependentGrids(Decoder &d) {
  if (d.takeOneOf({"wait", "launch_dependents"}) < 0)
    return d.fail("expected .wait or .launch_dependents");
  return d.expectOperands(0) && d.emit(nothing);
}

} // namespace

void saccade::ptxsim::addControlInstructions(InstructionTable &table) {
  table.add("bra", TypeClass::Any, decodeBranch);
  table.add("brx", TypeClass::Any, decodeBranchIndexed);
  table.add("call", TypeClass::Any, decodeCall);
  table.add("ret", TypeClass::Any, decodeLeave);
  table.add("exit", TypeClass::Any, decodeEnd);
  table.add("trap", TypeClass::Any, decodeTrap);
  table.add("griddepcontrol", TypeClass::Any, decodeDependentGrids);
  table.add("nanosleep", TypeClass::Any, decodeSleep);
}
