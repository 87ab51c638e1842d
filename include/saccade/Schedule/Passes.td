//===- Passes.td - Choosing tiles -------------------------------*- tablegen -*-===//
#ifndef SACCADE_SCHEDULE_PASSES_TD
#define SACCADE_SCHEDULE_PASSES_TD

include "mlir/Pass/PassBase.td"

def AssignSchedule : Pass<"attn-assign-schedule", "::mlir::func::FuncOp"> {
  let summary = "gives every attention and contraction its tile sizes";
  let description = [{
    A pure function of element type, head sizes and target; no sequence length or batch enters, so one kernel
    serves all of them. An op that already carries a schedule keeps it.

    ```mlir
    %o = attn.attention %q[s,d], %k[s,d], %v[s,d] {schedule = #attn.schedule<rows = 384, cols = 512>} : ...
    ```
  }];
  let options = [Option<"target", "target", "std::string", "\"host\"", "CPU target to choose for">];
  let dependentDialects = ["::saccade::attn::AttnDialect"];
}

def AssignGPUSchedule : Pass<"attn-assign-gpu-schedule", "::mlir::func::FuncOp"> {
  let summary = "gives every attention and contraction the tile sizes of a GPU kernel";
  let description = [{
    A row of queries for each thread of a CTA, and long steps over keys: kernels cut them up themselves. Products are cut
    into squares. An op that already carries a schedule keeps it.

    ```mlir
    %o = attn.attention %q[s,d], %k[s,d], %v[s,d] {schedule = #attn.schedule<rows = 128, cols = 16384>} : ...
    ```
  }];
  let options = [Option<"target", "target", "std::string", "\"sm_80\"", "architecture to choose for">];
  let dependentDialects = ["::saccade::attn::AttnDialect"];
}

def VerifyScheduled : Pass<"attn-verify-scheduled", "::mlir::func::FuncOp"> {
  let summary = "checks that every attention and contraction carries a schedule";
  let description = [{The invariant at the end of the schedule stage.}];
}

#endif // SACCADE_SCHEDULE_PASSES_TD
