//===- View.cpp - Graph of a program ------------------------------------------===//
#include "View.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/ViewOpGraph.h"
#include "saccade/Support/OutputFile.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"

using namespace saccade;

static ExitCode write(llvm::StringRef path, llvm::StringRef text) {
  auto put = [&](llvm::raw_ostream &os) {
    os << text;
    return llvm::Error::success();
  };
  if (llvm::Error error = writeOutput(path, put)) {
    llvm::errs() << tool << ": error: cannot write '" << path << "': " << llvm::toString(std::move(error)) << '\n';
    return ExitFile;
  }
  return ExitSuccess;
}

ExitCode saccade::writeView(mlir::ModuleOp module, const Options &options) {
  // Larger graphs take Graphviz minutes, and show nothing.
  constexpr int64_t mostOps = 2000;
  int64_t ops = 0;
  module.walk([&](mlir::Operation *) { ++ops; });
  if (ops > mostOps) {
    llvm::errs() << tool << ": error: the graph of --view has " << ops << " ops, expected at most " << mostOps
                 << ": give an earlier stage as --stop-after\n";
    return ExitInvalidInput;
  }
  std::string text;
  llvm::raw_string_ostream os(text);
  mlir::PassManager pm(module.getContext(), mlir::ModuleOp::getOperationName());
  pm.addPass(mlir::createPrintOpGraphPass(os));
  if (failed(pm.run(module)))
    return ExitInvalidInput;
  llvm::StringRef format = llvm::sys::path::extension(options.view).drop_front();
  llvm::ErrorOr<std::string> dot = llvm::sys::findProgramByName("dot");
  if (format == "dot")
    return write(options.view, text);
  if (!dot) {
    std::string textFile = options.view + ".dot";
    llvm::errs() << tool << ": warning: cannot find 'dot', the program of Graphviz that draws graphs: the graph is "
                 << "written as text to '" << textFile << "'\n";
    return write(textFile, text);
  }
  llvm::SmallString<128> textFile;
  if (std::error_code error = llvm::sys::fs::createTemporaryFile("saccade-view", "dot", textFile)) {
    llvm::errs() << tool << ": error: cannot create a temporary file: " << error.message() << '\n';
    return ExitFile;
  }
  llvm::FileRemover remover(textFile);
  if (ExitCode code = write(textFile, text))
    return code;
  std::string type = ("-T" + format).str(), message;
  int code =
      llvm::sys::ExecuteAndWait(*dot, {*dot, type, "-o", options.view, textFile}, std::nullopt, {}, 0, 0, &message);
  if (code != 0) {
    llvm::errs() << tool << ": error: '" << *dot << "' cannot draw '" << options.view << "' (exit code " << code << ")"
                 << (message.empty() ? "" : ": ") << message << '\n';
    return ExitFile;
  }
  return ExitSuccess;
}
