//===- Example.h - What the parts of the plugin share -------------*- C++ -*-===//
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Pass/PassManager.h"

#include "ExampleDialect.h.inc"
#define GET_OP_CLASSES
#include "ExampleOps.h.inc"

namespace example {
/// Registers example-lower-quick-gelu, and adds it to a pipeline of modules.
void registerLowerQuickGelu();
void addLowerQuickGelu(mlir::OpPassManager &pm);
/// Adds the mask `chunks<SIZE>` to attention.
void registerChunks(mlir::DialectRegistry &registry);
/// Registers example-limit-window.
void registerLimitWindow();
} // namespace example

#endif // EXAMPLE_H
