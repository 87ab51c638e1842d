//===- DebugTypes.cpp - Debug output by pass ----------------------------------===//
#include "saccade/Support/DebugTypes.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Debug.h"
#include <string>

using namespace saccade;

bool saccade::setDebugTypes(llvm::StringRef types) {
#ifdef NDEBUG
  return false;
#else
  llvm::SmallVector<llvm::StringRef> split;
  types.split(split, ',', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  llvm::SmallVector<std::string> names(split.begin(), split.end());
  llvm::SmallVector<const char *> pointers;
  for (const std::string &name : names)
    pointers.push_back(name.c_str());
  llvm::DebugFlag = true;
  llvm::setCurrentDebugTypes(pointers.data(), pointers.size()); // copies the names
  return true;
#endif
}
