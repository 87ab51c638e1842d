//===- Lexer.h - PTX text as tokens ---------------------------------*- C++ -*-===//
#ifndef SACCADE_LIB_PTXSIM_LEXER_H
#define SACCADE_LIB_PTXSIM_LEXER_H

#include "llvm/ADT/StringRef.h"
#include <vector>

namespace saccade::ptxsim {

/// A word is a name, a number, a directive or an instruction with its modifiers: all that hangs together by letters,
/// digits, `_`, `$`, `%`, `.` and `::`. Everything else is one character.
struct Token {
  enum Kind : uint8_t { Word, Punctuation, String, End } kind;
  llvm::StringRef text;
  unsigned line;

  bool is(llvm::StringRef expected) const { return kind != String && text == expected; }
};

/// All tokens of `text`, ending in one `End`. Comments are left out.
std::vector<Token> tokenize(llvm::StringRef text);

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_LEXER_H
