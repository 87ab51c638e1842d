//===- OpaqueText.cpp - Attributes of unregistered dialects ---------------===//
#include "saccade/Import/Common/OpaqueText.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace saccade::frontend;

namespace {

/// Tokenizer for attribute text.
struct Scanner {
  StringRef text;

  void skipSpace() { text = text.ltrim(); }
  bool take(StringRef mark) {
    skipSpace();
    return text.consume_front(mark);
  }
  StringRef word() {
    skipSpace();
    StringRef found = text.take_while([](char c) { return llvm::isAlnum(c) || c == '_' || c == '.' || c == '-'; });
    // "x" and "->" separate lists and are not part of a word.
    text = text.drop_front(found.size());
    return found;
  }
};

} // namespace

std::optional<SmallVector<int64_t>> OpaqueText::integers(StringRef name) const {
  SmallVector<int64_t> result;
  for (const Item &item : items) {
    if (item.name != name)
      continue;
    for (StringRef word : item.words)
      if (int64_t value; !word.getAsInteger(10, value))
        result.push_back(value);
      else
        return std::nullopt;
  }
  return result;
}

/// Parses [word, ...]; false if the list is not closed.
static bool scanList(Scanner &scanner, SmallVectorImpl<StringRef> &words) {
  if (scanner.take("]"))
    return true;
  do {
    words.push_back(scanner.word());
    if (words.back().empty())
      return false;
  } while (scanner.take(","));
  return scanner.take("]");
}

std::optional<OpaqueText> saccade::frontend::parseOpaque(Attribute attribute) {
  auto opaque = dyn_cast_or_null<OpaqueAttr>(attribute);
  if (!opaque)
    return std::nullopt;
  Scanner scanner{opaque.getAttrData()};
  OpaqueText result;
  result.kind = scanner.word();
  bool isBracketed = scanner.take("<");
  while (!scanner.take(">")) {
    scanner.skipSpace();
    if (scanner.text.empty() && !isBracketed)
      return result;
    OpaqueText::Item item;
    if (scanner.take("[")) {
      if (!scanList(scanner, item.words))
        return std::nullopt;
    } else {
      item.words.push_back(scanner.word());
      if (item.words.back().empty())
        return std::nullopt;
      if (scanner.take("=")) {
        item.name = item.words.pop_back_val();
        if (!scanner.take("["))
          item.words.push_back(scanner.word());
        else if (!scanList(scanner, item.words))
          return std::nullopt;
      }
    }
    result.items.push_back(std::move(item));
    if (!scanner.take(",") && !scanner.take("->"))
      scanner.take("x");
  }
  return result;
}
