//===- LinkSharedLibrary.cpp - Links an object and the runtime ----------------===//
//
// Runs LLD in process on the embedded runtime and C library stubs, so that neither a linker nor development files are
// required. LLD works on files only, which are placed in a temporary private folder.
//
//===----------------------------------------------------------------------===//
#include "Embedded/Embedded.h"
#include "LibraryNote.h"
#include "lld/Common/Driver.h"
#include "saccade/Target/SharedLibrary.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/CrashRecoveryContext.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include <mutex>
#include <stdlib.h>

LLD_HAS_DRIVER(elf)

using namespace llvm;

namespace {

/// A temporary folder that only this user can access.
class PrivateFolder {
public:
  static Expected<PrivateFolder> create() {
    SmallString<128> parent;
    sys::path::system_temp_directory(/*ErasedOnReboot=*/true, parent);
    std::string path = (parent + "/saccade-link-XXXXXX").str();
    if (!mkdtemp(path.data()))
      return createFileError(parent, errnoAsErrorCode());
    return PrivateFolder(path);
  }
  PrivateFolder(PrivateFolder &&other) noexcept : path(std::exchange(other.path, "")) {}
  ~PrivateFolder() {
    // Errors are ignored.
    if (!path.empty())
      (void)sys::fs::remove_directories(path);
  }

  std::string operator/(StringRef name) const { return path + "/" + name.str(); }

  Error write(StringRef name, StringRef content) const {
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

private:
  explicit PrivateFolder(StringRef path) : path(path) {}
  std::string path;
};

} // namespace

/// The functions of the runtime that every library exports.
static constexpr StringLiteral libraryFunctions[] = {
    "saccade_set_threads",  "saccade_threads",      "saccade_set_cpu_limit",   "saccade_entry_call",
    "saccade_entry_shapes", "saccade_entry_target", "saccade_entry_last_error"};

/// The exported symbols; all others are local, so that libraries in one process do not conflict.
static std::string versionScript(ArrayRef<std::string> entries, bool hasKernels) {
  std::string script = "{ global:\n";
  for (const std::string &entry : entries)
    script += formatv("saccade_{0};\nsaccade_{0}_shapes;\nsaccade_{0}_target;\n__saccade_entry_{0};\n__tvm_ffi_{0};\n",
                      entry);
  if (hasKernels)
    script += "saccade_set_stream;\nsaccade_entry_call_on_stream;\n";
  for (StringRef function : libraryFunctions)
    script += (function + ";\n").str();
  return script + "saccade_runtime_v1;\nsaccade_cpu_limit_v1;\nlocal: *; };\n";
}

/// Runs LLD; returns its output on failure.
static std::optional<std::string> runLinker(ArrayRef<const char *> arguments) {
  // LLD has global state, and fatal errors exit through crash recovery.
  static std::mutex one;
  std::lock_guard<std::mutex> lock(one);
  CrashRecoveryContext::Enable();
  scope_exit disable([] { CrashRecoveryContext::Disable(); });
  std::string text;
  raw_string_ostream os(text);
  lld::Result result = lld::lldMain(arguments, os, os, {{lld::Gnu, &lld::elf::link}});
  if (result.retCode == 0)
    return std::nullopt;
  return text;
}

Expected<SmallVector<char, 0>> saccade::linkSharedLibrary(StringRef object, ArrayRef<std::string> entries,
                                                          bool hasKernels) {
  Expected<PrivateFolder> made = PrivateFolder::create();
  if (!made)
    return made.takeError();
  const PrivateFolder &folder = *made;
  const std::pair<const char *, StringRef> inputs[] = {{"program.o", object},
                                                       {"runtime.a", embedded::runtimeArchive()},
                                                       {"libc.so.6", embedded::libcStub()},
                                                       {"libm.so.6", embedded::libmStub()}};
  for (auto [name, content] : inputs)
    if (Error error = folder.write(name, content))
      return error;
  if (Error error = folder.write("exports", versionScript(entries, hasKernels)))
    return error;
  // The runtime table and the limit may be preempted by those of another library; all other references are bound
  // locally, even if the host loads libraries with equal symbols into one scope.
  if (Error error = folder.write("shared", "{ saccade_runtime_v1; saccade_cpu_limit_v1; };\n"))
    return error;

  std::string output = folder / "library.so";
  const std::string paths[] = {folder / "program.o",
                               folder / "runtime.a",
                               folder / "libc.so.6",
                               "--as-needed",
                               folder / "libm.so.6",
                               "--version-script=" + (folder / "exports"),
                               "--dynamic-list=" + (folder / "shared")};
  SmallVector<const char *> arguments = {"ld.lld", "-shared", "-o", output.c_str()};
  for (const std::string &path : paths)
    arguments.push_back(path.c_str());
  // Undefined symbols are an error here, not when the library is loaded.
  arguments.append({"-z", "defs", "-z", "now", "-z", "relro", "-z", "noexecstack"});
  // Programs without parallel loops export the thread functions as well; functions keep their names for profilers.
  std::vector<std::string> undefined;
  for (StringRef function : libraryFunctions)
    undefined.push_back(("--undefined=" + function).str());
  for (const std::string &option : undefined)
    arguments.push_back(option.c_str());
  arguments.append({"--gc-sections", "--strip-debug", "--discard-locals"});
  arguments.append({"--hash-style=gnu", "--build-id=sha1", "--threads=1", "-O2"});
  if (std::optional<std::string> text = runLinker(arguments)) {
    // Messages that name the output are errors of writing it.
    if (StringRef(*text).contains(output))
      return createFileError(output, createStringError(StringRef(*text).rtrim()));
    return createStringError("the linker failed: " + StringRef(*text).rtrim());
  }
  ErrorOr<std::unique_ptr<MemoryBuffer>> library = MemoryBuffer::getFile(output);
  if (!library)
    return createFileError(output, library.getError());
  StringRef bytes = (*library)->getBuffer();
  SmallVector<char, 0> sealed(bytes.begin(), bytes.end());
  sealLibraryNote(sealed);
  return sealed;
}
