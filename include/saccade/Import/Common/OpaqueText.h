//===- OpaqueText.h - Attributes of dialects that nobody registered -*- C++ -*-===//
//
// An attribute like #stablehlo.dot<lhs_contracting_dimensions = [3]> is kept by MLIR as text. This cuts such text into
// its parts.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_COMMON_OPAQUETEXT_H
#define SACCADE_IMPORT_COMMON_OPAQUETEXT_H

#include "mlir/IR/Attributes.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <optional>

namespace saccade::frontend {

/// `kind<name = [word, ...], name = word, [word, ...]x[...]->[...]>`, or `kind word` where the dialect prints it so.
/// The words are parts of the attribute's text, which its context owns.
struct OpaqueText {
  struct Item {
    llvm::StringRef name; ///< empty for an item that has none
    llvm::SmallVector<llvm::StringRef> words;
  };

  llvm::StringRef kind;
  llvm::SmallVector<Item> items;

  /// The words of an item as integers: none where it is missing, nothing where one is no integer.
  std::optional<llvm::SmallVector<int64_t>> integers(llvm::StringRef name) const;
};

/// Nothing for an attribute that is not opaque, or whose text is of another form.
std::optional<OpaqueText> parseOpaque(mlir::Attribute attribute);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_OPAQUETEXT_H
