//===- StagePage.h - The stages of a program as a page ------------*- C++ -*-===//
#ifndef SACCADE_LIB_PIPELINE_STAGEPAGE_H
#define SACCADE_LIB_PIPELINE_STAGEPAGE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"
#include <string>

namespace saccade {

/// The text of a program after a stage.
struct StageText {
  std::string title, text;
};

/// Writes an HTML page without references to other files: a column for each stage, which can be folded. A line that
/// the column to the left does not have is marked as new, one that the column to the right does not have as gone.
/// Lines are compared without indentation and without the numbers of values and aliases, in any order.
void printStagePage(llvm::ArrayRef<StageText> stages, llvm::StringRef title, llvm::raw_ostream &os);

/// Reads the files of stages, and writes their page to the file `path`. Files that do not exist are left out.
llvm::Error writeStagePage(llvm::ArrayRef<std::string> files, llvm::StringRef path);

} // namespace saccade

#endif // SACCADE_LIB_PIPELINE_STAGEPAGE_H
