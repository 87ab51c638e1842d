//===- Passes.td - The passes of the target stage ---------------*- tablegen -*-===//
#ifndef SACCADE_TARGET_PASSES_TD
#define SACCADE_TARGET_PASSES_TD

include "mlir/Pass/PassBase.td"

def EmitEntryPoints : Pass<"attn-emit-entry-points", "::mlir::ModuleOp"> {
  let summary = "emit the table and the C and TVM-FFI wrappers of every entry";
  let description = [{
    Expects a module in the LLVM dialect whose entries were converted with `llvm.emit_c_interface`: each entry `@f`
    (marked `attn.entry`, with the names and tensor types of its values) and its shape function (marked
    `attn.shapes_of = "f"`). For each entry it adds

    - `__saccade_entry_f`, the constant SaccadeEntry of `include/saccade/Runtime/Entry.h`: names, types, and two
      functions of uniform signature that take memref descriptors;
    - `const char *saccade_f(const DLTensor * or scalar..., DLTensor *...)` and
      `const char *saccade_f_shapes(inputs..., int64_t *sizes)`, described in `docs/guides/calling.md`;
    - `int32_t __tvm_ffi_f(void *, const TVMFFIAny *, int32_t, TVMFFIAny *)`.

    The tables of a program with a device module refer to `saccade.kernels`, which is defined when the device module is
    compiled, and its host code allocates GPU memory.

    The wrappers only pack their arguments; the runtime checks every call from the table. All other symbols become
    internal and are renamed if they conflict with an emitted symbol. The pass fails if the symbols of two entries, or of
    an entry and the runtime, conflict, and if a type of an entry cannot cross the ABI boundary.
  }];
  let options = [Option<"target", "target", "std::string", "\"host\"", "CPU target that the code requires">];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

#endif // SACCADE_TARGET_PASSES_TD
