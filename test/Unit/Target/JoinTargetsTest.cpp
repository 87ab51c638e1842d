//===- JoinTargetsTest.cpp - Host code of several targets ---------------------===//
//
// The runtime follows `next` and `gpu` of an entry's table to find the code of a processor. The chains must have every
// target once, for every entry, however many targets run the code of a part.
//
//===----------------------------------------------------------------------===//
#include "saccade/Runtime/Entry.h"
#include "saccade/Target/SharedLibrary.h"
#include "llvm/AsmParser/Parser.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Linker/Linker.h"
#include "llvm/Support/SourceMgr.h"
#include "gtest/gtest.h"

using namespace saccade;

namespace {

/// Host code with tables of these entries, whose `call` is a function that each uses, and two constants: one with the
/// content of all parts, and one with `number`.
std::unique_ptr<llvm::Module> hostCode(llvm::LLVMContext &context, llvm::ArrayRef<std::string> entries, int number) {
  auto constant = [](llvm::StringRef name, char content) {
    std::string row = "[200 x i8] c\"" + std::string(200, content) + "\"";
    return ("@" + name + " = internal constant [2 x [200 x i8]] [" + row + ", " + row + "]\n").str();
  };
  std::string text = constant("weights", 'w') + constant("own", char('a' + number));
  text +=
      "define internal ptr @body(ptr %x) {\n  %a = load volatile i8, ptr @weights\n  %b = load volatile i8, ptr @own\n"
      "  ret ptr null\n}\n";
  for (const std::string &entry : entries)
    text += "@__saccade_entry_" + entry +
            " = constant { i32, i32, i32, i32, ptr, ptr, ptr, ptr, ptr, ptr, ptr } { i32 1, i32 0, i32 0, i32 -1, ptr "
            "null, ptr null, ptr @body, ptr null, ptr null, ptr null, ptr null }\n";
  llvm::SMDiagnostic error;
  return llvm::parseAssemblyString(text, error, context);
}

using Chain = std::vector<int64_t>;

/// The targets that the runtime finds from a table by `next`, in order.
Chain chainOf(const llvm::GlobalVariable *table) {
  Chain found;
  while (table && table->hasInitializer() && found.size() < 100) {
    const llvm::Constant *fields = table->getInitializer();
    found.push_back(llvm::cast<llvm::ConstantInt>(fields->getAggregateElement(3u))->getSExtValue());
    table = llvm::dyn_cast<llvm::GlobalVariable>(fields->getAggregateElement(9));
  }
  return found;
}

/// A library of parts with these numbers of targets, linked as the linker does.
std::unique_ptr<llvm::Module> link(llvm::LLVMContext &context, llvm::ArrayRef<LibraryTarget> targets,
                                   llvm::ArrayRef<size_t> counts, llvm::ArrayRef<std::string> entries) {
  std::unique_ptr<llvm::Module> library;
  size_t first = 0;
  for (size_t count : counts) {
    std::unique_ptr<llvm::Module> part = hostCode(context, entries, int(first));
    addToLibrary(*part, {targets, first, count}, entries);
    first += count;
    if (!library)
      library = std::move(part);
    else
      EXPECT_FALSE(llvm::Linker::linkModules(*library, std::move(part)));
  }
  EXPECT_FALSE(llvm::verifyModule(*library, &llvm::errs()));
  return library;
}

TEST(JoinTargets, ChainsOfAllEntriesHaveAllTargets) {
  const std::vector<std::string> names = {"f", "g", "f.1"};
  std::vector<LibraryTarget> cpus, gpus;
  for (llvm::StringRef name : {"v4-amx", "v4-bf16", "v4", "portable"})
    cpus.push_back({lookupCPUTarget(name)});
  for (llvm::StringRef name : {"sm_75", "sm_80", "sm_90a"})
    gpus.push_back({lookupCPUTarget("portable"), lookupGPUTarget(name)});
  for (size_t numCPUs = 0; numCPUs <= cpus.size(); ++numCPUs)
    for (size_t numGPUs = numCPUs == 0; numGPUs <= gpus.size(); ++numGPUs)
      for (size_t shared = 0; shared + 1 < std::max<size_t>(numCPUs, 2); ++shared) {
        std::vector<LibraryTarget> targets(cpus.begin(), cpus.begin() + numCPUs);
        targets.insert(targets.end(), gpus.begin(), gpus.begin() + numGPUs);
        // The code of the target `shared` is that of the next one, too.
        std::vector<size_t> counts(targets.size(), 1);
        if (numCPUs > 1) {
          counts[shared] = 2;
          counts.erase(counts.begin() + shared + 1);
        }
        llvm::LLVMContext context;
        std::unique_ptr<llvm::Module> library = link(context, targets, counts, names);
        Chain expected, expectedGPU;
        for (size_t number = 0; number < targets.size(); ++number)
          (number < numCPUs || numCPUs == 0 ? expected : expectedGPU)
              .push_back(targets.size() == 1 ? -1 : targets[number].cpu->runsOn);
        for (const std::string &entry : names) {
          std::string what =
              entry + " of " + std::to_string(numCPUs) + " CPUs and " + std::to_string(numGPUs) + " GPUs";
          const llvm::GlobalVariable *table = library->getNamedGlobal("__saccade_entry_" + entry);
          ASSERT_TRUE(table) << what;
          EXPECT_FALSE(table->hasHiddenVisibility()) << what;
          EXPECT_EQ(chainOf(table), expected) << what;
          const llvm::Constant *gpu = table->getInitializer()->getAggregateElement(10);
          EXPECT_EQ(chainOf(llvm::dyn_cast<llvm::GlobalVariable>(gpu)), expectedGPU) << what;
        }
      }
}

TEST(JoinTargets, PartsShareEqualConstantsOnly) {
  LibraryTarget targets[] = {{lookupCPUTarget("v4")}, {lookupCPUTarget("v3")}};
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> library = link(context, targets, {1, 1}, {"f"});
  llvm::SmallVector<llvm::StringRef> names;
  for (const llvm::GlobalVariable &global : library->globals())
    if (global.getName().starts_with("saccade.constant.")) {
      EXPECT_TRUE(global.hasComdat() && global.hasHiddenVisibility() && global.hasLinkOnceODRLinkage());
      names.push_back(global.getName());
    }
  EXPECT_EQ(names.size(), 3u); // of both parts, and of each
}

TEST(JoinTargets, ProfilersTellTargetsApart) {
  LibraryTarget targets[] = {{lookupCPUTarget("v4-amx")}, {lookupCPUTarget("v4")}, {lookupCPUTarget("v3")}};
  llvm::LLVMContext context;
  // The code of v4-amx is that of v4.
  std::unique_ptr<llvm::Module> library = link(context, targets, {2, 1}, {"f"});
  for (const char *name : {"body.v4", "body.v3"})
    EXPECT_TRUE(library->getFunction(name)) << name;
}

} // namespace
