//===- Passes.td - Utility passes of the pipeline ---------------*- tablegen -*-===//
#ifndef SACCADE_PIPELINE_PASSES_TD
#define SACCADE_PIPELINE_PASSES_TD

include "mlir/Pass/PassBase.td"

def WriteModule : Pass<"attn-write-module", "::mlir::ModuleOp"> {
  let summary = "write the module to a file";
  let description = [{
    Does not change the module. Used with `--insert-after` to print the result of a stage; `--dump-stages` inserts it after
    every stage.
  }];
  let options = [Option<"file", "file", "std::string", "", "Path of the file, in an existing directory">];
}

def VerifyIR : Pass<"attn-verify-ir", "::mlir::ModuleOp"> {
  let summary = "run the verifiers of all ops";
  let description = [{
    Fails if an op violates its verifier. Every stage ends with this pass, unless the IR is verified after every pass.
    The other `attn-verify-` passes check the invariant of one stage instead.
  }];
}

#endif // SACCADE_PIPELINE_PASSES_TD
