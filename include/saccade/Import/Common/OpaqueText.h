//===- OpaqueText.h - Attributes of unregistered dialects -------*- C++ -*-===//
//
// MLIR keeps an attribute such as #stablehlo.dot<lhs_contracting_dimensions = [3]> of an unregistered dialect as text.
// This parses such text into its items.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_COMMON_OPAQUETEXT_H
#define SACCADE_IMPORT_COMMON_OPAQUETEXT_H

#include "mlir/IR/Attributes.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <optional>

namespace saccade::frontend {

/// `kind<name = [word, ...], name = word, [word, ...]x[...]->[...]>`, or `kind word` if the dialect prints it so. The
/// strings refer to the text of the attribute, which the context owns.
struct OpaqueText {
  struct Item {
    llvm::StringRef name; ///< empty if the item has no name
    llvm::SmallVector<llvm::StringRef> words;
  };

  llvm::StringRef kind;
  llvm::SmallVector<Item> items;

  /// The words of item `name` as integers: empty if the item is missing, nullopt if a word is not an integer.
  std::optional<llvm::SmallVector<int64_t>> integers(llvm::StringRef name) const;
};

/// Returns nullopt if the attribute is not opaque or has a different syntax.
std::optional<OpaqueText> parseOpaque(mlir::Attribute attribute);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_OPAQUETEXT_H
