//===- KernelBuilder.cpp - Decodes an entry and its callees ---------------===//

#include "Decoder.h"
#include "Rows.h"
#include "Special.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace saccade::ptxsim;

static uint64_t alignTo(uint64_t value, uint64_t alignment) {
  return alignment ? (value + alignment - 1) / alignment * alignment : value;
}

bool KernelBuilder::fail(unsigned line, FindingKind kind, const llvm::Twine &message) {
  const auto &lines = code.module.lines;
  finding = {kind, line, line && line <= lines.size() ? lines[line - 1] : "", message.str()};
  return false;
}

Slot KernelBuilder::allocate(unsigned bytes) {
  unsigned size = bytes ? 32 * bytes : 4;
  kernel.fileBytes = alignTo(kernel.fileBytes, bytes ? 64 : 4);
  Slot slot{kernel.fileBytes, kernel.numSlots++};
  kernel.fileBytes += size;
  return slot;
}

/// Constant predicates use `bytes` 4 and only its first four bytes.
Slot KernelBuilder::constant(uint64_t bits, unsigned bytes) {
  if (bytes < 8)
    bits &= (uint64_t(1) << (8 * bytes)) - 1;
  auto [found, isNew] = constants.try_emplace({bits, bytes});
  if (isNew) {
    uint32_t offset = kernel.constants.size();
    for (unsigned lane = 0; lane < 32; ++lane)
      for (unsigned byte = 0; byte < bytes; ++byte)
        kernel.constants.push_back(uint8_t(bits >> (8 * byte)));
    kernel.constants.resize(alignTo(kernel.constants.size(), 64));
    found->second = {offset, 0};
  }
  return found->second;
}

std::optional<Slot> KernelBuilder::special(llvm::StringRef name) {
  auto special = parseSpecial(name);
  if (!special)
    return std::nullopt;
  auto [found, isNew] = specials.try_emplace(*special);
  if (isNew) {
    found->second = allocate(4);
    kernel.specials.push_back({*special, found->second});
  }
  return found->second;
}

Slot KernelBuilder::carry() {
  if (!carrySlot)
    carrySlot = allocate(0);
  return *carrySlot;
}

uint64_t KernelBuilder::addressOf(const Variable &variable) const {
  if (auto found = addresses.find(&variable); found != addresses.end())
    return found->second;
  auto global = code.globals.find(&variable);
  return global == code.globals.end() ? 0 : global->second;
}

const Function *KernelBuilder::callee(const std::string &name) {
  Function *function = code.module.findFunction(name);
  return function && function->isDefined && !function->isEntry ? function : nullptr;
}

bool KernelBuilder::collect(const Function &function) {
  if (llvm::is_contained(callers, &function))
    return fail(function.line, FindingKind::Unsupported,
                "'" + function.name + "' is recursive, which is not simulated");
  if (llvm::is_contained(functions, &function))
    return true;
  functions.push_back(&function);
  callers.push_back(&function);
  for (const Instruction &instruction : function.instructions) {
    if (instruction.mnemonic != "call")
      continue;
    for (const Operand &operand : instruction.operands)
      if (operand.kind == Operand::Symbol && !operand.variable) {
        const Function *called = callee(operand.name);
        if (!called)
          return fail(instruction.line, FindingKind::Unsupported, "'" + operand.name + "' has no body in this module");
        if (!collect(*called))
          return false;
      }
  }
  callers.pop_back();
  return true;
}

/// Lays out the used shared variables, one local frame per function (there is no recursion), and the parameters.
void KernelBuilder::layOutVariables() {
  std::vector<const Variable *> dynamic;
  uint64_t shared = sharedStart, local = localStart, alignment = 16;
  auto use = [&](const Variable &variable) {
    if (variable.space != Space::Shared || addresses.contains(&variable))
      return;
    alignment = std::max<uint64_t>(alignment, variable.alignment);
    addresses[&variable] = 0;
    if (variable.isExtern || variable.size == 0) {
      dynamic.push_back(&variable);
      return;
    }
    addresses[&variable] = shared = alignTo(shared, variable.alignment);
    shared += variable.size;
  };
  auto useIn = [&](auto &self, const Operand &operand) -> void {
    if (operand.variable)
      use(*operand.variable);
    for (const Operand &part : operand.parts)
      self(self, part);
  };
  for (const Function *function : functions) {
    uint64_t parameters = 0;
    for (const Variable &variable : function->variables) {
      if (variable.isEntryParameter) {
        addresses[&variable] = parameters = alignTo(parameters, variable.alignment);
        parameters += variable.size;
        kernel.parameterBytes = parameters;
      } else if (variable.space == Space::Local || variable.space == Space::Param) {
        addresses[&variable] = local = alignTo(local, variable.alignment);
        local += variable.size;
      }
    }
    for (const Instruction &instruction : function->instructions)
      for (const Operand &operand : instruction.operands)
        useIn(useIn, operand);
  }
  if (!dynamic.empty())
    shared = alignTo(shared, alignment);
  for (const Variable *variable : dynamic)
    addresses[variable] = shared;
  kernel.staticShared = shared - sharedStart;
  kernel.localBytes = alignTo(local - localStart, 16);
}

