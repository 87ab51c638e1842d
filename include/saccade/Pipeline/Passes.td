//===- Passes.td - Utility passes of the pipeline ---------------*- tablegen -*-===//
#ifndef SACCADE_PIPELINE_PASSES_TD
#define SACCADE_PIPELINE_PASSES_TD

include "mlir/Pass/PassBase.td"

def WriteModule : Pass<"attn-write-module", "::mlir::ModuleOp"> {
  let summary = "write the module to a file";
  let description = [{
    Does not change the module. Used with `--insert-after` to print the result of a stage; `--dump-stages` inserts it after
    every stage. With `page`, the texts of `files` and of this one are written as an HTML page, side by side.
  }];
  let options = [Option<"file", "file", "std::string", "", "Path of the file, in an existing directory">,
                 Option<"stage", "stage", "std::string", "", "The stage to mark the written module with">,
                 Option<"target", "target", "std::string", "", "The target to mark it with">,
                 Option<"page", "page", "std::string", "", "Path of the page; empty for none">,
                 ListOption<"files", "files", "std::string", "Files of earlier stages for the page">];
}

def VerifyIR : Pass<"attn-verify-ir", "::mlir::ModuleOp"> {
  let summary = "run the verifiers of all ops";
  let description = [{
    Fails if an op violates its verifier. Every stage ends with this pass, unless the IR is verified after every pass.
    The other `attn-verify-` passes check the invariant of one stage instead.
  }];
}

def EnterStage : Pass<"attn-enter-stage", "::mlir::ModuleOp"> {
  let summary = "verify that a program is at the start of a stage";
  let description = [{
    The first pass of every pipeline. A module that `attn-mark-stage` has marked must have passed the stages before
    `stage`, for the same target; the mark is removed. A module without mark is accepted.
  }];
  let options = [Option<"stage", "stage", "std::string", "\"import\"", "The first stage that will run; empty for none">,
                 Option<"target", "target", "std::string", "", "The target; empty for any">];
}

def MarkStage : Pass<"attn-mark-stage", "::mlir::ModuleOp"> {
  let summary = "mark a program with the stage that it has passed";
  let description = [{
    Sets the attributes `attn.stage` and `attn.target` of the module. Every tool continues with the next stage.

    ```mlir
    module attributes {attn.stage = "tiling", attn.target = "v3"} { ... }
    ```
  }];
  let options = [Option<"stage", "stage", "std::string", "", "The last stage that the program has passed">,
                 Option<"target", "target", "std::string", "", "The target that it was compiled for">];
}

def UpdateFacts : Pass<"attn-update-facts", "::mlir::ModuleOp"> {
  let summary = "prove again what attributes claim";
  let description = [{
    Runs after passes of the user, which may have changed what a fact was derived from.

    - `attn.stability` of an `attn.attention` is computed again from its regions.
    - `attn.finite_max` of an `attn.accumulate` is removed unless its regions prove it. Generated code then replaces a
      maximum of −∞ by 0, which changes no bit of a maximum that is finite.
  }];
}

def VerifyFacts : Pass<"attn-verify-facts", "::mlir::ModuleOp"> {
  let summary = "verify that no attribute contradicts the program";
  let description = [{
    Every stage ends with this pass, and a pipeline that does not begin with the first stage begins with it. Errors are:

    - `attn.stability` or `attn.finite_max` claims more than the regions of the op prove;
    - the types of an entry's arguments differ from its signature `attn.entry`, or the entry is private;
    - an entry has no shape function (`attn.shapes_of`), or several.
  }];
}

#endif // SACCADE_PIPELINE_PASSES_TD
