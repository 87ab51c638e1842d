//===- PrivateFolder.cpp - A temporary folder ---------------------------------===//
#include "saccade/Support/PrivateFolder.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <stdlib.h>
#include <utility>

using namespace llvm;
using namespace saccade;

Expected<PrivateFolder> PrivateFolder::create(StringRef prefix) {
  SmallString<128> parent;
  sys::path::system_temp_directory(/*ErasedOnReboot=*/true, parent);
  std::string path = (parent + "/" + prefix + "-XXXXXX").str();
  if (!mkdtemp(path.data()))
    return createFileError(parent, errnoAsErrorCode());
  return PrivateFolder(path);
}

PrivateFolder::PrivateFolder(PrivateFolder &&other) noexcept : path(std::exchange(other.path, "")) {}

PrivateFolder::~PrivateFolder() {
  // Errors are ignored.
  if (!path.empty())
    (void)sys::fs::remove_directories(path);
}

Error PrivateFolder::write(StringRef name, StringRef content) const {
  std::string file = *this / name;
  std::error_code error;
  raw_fd_ostream os(file, error);
  if (error)
    return createFileError(file, error);
  os << content;
  os.close();
  error = os.error();
  os.clear_error(); // the destructor aborts on an uncleared error
  return error ? createFileError(file, error) : Error::success();
}
