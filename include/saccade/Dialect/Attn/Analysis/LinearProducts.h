//===- LinearProducts.h - Products of linear attention ------------*- C++ -*-===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_LINEARPRODUCTS_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_LINEARPRODUCTS_H

#include "llvm/ADT/StringRef.h"

namespace saccade {

/// Unit attribute of an attn.linear_gradient whose operands are wider than those of the forward op, which were bf16.
/// Kernels for GPUs round operands of matmuls to bf16 all the same.
inline constexpr llvm::StringLiteral bf16ProductsAttr = "attn.bf16_products";

} // namespace saccade

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_LINEARPRODUCTS_H
