//===- Decoder.h - From syntax to the compact form ------------------*- C++ -*-===//
//
// Every family of instructions (one .cpp each) registers decoders by mnemonic. A decoder takes all modifiers of an
// instruction one after another and all its operands, and chooses the handler; what it does not take is an error, so
// nothing is ever skipped.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_PTXSIM_DECODER_H
#define SACCADE_LIB_PTXSIM_DECODER_H

#include "Code.h"
#include "llvm/ADT/Twine.h"
#include <initializer_list>

namespace saccade::ptxsim {

class KernelBuilder;

class Decoder {
public:
  Decoder(KernelBuilder &builder, const Function &function, const Instruction &instruction);

  /// Always false, so that decoders can return it.
  bool fail(const llvm::Twine &message);
  bool failed() const { return hasFailed; }
  unsigned architecture() const;

  // --- modifiers, in the order of the text ---
  bool take(llvm::StringRef modifier);
  /// The index of the next modifier among `choices`, or -1 (and it stays).
  int takeOneOf(std::initializer_list<llvm::StringRef> choices);
  std::optional<Type> takeType();
  /// The type that must come next; fails with B32 where none does.
  Type type();
  std::optional<Rounding> takeRounding();
  /// The rest must be taken when the decoder is done.
  bool allTaken();

  // --- operands ---
  unsigned count() const { return instruction.operands.size(); }
  const Operand &at(unsigned index) const { return instruction.operands[index]; }
  bool wantOperands(unsigned least, unsigned most);
  bool wantOperands(unsigned number) { return wantOperands(number, number); }
  /// Adds a result. Its register has the type's width, or more with `wider`.
  void result(const Operand &operand, Type type, bool wider = false);
  /// Adds an input: a register, an immediate, a special register or the address of a variable.
  void input(const Operand &operand, Type type, bool wider = false);
  /// Adds the address input and `op.offset`; numbers[5] is its width. Returns the space that it is in, which is Local
  /// for a function's parameters.
  Space address(const Operand &operand, Space space);
  /// Adds an always-defined input that every lane sees as `bits`.
  void constant(uint64_t bits, unsigned bytes);
  /// The carry of add.cc and its like, as one more result or input.
  void carryResult();
  void carryInput();
  /// Bytes of a register operand's row; 0 for other operands.
  unsigned widthOf(const Operand &operand) const;
  bool isRegister(const Operand &operand) const { return operand.kind == Operand::Register; }
  /// The value of an operand that must be an integer immediate.
  int64_t immediate(const Operand &operand);

  /// Sets the handler. The op is complete when the decoder returns.
  bool emit(Handler handler);
  /// Appends the op as it is, and begins another one for the same instruction.
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

/// Which types of the same mnemonic a family decodes; the last modifier that is a type decides.
enum class TypeClass : uint8_t { Any, Integer, Float, Half };

class InstructionTable {
public:
  static const InstructionTable &get();

  void add(llvm::StringRef mnemonic, TypeClass types, Decode decode) { decoders[{mnemonic.str(), types}] = decode; }
  Decode find(const Instruction &instruction) const;

private:
  std::map<std::pair<std::string, TypeClass>, Decode> decoders;
};

// The families.
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

/// What decoders see of the kernel as a whole.
class KernelBuilder {
public:
  KernelBuilder(Code &code, Finding &finding) : code(code), finding(finding) {}
  std::optional<Kernel> build(const Function &entry);

  bool fail(unsigned line, FindingKind kind, const llvm::Twine &message);
  Slot allocate(unsigned bytes);
  Slot constant(uint64_t bits, unsigned bytes);
  std::optional<Slot> special(llvm::StringRef name);
  /// The condition code's carry: a predicate of its own.
  Slot carry();
  /// Absolute in its space, without the window.
  uint64_t addressOf(const Variable &variable) const;
  const Function *callee(const std::string &name);

  Code &code;
  Kernel kernel;
  /// Ops whose target is a function.
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
  std::map<const Variable *, uint64_t> places;
  std::map<std::string, uint16_t> mnemonics;
};

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_DECODER_H
