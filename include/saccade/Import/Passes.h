//===- Passes.h - Passes of the import stage --------------------*- C++ -*-===//
#ifndef SACCADE_IMPORT_PASSES_H
#define SACCADE_IMPORT_PASSES_H

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Pass/Pass.h"
#include "saccade/Dialect/Attn/IR/AttnDialect.h"

namespace saccade {

#define GEN_PASS_DECL
#include "saccade/Import/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "saccade/Import/Passes.h.inc"

} // namespace saccade

#endif // SACCADE_IMPORT_PASSES_H