void KernelBuilder::append(Decoder &decoder) {
  Op op = decoder.op;
  const Instruction &instruction = decoder.instruction;
  op.line = instruction.line;
  auto [mnemonic, isNew] = mnemonics.try_emplace(instruction.mnemonic, kernel.mnemonics.size());
  if (isNew)
    kernel.mnemonics.push_back(instruction.mnemonic);
  op.mnemonic = mnemonic->second;
  op.results = decoder.results.size();
  op.inputs = decoder.inputs.size();
  auto &slots = kernel.slots.emplace_back(decoder.results);
  slots.insert(slots.end(), decoder.inputs.begin(), decoder.inputs.end());
  op.slots = slots.data();
  if (instruction.guard >= 0) {
    op.guarded = true;
    op.guardNegated = instruction.guardNegated;
    op.guard = registers[&decoder.function][instruction.guard];
  }
  kernel.ops.push_back(op);
}

void KernelBuilder::useMatrixRegisters(const Decoder &decoder, unsigned inputs) {
  matrixOps.insert(kernel.ops.size());
  for (const Slot &slot : decoder.results)
    matrixRegisters.insert(slot.number);
  for (const Slot &slot : llvm::ArrayRef(decoder.inputs).take_front(inputs))
    matrixRegisters.insert(slot.number);
}

static void returnAtEnd(Warp &warp, const Op &op, uint32_t mask) { warp.leave(mask); }

bool KernelBuilder::decode(const Function &function) {
  starts[&function] = kernel.ops.size();
  auto &slots = registers[&function];
  for (const RegisterDeclaration &declared : function.registers) {
    if (declared.type == Type::B128)
      return fail(function.line, FindingKind::Unsupported, "128-bit registers are not simulated");
    slots.push_back(allocate(rowBytes(declared.type)));
  }
  std::vector<unsigned> reconvergences = reconvergencePoints(function);
  std::vector<uint32_t> firsts;
  size_t begin = kernel.ops.size(), firstTable = kernel.branchTables.size();
  for (unsigned index = 0; index < function.instructions.size(); ++index) {
    const Instruction &instruction = function.instructions[index];
    firsts.push_back(kernel.ops.size());
    Decode decode = InstructionTable::get().find(instruction);
    if (!decode)
      return fail(instruction.line, FindingKind::Unsupported,
                  "the instruction '" + instruction.text() + "' is not simulated");
    Decoder decoder(*this, function, instruction);
    decoder.op.reconvergence = reconvergences[index];
    if (!decode(decoder) || !decoder.allTaken() || decoder.failed())
      return false;
    append(decoder);
  }
  firsts.push_back(kernel.ops.size());
  Op end;
  end.run = returnAtEnd;
  end.line = function.instructions.empty() ? function.line : function.instructions.back().line;
  kernel.ops.push_back(end);
  // Convert instruction indices to op indices.
  for (size_t index = begin; index < kernel.ops.size(); ++index) {
    Op &op = kernel.ops[index];
    op.target = op.target == noTarget ? noTarget : firsts[op.target];
    op.reconvergence = op.reconvergence >= function.instructions.size() ? noTarget : firsts[op.reconvergence];
  }
  for (size_t table = firstTable; table < kernel.branchTables.size(); ++table)
    for (uint32_t &target : kernel.branchTables[table])
      target = firsts[target];
  return true;
}

std::optional<Kernel> KernelBuilder::build(const Function &entry) {
  kernel.entry = &entry;
  kernel.mnemonics.emplace_back();
  if (!collect(entry))
    return std::nullopt;
  layOutVariables();
  for (const Function *function : functions)
    if (!decode(*function))
      return std::nullopt;
  for (auto [op, function] : calls)
    kernel.ops[op].target = starts[function];
  for (size_t index = 0; index < kernel.ops.size(); ++index) {
    Op &op = kernel.ops[index];
    auto isOfMatrix = [&](const Slot &slot) { return slot.number && matrixRegisters.contains(slot.number); };
    op.touchesMatrices = !matrixOps.contains(index) &&
                         ((op.guarded && isOfMatrix(op.guard)) ||
                          llvm::any_of(llvm::ArrayRef(op.slots, size_t(op.results) + op.inputs), isOfMatrix));
  }
  kernel.hasMatrices = !matrixOps.empty();
  // Constants are stored at the start of the register file; all other slots move up.
  uint32_t shift = alignTo(kernel.constants.size(), 64);
  auto move = [&](Slot &slot) { slot.offset += slot.number ? shift : 0; };
  for (auto &slots : kernel.slots)
    for (Slot &slot : slots)
      move(slot);
  for (Op &op : kernel.ops)
    move(op.guard);
  for (auto &[special, slot] : kernel.specials)
    slot.offset += shift;
  kernel.fileBytes += shift;
  return std::move(kernel);
}

std::optional<Kernel> saccade::ptxsim::decodeKernel(Code &code, const Function &function, Finding &finding) {
  return KernelBuilder(code, finding).build(function);
}
