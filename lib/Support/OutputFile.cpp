//===- OutputFile.cpp - Atomic writes of output files -------------------------===//
//
// Errors are always cleared from raw_fd_ostream, whose destructor aborts the process on an uncleared error.
//
//===----------------------------------------------------------------------===//
#include "saccade/Support/OutputFile.h"
#include "llvm/Support/FileSystem.h"
#include <filesystem>
#include <unistd.h>

using namespace llvm;

static Error finish(raw_fd_ostream &os) {
  os.flush();
  std::error_code error = os.error();
  os.clear_error();
  return errorCodeToError(error);
}

Error saccade::flushStandardOutput() { return finish(outs()); }

/// Runs `second` only if `first` succeeded.
static Error inOrder(Error first, function_ref<Error()> second) { return first ? std::move(first) : second(); }

static Error writeInPlace(StringRef path, function_ref<Error(raw_ostream &)> write, function_ref<Error()> last) {
  std::error_code error;
  raw_fd_ostream os(path, error, sys::fs::CD_OpenExisting);
  if (error)
    return errorCodeToError(error);
  return inOrder(joinErrors(write(os), finish(os)), last);
}

/// The final target of a chain of symbolic links, which need not exist.
static Expected<std::string> followLinks(StringRef path) {
  constexpr int maxLinks = 40; // the limit of Linux
  std::filesystem::path place(path.str());
  std::error_code error;
  for (int i = 0; i < maxLinks; ++i) {
    if (!std::filesystem::is_symlink(place, error))
      return place.string(); // other errors are reported when the file is written
    std::filesystem::path target = std::filesystem::read_symlink(place, error);
    if (error)
      return errorCodeToError(error);
    place = place.parent_path() / target; // an absolute target replaces the parent path
  }
  return errorCodeToError(std::make_error_code(std::errc::too_many_symbolic_link_levels));
}

bool saccade::isSameFile(StringRef input, StringRef output) {
  sys::fs::file_status in, out;
  if (input.empty() || output.empty() || output == "-")
    return false;
  if (input == "-" ? sys::fs::status(STDIN_FILENO, in) : sys::fs::status(input, in))
    return false;
  return !sys::fs::status(output, out) && out.type() == sys::fs::file_type::regular_file &&
         sys::fs::equivalent(in, out);
}

Error saccade::writeOutput(StringRef path, function_ref<Error(raw_ostream &)> write, function_ref<Error()> last) {
  if (path == "-")
    return inOrder(joinErrors(write(outs()), flushStandardOutput()), last);
  // Links under /dev/fd may not resolve to paths, so status() follows them.
  sys::fs::file_status status;
  if (!sys::fs::status(path, status) && status.type() != sys::fs::file_type::regular_file)
    return writeInPlace(path, write, last);

  Expected<std::string> place = followLinks(path);
  if (!place)
    return place.takeError();
  Expected<sys::fs::TempFile> file = sys::fs::TempFile::create(*place + ".temp-%%%%%%");
  if (!file)
    return file.takeError();
  Error written = Error::success();
  {
    raw_fd_ostream os(file->FD, /*shouldClose=*/false);
    written = joinErrors(joinErrors(std::move(written), write(os)), finish(os));
  }
  written = inOrder(std::move(written), last);
  if (written)
    return joinErrors(std::move(written), file->discard());
  return file->keep(*place);
}
