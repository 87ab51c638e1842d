//===- Parser.cpp - Modules and declarations of PTX -----------------------===//

#include "Parser.h"
#include "Numbers.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/Twine.h"
#include <cstring>

using namespace saccade::ptxsim;
using llvm::StringRef;

std::optional<Type> saccade::ptxsim::parseType(StringRef name) {
  return llvm::StringSwitch<std::optional<Type>>(name)
      .Case("pred", Type::Pred)
      .Case("b8", Type::B8)
      .Case("b16", Type::B16)
      .Case("b32", Type::B32)
      .Case("b64", Type::B64)
      .Case("b128", Type::B128)
      .Case("u8", Type::U8)
      .Case("u16", Type::U16)
      .Case("u32", Type::U32)
      .Case("u64", Type::U64)
      .Case("s8", Type::S8)
      .Case("s16", Type::S16)
      .Case("s32", Type::S32)
      .Case("s64", Type::S64)
      .Case("f16", Type::F16)
      .Case("bf16", Type::BF16)
      .Case("f16x2", Type::F16x2)
      .Case("bf16x2", Type::BF16x2)
      .Case("f32", Type::F32)
      .Case("f64", Type::F64)
      .Case("tf32", Type::TF32)
      .Case("e4m3", Type::E4M3)
      .Case("e5m2", Type::E5M2)
      .Case("e4m3x2", Type::E4M3x2)
      .Case("e5m2x2", Type::E5M2x2)
      .Case("u16x2", Type::U16x2)
      .Case("s16x2", Type::S16x2)
      .Default(std::nullopt);
}

Function *SyntaxModule::findFunction(StringRef name) {
  for (Function &function : functions)
    if (function.name == name)
      return &function;
  return nullptr;
}

std::optional<unsigned> Function::findLabel(const std::string &label, unsigned scope) const {
  while (true) {
    if (auto found = labels[scope].find(label); found != labels[scope].end())
      return found->second;
    if (scope == 0)
      return std::nullopt;
    scope = scopeParents[scope];
  }
}

std::string Instruction::text() const {
  std::string text = mnemonic;
  for (const std::string &modifier : modifiers)
    text += "." + modifier;
  return text;
}

Parser::Parser(StringRef text, SyntaxModule &module, Finding &finding)
    : tokens(tokenize(text)), module(module), finding(finding) {
  llvm::SmallVector<StringRef> lines;
  text.split(lines, '\n');
  for (StringRef line : lines)
    module.lines.push_back(line.trim().str());
}

bool Parser::failAt(unsigned line, const llvm::Twine &message) {
  finding = {FindingKind::Syntax, line, line <= module.lines.size() ? module.lines[line - 1] : "", message.str()};
  return false;
}

std::string Parser::found() {
  return peek().kind == Token::End ? "the end of the text" : "'" + peek().text.str() + "'";
}

bool Parser::expect(StringRef text) { return take(text) || fail("found " + found() + ", expected '" + text + "'"); }

void Parser::skipLine() {
  unsigned line = peek().line;
  while (peek().kind != Token::End && peek().line == line)
    next();
}

bool Parser::integer(int64_t &value) {
  bool negative = take("-");
  Operand parsed;
  if (!number(parsed, negative))
    return false;
  if (parsed.kind != Operand::Integer)
    return fail("expected an integer");
  value = int64_t(parsed.bits);
  return true;
}

bool Parser::run() {
  while (peek().kind != Token::End)
    if (!moduleItem())
      return false;
  return true;
}

/// The newest version of PTX whose instructions are known: that of CUDA 13.0 (PTX ISA 9.0).
static constexpr std::pair<unsigned, unsigned> newestVersion = {9, 0};

