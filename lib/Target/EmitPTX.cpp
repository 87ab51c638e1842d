//===- EmitPTX.cpp - PTX of the device module ---------------------------------===//
//
// LLVM optimizes kernels and generates their code in parallel: kernels that share no function and no constant become
// modules of their own. Their number and their PTX do not depend on the number of threads.
//
//===----------------------------------------------------------------------===//
#include "DeviceModule.h"
#include "Machine.h"
#include "saccade/Support/Kernels.h"
#include "saccade/Target/Device.h"
#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/ThreadPool.h"
#include <mutex>

using namespace saccade;

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

namespace {
/// Functions that are compiled together.
struct Group {
  llvm::StringSet<> functions;
  size_t instructions = 0;
};
} // namespace

/// Adds the functions that use `value` directly or in a constant.
static void addUsers(const llvm::Value &value, llvm::SmallPtrSetImpl<const llvm::Function *> &into) {
  for (const llvm::User *user : value.users()) {
    if (auto *instruction = llvm::dyn_cast<llvm::Instruction>(user))
      into.insert(instruction->getFunction());
    else
      addUsers(*user, into);
  }
}

/// Divides the functions of a module: functions that use the same constant are in the same group, and so are all that
/// call a function, with the functions that they call. Larger groups come first, which balances the threads of LLVM and
/// those of ptxas, which assembles kernels in their order.
static std::vector<Group> findGroups(const llvm::Module &module) {
  llvm::EquivalenceClasses<const llvm::Function *> classes;
  auto join = [&](const llvm::SmallPtrSetImpl<const llvm::Function *> &functions) {
    for (const llvm::Function *function : functions)
      classes.unionSets(*functions.begin(), function);
  };
  llvm::SmallPtrSet<const llvm::Function *, 8> calls;
  for (const llvm::Function &function : module) {
    if (!function.isDeclaration())
      classes.insert(&function);
    if (function.isIntrinsic() || function.use_empty())
      continue;
    addUsers(function, calls);
    if (!function.isDeclaration())
      calls.insert(&function);
  }
  join(calls);
  // Variables without a definition, such as dynamic shared memory, are declared in each module.
  for (const llvm::GlobalVariable &variable : module.globals()) {
    llvm::SmallPtrSet<const llvm::Function *, 8> users;
    if (!variable.isDeclaration())
      addUsers(variable, users);
    join(users);
  }
  llvm::MapVector<const llvm::Function *, Group> groups;
  for (const llvm::Function &function : module) {
    if (function.isDeclaration())
      continue;
    Group &group = groups[classes.getLeaderValue(&function)];
    group.functions.insert(function.getName());
    group.instructions += function.getInstructionCount();
  }
  std::vector<Group> result;
  for (auto &[leader, group] : groups)
    result.push_back(std::move(group));
  llvm::stable_sort(result, [](const Group &x, const Group &y) { return x.instructions > y.instructions; });
  return result;
}

/// Reads the functions of a group, and what they use, from the bitcode of a module.
static llvm::Expected<std::unique_ptr<llvm::Module>> readGroup(llvm::StringRef bitcode, const Group &group,
                                                               llvm::LLVMContext &context) {
  llvm::Expected<std::unique_ptr<llvm::Module>> module =
      llvm::getLazyBitcodeModule(llvm::MemoryBufferRef(bitcode, "device"), context);
  if (!module)
    return module.takeError();
  for (llvm::Function &function : **module)
    if (!function.isDeclaration() && !group.functions.contains(function.getName()))
      function.deleteBody();
  if (llvm::Error error = (*module)->materializeAll())
    return error;
  for (llvm::Function &function : llvm::make_early_inc_range(**module))
    if (function.isDeclaration() && function.use_empty())
      function.eraseFromParent();
  for (llvm::GlobalVariable &variable : llvm::make_early_inc_range((*module)->globals())) {
    variable.removeDeadConstantUsers();
    if (variable.use_empty())
      variable.eraseFromParent();
  }
  return module;
}

//===----------------------------------------------------------------------===//
// PTX
//===----------------------------------------------------------------------===//

/// The PTX version of a target, or a later one that the parameters of a kernel of `module` require.
static llvm::StringRef featuresFor(const llvm::Module &module, const GPUTarget &target) {
  for (const llvm::Function &function : module) {
    uint64_t bytes = 0;
    for (const llvm::Argument &argument : function.args()) {
      llvm::Type *type = argument.hasByValAttr() ? argument.getParamByValType() : argument.getType();
      bytes += module.getDataLayout().getTypeAllocSize(type);
    }
    if (function.getCallingConv() == llvm::CallingConv::PTX_Kernel && bytes > parameterBytesBeforePTX81)
      return "+ptx81";
  }
  return target.features;
}

