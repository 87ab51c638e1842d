//===- ParseBody.cpp - Statements and operands of PTX ---------------------===//

#include "Numbers.h"
#include "Parser.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/Twine.h"
#include <cstdlib>
#include <cstring>

using namespace saccade::ptxsim;
using llvm::StringRef;

std::optional<unsigned> Parser::findRegister(const std::string &name) const {
  for (const Scope &scope : llvm::reverse(scopes))
    if (auto found = scope.registers.find(name); found != scope.registers.end())
      return found->second;
  return std::nullopt;
}

const Variable *Parser::findVariable(const std::string &name) const {
  for (const Scope &scope : llvm::reverse(scopes))
    if (auto found = scope.variables.find(name); found != scope.variables.end())
      return found->second;
  for (const Variable &variable : module.variables)
    if (variable.name == name)
      return &variable;
  return nullptr;
}

bool Parser::body(Function &function) {
  if (!expect("{"))
    return false;
  unsigned scope = 0;
  while (true) {
    if (peek().kind == Token::End)
      return fail("the body of '" + function.name + "' has no closing brace");
    if (take("{")) {
      unsigned inner = function.scopeParents.size();
      function.scopeParents.push_back(scope);
      function.labels.emplace_back();
      scopes.push_back({inner, {}, {}});
      scope = inner;
    } else if (take("}")) {
      if (scopes.size() == 1)
        return true;
      scopes.pop_back();
      scope = scopes.back().id;
    } else if (!statement(function, scope)) {
      return false;
    }
  }
}

bool Parser::statement(Function &function, unsigned scope) {
  StringRef word = peek().text;
  if (word == ".loc" || word == ".file") {
    skipLine();
    return true;
  }
  if (word == ".pragma") {
    next(), next();
    return expect(";");
  }
  if (take(".reg"))
    return registers(function, scope);
  for (auto [name, space] : {std::pair(".shared", Space::Shared), {".local", Space::Local}, {".param", Space::Param}})
    if (take(name))
      return variables(function.variables, space, false) && expect(";");
  if (take(";"))
    return true;
  if (peek().kind == Token::Word && peek(1).is(":")) {
    std::string label = next().text.str();
    next();
    if (take(".branchtargets"))
      return branchTargets(function, label);
    if (!function.labels[scope].emplace(label, function.instructions.size()).second)
      return fail("redefinition of label '" + label + "'");
    return true;
  }
  if (word.starts_with("."))
    return fail("'" + word + "' is not a supported directive in a function body");
  return instruction(function, scope);
}

bool Parser::branchTargets(Function &function, const std::string &label) {
  do
    function.branchTargets[label].push_back(next().text.str());
  while (take(","));
  return expect(";");
}

/// .reg .b32 %r<10>, %a;
bool Parser::registers(Function &function, unsigned scope) {
  llvm::StringRef word = peek().text;
  auto type = word.consume_front(".") ? parseType(word) : std::nullopt;
  if (!type)
    return fail("registers of type '" + peek().text + "' are not simulated");
  next();
  do {
    std::string name = next().text.str();
    auto declare = [&](const std::string &one) {
      scopes.back().registers[one] = function.registers.size();
      function.registers.push_back({one, *type});
    };
    if (take("<")) {
      int64_t count;
      if (!integer(count) || !expect(">"))
        return false;
      if (count < 0 || count > 1 << 20)
        return fail("found " + llvm::Twine(count) + " registers, expected 0 to " + llvm::Twine(1 << 20));
      for (int64_t index = 0; index < count; ++index)
        declare(name + std::to_string(index));
    } else {
      declare(name);
    }
  } while (take(","));
  return expect(";");
}

bool Parser::instruction(Function &function, unsigned scope) {
  Instruction parsed;
  parsed.scope = scope;
  if (take("@")) {
    parsed.guardNegated = take("!");
    std::string name = next().text.str();
    auto guard = findRegister(name);
    if (!guard || function.registers[*guard].type != Type::Pred)
      return fail("'" + name + "' is not a predicate register");
    parsed.guard = *guard;
  }
  if (peek().kind != Token::Word)
    return fail("found " + found() + ", expected an instruction");
  parsed.line = peek().line;
  // Dots separate modifiers; `::` is part of a modifier.
  llvm::SmallVector<StringRef> pieces;
  next().text.split(pieces, '.');
  parsed.mnemonic = pieces.front().str();
  for (StringRef piece : llvm::drop_begin(pieces))
    parsed.modifiers.push_back(piece.str());
  while (!peek().is(";")) {
    if (peek().kind == Token::End)
      return failAt(parsed.line, "the instruction has no terminating semicolon");
    Operand one;
    if (!operand(one))
      return false;
    parsed.operands.push_back(std::move(one));
    if (!peek().is(";") && !expect(","))
      return false;
  }
  next();
  function.instructions.push_back(std::move(parsed));
  return true;
}

