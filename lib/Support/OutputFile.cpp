//===- OutputFile.cpp - Write what a tool makes -------------------------------===//
//
// A stream's error is always taken from it: one that is left there ends the process.
//
//===----------------------------------------------------------------------===//
#include "saccade/Support/OutputFile.h"
#include "llvm/Support/FileSystem.h"
#include <filesystem>

using namespace llvm;

static Error finish(raw_fd_ostream &os) {
  os.flush();
  std::error_code error = os.error();
  os.clear_error();
  return errorCodeToError(error);
}

Error saccade::flushStandardOutput() { return finish(outs()); }

static Error writeInPlace(StringRef path, function_ref<Error(raw_ostream &)> write) {
  std::error_code error;
  raw_fd_ostream os(path, error, sys::fs::CD_OpenExisting);
  if (error)
    return errorCodeToError(error);
  return joinErrors(write(os), finish(os));
}

/// Where a chain of links ends, whether something is there or not.
static Expected<std::string> followLinks(StringRef path) {
  constexpr int mostLinks = 40; // as many as Linux follows
  std::filesystem::path place(path.str());
  std::error_code error;
  for (int i = 0; i < mostLinks; ++i) {
    if (!std::filesystem::is_symlink(place, error))
      return place.string(); // whatever is wrong with it, writing will say
    std::filesystem::path target = std::filesystem::read_symlink(place, error);
    if (error)
      return errorCodeToError(error);
    place = place.parent_path() / target; // an absolute target is taken as it is
  }
  return errorCodeToError(std::make_error_code(std::errc::too_many_symbolic_link_levels));
}

Error saccade::writeOutput(StringRef path, function_ref<Error(raw_ostream &)> write) {
  if (path == "-")
    return joinErrors(write(outs()), flushStandardOutput());
  // Links under /dev/fd lead to names that are no paths, so the system follows them.
  sys::fs::file_status status;
  if (!sys::fs::status(path, status) && status.type() != sys::fs::file_type::regular_file)
    return writeInPlace(path, write);

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
  if (written)
    return joinErrors(std::move(written), file->discard());
  return file->keep(*place);
}