/// Optimizes a module and generates its PTX, of the version `features`.
static llvm::Expected<std::string> compile(llvm::Module &module, const GPUTarget &target, llvm::StringRef features) {
  llvm::Expected<std::unique_ptr<llvm::TargetMachine>> optimizer = createDeviceMachine(target, target.features);
  if (!optimizer)
    return optimizer.takeError();
  optimizeDevice(module, **optimizer);
  llvm::Expected<std::unique_ptr<llvm::TargetMachine>> generator = createDeviceMachine(target, features);
  if (!generator)
    return generator.takeError();
  llvm::SmallString<0> text;
  llvm::raw_svector_ostream os(text);
  if (llvm::Error error = writeCode(module, **generator, os, llvm::CodeGenFileType::AssemblyFile))
    return error;
  return text.str().str();
}

/// Joins the PTX of groups: declarations, each line once because groups have the same directives and shared memory,
/// then functions.
static std::string join(llvm::ArrayRef<std::string> texts) {
  llvm::StringSet<> known;
  std::string declarations, functions;
  for (llvm::StringRef text : texts) {
    llvm::SmallVector<llvm::StringRef> lines;
    while (!text.empty() && !text.starts_with(".visible .entry") && !text.starts_with(".visible .func") &&
           !text.starts_with(".func")) {
      auto [line, rest] = text.split('\n');
      text = rest;
      // The comment with the name of the function that follows.
      bool isComment = line.starts_with("\t// .globl");
      if (!isComment)
        lines.push_back(line);
      if (isComment || !known.contains(line))
        (isComment ? functions : declarations).append(line).append("\n");
    }
    functions += text;
    for (llvm::StringRef line : lines)
      known.insert(line);
  }
  return declarations + "\n" + functions;
}

/// Compiles the groups of a module by tasks of `threads`. Returns their PTX in the order of the groups.
static llvm::Expected<std::vector<std::string>> compileGroups(const llvm::Module &module, llvm::ArrayRef<Group> groups,
                                                              const GPUTarget &target, llvm::StringRef features,
                                                              llvm::ThreadPoolInterface &threads) {
  llvm::SmallString<0> bitcode;
  llvm::raw_svector_ostream os(bitcode);
  // Passes visit the uses of a value in their order.
  llvm::WriteBitcodeToFile(module, os, /*ShouldPreserveUseListOrder=*/true);
  std::vector<std::string> texts(groups.size());
  std::mutex mutex;
  llvm::Error errors = llvm::Error::success();
  auto compileGroup = [&](size_t index) {
    llvm::LLVMContext context;
    llvm::Expected<std::unique_ptr<llvm::Module>> part = readGroup(bitcode, groups[index], context);
    llvm::Expected<std::string> text = part ? compile(**part, target, features) : part.takeError();
    if (text) {
      texts[index] = std::move(*text);
      return;
    }
    std::lock_guard lock(mutex);
    errors = llvm::joinErrors(std::move(errors), text.takeError());
  };
  llvm::ThreadPoolTaskGroup tasks(threads);
  for (size_t index = 0; index < groups.size(); ++index)
    tasks.async(compileGroup, index);
  tasks.wait();
  if (errors)
    return errors;
  return texts;
}

llvm::Expected<std::string> saccade::generatePTX(llvm::Module &module, const GPUTarget &target,
                                                 llvm::ThreadPoolInterface &threads) {
  std::vector<Group> groups = findGroups(module);
  llvm::StringRef features = featuresFor(module, target);
  if (groups.size() <= 1)
    return compile(module, target, features);
  llvm::Expected<std::vector<std::string>> texts = compileGroups(module, groups, target, features, threads);
  return texts ? llvm::Expected<std::string>(join(*texts)) : texts.takeError();
}

mlir::FailureOr<std::string> saccade::emitPTX(mlir::ModuleOp program, const GPUTarget &target,
                                              llvm::StringRef libdevice) {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module = translateUnoptimizedDevice(program, context, target, libdevice);
  if (!module)
    return mlir::failure();
  // At most one thread for each processor.
  llvm::DefaultThreadPool threads(llvm::optimal_concurrency());
  llvm::Expected<std::string> ptx = generatePTX(*module, target, threads);
  if (!ptx)
    return program.emitError("LLVM generates no PTX: ") << llvm::toString(ptx.takeError());
  return std::move(*ptx);
}
