//===- NameValues.h - Names of the arguments and results of an entry -*- C++ -*-===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_NAMEVALUES_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_NAMEVALUES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <string>

namespace saccade::attn {

/// Result attribute with the name of a result.
inline constexpr llvm::StringLiteral resultNameAttr = "attn.name";

/// Names of the arguments, then of the results, of a function with a body. An argument has its name in the program text
/// (`mlir::NameLoc`, set by the parser), else arg0, arg1, .... A result has that of its attribute `attn.name`.
/// Without one, results of attention are output, lse, max, argmax and tally; others are result, or result0, result1,
/// ... if there are several. Names are unique C identifiers (possibly keywords).
llvm::SmallVector<std::string> nameValues(mlir::func::FuncOp function);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_NAMEVALUES_H
