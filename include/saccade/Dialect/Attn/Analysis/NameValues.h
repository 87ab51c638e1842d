//===- NameValues.h - What the values of an entry are called ------*- C++ -*-===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_NAMEVALUES_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_NAMEVALUES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <string>

namespace saccade::attn {

/// Names of the arguments, then of the results, of a function with a body. Arguments are called as in the text of the
/// program where their location says so (`mlir::NameLoc`, set while parsing), else arg0, arg1...; results that come
/// straight from an attention output and lse, others result, or result0, result1... where there are several. Every name
/// has the form of an identifier of C (it may be a keyword), and no two are equal.
llvm::SmallVector<std::string> nameValues(mlir::func::FuncOp function);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_NAMEVALUES_H
