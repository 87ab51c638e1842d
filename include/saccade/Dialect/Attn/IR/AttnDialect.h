//===- AttnDialect.h - The class of the attn dialect -------------*- C++ -*-===//
//
// For code that registers or loads the dialect and uses none of its ops.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_IR_ATTNDIALECT_H
#define SACCADE_DIALECT_ATTN_IR_ATTNDIALECT_H

#include "mlir/IR/Dialect.h"
#include "saccade/Dialect/Attn/IR/MaskSugar.h"

#include "saccade/Dialect/Attn/IR/AttnDialect.h.inc"

#endif // SACCADE_DIALECT_ATTN_IR_ATTNDIALECT_H
