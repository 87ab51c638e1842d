//===- PassReport.h - Names passes that fail or crash -------------*- C++ -*-===//
#ifndef SACCADE_LIB_PIPELINE_PASSREPORT_H
#define SACCADE_LIB_PIPELINE_PASSREPORT_H

#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "saccade/Pipeline/CompileOptions.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

namespace saccade {

/// Reports a pass that fails if it is the user's, or if it has given no reason, and says which passes of the user ran
/// before. Tells the fault handler of the tools which pass is running.
class PassReport : public mlir::PassInstrumentation {
public:
  PassReport(mlir::MLIRContext *context, llvm::ArrayRef<Insertion> insertions);
  ~PassReport() override;

  void runBeforePass(mlir::Pass *pass, mlir::Operation *op) override;
  void runAfterPass(mlir::Pass *pass, mlir::Operation *op) override;
  void runAfterPassFailed(mlir::Pass *pass, mlir::Operation *op) override;

  /// To be called when the passes have ended: reports a pass that has not, because MLIR caught a signal in it.
  void reportCrash(mlir::Location loc);

private:
  mlir::DiagnosticEngine &diagnostics;
  mlir::DiagnosticEngine::HandlerID counter;
  size_t errors = 0;
  bool isReported = false;
  mlir::Pass *running = nullptr;
  llvm::StringSet<> inserted;              ///< the words of the inserted pipelines
  llvm::SetVector<llvm::StringRef> ofUser; ///< the user's passes that have run
};

} // namespace saccade

#endif // SACCADE_LIB_PIPELINE_PASSREPORT_H
