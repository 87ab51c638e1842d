//===- PassReport.cpp - Names passes that fail or crash -----------------------===//
#include "PassReport.h"
#include "mlir/IR/Operation.h"
#include "mlir/Pass/Pass.h"
#include "saccade/Pipeline/Plugins.h"
#include "saccade/Support/ToolMain.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace saccade;

/// The plugin that defines a pass; empty if the compiler does.
static llvm::StringRef pluginOf(const Pass *pass) {
  // The table of virtual functions is in the library that defines the class.
  return getPluginOf(*reinterpret_cast<const void *const *>(pass));
}

PassReport::PassReport(MLIRContext *context, llvm::ArrayRef<Insertion> insertions)
    : diagnostics(context->getDiagEngine()) {
  counter = diagnostics.registerHandler([this](Diagnostic &diagnostic) {
    errors += diagnostic.getSeverity() == DiagnosticSeverity::Error;
    return failure(); // passes it on
  });
  for (const Insertion &insertion : insertions) {
    if (!insertion.script.empty())
      inserted.insert("attn-apply-script");
    auto isPartOfName = [](char c) { return llvm::isAlnum(c) || c == '-' || c == '_' || c == '.'; };
    for (llvm::StringRef rest = insertion.passes; !rest.empty();) {
      rest = rest.drop_until(isPartOfName);
      inserted.insert(rest.take_while(isPartOfName));
      rest = rest.drop_while(isPartOfName);
    }
  }
}

PassReport::~PassReport() { diagnostics.eraseHandler(counter); }

void PassReport::runBeforePass(Pass *pass, Operation *) {
  if (pass->getArgument().empty())
    return;
  setRunningPass(pass->getArgument(), pluginOf(pass));
  running = pass;
}

void PassReport::reportCrash(Location loc) {
  if (!running)
    return;
  llvm::StringRef plugin = pluginOf(running);
  InFlightDiagnostic error = emitError(loc) << "pass '" << running->getArgument() << "' ";
  if (!plugin.empty())
    error << "of the plugin '" << plugin << "' ";
  error << "crashed";
}

void PassReport::runAfterPass(Pass *pass, Operation *) {
  setRunningPass("", "");
  running = nullptr;
  if (!pluginOf(pass).empty() || inserted.contains(pass->getArgument()))
    ofUser.insert(pass->getArgument());
}

void PassReport::runAfterPassFailed(Pass *pass, Operation *op) {
  setRunningPass("", "");
  running = nullptr;
  llvm::StringRef name = pass->getArgument(), plugin = pluginOf(pass);
  if (name.empty() || isReported)
    return; // the passes that this one is nested in fail as well
  isReported = true;
  if (!plugin.empty())
    emitError(op->getLoc()) << "pass '" << name << "' of the plugin '" << plugin << "' failed";
  else if (inserted.contains(name))
    emitError(op->getLoc()) << "the inserted pass '" << name << "' failed";
  else if (errors == 0)
    emitError(op->getLoc()) << "pass '" << name << "' failed";
  else if (!ofUser.empty())
    emitRemark(op->getLoc()) << "pass '" << name
                             << "' failed; passes of yours ran before: " << llvm::join(ofUser, ", ");
}
