//===- PrivateFolder.h - A temporary folder -----------------------*- C++ -*-===//
#ifndef SACCADE_SUPPORT_PRIVATEFOLDER_H
#define SACCADE_SUPPORT_PRIVATEFOLDER_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>

namespace saccade {

/// A temporary folder that only this user can access. It is removed with its files at the end of its life.
class PrivateFolder {
public:
  /// Creates a folder whose name begins with `prefix`.
  static llvm::Expected<PrivateFolder> create(llvm::StringRef prefix);
  PrivateFolder(PrivateFolder &&other) noexcept;
  ~PrivateFolder();

  /// The path of a file in the folder.
  std::string operator/(llvm::StringRef name) const { return path + "/" + name.str(); }

  llvm::Error write(llvm::StringRef name, llvm::StringRef content) const;

private:
  explicit PrivateFolder(std::string path) : path(std::move(path)) {}
  std::string path;
};

} // namespace saccade

#endif // SACCADE_SUPPORT_PRIVATEFOLDER_H
