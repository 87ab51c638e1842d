//===- EqualCode.cpp - Targets that run the same code -------------------------===//
//
// Decides whether a program has the same machine code for two CPU targets, of which one has more features. The kernels
// of many programs do not use them: f32 attention has one code for v4, v4-bf16 and v4-amx.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/OperationSupport.h"
#include "saccade/Runtime/CPUTargets.h"
#include "saccade/Target/SharedLibrary.h"

using namespace mlir;
using namespace saccade;

/// Whether LLVM selects other instructions for `op` if the target has instructions for bf16 or products of integers,
/// which are the features that targets of one `CPUTarget::cpu` differ in. Calls of intrinsics name their instruction.
static bool dependsOnFeatures(Operation *op) {
  auto isBF16 = [](Type type) { return getElementTypeOrSelf(type).isBF16(); };
  return llvm::any_of(op->getOperandTypes(), isBF16) || llvm::any_of(op->getResultTypes(), isBF16) ||
         (isa<LLVM::MulOp>(op) && isa<VectorType>(op->getResult(0).getType()));
}

/// The tables of entries contain the number of the target.
static bool isTable(Operation &op) {
  auto global = dyn_cast<LLVM::GlobalOp>(op);
  return global && global.getSymName().starts_with("__saccade_entry_");
}

/// Whether two functions or constants have the same LLVM IR. Attributes of other dialects, such as the family of a
/// kernel with the name of the target, have no effect on it. A block may use values of blocks that are printed after
/// it, of which MLIR's own map of values does not know yet.
static bool areEqual(Operation &x, Operation &y) {
  llvm::DenseMap<Value, Value> mapped;
  bool isConsistent = true;
  auto map = [&](Value ofX, Value ofY) { return mapped.try_emplace(ofX, ofY).first->second == ofY; };
  auto flags = OperationEquivalence::IgnoreLocations | OperationEquivalence::IgnoreDiscardableAttrs;
  return OperationEquivalence::isEquivalentTo(
             &x, &y, [&](Value ofX, Value ofY) { return success(map(ofX, ofY)); },
             [&](Value ofX, Value ofY) { isConsistent &= map(ofX, ofY); }, flags) &&
         isConsistent;
}

bool saccade::haveEqualCode(ModuleOp a, const CPUTarget &forA, ModuleOp b, const CPUTarget &forB) {
  // What code generation reads of a target beside its features.
  auto key = [](const CPUTarget &target) {
    return std::tuple(target.triple, target.cpu, target.entryCPU, target.vectorBits, target.hasSVE,
                      target.isExpanded());
  };
  uint64_t featuresOfA = forA.processor().features, featuresOfB = forB.processor().features;
  if (key(forA) != key(forB) || forA.isExpanded() || (featuresOfB & ~featuresOfA) != 0)
    return false;
  auto equal = [](Operation &x, Operation &y) { return (isTable(x) && isTable(y)) || areEqual(x, y); };
  Block &ofA = *a.getBody(), &ofB = *b.getBody();
  if (!std::equal(ofA.begin(), ofA.end(), ofB.begin(), ofB.end(), equal))
    return false;
  return !a.walk([](Operation *op) {
             return dependsOnFeatures(op) ? WalkResult::interrupt() : WalkResult::advance();
           }).wasInterrupted();
}
