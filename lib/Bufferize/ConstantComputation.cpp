//===- ConstantComputation.cpp - Computations of constants alone --------------===//
//
// An optimistic fixed-point analysis: it assumes that every buffer of static size is filled from constants, and removes
// buffers for which this does not hold until nothing changes.
//
//===----------------------------------------------------------------------===//
#include "ConstantComputation.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"
#include "saccade/Dialect/Attn/Analysis/Memory.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

using namespace mlir;
using namespace saccade;

namespace {

struct Access {
  Operation *op;
  bool isWrite;
};

class Finder {
public:
  explicit Finder(func::FuncOp entry) : entry(entry), symbols(entry->getParentOfType<ModuleOp>()) {}

  ConstantComputation find();

private:
  bool isConstant(Value value);
  bool isConstantComputation(Operation *op) {
    return llvm::all_of(getUsedValues(op), [&](Value each) { return isConstant(each); });
  }
  llvm::SmallPtrSet<Operation *, 8> findDependentBuffers();
  bool collect(Value memory, SmallVectorImpl<Access> &accesses);
  bool mayWrite(Value memory);
  bool isFilledFromConstants(memref::AllocOp buffer);

  func::FuncOp entry;
  SymbolTable symbols;
  llvm::SetVector<Operation *> buffers;
  llvm::DenseMap<Value, bool> written; ///< cached results of mayWrite
};

} // namespace

/// Whether `value` is the same in all calls; for a buffer, whether its contents are once all writers have run.
bool Finder::isConstant(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return isConstantArgument(entry, argument);
  Operation *op = value.getDefiningOp();
  if (isa<memref::AllocOp>(op))
    return buffers.contains(op);
  return op->getNumRegions() == 0 && isPure(op) && isConstantComputation(op);
}

/// Collects the accesses to `memory` and its views; false if a user has unknown effects.
bool Finder::collect(Value memory, SmallVectorImpl<Access> &accesses) {
  for (OpOperand &use : memory.getUses()) {
    Operation *user = use.getOwner();
    auto loop = user->getParentOfType<scf::ForallOp>();
    if (auto launch = dyn_cast<attn::LaunchOp>(user)) {
      auto task = symbols.lookup<func::FuncOp>(launch.getTask());
      accesses.push_back({user, mayWrite(task.getArgument(use.getOperandNumber()))});
      continue;
    }
    if (user->getNumRegions() == 0 && isPure(user)) {
      for (Value result : user->getResults())
        if (isa<BaseMemRefType>(result.getType()) && !collect(result, accesses))
          return false;
      continue;
    }
    auto interface = dyn_cast<MemoryEffectOpInterface>(user);
    if (!interface || user->getNumResults() != 0)
      return false;
    SmallVector<MemoryEffects::EffectInstance> effects;
    interface.getEffects(effects);
    bool isWrite = llvm::any_of(effects, [&](const MemoryEffects::EffectInstance &effect) {
      return !isa<MemoryEffects::Read>(effect.getEffect()) && (!effect.getValue() || effect.getValue() == use.get());
    });
    accesses.push_back({loop ? loop : user, isWrite});
  }
  return true;
}

/// Whether a task writes to its argument `memory`.
bool Finder::mayWrite(Value memory) {
  auto known = written.find(memory);
  if (known != written.end())
    return known->second;
  SmallVector<Access> accesses;
  bool isWritten =
      !collect(memory, accesses) || llvm::any_of(accesses, [](const Access &access) { return access.isWrite; });
  return written[memory] = isWritten;
}

/// The buffers that depend on arguments. A table computed without arguments is as cheap to compute as to pass.
llvm::SmallPtrSet<Operation *, 8> Finder::findDependentBuffers() {
  llvm::SmallPtrSet<Operation *, 8> dependent;
  auto dependsOnArgument = [&](Operation *buffer) {
    SmallVector<Access> accesses;
    collect(buffer->getResult(0), accesses);
    return llvm::any_of(accesses, [&](const Access &access) {
      return access.isWrite && llvm::any_of(getUsedValues(access.op), [&](Value used) {
               Value base = getBaseMemory(used);
               return isa<BlockArgument>(base) || dependent.contains(base.getDefiningOp());
             });
    });
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (Operation *buffer : buffers)
      if (!dependent.contains(buffer) && dependsOnArgument(buffer))
        changed = dependent.insert(buffer).second;
  }
  return dependent;
}

/// Whether `buffer` is filled from constants, assuming that all other candidates are.
bool Finder::isFilledFromConstants(memref::AllocOp buffer) {
  Block *block = buffer->getBlock();
  SmallVector<Access> accesses;
  if (!collect(buffer, accesses))
    return false;
  Operation *last = nullptr;
  for (const Access &access : accesses) {
    if (!access.isWrite)
      continue;
    // A writer in the same block as the allocation always runs.
    if (access.op->getBlock() != block || !isConstantComputation(access.op))
      return false;
    last = !last || last->isBeforeInBlock(access.op) ? access.op : last;
  }
  // Readers that are not hoisted must follow all writers.
  return last && llvm::all_of(accesses, [&](const Access &access) {
           return access.isWrite || isConstantComputation(access.op) ||
                  last->isBeforeInBlock(block->findAncestorOpInBlock(*access.op));
         });
}

ConstantComputation Finder::find() {
  entry.walk([&](memref::AllocOp alloc) {
    if (alloc.getType().hasStaticShape() && alloc.getType().getLayout().isIdentity() && !alloc->hasAttr(perCallAttr) &&
        !alloc->getParentOfType<LoopLikeOpInterface>())
      buffers.insert(alloc);
  });
  auto isNotFilled = [&](Operation *op) { return !isFilledFromConstants(cast<memref::AllocOp>(op)); };
  while (true) {
    while (buffers.remove_if(isNotFilled)) {
    }
    llvm::SmallPtrSet<Operation *, 8> dependent = findDependentBuffers();
    if (!buffers.remove_if([&](Operation *op) { return !dependent.contains(op); }))
      break;
  }
  ConstantComputation work;
  llvm::SmallPtrSet<Operation *, 8> ops;
  for (Operation *op : buffers) {
    auto buffer = cast<memref::AllocOp>(op);
    work.buffers.push_back(buffer);
    SmallVector<Access> accesses;
    collect(buffer, accesses);
    for (const Access &access : accesses)
      if (access.isWrite)
        ops.insert(access.op);
  }
  entry.walk([&](Operation *op) {
    if (ops.contains(op))
      work.ops.push_back(op);
  });
  for (memref::AllocOp buffer : work.buffers) {
    SmallVector<Access> accesses;
    collect(buffer, accesses);
    if (llvm::any_of(accesses, [&](const Access &access) { return !ops.contains(access.op); }))
      work.results.push_back(buffer);
  }
  return work;
}

bool saccade::isConstantArgument(func::FuncOp entry, BlockArgument argument) {
  auto type = dyn_cast<MemRefType>(argument.getType());
  return argument.getOwner() == &entry.front() && entry.getArgAttr(argument.getArgNumber(), "attn.constant") && type &&
         type.hasStaticShape() && type.getNumElements() != 0;
}

SmallVector<Value> saccade::getUsedValues(Operation *op) {
  llvm::SetVector<Value> values(op->operand_begin(), op->operand_end());
  getUsedValuesDefinedAbove(op->getRegions(), values);
  return values.takeVector();
}

ConstantComputation saccade::findConstantComputation(func::FuncOp entry) { return Finder(entry).find(); }
