//===- LinkSharedLibrary.cpp - Links objects and the runtime -----------------===//
//
// Runs LLD in process on the embedded runtime and C library stubs, so that neither a linker nor development files are
// required. LLD works on files only, which are placed in a temporary private folder.
//
//===----------------------------------------------------------------------===//
#include "Embedded/Embedded.h"
#include "LibraryNote.h"
#include "lld/Common/Driver.h"
#include "saccade/Support/PrivateFolder.h"
#include "saccade/Target/SharedLibrary.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/CrashRecoveryContext.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include <mutex>

LLD_HAS_DRIVER(elf)

using namespace llvm;

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

Expected<SmallVector<char, 0>> saccade::linkSharedLibrary(ArrayRef<StringRef> objects, ArrayRef<std::string> entries,
                                                          const CPUTarget &target, bool hasKernels) {
  std::optional<embedded::LinkFiles> files = embedded::linkFiles(target.processor().architecture);
  if (!files)
    return createStringError("this build has no runtime for " + target.triple + ", which shared libraries contain");
  Expected<PrivateFolder> made = PrivateFolder::create("saccade-link");
  if (!made)
    return made.takeError();
  const PrivateFolder &folder = *made;
  SmallVector<std::pair<std::string, StringRef>> inputs;
  for (auto [number, object] : enumerate(objects))
    inputs.emplace_back("program" + utostr(number) + ".o", object);
  inputs.append({{"runtime.a", files->runtime}, {"libc.so.6", files->libc}, {"libm.so.6", files->libm}});
  for (const auto &[name, content] : inputs)
    if (Error error = folder.write(name, content))
      return error;
  if (Error error = folder.write("exports", versionScript(entries, hasKernels)))
    return error;
  // The runtime table and the limit may be preempted by those of another library; all other references are bound
  // locally, even if the host loads libraries with equal symbols into one scope.
  if (Error error = folder.write("shared", "{ saccade_runtime_v1; saccade_cpu_limit_v1; };\n"))
    return error;

  std::string output = folder / "library.so";
  std::vector<std::string> paths;
  for (const auto &[name, content] : inputs)
    paths.push_back(folder / name);
  paths.insert(paths.end() - 1, "--as-needed"); // libm
  paths.push_back("--version-script=" + (folder / "exports"));
  paths.push_back("--dynamic-list=" + (folder / "shared"));
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
