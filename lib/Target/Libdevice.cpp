//===- Libdevice.cpp - NVIDIA's math functions --------------------------------===//
//
// Links functions of libdevice, bitcode that is installed with ptxas, into the device module before it is optimised.
//
//===----------------------------------------------------------------------===//
#include "saccade/Target/Device.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/IR/Module.h"
#include "llvm/IRReader/IRReader.h"
#include "llvm/Linker/Linker.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Transforms/IPO/Internalize.h"

using namespace saccade;

/// The path of libdevice in the CUDA toolkit `root`, or empty.
static std::string inToolkit(llvm::StringRef root) {
  llvm::SmallString<256> path(root);
  llvm::sys::path::append(path, "nvvm", "libdevice", "libdevice.10.bc");
  return llvm::sys::fs::exists(path) ? path.str().str() : std::string();
}

/// The path of libdevice in the toolkit that contains `program` (its bin folder, after links are resolved), or empty.
static std::string inToolkitOf(llvm::StringRef program) {
  llvm::SmallString<256> real;
  if (llvm::sys::fs::real_path(program, real))
    return "";
  return inToolkit(llvm::sys::path::parent_path(llvm::sys::path::parent_path(real)));
}

std::string saccade::findLibdevice(llvm::StringRef ptxas) {
  std::string found = ptxas.empty() ? std::string() : inToolkitOf(ptxas);
  if (found.empty())
    if (llvm::ErrorOr<std::string> program = llvm::sys::findProgramByName("ptxas"))
      found = inToolkitOf(*program);
  return found.empty() ? inToolkit("/usr/local/cuda") : found;
}

static bool isMissing(const llvm::Function &function) {
  return function.isDeclaration() && function.getName().starts_with("__nv_");
}

bool saccade::needsLibdevice(const llvm::Module &module) { return llvm::any_of(module, isMissing); }

llvm::Error saccade::linkLibdevice(llvm::Module &module, llvm::StringRef path) {
  if (!needsLibdevice(module))
    return llvm::Error::success();
  llvm::SMDiagnostic diagnostic;
  std::unique_ptr<llvm::Module> library = llvm::getLazyIRFileModule(path, diagnostic, module.getContext());
  if (!library)
    return llvm::createStringError("cannot read '" + path + "': " + diagnostic.getMessage());
  library->setTargetTriple(module.getTargetTriple());
  library->setDataLayout(module.getDataLayout());
  // Linked functions become internal, so that those unused after inlining are removed.
  auto hide = [](llvm::Module &into, const llvm::StringSet<> &names) {
    llvm::internalizeModule(into, [&](const llvm::GlobalValue &value) { return !names.contains(value.getName()); });
  };
  if (llvm::Linker::linkModules(module, std::move(library), llvm::Linker::LinkOnlyNeeded, hide))
    return llvm::createStringError("cannot link '" + path + "'");
  for (const llvm::Function &function : module)
    if (isMissing(function))
      return llvm::createStringError("'" + path + "' has no function '" + function.getName() + "'");
  return llvm::Error::success();
}
