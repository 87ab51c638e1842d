//===- Passes.td - Passes about the pipeline itself -------------*- tablegen -*-===//
#ifndef SACCADE_PIPELINE_PASSES_TD
#define SACCADE_PIPELINE_PASSES_TD

include "mlir/Pass/PassBase.td"

def WriteModule : Pass<"attn-write-module", "::mlir::ModuleOp"> {
  let summary = "write the module to a file";
  let description = [{
    Changes nothing. With `--insert-after` it shows what a stage made; `--dump-stages` puts one after every stage.
  }];
  let options = [Option<"file", "file", "std::string", "", "Where to write; folders must exist">];
}

#endif // SACCADE_PIPELINE_PASSES_TD
