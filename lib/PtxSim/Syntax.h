//===- Syntax.h - Syntax tree of PTX --------------------------------*- C++ -*-===//
//
// Result of the parser. Names are resolved to registers, variables and labels; instructions are not interpreted yet.
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
  std::vector<uint8_t> content; ///< initialiser; zero-extended to `size`
  unsigned line = 0;
};

struct Operand {
  enum Kind {
    Register, ///< `number`
    Special,  ///< `name`: %tid.x
    Integer,  ///< `bits`
    Float,    ///< `bits` of an f64, or of an f32 if `isSingle`
    Symbol,   ///< `variable`, or `name` of a label or function
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
  std::vector<std::string> modifiers; ///< the dot-separated rest
  std::vector<Operand> operands;
  int guard = -1; ///< register number
  bool guardNegated = false;
  unsigned scope = 0; ///< brace block, for the lookup of labels

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
  std::vector<unsigned> scopeParents;                  ///< parent of each brace block; block 0 is the body
  std::vector<std::map<std::string, unsigned>> labels; ///< per block: name → instruction
  std::map<std::string, std::vector<std::string>> branchTargets;
  std::optional<std::array<uint32_t, 3>> requiredThreads;
  uint32_t maxThreads = 1024;
  uint32_t minBlocks = 1;      ///< of a multiprocessor
  uint32_t maxRegisters = 0;   ///< of a thread; 0: not given
  bool hasThreadLimit = false; ///< .reqntid or .maxntid

  /// The instruction that `label` refers to in block `scope`.
  std::optional<unsigned> findLabel(const std::string &label, unsigned scope) const;
};

struct SyntaxModule {
  std::string target;                         ///< sm_80
  std::pair<unsigned, unsigned> version = {}; ///< of PTX: {8, 4}
  std::vector<std::string> lines;
  std::deque<Variable> variables;
  std::deque<Function> functions;

  Function *findFunction(llvm::StringRef name);
};

/// Parses `text`. Returns nullopt and sets `finding` on the first error.
std::optional<SyntaxModule> parse(llvm::StringRef text, Finding &finding);

/// Per branch, the instruction at which diverged lanes reconverge: the immediate post-dominator of its basic block, or
/// `instructions.size()` at the end of the function. Entries of other instructions have no meaning. Algorithm: Cooper,
/// Harvey and Kennedy, A simple, fast dominance algorithm.
std::vector<unsigned> reconvergencePoints(const Function &function);

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_SYNTAX_H
