//===- Translate.cpp - LLVM IR from the LLVM dialect --------------------------===//
//
// Translates host code to LLVM IR, cleans up descriptors and dead code, and prepares innermost loops for the register
// allocator. LLVM's default mid-level pipeline is not used, because it restructures the generated loops (measured 11 %
// slower).
//
//===----------------------------------------------------------------------===//
#include "ExpandIntrinsics.h"
#include "LegalizeSVE.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "saccade/Target/Target.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/IPO/GlobalDCE.h"
#include "llvm/Transforms/Scalar/DCE.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/LICM.h"
#include "llvm/Transforms/Scalar/LoopPassManager.h"
#include "llvm/Transforms/Scalar/LoopRotation.h"
#include "llvm/Transforms/Scalar/SROA.h"

using namespace mlir;

/// Sets the target attributes of every function, which passes and the code generator read.
static void setTargetAttributes(llvm::Module &module, const saccade::CPUTarget &target) {
  for (llvm::Function &function : module) {
    if (function.isDeclaration())
      continue;
    // Entry functions have a CPU of their own. The features are set even if there are none: in code for several
    // targets, a function without this attribute gets those of the machine that writes the object.
    bool isEntry = function.hasFnAttribute("target-cpu");
    function.addFnAttr("target-features", isEntry ? "" : target.features);
    if (!isEntry) {
      function.addFnAttr("target-cpu", target.cpu);
      if (target.vectorBits > 256 && !target.isExpanded())
        function.addFnAttr("prefer-vector-width", "512");
      // LLVM then allocates SVE registers for vectors of this fixed length.
      if (unsigned granules = target.vectorBits / 128; target.hasSVE)
        function.addFnAttr(llvm::Attribute::getWithVScaleRangeArgs(module.getContext(), granules, granules));
    }
    // Compiled code neither throws nor is unwound through, so it needs no unwind tables.
    function.setDoesNotThrow();
  }
}

namespace {
/// Rotates innermost loops only: the others would take as much compile time as the rest of this file.
struct RotateInnermost : llvm::PassInfoMixin<RotateInnermost> {
  llvm::PreservedAnalyses run(llvm::Loop &loop, llvm::LoopAnalysisManager &loops,
                              llvm::LoopStandardAnalysisResults &results, llvm::LPMUpdater &updater) {
    return loop.isInnermost() ? llvm::LoopRotatePass().run(loop, loops, results, updater)
                              : llvm::PreservedAnalyses::all();
  }
};
} // namespace

static void cleanUp(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);

  llvm::ModulePassManager passes;
  passes.addPass(llvm::GlobalDCEPass());
  llvm::FunctionPassManager cleaning;
  cleaning.addPass(llvm::SROAPass(llvm::SROAOptions::PreserveCFG));
  cleaning.addPass(llvm::EarlyCSEPass());
  cleaning.addPass(llvm::DCEPass());
  // Without these, the loops of microkernels reload and recompute addresses (2 to 9 % of a prefill on AVX2).
  llvm::LoopPassManager loopPasses;
  loopPasses.addPass(RotateInnermost());
  loopPasses.addPass(llvm::LICMPass(llvm::LICMOptions()));
  cleaning.addPass(llvm::createFunctionToLoopPassAdaptor(std::move(loopPasses), /*UseMemorySSA=*/true));
  passes.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(cleaning)));
  passes.run(module, modules);
}

std::unique_ptr<llvm::Module> saccade::translate(ModuleOp module, llvm::LLVMContext &context, const CPUTarget &target) {
  DialectRegistry translations;
  registerBuiltinDialectTranslation(translations);
  registerLLVMDialectTranslation(translations);
  module->getContext()->appendDialectRegistry(translations);

  llvm::Expected<std::unique_ptr<llvm::TargetMachine>> machine = createTargetMachine(target);
  if (!machine) {
    module.emitError(llvm::toString(machine.takeError()));
    return nullptr;
  }
  std::unique_ptr<llvm::Module> result = translateModuleToLLVMIR(module, context, module.getName().value_or("saccade"));
  if (!result)
    return nullptr;
  result->setTargetTriple((*machine)->getTargetTriple());
  result->setDataLayout((*machine)->createDataLayout());
  if (target.isExpanded())
    if (llvm::Error error = expandIntrinsics(*result, target)) {
      module.emitError(llvm::toString(std::move(error)));
      return nullptr;
    }
  if (target.hasSVE)
    legalizeForSVE(*result);
  setTargetAttributes(*result, target);
  cleanUp(*result, **machine);
  return result;
}

void saccade::printLLVM(const llvm::Module &module, llvm::raw_ostream &os) { module.print(os, nullptr); }
