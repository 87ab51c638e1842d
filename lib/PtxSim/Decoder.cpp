//===- Decoder.cpp - Modifiers and operands of one instruction ------------===//

#include "Decoder.h"
#include "Numbers.h"
#include "Rows.h"

using namespace saccade::ptxsim;
using llvm::StringRef;

const InstructionTable &InstructionTable::get() {
  static const InstructionTable table = [] {
    InstructionTable table;
    addIntegerInstructions(table);
    addBitInstructions(table);
    addFloatInstructions(table);
    addHalfInstructions(table);
    addCompareInstructions(table);
    addMoveInstructions(table);
    addConvertInstructions(table);
    addMemoryInstructions(table);
    addAtomicInstructions(table);
    addControlInstructions(table);
    addBarrierInstructions(table);
    addWarpInstructions(table);
    addMatrixMoveInstructions(table);
    addMmaInstructions(table);
    addCopyInstructions(table);
    addMbarrierInstructions(table);
    addWarpgroupInstructions(table);
    return table;
  }();
  return table;
}

Decode InstructionTable::find(const Instruction &instruction) const {
  TypeClass types = TypeClass::Integer;
  for (const std::string &modifier : instruction.modifiers)
    if (auto type = parseType(modifier))
      types = isHalf(*type)                              ? TypeClass::Half
              : *type == Type::F32 || *type == Type::F64 ? TypeClass::Float
                                                         : TypeClass::Integer;
  for (TypeClass expected : {types, TypeClass::Any})
    if (auto found = decoders.find({instruction.mnemonic, expected}); found != decoders.end())
      return found->second;
  return nullptr;
}

Decoder::Decoder(KernelBuilder &builder, const Function &function, const Instruction &instruction)
    : builder(builder), function(function), instruction(instruction) {}

bool Decoder::fail(const llvm::Twine &message) {
  if (!hasFailed)
    builder.fail(instruction.line, FindingKind::Unsupported, "'" + instruction.text() + "': " + message);
  hasFailed = true;
  return false;
}

unsigned Decoder::architecture() const { return builder.code.architecture; }

bool Decoder::take(StringRef expected) {
  if (modifier == instruction.modifiers.size() || instruction.modifiers[modifier] != expected)
    return false;
  ++modifier;
  return true;
}

int Decoder::takeOneOf(std::initializer_list<StringRef> choices) {
  int index = 0;
  for (StringRef choice : choices) {
    if (take(choice))
      return index;
    ++index;
  }
  return -1;
}

std::optional<Type> Decoder::takeType() {
  if (modifier == instruction.modifiers.size())
    return std::nullopt;
  auto type = parseType(instruction.modifiers[modifier]);
  modifier += type.has_value();
  return type;
}

Type Decoder::type() {
  if (auto found = takeType())
    return *found;
  fail(modifier < instruction.modifiers.size() ? "found '." + instruction.modifiers[modifier] + "', expected a type"
                                               : "expected a type");
  return Type::B32;
}

std::optional<Rounding> Decoder::takeRounding() {
  constexpr Rounding kinds[] = {Rounding::NearestEven, Rounding::Zero, Rounding::Down, Rounding::Up,
                                Rounding::NearestAway};
  int found = takeOneOf({"rn", "rz", "rm", "rp", "rna"});
  if (found < 0)
    return std::nullopt;
  return kinds[found];
}

bool Decoder::allTaken() {
  return modifier == instruction.modifiers.size() ||
         fail("the modifier '." + llvm::Twine(instruction.modifiers[modifier]) +
              "' is not simulated for this instruction");
}

bool Decoder::expectOperands(unsigned min, unsigned max) {
  return (count() >= min && count() <= max) ||
         fail("found " + llvm::Twine(count()) + " operands, expected " + llvm::Twine(min) +
              (max > min ? " to " + llvm::Twine(max) : llvm::Twine()));
}

unsigned Decoder::widthOf(const Operand &operand) const {
  return operand.kind == Operand::Register ? rowBytes(function.registers[operand.number].type) : 0;
}

static bool fits(Type declared, Type expected, bool wider) {
  if (declared == Type::Pred || expected == Type::Pred)
    return declared == expected;
  return wider ? rowBytes(declared) >= bytesOf(expected) : rowBytes(declared) == rowBytes(expected);
}

