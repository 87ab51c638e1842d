//===- Syntax.h - PTX text as a tree --------------------------------*- C++ -*-===//
//
// What the parser makes of the text: names are resolved to registers, variables and places in the code; nothing is
// known yet of what an instruction means.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_PTXSIM_SYNTAX_H
#define SACCADE_LIB_PTXSIM_SYNTAX_H

#include "Types.h"
#include "saccade/PtxSim/Finding.h"
#include "llvm/ADT/StringRef.h"
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace saccade::ptxsim {

struct Variable {
  std::string name;
  Space space = Space::Global;
  uint64_t size = 0, alignment = 1;
  bool isExtern = false;
  bool isEntryParameter = false;
  std::vector<uint8_t> content; ///< of an initialiser; shorter than `size`: the rest is 0
  unsigned line = 0;
};

struct Operand {
  enum Kind {
    Register, ///< `number`
    Special,  ///< `name`: %tid.x
    Integer,  ///< `bits`
    Float,    ///< `bits` of an f64, or of an f32 where `isSingle`
    Symbol,   ///< `variable`, or else `name`: a label or function
    Address,  ///< [parts[0] + offset]
    Vector,   ///< {parts...}
    Pair,     ///< parts[0] | parts[1]
    List,     ///< (parts...)
    Sink,     ///< _
  } kind = Sink;
  bool negated = false; ///< !%p
  bool isSingle = false;
  unsigned number = 0;
  uint64_t bits = 0;
  int64_t offset = 0;
  std::string name;
  const Variable *variable = nullptr;
  std::vector<Operand> parts;
};

struct Instruction {
  unsigned line = 0;
  std::string mnemonic;               ///< up to the first dot
  std::vector<std::string> modifiers; ///< what stands between the dots after it
  std::vector<Operand> operands;
  int guard = -1; ///< register number
  bool guardNegated = false;
  unsigned scope = 0; ///< of its labels

  std::string text() const;
};

struct RegisterDeclaration {
  std::string name;
  Type type;
};

struct Function {
  std::string name;
  unsigned line = 0;
  bool isEntry = false, isDefined = false;
  std::vector<const Variable *> parameters, results;
  std::vector<RegisterDeclaration> registers;
  std::deque<Variable> variables;
  std::vector<Instruction> instructions;
  std::vector<unsigned> scopeParents;                  ///< of brace blocks; block 0 is the body
  std::vector<std::map<std::string, unsigned>> labels; ///< of each block: name → instruction
  std::map<std::string, std::vector<std::string>> branchTargets;
  std::optional<std::array<uint32_t, 3>> requiredThreads;
  uint32_t maxThreads = 1024;

  /// The instruction that `label` names when used in block `scope`.
  std::optional<unsigned> findLabel(const std::string &label, unsigned scope) const;
};

struct SyntaxModule {
  std::string target; ///< sm_80
  std::vector<std::string> lines;
  std::deque<Variable> variables;
  std::deque<Function> functions;

  Function *findFunction(llvm::StringRef name);
};

/// Parses all of `text`. The first error goes into `finding`.
std::optional<SyntaxModule> parse(llvm::StringRef text, Finding &finding);

/// For every instruction of a function where lanes that take different ways after it meet again: an instruction, or
/// `instructions.size()` where they meet only at the end. Only branches have a meaningful entry.
/// Immediate post-dominators of basic blocks (Cooper, Harvey and Kennedy: A simple, fast dominance algorithm).
std::vector<unsigned> reconvergencePoints(const Function &function);

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_SYNTAX_H