bool Parser::operandList(std::vector<Operand> &parts, StringRef close) {
  while (!take(close)) {
    parts.emplace_back();
    if (!operand(parts.back()))
      return false;
    if (!peek().is(close) && !expect(","))
      return false;
  }
  return true;
}

bool Parser::operand(Operand &operand) {
  if (take("{")) {
    operand.kind = Operand::Vector;
    return operandList(operand.parts, "}");
  }
  if (take("(")) {
    operand.kind = Operand::List;
    return operandList(operand.parts, ")");
  }
  if (take("["))
    return address(operand);
  operand.negated = take("!");
  bool negative = !operand.negated && take("-");
  if (peek().kind != Token::Word)
    return fail("found " + found() + ", expected an operand");
  if (negative || llvm::isDigit(peek().text[0]))
    return number(operand, negative);
  std::string name = next().text.str();
  if (name == "_") {
    operand.kind = Operand::Sink;
  } else if (auto found = findRegister(name)) {
    operand.kind = Operand::Register;
    operand.number = *found;
  } else if (name == "WARP_SZ") {
    operand.kind = Operand::Integer;
    operand.bits = 32;
  } else if (name[0] == '%') {
    operand.kind = Operand::Special;
    operand.name = name;
  } else {
    operand.kind = Operand::Symbol;
    operand.variable = findVariable(name);
    operand.name = name;
    if (peek().is("+") && operand.variable) {
      next();
      return integer(operand.offset);
    }
  }
  if (operand.kind != Operand::Symbol && take("|")) {
    Operand pair;
    pair.kind = Operand::Pair;
    pair.parts.push_back(std::move(operand));
    pair.parts.emplace_back();
    if (!this->operand(pair.parts.back()))
      return false;
    operand = std::move(pair);
  }
  return true;
}

/// The rest of [%rd1], [%rd1+8], [%rd1+-8], [smem+16], [4096] or [%rd1, {%r1, %r2}] after the opening bracket.
bool Parser::address(Operand &result) {
  result.kind = Operand::Address;
  result.parts.emplace_back();
  Operand &base = result.parts.back();
  if (!operand(base))
    return false;
  if (base.kind == Operand::Symbol && base.offset)
    std::swap(result.offset, base.offset);
  if (take("+") || peek().is("-")) {
    int64_t offset;
    if (!integer(offset))
      return false;
    result.offset = offset;
  }
  // [map, {coordinates}]
  if (take(",") && !operand(result.parts.emplace_back()))
    return false;
  return expect("]");
}

bool Parser::number(Operand &operand, bool negative) {
  StringRef word = next().text;
  auto bad = [&]() -> bool { return this->fail("'" + word + "' is not a number"); };
  operand.kind = Operand::Integer;
  if (word.starts_with_insensitive("0f") || word.starts_with_insensitive("0d")) {
    operand.kind = Operand::Float;
    operand.isSingle = word.starts_with_insensitive("0f");
    if (word.drop_front(2).getAsInteger(16, operand.bits))
      return bad();
    if (negative)
      operand.bits ^= uint64_t(1) << (operand.isSingle ? 31 : 63);
    return true;
  }
  if (word.contains('.') && !word.starts_with("0x")) {
    double value;
    if (word.getAsDouble(value))
      return bad();
    operand.kind = Operand::Float;
    value = negative ? -value : value;
    std::memcpy(&operand.bits, &value, 8);
    return true;
  }
  word.consume_back("U");
  unsigned radix = word.size() > 1 && word[0] == '0' ? 0 : 10;
  if (word.getAsInteger(radix, operand.bits))
    return bad();
  if (negative)
    operand.bits = -operand.bits;
  return true;
}
