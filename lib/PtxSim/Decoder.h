//===- Decoder.h - Decodes instructions into ops --------------------*- C++ -*-===//
//
// Each instruction family (one .cpp each) registers decoders by mnemonic. A decoder consumes all modifiers in order and
// all operands, and selects the handler. A modifier or operand that is not consumed is an error.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_PTXSIM_DECODER_H
#define SACCADE_LIB_PTXSIM_DECODER_H

#include "Code.h"
#include "llvm/ADT/Twine.h"
#include <initializer_list>
#include <set>

namespace saccade::ptxsim {

class KernelBuilder;

class Decoder {
public:
  Decoder(KernelBuilder &builder, const Function &function, const Instruction &instruction);

  /// Reports an error; always returns false.
  bool fail(const llvm::Twine &message);
  bool failed() const { return hasFailed; }
  unsigned architecture() const;

  // --- modifiers, in source order ---
  bool take(llvm::StringRef expected);
  /// Index of the next modifier in `choices`; -1, without consuming it, if it is not there.
  int takeOneOf(std::initializer_list<llvm::StringRef> choices);
  std::optional<Type> takeType();
  /// The type that must come next; fails and returns B32 if there is none.
  Type type();
  std::optional<Rounding> takeRounding();
  /// Fails unless all modifiers are consumed.
  bool allTaken();

  // --- operands ---
  unsigned count() const { return instruction.operands.size(); }
  const Operand &at(unsigned index) const { return instruction.operands[index]; }
  bool expectOperands(unsigned min, unsigned max);
  bool expectOperands(unsigned number) { return expectOperands(number, number); }
  /// Adds a result. Its register has the width of `type`; with `wider`, at least that.
  void result(const Operand &operand, Type type, bool wider = false);
  /// Adds an input: a register, an immediate, a special register or the address of a variable.
  void input(const Operand &operand, Type type, bool wider = false);
  /// Adds the address input and `op.offset`, and sets numbers[5] to the address width in bytes. Returns the state
  /// space: Local for parameters of a function.
  Space address(const Operand &operand, Space space);
  /// Adds an input that is `bits` in every lane.
  void constant(uint64_t bits, unsigned bytes);
  /// Adds the carry flag (CC.CF) as a result or an input.
  void carryResult();
  void carryInput();
  /// Bytes per lane of a register operand; 0 for other operands.
  unsigned widthOf(const Operand &operand) const;
  bool isRegister(const Operand &operand) const { return operand.kind == Operand::Register; }
  /// Value of an integer immediate; fails for other operands.
  int64_t immediate(const Operand &operand);

  /// Sets the handler. The op is complete when the decoder returns.
  bool emit(Handler handler);
  /// Appends the current op and begins another one for the same instruction.
  void next();

  KernelBuilder &builder;
  const Function &function;
  const Instruction &instruction;
  Op op;

private:
  friend class KernelBuilder;
  std::vector<Slot> results, inputs;
  unsigned modifier = 0;
  bool hasFailed = false;
};

using Decode = bool (*)(Decoder &decoder);

/// Types for which a family decodes a mnemonic; the last type modifier decides.
enum class TypeClass : uint8_t { Any, Integer, Float, Half };

class InstructionTable {
public:
  static const InstructionTable &get();

  void add(llvm::StringRef mnemonic, TypeClass types, Decode decode) { decoders[{mnemonic.str(), types}] = decode; }
  Decode find(const Instruction &instruction) const;

private:
  std::map<std::pair<std::string, TypeClass>, Decode> decoders;
};

// Instruction families.
void addIntegerInstructions(InstructionTable &table);
void addBitInstructions(InstructionTable &table);
void addFloatInstructions(InstructionTable &table);
void addHalfInstructions(InstructionTable &table);
void addCompareInstructions(InstructionTable &table);
void addMoveInstructions(InstructionTable &table);
void addConvertInstructions(InstructionTable &table);
void addMemoryInstructions(InstructionTable &table);
void addAtomicInstructions(InstructionTable &table);
void addControlInstructions(InstructionTable &table);
void addBarrierInstructions(InstructionTable &table);
void addWarpInstructions(InstructionTable &table);
void addMatrixMoveInstructions(InstructionTable &table);
void addMmaInstructions(InstructionTable &table);
void addCopyInstructions(InstructionTable &table);
void addMbarrierInstructions(InstructionTable &table);
void addWarpgroupInstructions(InstructionTable &table);

// The forms of an instruction that another family implements; the modifiers before have been taken.
/// fence.proxy and fence.mbarrier_init.
bool decodeOrderingFence(Decoder &decoder, bool ofProxy);
/// cp.async.bulk and, if it `reduces`, cp.reduce.async.bulk.
bool decodeBulkCopy(Decoder &decoder, bool reduces);
/// cp.async.mbarrier.
bool decodeCopyArrival(Decoder &decoder);

/// Builds a kernel; the part that all decoders share.
class KernelBuilder {
public:
  KernelBuilder(Code &code, Finding &finding) : code(code), finding(finding) {}
  std::optional<Kernel> build(const Function &entry);

  bool fail(unsigned line, FindingKind kind, const llvm::Twine &message);
  Slot allocate(unsigned bytes);
  Slot constant(uint64_t bits, unsigned bytes);
  std::optional<Slot> special(llvm::StringRef name);
  /// Slot of the carry flag, a predicate.
  Slot carry();
  /// Address in the variable's state space, without the generic window.
  uint64_t addressOf(const Variable &variable) const;
  const Function *callee(const std::string &name);
  /// Notes that the results and the first inputs of the current op are registers of wgmma.mma_async.
  void useMatrixRegisters(const Decoder &decoder, unsigned inputs);

  Code &code;
  Kernel kernel;
  /// Calls: index of the op, callee.
  std::vector<std::pair<uint32_t, const Function *>> calls;
  std::map<const Function *, std::vector<Slot>> registers;

private:
  friend class Decoder;
  bool collect(const Function &function);
  void layOutVariables();
  bool decode(const Function &function);
  void append(Decoder &decoder);

  Finding &finding;
  std::vector<const Function *> functions, callers;
  std::map<const Function *, uint32_t> starts;
  std::map<std::pair<uint64_t, unsigned>, Slot> constants;
  std::map<SpecialRegister, Slot> specials;
  std::optional<Slot> carrySlot;
  std::map<const Variable *, uint64_t> addresses;
  std::map<std::string, uint16_t> mnemonics;
  std::set<uint32_t> matrixRegisters; ///< slot numbers
  std::set<uint32_t> matrixOps;
};

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_DECODER_H
