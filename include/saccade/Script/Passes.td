//===- Passes.td - Passes that run scripts ----------------------*- tablegen -*-===//
#ifndef SACCADE_SCRIPT_PASSES_TD
#define SACCADE_SCRIPT_PASSES_TD

include "mlir/Pass/PassBase.td"

def ApplyScript : Pass<"attn-apply-script", "::mlir::ModuleOp"> {
  let summary = "run a script of the transform dialect on the program";
  let description = [{
    Runs the named sequence `@__transform_main` of a file on the module. The steps of the compiler are ops of the transform
    dialect, `transform.attn.tile_queries` and others, which apply to the program's target. `--transform-script` inserts
    this pass. In contrast to `transform-interpreter` of MLIR, the script is not part of the program. Once the script is
    parsed, `text` has it, so that reproducers of MLIR's pass manager (`--mlir-pass-pipeline-crash-reproducer`) contain it.
  }];
  let options = [Option<"file", "file", "std::string", "", "Path of the script">,
                 Option<"text", "text", "std::string", "", "The script, instead of that of the file">,
                 Option<"target", "target", "std::string", "\"host\"", "CPU or GPU target of the program">,
                 Option<"nextStage", "next-stage", "std::string", "",
                        "The stage that begins after the script, if the script is between two stages">];
  let dependentDialects = ["::mlir::transform::TransformDialect"];
}

#endif // SACCADE_SCRIPT_PASSES_TD
