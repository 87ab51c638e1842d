//===- Program.h - A scalar region as a straight list of instructions -*- C++ -*-===//
//
// The body of a linalg op, or a score or mask region, runs once an element. It is compiled to a list
// of functions over numbered slots, so that no run walks the IR.
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
  /// Compiles the single block of `body`. Fails with a diagnostic at an op that is not known.
  static mlir::FailureOr<std::shared_ptr<Program>> compile(mlir::Region &body, Precision precision);

  /// Fetches what the block reads from outside, tensors on demand. `captures` maps block arguments that stand for
  /// values outside (captured tensors and scalars) to them.
  mlir::LogicalResult bind(Frame &frame, const mlir::IRMapping &captures = {});

  /// Inputs of the next run. Those that the block does not read are ignored.
  void setArgument(unsigned number, Scalar value) { slots[number] = value; }
  void setLoopIndex(unsigned loop, int64_t value) {
    if (loop < loopSlots.size())
      slots[loopSlots[loop]].integer = value;
  }
  void setLength(attn::Role role, int64_t value) { slots[lengthSlots[unsigned(role)]].integer = value; }

  mlir::LogicalResult run();
  /// What the terminator yields, after a run.
  Scalar yielded(unsigned number) const { return slots[yieldedSlots[number]]; }

private:
  struct Instruction {
    mlir::Operation *op;
    ScalarFunction function; ///< empty until bound where it reads a tensor
    mlir::Value tensor;      ///< what a tensor.extract or tensor.dim reads
    llvm::SmallVector<unsigned, 3> operands;
    unsigned result;
    mlir::Type roundTo; ///< null where the result is not rounded
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

/// The compiled and bound program of `body`, compiled once a frame.
mlir::FailureOr<Program *> bindProgram(mlir::Region &body, Frame &frame, const mlir::IRMapping &captures = {});

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_PROGRAM_H
