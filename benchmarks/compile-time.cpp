//===- compile-time.cpp - Time of an in-process compilation ------------------===//
//
// usage: saccade-compile-time FILE COUNT. Parses and compiles the program COUNT times and prints the seconds of each
// compilation as one JSON object per line. The first one includes the one-time initialization of the process.
//
//===----------------------------------------------------------------------===//
#include "saccade/JIT/Executable.h"
#include "saccade/Support/ToolMain.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MemoryBuffer.h"
#include <chrono>

using namespace saccade;

static int reportError(const llvm::Twine &message, ExitCode code) {
  llvm::errs() << "saccade-compile-time: error: " << message << '\n';
  return code;
}

static int run(llvm::ArrayRef<const char *> arguments) {
  unsigned count = 0;
  if (arguments.size() != 2 || llvm::StringRef(arguments[1]).getAsInteger(10, count))
    return reportError("usage: saccade-compile-time FILE COUNT", ExitUsage);
  auto file = llvm::MemoryBuffer::getFile(arguments[0]);
  if (!file)
    return reportError("cannot read '" + llvm::Twine(arguments[0]) + "': " + file.getError().message(), ExitFile);

  for (unsigned i = 0; i < count; ++i) {
    auto start = std::chrono::steady_clock::now();
    auto executable = Executable::createFromText((*file)->getBuffer(), arguments[0], CompileOptions());
    double total = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!executable)
      return reportError(llvm::toString(executable.takeError()), ExitInvalidInput);
    const CompileTimes &times = (*executable)->compileTimes();
    llvm::outs() << llvm::format("{\"total\": %.6f, \"pipeline\": %.6f, \"codegen\": %.6f, \"link\": %.6f}\n", total,
                                 times.pipeline, times.codegen, times.link);
  }
  return ExitSuccess;
}

int main(int argc, char **argv) {
  llvm::ArrayRef<const char *> arguments(argv, argc);
  return runTool(arguments, [&] { return run(arguments.drop_front()); });
}
