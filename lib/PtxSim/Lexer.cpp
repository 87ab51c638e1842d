//===- Lexer.cpp - Tokens of PTX ------------------------------------------===//

#include "Lexer.h"
#include "llvm/ADT/StringExtras.h"

using namespace saccade::ptxsim;

static bool inWord(char c) { return llvm::isAlnum(c) || c == '_' || c == '$' || c == '%' || c == '.'; }

std::vector<Token> saccade::ptxsim::tokenize(llvm::StringRef text) {
  std::vector<Token> tokens;
  unsigned line = 1;
  size_t at = 0;
  auto starts = [&](llvm::StringRef prefix) { return text.substr(at).starts_with(prefix); };
  while (at < text.size()) {
    char c = text[at];
    if (c == '\n') {
      ++line, ++at;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\0') {
      ++at;
    } else if (starts("//")) {
      at = std::min(text.find('\n', at), text.size());
    } else if (starts("/*")) {
      size_t end = std::min(text.find("*/", at), text.size());
      line += text.slice(at, end).count('\n');
      at = std::min(end + 2, text.size());
    } else if (c == '"') {
      size_t end = std::min(text.find('"', at + 1), text.size());
      tokens.push_back({Token::String, text.slice(at + 1, end), line});
      at = std::min(end + 1, text.size());
    } else if (inWord(c)) {
      size_t end = at;
      while (end < text.size() && (inWord(text[end]) || text.substr(end).starts_with("::")))
        end += text[end] == ':' ? 2 : 1;
      tokens.push_back({Token::Word, text.slice(at, end), line});
      at = end;
    } else {
      tokens.push_back({Token::Punctuation, text.substr(at, 1), line});
      ++at;
    }
  }
  tokens.push_back({Token::End, "", line});
  return tokens;
}
