//===- JoinTargetsTest.cpp - Host code of several targets ---------------------===//
//
// The runtime follows `next` and `gpu` of an entry's table to find the code of a processor. The chains must have every
// target once, for every entry.
//
//===----------------------------------------------------------------------===//
#include "saccade/Runtime/Entry.h"
#include "saccade/Target/SharedLibrary.h"
#include "llvm/AsmParser/Parser.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Support/SourceMgr.h"
#include "gtest/gtest.h"

using namespace saccade;

namespace {

/// Host code with tables of these entries, which hold the number of their target, and a function that each uses. The
/// last two fields are `next` and `gpu`.
std::unique_ptr<llvm::Module> hostCode(llvm::LLVMContext &context, llvm::ArrayRef<std::string> entries, int number) {
  std::string text = "define void @body() {\n  ret void\n}\n";
  for (const std::string &entry : entries)
    text += "@__saccade_entry_" + entry + " = constant { i32, ptr, ptr, ptr } { i32 " + std::to_string(number) +
            ", ptr @body, ptr null, ptr null }\n";
  llvm::SMDiagnostic error;
  return llvm::parseAssemblyString(text, error, context);
}

/// The targets that the runtime finds from a table by `next`, in order.
std::vector<int64_t> chainOf(const llvm::GlobalVariable *table) {
  std::vector<int64_t> found;
  while (table && found.size() < 100) {
    const llvm::Constant *fields = table->getInitializer();
    found.push_back(llvm::cast<llvm::ConstantInt>(fields->getAggregateElement(0u))->getSExtValue());
    table = llvm::dyn_cast<llvm::GlobalVariable>(fields->getAggregateElement(2));
  }
  return found;
}

TEST(JoinTargets, ChainsOfAllEntriesHaveAllTargets) {
  const std::vector<std::string> names = {"f", "g", "f.1"};
  for (int count = 1; count <= 5; ++count)
    for (int firstGPU = 0; firstGPU <= count; ++firstGPU)
      for (size_t entries = 1; entries <= names.size(); ++entries) {
        llvm::ArrayRef<std::string> some = llvm::ArrayRef(names).take_front(entries);
        llvm::LLVMContext context;
        std::unique_ptr<llvm::Module> first = hostCode(context, some, 0);
        std::vector<std::unique_ptr<llvm::Module>> others;
        for (int number = 1; number < count; ++number)
          others.push_back(hostCode(context, some, number));
        llvm::cantFail(joinTargets(*first, std::move(others), firstGPU, some));
        EXPECT_FALSE(llvm::verifyModule(*first, &llvm::errs()));
        // GPUs form the first chain if there is no CPU.
        int split = firstGPU == 0 ? count : firstGPU;
        std::vector<int64_t> expected, expectedGPU;
        for (int number = 0; number < count; ++number)
          (number < split ? expected : expectedGPU).push_back(number);
        for (const std::string &entry : some) {
          const llvm::GlobalVariable *table = first->getNamedGlobal("__saccade_entry_" + entry);
          EXPECT_EQ(chainOf(table), expected) << entry << " of " << count << " targets";
          const llvm::Constant *gpu = table->getInitializer()->getAggregateElement(3);
          EXPECT_EQ(chainOf(llvm::dyn_cast<llvm::GlobalVariable>(gpu)), expectedGPU)
              << entry << " of " << count << " targets, the first GPU at " << firstGPU;
        }
      }
}

} // namespace
