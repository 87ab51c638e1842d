//===- Passes.td - The passes of the target stage ---------------*- tablegen -*-===//
#ifndef SACCADE_TARGET_PASSES_TD
#define SACCADE_TARGET_PASSES_TD

include "mlir/Pass/PassBase.td"

def EmitEntryPoints : Pass<"attn-emit-entry-points", "::mlir::ModuleOp"> {
  let summary = "give every entry its plain C face";
  let description = [{
    Expects a module in the LLVM dialect whose entries were converted with `llvm.emit_c_interface`. For an entry
    `@f` (marked `attn.entry`) it adds `const char *saccade_call_f(void **args)`, and for its shape function (marked
    `attn.shapes_of = "f"`) `const char *saccade_shapes_f(void **args, int64_t *sizes)`. All else becomes internal,
    so that no name of a user's function meets one of the host's.

    `args[i]` points to the memref descriptor of argument i, or to the scalar itself; results follow as arguments,
    because they are the caller's memory. It returns NULL, or "out of memory": then all that was allocated is released
    and the results hold anything. `saccade_shapes_f` gets the inputs only and writes the extents of all
    results one after the other. Where run-time shapes do not fit it returns a message instead of NULL and writes
    the extent it found and the extent it wanted to sizes[0] and sizes[1]; `sizes` has room for two in any case.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

#endif // SACCADE_TARGET_PASSES_TD
