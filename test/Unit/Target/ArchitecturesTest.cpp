//===- ArchitecturesTest.cpp - Host code of several GPU architectures ---------===//
//
// The runtime follows `next` of an entry's table to find the code of a GPU. The chain must have every architecture
// once, for every entry.
//
//===----------------------------------------------------------------------===//
#include "saccade/Runtime/Entry.h"
#include "saccade/Target/Device.h"
#include "llvm/AsmParser/Parser.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Support/SourceMgr.h"
#include "gtest/gtest.h"

using namespace saccade;

namespace {

/// Host code with tables of these entries, which hold the number of their architecture, and a function that each uses.
std::unique_ptr<llvm::Module> hostCode(llvm::LLVMContext &context, llvm::ArrayRef<std::string> entries, int number) {
  std::string text = "define void @body() {\n  ret void\n}\n";
  for (const std::string &entry : entries)
    text += "@__saccade_entry_" + entry + " = constant { i32, ptr, ptr, ptr } { i32 " + std::to_string(number) +
            ", ptr @body, ptr null, ptr null }\n";
  llvm::SMDiagnostic error;
  return llvm::parseAssemblyString(text, error, context);
}

/// The architectures that the runtime finds, in order.
std::vector<int64_t> chainOf(const llvm::Module &module, const std::string &entry) {
  std::vector<int64_t> found;
  const llvm::GlobalVariable *table = module.getNamedGlobal("__saccade_entry_" + entry);
  while (table && found.size() < 100) {
    const llvm::Constant *fields = table->getInitializer();
    found.push_back(llvm::cast<llvm::ConstantInt>(fields->getAggregateElement(0u))->getSExtValue());
    table = llvm::dyn_cast<llvm::GlobalVariable>(fields->getAggregateElement(2));
  }
  return found;
}

TEST(Architectures, ChainsOfAllEntriesHaveAllArchitectures) {
  const std::vector<std::string> names = {"f", "g", "f.1"};
  for (int count = 1; count <= 5; ++count)
    for (size_t entries = 1; entries <= names.size(); ++entries) {
      llvm::ArrayRef<std::string> some = llvm::ArrayRef(names).take_front(entries);
      llvm::LLVMContext context;
      std::unique_ptr<llvm::Module> first = hostCode(context, some, 0);
      std::vector<std::unique_ptr<llvm::Module>> others;
      std::vector<int64_t> expected = {0};
      for (int number = 1; number < count; ++number) {
        others.push_back(hostCode(context, some, number));
        expected.push_back(number);
      }
      llvm::cantFail(joinTargets(*first, std::move(others), some));
      EXPECT_FALSE(llvm::verifyModule(*first, &llvm::errs()));
      for (const std::string &entry : some)
        EXPECT_EQ(chainOf(*first, entry), expected) << entry << " of " << count << " architectures";
    }
}

} // namespace
