//===- TranslateDevice.cpp - LLVM IR of the device module ---------------------===//
//
// Runs LLVM's default pipeline, unlike for a CPU: kernels keep the state of a thread in arrays with constant indices,
// which SROA promotes to registers.
//
//===----------------------------------------------------------------------===//
#include "DeviceModule.h"
#include "Machine.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "saccade/Support/Kernels.h"
#include "saccade/Target/Device.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"

using namespace mlir;

static void initializeNVPTX() {
  static const bool done = [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    return true;
  }();
  (void)done;
}

llvm::Expected<std::unique_ptr<llvm::TargetMachine>> saccade::createDeviceMachine(const GPUTarget &target,
                                                                                  StringRef features) {
  initializeNVPTX();
  return createMachine("nvptx64-nvidia-cuda", target.name, features);
}

/// Marks inline assembly as convergent, so that no transformation makes it depend on another branch: instructions such
/// as wgmma are executed by all threads of a warp together. An empty text is only a barrier for optimizations.
static void markConvergent(llvm::Module &module) {
  for (llvm::Function &function : module)
    for (llvm::Instruction &instruction : llvm::instructions(function))
      if (auto *call = llvm::dyn_cast<llvm::CallInst>(&instruction); call && call->isInlineAsm())
        if (!llvm::cast<llvm::InlineAsm>(call->getCalledOperand())->getAsmString().empty())
          call->setConvergent();
}

void saccade::optimizeDevice(llvm::Module &module, llvm::TargetMachine &machine) {
  markConvergent(module);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PipelineTuningOptions tuning;
  // The kernels are unrolled already; further unrolling would exceed the registers.
  tuning.LoopUnrolling = false;
  tuning.LoopVectorization = tuning.SLPVectorization = false;
  llvm::PassBuilder builder(&machine, tuning);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(module, modules);
}

/// Links libdevice if the module calls it. On failure emits a diagnostic at the first call.
static LogicalResult addLibdevice(mlir::gpu::GPUModuleOp device, llvm::Module &module, StringRef path) {
  if (!saccade::needsLibdevice(module))
    return success();
  std::string found = path.empty() ? saccade::findLibdevice() : path.str();
  std::string why = found.empty() ? "found it neither next to ptxas nor in /usr/local/cuda; install CUDA's compiler "
                                    "(PyPI: nvidia-cuda-nvcc) and put its ptxas on the PATH"
                                  : llvm::toString(saccade::linkLibdevice(module, found));
  if (why.empty())
    return success();
  LLVM::CallOp first;
  device.walk([&](LLVM::CallOp call) {
    first = call;
    return call.getCallee() && call.getCallee()->starts_with("__nv_") ? WalkResult::interrupt() : WalkResult::advance();
  });
  return first.emitError("a kernel calls a function of NVIDIA's libdevice ('")
         << *first.getCallee() << "'), which is required to compile it: " << why;
}

std::unique_ptr<llvm::Module> saccade::translateUnoptimizedDevice(ModuleOp program, llvm::LLVMContext &context,
                                                                  const GPUTarget &target, StringRef libdevice) {
  DialectRegistry translations;
  registerBuiltinDialectTranslation(translations);
  registerGPUDialectTranslation(translations);
  registerLLVMDialectTranslation(translations);
  registerNVVMDialectTranslation(translations);
  program->getContext()->appendDialectRegistry(translations);

  auto devices = program.getOps<mlir::gpu::GPUModuleOp>();
  if (devices.empty()) {
    program.emitError("has no device module, expected a program compiled for a GPU");
    return nullptr;
  }
  llvm::Expected<std::unique_ptr<llvm::TargetMachine>> machine = createDeviceMachine(target, target.features);
  if (!machine) {
    program.emitError(llvm::toString(machine.takeError()));
    return nullptr;
  }
  mlir::gpu::GPUModuleOp device = *devices.begin();
  std::unique_ptr<llvm::Module> result = translateModuleToLLVMIR(device, context, device.getName());
  if (!result)
    return nullptr;
  result->setTargetTriple((*machine)->getTargetTriple());
  result->setDataLayout((*machine)->createDataLayout());
  if (failed(addLibdevice(device, *result, libdevice)))
    return nullptr;
  return result;
}

std::unique_ptr<llvm::Module> saccade::translateDevice(ModuleOp program, llvm::LLVMContext &context,
                                                       const GPUTarget &target, StringRef libdevice) {
  std::unique_ptr<llvm::Module> result = translateUnoptimizedDevice(program, context, target, libdevice);
  if (!result)
    return nullptr;
  llvm::Expected<std::unique_ptr<llvm::TargetMachine>> machine = createDeviceMachine(target, target.features);
  if (!machine) {
    program.emitError(llvm::toString(machine.takeError()));
    return nullptr;
  }
  optimizeDevice(*result, **machine);
  return result;
}

std::string saccade::describeNotes(Operation *kernel) {
  std::string text;
  for (auto [attribute, prefix] : {std::pair(StringRef(bulkObstacleAttr), "without warpgroups: "),
                                   std::pair(StringRef(registerObstacleAttr), "without tiles in registers: "),
                                   std::pair(StringRef(bulkConditionAttr), "")})
    if (auto note = kernel->getAttrOfType<StringAttr>(attribute))
      text += (", " + llvm::Twine(prefix) + note.getValue()).str();
  return text;
}

std::vector<saccade::KernelInfo> saccade::listKernels(ModuleOp program) {
  std::vector<KernelInfo> kernels;
  for (auto device : program.getOps<mlir::gpu::GPUModuleOp>())
    for (auto kernel : device.getOps<LLVM::LLVMFuncOp>())
      if (auto family = kernel->getAttrOfType<StringAttr>(familyAttr))
        kernels.push_back({kernel.getName().str(), family.getValue().str(), describeNotes(kernel)});
  return kernels;
}

void saccade::eraseDevice(ModuleOp program) {
  for (auto device : llvm::make_early_inc_range(program.getOps<mlir::gpu::GPUModuleOp>()))
    device.erase();
}
