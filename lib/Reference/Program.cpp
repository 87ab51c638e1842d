//===- Program.cpp - Compiled scalar regions ----------------------------------===//
#include "Program.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::reference;

unsigned Program::newSlot(Scalar value) {
  slots.push_back(value);
  return slots.size() - 1;
}

unsigned Program::slotOf(Value value) {
  auto [it, isNew] = slotOfValue.try_emplace(value, 0);
  if (isNew) {
    it->second = newSlot();
    outside.emplace_back(value, it->second);
  }
  return it->second;
}

/// `Instruction::errorSize` of a function of f32.
static double errorSizeOnGPU(Operation *op) {
  if (isa<math::ExpOp, math::Exp2Op>(op))
    return -1;
  return isa<math::TanhOp>(op) ? 1 : isa<math::LogOp, math::Log2Op>(op) ? std::log(2) : 0;
}

LogicalResult Program::add(Operation &op, Precision precision) {
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    FailureOr<Scalar> value = scalarOf(constant.getValue());
    if (failed(value))
      return op.emitOpError() << "is not a scalar that the reference interpreter supports";
    slotOfValue[constant] = newSlot(*value);
    return success();
  }
  if (auto index = dyn_cast<linalg::IndexOp>(op)) {
    while (loopSlots.size() <= index.getDim())
      loopSlots.push_back(newSlot());
    slotOfValue[index] = loopSlots[index.getDim()];
    return success();
  }
  if (auto length = dyn_cast<attn::LengthOp>(op)) {
    slotOfValue[length] = lengthSlots[unsigned(length.getRole())];
    return success();
  }
  OperandRange operands = op.getOperands();
  bool readsTensor = isa<tensor::ExtractOp, tensor::DimOp>(op);
  for (OpResult result : op.getResults()) {
    Instruction instruction{&op, {}, {}, {}, 0, {}};
    if (readsTensor) {
      instruction.tensor = operands.front();
    } else {
      instruction.function = scalarFunction(&op, result.getResultNumber());
      if (!instruction.function)
        return op.emitOpError() << "is not supported by the reference interpreter in a scalar region";
    }
    for (Value operand : readsTensor ? operands.drop_front() : operands)
      instruction.operands.push_back(slotOf(operand));
    instruction.result = slotOfValue[result] = newSlot();
    if (isRounded(precision, result.getType()))
      instruction.roundTo = result.getType();
    if (precision == Precision::GPU && result.getType().isF32())
      instruction.errorSize = errorSizeOnGPU(&op);
    instructions.push_back(std::move(instruction));
  }
  return success();
}

FailureOr<std::shared_ptr<Program>> Program::compile(Region &body, Precision precision) {
  auto program = std::make_shared<Program>();
  Operation *parent = body.getParentOp();
  if (!body.hasOneBlock())
    return parent->emitOpError()
           << "has a scalar region with several blocks, which the reference interpreter does not support";
  program->block = &body.front();
  for (BlockArgument argument : program->block->getArguments())
    program->slotOfValue[argument] = program->newSlot();
  for (unsigned &slot : program->lengthSlots)
    slot = program->newSlot();
  for (Operation &op : program->block->without_terminator())
    if (failed(program->add(op, precision)))
      return failure();
  for (Value value : program->block->getTerminator()->getOperands())
    program->yieldedSlots.push_back(program->slotOf(value));
  return program;
}

/// Reads one element of `tensor`, computing it if it is not known.
static ScalarFunction extractFrom(Operation *op, Frame &frame, Value tensor, Cells *cells) {
  return [=, &frame](const Scalar *operands, Scalar &result) -> Problem {
    SmallVector<int64_t> index;
    for (auto [dim, extent] : llvm::enumerate(cells->getShape())) {
      index.push_back(operands[dim].integer);
      if (index.back() >= 0 && index.back() < extent)
        continue;
      op->emitOpError() << "reads index " << index.back() << " of dimension " << dim << ", which has extent " << extent;
      return "";
    }
    if (!cells->isKnown(linearIndex(index, cells->getStrides()))) {
      // Compute the whole row: its other elements are likely to be read next.
      Box row{index, SmallVector<int64_t>(index.size(), 1)};
      if (!index.empty()) {
        row.offsets.back() = 0;
        row.sizes.back() = cells->getShape().back();
      }
      if (failed(frame.demand(tensor, row)))
        return "";
    }
    result = cells->at(index);
    return nullptr;
  };
}

static ScalarFunction extentOf(Cells *cells) {
  return [=](const Scalar *operands, Scalar &result) -> Problem {
    if (uint64_t(operands[0].integer) >= cells->getShape().size())
      return "reads the extent of a dimension that the tensor does not have";
    result.integer = cells->getShape()[operands[0].integer];
    return nullptr;
  };
}

LogicalResult Program::bind(Frame &frame, const IRMapping &captures) {
  for (BlockArgument argument : block->getArguments()) {
    Value source = captures.lookupOrNull(argument);
    if (!source || isa<ShapedType>(source.getType()) || argument.use_empty())
      continue;
    FailureOr<Scalar> value = frame.scalar(source);
    if (failed(value))
      return failure();
    slots[argument.getArgNumber()] = *value;
  }
  for (auto [value, slot] : outside) {
    FailureOr<Scalar> number = frame.scalar(value);
    if (failed(number))
      return failure();
    slots[slot] = *number;
  }
  for (Instruction &instruction : instructions) {
    if (!instruction.tensor)
      continue;
    Value tensor = captures.lookupOrDefault(instruction.tensor);
    FailureOr<Cells *> cells = frame.cells(tensor);
    if (failed(cells))
      return failure();
    instruction.function =
        isa<tensor::ExtractOp>(instruction.op) ? extractFrom(instruction.op, frame, tensor, *cells) : extentOf(*cells);
  }
  return success();
}

LogicalResult Program::run() {
  SmallVector<Scalar, 4> operands;
  for (const Instruction &instruction : instructions) {
    operands.clear();
    for (unsigned slot : instruction.operands)
      operands.push_back(slots[slot]);
    Scalar &result = slots[instruction.result];
    if (Problem problem = instruction.function(operands.data(), result))
      return *problem ? instruction.op->emitOpError() << problem : failure();
    if (instruction.errorSize != 0)
      result.real = approximateOnGPU(result.real, instruction.errorSize < 0 ? result.real : instruction.errorSize);
    if (instruction.roundTo)
      result.real = roundTo(instruction.roundTo, result.real);
  }
  return success();
}

FailureOr<Program *> saccade::reference::bindProgram(Region &body, Frame &frame, const IRMapping &captures) {
  std::shared_ptr<Program> &program = frame.program(&body);
  if (!program) {
    FailureOr<std::shared_ptr<Program>> compiled = Program::compile(body, frame.getPrecision());
    if (failed(compiled))
      return failure();
    program = *compiled;
  }
  // Binding cannot run the same program recursively, since SSA has no cycles.
  if (failed(program->bind(frame, captures)))
    return failure();
  return program.get();
}
