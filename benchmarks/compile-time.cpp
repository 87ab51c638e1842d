//===- compile-time.cpp - How long a compilation in this process takes --------===//
//
// usage: saccade-compile-time FILE COUNT. Compiles the program COUNT times from its text and prints the seconds of
// each, one JSON object a line; the first includes what is set up once in a process.
//
//===----------------------------------------------------------------------===//
#include "saccade/JIT/Executable.h"
#include "saccade/Support/ToolMain.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MemoryBuffer.h"
#include <chrono>

using namespace saccade;

static int refuse(const llvm::Twine &message, ExitCode code) {
  llvm::errs() << "saccade-compile-time: error: " << message << '\n';
  return code;
}

static int run(llvm::ArrayRef<const char *> arguments) {
  unsigned count = 0;
  if (arguments.size() != 2 || llvm::StringRef(arguments[1]).getAsInteger(10, count))
    return refuse("usage: saccade-compile-time FILE COUNT", ExitUsage);
  auto file = llvm::MemoryBuffer::getFile(arguments[0]);
  if (!file)
    return refuse("cannot read '" + llvm::Twine(arguments[0]) + "': " + file.getError().message(), ExitFile);

  for (unsigned i = 0; i < count; ++i) {
    auto start = std::chrono::steady_clock::now();
    auto executable = Executable::createFromText((*file)->getBuffer(), arguments[0], CompileOptions());
    double total = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!executable)
      return refuse(llvm::toString(executable.takeError()), ExitInvalidInput);
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