bool Parser::moduleItem() {
  StringRef word = peek().text;
  if (word == ".version") {
    auto [major, minor] = peek(1).text.split('.');
    if (major.getAsInteger(10, module.version.first) || minor.getAsInteger(10, module.version.second))
      return fail("expected a version");
    if (module.version > newestVersion)
      return fail("found version " + peek(1).text + ", expected at most " + llvm::Twine(newestVersion.first) + "." +
                  llvm::Twine(newestVersion.second));
    skipLine();
    return true;
  }
  if (word == ".address_size" || word == ".file" || word == ".loc") {
    skipLine();
    return true;
  }
  if (word == ".target") {
    next();
    module.target = next().text.str();
    skipLine();
    return true;
  }
  if (word == ".pragma") {
    next(), next();
    return expect(";");
  }
  if (word == ".section") {
    while (peek().kind != Token::End && !take("}"))
      next();
    return true;
  }
  bool isExtern = false;
  while (peek().is(".visible") || peek().is(".weak") || peek().is(".extern") || peek().is(".common"))
    isExtern |= next().is(".extern");
  if (take(".entry"))
    return function(/*isEntry=*/true, isExtern);
  if (take(".func"))
    return function(/*isEntry=*/false, isExtern);
  for (auto [name, space] : {std::pair(".global", Space::Global), {".const", Space::Const}, {".shared", Space::Shared}})
    if (take(name))
      return variables(module.variables, space, isExtern) && expect(";");
  return fail("'" + peek().text + "' is not a supported module directive");
}

/// A declaration with one or more names: .align 4 .b8 a[16], b[8] = {1, 2}
bool Parser::variables(std::deque<Variable> &into, Space space, bool isExtern, std::vector<const Variable *> *order) {
  uint64_t alignment = 0, vector = 1;
  std::optional<Type> type;
  while (peek().text.starts_with(".")) {
    StringRef word = next().text;
    int64_t value;
    if (word == ".align") {
      if (!integer(value))
        return false;
      if (value <= 0 || value > 1 << 20 || (value & (value - 1)))
        return fail("found alignment " + llvm::Twine(value) + ", expected a power of two");
      alignment = value;
    } else if (word == ".v2" || word == ".v4") {
      vector = word == ".v2" ? 2 : 4;
    } else if (auto found = parseType(word.drop_front())) {
      type = found;
    } else if (word == ".ptr" || word == ".attribute") {
      // `.ptr .global .align 16` describes the pointee of a pointer parameter.
      while (peek().is(".global") || peek().is(".shared") || peek().is(".const") || peek().is(".local"))
        next();
      if (take(".align") && !integer(value))
        return false;
    } else {
      return fail("'" + word + "' is not supported in a declaration");
    }
  }
  if (!type || *type == Type::Pred)
    return fail("expected a variable type");
  do {
    Variable variable;
    variable.line = peek().line;
    if (peek().kind != Token::Word)
      return fail("found " + found() + ", expected a name");
    variable.name = next().text.str();
    variable.space = space;
    variable.isExtern = isExtern;
    variable.alignment = alignment ? alignment : bytesOf(*type) * vector;
    uint64_t count = vector;
    while (take("[")) {
      int64_t extent = 0;
      if (!peek().is("]") && !integer(extent))
        return false;
      if (extent < 0 || extent > int64_t(1) << 32 || count * extent > uint64_t(1) << 32)
        return fail("the array extent " + llvm::Twine(extent) + " is out of range");
      count *= extent;
      if (!expect("]"))
        return false;
    }
    variable.size = count * bytesOf(*type);
    if (take("=") && !initialiser(variable, *type))
      return false;
    into.push_back(std::move(variable));
    if (!scopes.empty())
      scopes.back().variables[into.back().name] = &into.back();
    if (order)
      order->push_back(&into.back());
  } while (!order && take(","));
  return true;
}

