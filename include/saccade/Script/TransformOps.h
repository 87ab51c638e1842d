//===- TransformOps.h - The ops transform.attn --------------------*- C++ -*-===//
#ifndef SACCADE_SCRIPT_TRANSFORMOPS_H
#define SACCADE_SCRIPT_TRANSFORMOPS_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Transform/IR/TransformDialect.h"
#include "mlir/Dialect/Transform/IR/TransformTypes.h"
#include "mlir/Dialect/Transform/Interfaces/TransformInterfaces.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#define GET_OP_CLASSES
#include "saccade/Script/TransformOps.h.inc"

#endif // SACCADE_SCRIPT_TRANSFORMOPS_H
