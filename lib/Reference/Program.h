//===- Program.h - Compiled scalar regions ----------------------------*- C++ -*-===//
//
// The body of a linalg op or a score or mask region runs once per element. It is compiled to a list of functions over
// numbered slots, which avoids walking the IR in every run.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_REFERENCE_PROGRAM_H
#define SACCADE_REFERENCE_PROGRAM_H

#include "Frame.h"
#include "ScalarOps.h"
#include "mlir/IR/IRMapping.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::reference {

class Program {
public:
  /// Compiles the single block of `body`. Fails with a diagnostic on an unsupported op.
  static mlir::FailureOr<std::shared_ptr<Program>> compile(mlir::Region &body, Precision precision);

  /// Binds the values from outside that the block uses; elements of tensors are computed on demand. `captures` maps
  /// block arguments to captured tensors and scalars.
  mlir::LogicalResult bind(Frame &frame, const mlir::IRMapping &captures = {});

  /// Inputs of the next run. Unused ones are ignored.
  void setArgument(unsigned number, Scalar value) { slots[number] = value; }
  void setLoopIndex(unsigned loop, int64_t value) {
    if (loop < loopSlots.size())
      slots[loopSlots[loop]].integer = value;
  }
  void setLength(attn::Role role, int64_t value) { slots[lengthSlots[unsigned(role)]].integer = value; }

  mlir::LogicalResult run();
  /// Operand `number` of the terminator, after a run.
  Scalar yielded(unsigned number) const { return slots[yieldedSlots[number]]; }

private:
  struct Instruction {
    mlir::Operation *op;
    ScalarFunction function; ///< empty until bound for an op that reads a tensor
    mlir::Value tensor;      ///< operand of tensor.extract or tensor.dim
    llvm::SmallVector<unsigned, 3> operands;
    unsigned result;
    mlir::Type roundTo;   ///< null if the result is not rounded
    double errorSize = 0; ///< with Precision::GPU: the size of the error is this, or the result if negative
  };

  mlir::LogicalResult add(mlir::Operation &op, Precision precision);
  unsigned slotOf(mlir::Value value);
  unsigned newSlot(Scalar value = {});

  llvm::DenseMap<mlir::Value, unsigned> slotOfValue;
  llvm::SmallVector<std::pair<mlir::Value, unsigned>> outside;
  std::vector<Scalar> slots;
  std::vector<Instruction> instructions;
  llvm::SmallVector<unsigned> loopSlots, yieldedSlots;
  unsigned lengthSlots[2];
  mlir::Block *block = nullptr;
};

/// Binds the program of `body`, which is compiled once per frame.
mlir::FailureOr<Program *> bindProgram(mlir::Region &body, Frame &frame, const mlir::IRMapping &captures = {});

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_PROGRAM_H