bool Parser::initialiser(Variable &variable, Type element) {
  if (take("{")) {
    while (!take("}")) {
      if (!initialiser(variable, element))
        return false;
      take(",");
    }
    return true;
  }
  bool negative = take("-");
  Operand value;
  if (!number(value, negative))
    return false;
  uint64_t bits = value.bits;
  if (value.kind == Operand::Float && !value.isSingle && element == Type::F32) {
    double wide;
    std::memcpy(&wide, &bits, 8);
    bits = bitsOf(float(wide));
  }
  for (unsigned byte = 0; byte < bytesOf(element); ++byte)
    variable.content.push_back(uint8_t(bits >> (8 * byte)));
  return variable.content.size() <= variable.size ||
         fail("'" + variable.name + "' has more initialisers than elements");
}

bool Parser::threeNumbers(std::array<uint32_t, 3> &numbers) {
  unsigned index = 0;
  numbers = {1, 1, 1};
  do {
    int64_t value;
    if (index == 3 || !integer(value))
      return fail("expected one to three integers");
    numbers[index++] = value;
  } while (take(","));
  return true;
}

bool Parser::parameterList(Function &function, bool results) {
  if (!take("("))
    return true;
  while (!take(")")) {
    if (!expect(".param"))
      return false;
    if (!variables(function.variables, Space::Param, false, results ? &function.results : &function.parameters))
      return false;
    function.variables.back().isEntryParameter = function.isEntry;
    take(",");
  }
  return true;
}

bool Parser::functionDirectives(Function &function) {
  std::array<uint32_t, 3> numbers;
  while (peek().text.starts_with(".")) {
    StringRef word = next().text;
    if (word == ".reqntid") {
      if (!threeNumbers(numbers))
        return false;
      function.requiredThreads = numbers;
      function.hasThreadLimit = true;
    } else if (word == ".maxntid") {
      if (!threeNumbers(numbers))
        return false;
      function.maxThreads = numbers[0] * numbers[1] * numbers[2];
      function.hasThreadLimit = true;
    } else if (word == ".minnctapersm" || word == ".maxnctapersm" || word == ".maxnreg") {
      if (!threeNumbers(numbers))
        return false;
      if (word == ".minnctapersm")
        function.minBlocks = std::max(1u, numbers[0]);
      if (word == ".maxnreg")
        function.maxRegisters = numbers[0];
    } else if (word == ".reqnctapercluster") {
      if (!threeNumbers(numbers))
        return false;
      if (numbers != std::array<uint32_t, 3>{1, 1, 1})
        return fail("clusters of several blocks are not supported");
    } else if (word == ".pragma") {
      next();
      if (!expect(";"))
        return false;
    } else if (word != ".noreturn" && word != ".explicitcluster") {
      return fail("the directive '" + word + "' of a function is not supported");
    }
  }
  return true;
}

bool Parser::function(bool isEntry, bool isExtern) {
  Function parsed;
  parsed.isEntry = isEntry;
  parsed.line = peek().line;
  module.functions.push_back(std::move(parsed));
  Function &function = module.functions.back();
  scopes.assign(1, Scope{0, {}, {}});
  function.scopeParents = {0};
  function.labels.resize(1);
  if (!isEntry && !parameterList(function, /*results=*/true))
    return false;
  if (peek().kind != Token::Word)
    return fail("found " + found() + ", expected the name of a function");
  function.name = next().text.str();
  if (!parameterList(function, /*results=*/false) || !functionDirectives(function))
    return false;
  bool good = true;
  if (!take(";")) {
    function.isDefined = true;
    good = body(function);
  }
  scopes.clear();
  // A definition replaces earlier declarations.
  for (auto other = module.functions.begin(); good && other != std::prev(module.functions.end()); ++other)
    if (other->name == function.name && (!other->isDefined || !function.isDefined)) {
      if (!function.isDefined)
        module.functions.pop_back();
      else
        other->name.clear();
      break;
    }
  return good;
}

std::optional<SyntaxModule> saccade::ptxsim::parse(StringRef text, Finding &finding) {
  SyntaxModule module;
  if (!Parser(text, module, finding).run())
    return std::nullopt;
  return module;
}
