//===- Parser.h - Recursive-descent parser of PTX -------------------*- C++ -*-===//
#ifndef SACCADE_LIB_PTXSIM_PARSER_H
#define SACCADE_LIB_PTXSIM_PARSER_H

#include "Lexer.h"
#include "Syntax.h"
#include "llvm/ADT/Twine.h"

namespace saccade::ptxsim {

/// One pass over the tokens. Methods return false on error, after setting the finding.
class Parser {
public:
  Parser(llvm::StringRef text, SyntaxModule &module, Finding &finding);
  bool run();

private:
  // Parser.cpp: modules and declarations.
  bool moduleItem();
  bool function(bool isEntry, bool isExtern);
  bool parameterList(Function &function, bool results);
  bool functionDirectives(Function &function);
  bool variables(std::deque<Variable> &into, Space space, bool isExtern,
                 std::vector<const Variable *> *order = nullptr);
  bool initialiser(Variable &variable, Type element);
  bool threeNumbers(std::array<uint32_t, 3> &numbers);

  // ParseBody.cpp: statements and operands.
  bool body(Function &function);
  bool statement(Function &function, unsigned scope);
  bool registers(Function &function, unsigned scope);
  bool instruction(Function &function, unsigned scope);
  bool operand(Operand &operand);
  bool operandList(std::vector<Operand> &parts, llvm::StringRef close);
  bool address(Operand &result);
  bool number(Operand &operand, bool negative);
  bool branchTargets(Function &function, const std::string &label);

  const Token &peek(unsigned ahead = 0) const { return tokens[std::min<size_t>(at + ahead, tokens.size() - 1)]; }
  const Token &next() { return tokens[at + 1 < tokens.size() ? at++ : at]; }
  bool take(llvm::StringRef text) { return peek().is(text) && (next(), true); }
  bool expect(llvm::StringRef text);
  /// The next token for a message: "'ret'", or "the end of the text".
  std::string found();
  bool fail(const llvm::Twine &message) { return failAt(peek().line, message); }
  bool failAt(unsigned line, const llvm::Twine &message);
  void skipLine();
  bool integer(int64_t &value);

  std::optional<unsigned> findRegister(const std::string &name) const;
  const Variable *findVariable(const std::string &name) const;

  std::vector<Token> tokens;
  size_t at = 0;
  SyntaxModule &module;
  Finding &finding;

  struct Scope {
    unsigned id;
    std::map<std::string, unsigned> registers;
    std::map<std::string, const Variable *> variables;
  };
  std::vector<Scope> scopes;
};

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_PARSER_H
