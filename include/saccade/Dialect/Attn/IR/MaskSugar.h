//===- MaskSugar.h - Masks by name -------------------------------*- C++ -*-===//
//
// `mask NAME<...>` is a short form of a mask region. The names are a table of the dialect, to which extensions add:
//
//   registry.addExtension(+[](MLIRContext *, attn::AttnDialect *dialect) {
//     dialect->addMaskSugar({"chunks", "chunks<SIZE>", parseChunks});
//   });
//
// The parser expands it, and the printer prints the region, so analyses and code generators handle regions only.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_IR_MASKSUGAR_H
#define SACCADE_DIALECT_ATTN_IR_MASKSUGAR_H

#include "mlir/IR/OpImplementation.h"

namespace mlir {
class ImplicitLocOpBuilder;
} // namespace mlir

namespace saccade::attn {

struct RegionArguments;

/// A mask that programs write by its name.
struct MaskSugar {
  /// The keyword.
  llvm::StringRef name;
  /// The syntax, for messages: "window<LEFT, RIGHT>".
  llvm::StringRef form;
  /// Parses what follows the name, and builds scalar code at the end of the region with the arguments `arguments`.
  /// Sets `isVisible`, an i1: whether the query attends to the key. If it stays null, all keys are visible. `where` is
  /// the location of the name. Fails after an error message.
  mlir::ParseResult (*parse)(mlir::OpAsmParser &parser, llvm::SMLoc where, mlir::ImplicitLocOpBuilder &b,
                             const RegionArguments &arguments, mlir::Value &isVisible);
};

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_IR_MASKSUGAR_H
