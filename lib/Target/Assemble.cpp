//===- Assemble.cpp - NVIDIA's assembler --------------------------------------===//
//
// Runs ptxas as a separate process and parses its report of registers and spills.
//
//===----------------------------------------------------------------------===//
#include "saccade/Target/Device.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/Regex.h"

using namespace saccade;

/// The number before `unit` in `line`, as in "12 bytes spill stores"; 0 if there is none.
static int64_t numberBefore(llvm::StringRef line, llvm::StringRef unit) {
  llvm::SmallVector<llvm::StringRef> match;
  int64_t number = 0;
  if (llvm::Regex("([0-9]+) " + unit.str()).match(line, &match))
    match[1].getAsInteger(10, number);
  return number;
}

void saccade::readAssemblerLog(llvm::StringRef log, Cubin &into) {
  static const llvm::Regex entry("Compiling entry function '([^']+)'"), costly("\\(C75(08|1[0-5]|19)\\)");
  while (!log.empty()) {
    llvm::StringRef line;
    std::tie(line, log) = log.split('\n');
    llvm::SmallVector<llvm::StringRef> match;
    if (entry.match(line, &match))
      into.kernels.push_back({match[1].str()});
    if (costly.match(line))
      into.warnings.push_back(line.trim().str());
    if (into.kernels.empty())
      continue;
    KernelReport &kernel = into.kernels.back();
    if (line.contains("spill stores")) {
      kernel.stack = numberBefore(line, "bytes stack frame");
      kernel.spillStores = numberBefore(line, "bytes spill stores");
      kernel.spillLoads = numberBefore(line, "bytes spill loads");
    }
    if (line.contains("Used "))
      kernel.registers = numberBefore(line, "registers");
  }
}

/// The contents of a file; empty if it cannot be read.
static std::string contents(llvm::StringRef path) {
  llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> file = llvm::MemoryBuffer::getFile(path);
  return file ? (*file)->getBuffer().str() : std::string();
}

llvm::Error saccade::checkAssembler(llvm::StringRef ptxas) {
  llvm::SmallString<128> log;
  if (std::error_code error = llvm::sys::fs::createTemporaryFile("saccade", "log", log))
    return llvm::createFileError(log, error);
  llvm::scope_exit cleanUp([&] { (void)llvm::sys::fs::remove(log); });
  std::optional<llvm::StringRef> redirects[] = {llvm::StringRef(), llvm::StringRef(log), llvm::StringRef(log)};
  std::string message;
  int status = llvm::sys::ExecuteAndWait(ptxas, {ptxas, "--version"}, std::nullopt, redirects, 0, 0, &message);
  std::string printed = contents(log);
  if (status == 0 && llvm::StringRef(printed).contains("NVIDIA (R) Ptx"))
    return llvm::Error::success();
  llvm::StringRef shown = message.empty() ? llvm::StringRef(printed).rtrim() : llvm::StringRef(message);
  std::string ending = status < 0 ? "failed" : "ended with exit code " + llvm::Twine(status).str();
  return llvm::createStringError("'" + ptxas + "' is not NVIDIA's assembler: '--version' " + ending +
                                 (shown.empty() ? " and printed nothing" : " and printed:\n" + shown));
}

llvm::Expected<Cubin> saccade::assemble(llvm::StringRef ptx, const GPUTarget &target, llvm::StringRef ptxas) {
  llvm::SmallString<128> input, output, log;
  int descriptor = -1;
  llvm::scope_exit cleanUp([&] {
    for (const llvm::SmallString<128> *path : {&input, &output, &log})
      if (!path->empty())
        (void)llvm::sys::fs::remove(*path);
  });
  for (auto [path, suffix] : {std::pair(&input, "ptx"), std::pair(&output, "cubin"), std::pair(&log, "log")})
    if (std::error_code error = path == &input
                                    ? llvm::sys::fs::createTemporaryFile("saccade", suffix, descriptor, *path)
                                    : llvm::sys::fs::createTemporaryFile("saccade", suffix, *path))
      return llvm::createFileError(*path, error);
  {
    llvm::raw_fd_ostream os(descriptor, /*shouldClose=*/true);
    os << ptx;
    if (os.has_error()) {
      std::error_code error = os.error();
      os.clear_error();
      return llvm::createFileError(input, error);
    }
  }
  std::string architecture = ("--gpu-name=" + target.name).str();
  std::optional<llvm::StringRef> redirects[] = {std::nullopt, llvm::StringRef(log), llvm::StringRef(log)};
  std::string message, logText;
  auto run = [&](llvm::ArrayRef<llvm::StringRef> more) {
    llvm::SmallVector<llvm::StringRef> arguments = {ptxas, architecture, "-v", "-O3", "-o", output, input};
    arguments.append(more.begin(), more.end());
    int status = llvm::sys::ExecuteAndWait(ptxas, arguments, std::nullopt, redirects, 0, 0, &message);
    logText = contents(log);
    return status;
  };
  // Assembles kernels in parallel; older versions lack the option.
  int status = run({"--split-compile=0"});
  if (status != 0 && llvm::StringRef(logText).contains("split-compile"))
    status = run({});
  if (status != 0)
    return llvm::createStringError("'" + ptxas + "' refused the PTX: " + (message.empty() ? logText : message));
  Cubin cubin;
  cubin.bytes = contents(output);
  readAssemblerLog(logText, cubin);
  return cubin;
}
