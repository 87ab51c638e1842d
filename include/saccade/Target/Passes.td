//===- Passes.td - The passes of the target stage ---------------*- tablegen -*-===//
#ifndef SACCADE_TARGET_PASSES_TD
#define SACCADE_TARGET_PASSES_TD

include "mlir/Pass/PassBase.td"

def EmitEntryPoints : Pass<"attn-emit-entry-points", "::mlir::ModuleOp"> {
  let summary = "give every entry its table and its faces";
  let description = [{
    Expects a module in the LLVM dialect whose entries were converted with `llvm.emit_c_interface`: each entry `@f`
    (marked `attn.entry`, with the names and whole-tensor types of its values) and its shape function (marked
    `attn.shapes_of = "f"`). For an entry it adds

    - `__saccade_entry_f`, the constant SaccadeEntry of `include/saccade/Runtime/Entry.h`: names, types, and the two
      functions of uniform signature that take MLIR's descriptors;
    - `const char *saccade_f(const DLTensor * or scalar..., DLTensor *...)` and
      `const char *saccade_f_shapes(inputs..., int64_t *sizes)`, described in `docs/calling.md`;
    - `int32_t __tvm_ffi_f(void *, const TVMFFIAny *, int32_t, TVMFFIAny *)`.

    A program with a device module gets the tables of one for a GPU: they point to `saccade.kernels`, which whoever
    compiles the device module defines, and its host code allocates memory of the GPU.

    The faces only pack their arguments: the runtime checks every call from the table. All else becomes internal, and is
    renamed where it has a name that is needed. Refused are entries whose symbols meet one another or the runtime's,
    and values of types that cannot cross the border.
  }];
  let options = [Option<"target", "target", "std::string", "\"host\"", "CPU target that the code needs">];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

#endif // SACCADE_TARGET_PASSES_TD
