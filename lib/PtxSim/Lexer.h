//===- Lexer.h - Tokens of PTX --------------------------------------*- C++ -*-===//
#ifndef SACCADE_LIB_PTXSIM_LEXER_H
#define SACCADE_LIB_PTXSIM_LEXER_H

#include "llvm/ADT/StringRef.h"
#include <vector>

namespace saccade::ptxsim {

/// A word is a name, a number, a directive or an instruction with its modifiers: a run of letters, digits, `_`, `$`,
/// `%`,
/// `.` and `::`. Any other token is one character or a string.
struct Token {
  enum Kind : uint8_t { Word, Punctuation, String, End } kind;
  llvm::StringRef text;
  unsigned line;

  bool is(llvm::StringRef expected) const { return kind != String && text == expected; }
};

/// Tokens of `text` without comments, followed by one `End`.
std::vector<Token> tokenize(llvm::StringRef text);

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_LEXER_H
