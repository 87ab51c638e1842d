//===- VerifyIR.cpp - Run the verifiers of all ops ----------------------------===//
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Verifier.h"
#include "saccade/Pipeline/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_VERIFYIR
#include "saccade/Pipeline/Passes.h.inc"
} // namespace saccade

namespace {
struct VerifyIR : saccade::impl::VerifyIRBase<VerifyIR> {
  void runOnOperation() override {
    if (failed(mlir::verify(getOperation())))
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
