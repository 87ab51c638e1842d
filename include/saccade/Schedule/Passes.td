//===- Passes.td - The passes of the schedule stage -------------*- tablegen -*-===//
#ifndef SACCADE_SCHEDULE_PASSES_TD
#define SACCADE_SCHEDULE_PASSES_TD

include "mlir/Pass/PassBase.td"

def ApplySchedules : Pass<"attn-apply-schedules", "::mlir::ModuleOp"> {
  let summary = "set the tile sizes of a table";
  let description = [{
    Attention of a class that the table has for the target gets the tile sizes of the entry: a class is an element type
    and the head sizes of keys and values. An existing schedule is kept. `saccade-tune` writes tables, in JSON:

    ```json
    {"version": 1, "entries": [
      {"target": "v4", "element": "f32", "head_size": 64, "value_head_size": 64, "rows": 288, "cols": 512}
    ]}
    ```

    Entries that no kernel can compute, or that are for the same class, are errors, also for other targets and classes. Once
    the file is read, `text` has it, so that reproducers of MLIR's pass manager contain it.
  }];
  let options = [Option<"table", "table", "std::string", "", "Path of the table">,
                 Option<"text", "text", "std::string", "", "The table, instead of that of the file">,
                 Option<"target", "target", "std::string", "\"host\"", "The target that entries must name">];
  let dependentDialects = ["::saccade::attn::AttnDialect"];
}

def AssignSchedule : Pass<"attn-assign-schedule", "::mlir::func::FuncOp"> {
  let summary = "assign CPU tile sizes to attention and contractions";
  let description = [{
    The schedule is a pure function of element type, head sizes and target. It does not depend on sequence lengths or
    batch, so that one kernel serves all of them. An existing schedule is kept.

    ```mlir
    %o = attn.attention %q[s,d], %k[s,d], %v[s,d] {schedule = #attn.schedule<rows = 384, cols = 512>} : ...
    ```
  }];
  let options = [Option<"target", "target", "std::string", "\"host\"", "CPU target">];
  let dependentDialects = ["::saccade::attn::AttnDialect"];
}

def AssignGPUSchedule : Pass<"attn-assign-gpu-schedule", "::mlir::func::FuncOp"> {
  let summary = "assign GPU tile sizes to attention and contractions";
  let description = [{
    Attention gets as many rows as a CTA computes, and long key tiles that kernels subdivide themselves. Matmuls get
    square blocks. An existing schedule is kept.

    ```mlir
    %o = attn.attention %q[s,d], %k[s,d], %v[s,d] {schedule = #attn.schedule<rows = 128, cols = 16384>} : ...
    ```
  }];
  let options = [Option<"target", "target", "std::string", "\"sm_80\"", "GPU target">];
  let dependentDialects = ["::saccade::attn::AttnDialect"];
}

def VerifyScheduled : Pass<"attn-verify-scheduled", "::mlir::func::FuncOp"> {
  let summary = "verify that attention and contractions have a schedule";
  let description = [{The invariant at the end of the schedule stage.}];
}

#endif // SACCADE_SCHEDULE_PASSES_TD