void Decoder::result(const Operand &operand, Type type, bool wider) {
  if (operand.kind == Operand::Sink) {
    results.push_back(builder.allocate(rowBytes(type)));
    return;
  }
  if (operand.kind != Operand::Register || operand.negated) {
    fail("expected a register as the result");
    return;
  }
  const RegisterDeclaration &declared = function.registers[operand.number];
  if (!fits(declared.type, type, wider))
    fail("the result '" + declared.name + "' does not have the width of the instruction's type");
  results.push_back(builder.registers[&function][operand.number]);
}

void Decoder::input(const Operand &operand, Type type, bool wider) {
  unsigned bytes = rowBytes(type);
  switch (operand.kind) {
  case Operand::Register: {
    const RegisterDeclaration &declared = function.registers[operand.number];
    if (!fits(declared.type, type, wider))
      fail("the operand '" + declared.name + "' does not have the width of the instruction's type");
    Slot slot = builder.registers[&function][operand.number];
    if (operand.negated) {
      // !%p: a separate op negates the predicate into a temporary.
      if (declared.type != Type::Pred)
        fail("only predicates can be negated");
      Decoder negation(builder, function, instruction);
      negation.results.push_back(builder.allocate(0));
      negation.inputs.push_back(slot);
      negation.op.run = notPredicate;
      slot = negation.results[0];
      builder.append(negation);
      builder.kernel.ops.back().guarded = false;
    }
    inputs.push_back(slot);
    return;
  }
  case Operand::Integer:
    if (type == Type::F32 || type == Type::F64)
      fail("expected a floating-point immediate");
    if (type == Type::Pred)
      return constant(operand.bits ? ~uint32_t(0) : 0, 4);
    return constant(operand.bits, bytes);
  case Operand::Float: {
    uint64_t bits = operand.bits;
    if (bytes == 4 && !operand.isSingle)
      bits = bitsOf(float(doubleOf(bits)));
    else if ((operand.isSingle ? 4 : 8) != bytes)
      fail("the immediate does not have the width of the instruction's type");
    return constant(bits, bytes);
  }
  case Operand::Special:
    if (auto slot = builder.special(operand.name); slot && bytes == 4)
      inputs.push_back(*slot);
    else
      fail("the special register '" + operand.name + "' is not simulated for this instruction");
    return;
  case Operand::Symbol:
    if (!operand.variable || bytes < 4)
      fail("'" + operand.name + "' is not a variable in this scope");
    else
      constant(builder.addressOf(*operand.variable) + operand.offset, bytes);
    return;
  default:
    fail("the kind of operand is not simulated for this instruction");
  }
}

Space Decoder::address(const Operand &operand, Space space) {
  op.numbers[5] = 8;
  if (operand.kind != Operand::Address) {
    fail("expected an address in square brackets");
    return space;
  }
  op.offset = operand.offset;
  const Operand &base = operand.parts[0];
  if (base.kind == Operand::Register) {
    op.numbers[5] = widthOf(base);
    input(base, op.numbers[5] == 4 ? Type::B32 : Type::B64);
    return space;
  }
  if (base.kind == Operand::Symbol && base.variable) {
    const Variable &variable = *base.variable;
    bool inFrame = variable.space == Space::Param && !variable.isEntryParameter;
    Space actual = inFrame ? Space::Local : variable.space;
    uint64_t where = builder.addressOf(variable);
    if (space == Space::Generic) {
      where |= actual == Space::Shared  ? sharedWindow
               : actual == Space::Local ? localWindow
               : actual == Space::Param ? paramWindow
                                        : 0;
    } else if (space != variable.space) {
      fail("'" + variable.name + "' is in another state space");
    } else {
      space = actual;
    }
    constant(where, 8);
    return space;
  }
  if (base.kind == Operand::Integer)
    constant(base.bits, 8);
  else
    fail("'" + base.name + "' is not a variable in this scope");
  return space;
}

void Decoder::constant(uint64_t bits, unsigned bytes) { inputs.push_back(builder.constant(bits, bytes)); }

void Decoder::carryResult() { results.push_back(builder.carry()); }
void Decoder::carryInput() { inputs.push_back(builder.carry()); }

int64_t Decoder::immediate(const Operand &operand) {
  if (operand.kind != Operand::Integer)
    fail("expected an integer immediate");
  return int64_t(operand.bits);
}

bool Decoder::emit(Handler handler) {
  op.run = handler;
  return !hasFailed;
}

void Decoder::next() {
  builder.append(*this);
  op = Op();
  results.clear();
  inputs.clear();
}
