//===- Passes.td - The passes of GPU code generation ------------*- tablegen -*-===//
#ifndef SACCADE_CODEGEN_GPU_PASSES_TD
#define SACCADE_CODEGEN_GPU_PASSES_TD

include "mlir/Pass/PassBase.td"

// The dialects of device code.
defvar deviceDialects = ["::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
                         "::mlir::memref::MemRefDialect", "::mlir::NVVM::NVVMDialect", "::mlir::scf::SCFDialect"];

def OutlineKernels : Pass<"attn-outline-kernels", "::mlir::ModuleOp"> {
  let summary = "outline every task into a kernel with one CTA per work item";
  let description = [{
    A task `@f_task0(captures..., begin, end, scratch)` becomes the kernel `@f_task0(captures...)` of the device module.
    The kernel contains the body of the task's loop; the CTA index replaces the induction variable. All scalar parameters
    are widened to 64 bits, so that a launch is independent of their types. The task remains as a declaration for
    `attn.launch`. Constants that kernels read (`memref.get_global`) are copied to the device module.
  }];
  let dependentDialects = ["::mlir::gpu::GPUDialect", "::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect",
                           "::mlir::memref::MemRefDialect", "::mlir::arith::ArithDialect"];
}

def LowerAttentionSIMT : Pass<"attn-lower-attention-simt", "::mlir::func::FuncOp"> {
  let summary = "lower attention in kernels to portable SIMT code";
  let description = [{
    Each thread computes one query. The query and its accumulator are thread-private; the CTA stages the keys and values
    of a tile as f32 in shared memory. Supports f16, bf16 and f32 on every target. With split-KV, eight threads share a
    row of 16, the state is stored in global memory, and steps of more rows are computed in parts.
  }];
  let dependentDialects = deviceDialects;
}

def LowerAttentionSM80 : Pass<"attn-lower-attention-sm80", "::mlir::func::FuncOp"> {
  let summary = "lower attention in kernels to sm_80 tensor-core code";
  let description = [{
    Applies to f16 and bf16 if the accumulator fits in registers. Keys and values are copied to shared memory by
    cp.async: the values of a tile while its scores are computed, the next keys while the values are multiplied.
    Fragments are loaded by ldmatrix and multiplied by mma.sync m16n8k16; the online softmax runs in f32 registers.
    Operands without contiguous, 16-byte aligned rows are copied element by element. With split-KV, all four warps
    compute the same 16 rows and split the keys of a tile; steps of more rows are computed in parts. All other cases are
    left to attn-lower-attention-simt.
  }];
  let dependentDialects = deviceDialects;
}

def LowerAttentionSM90 : Pass<"attn-lower-attention-sm90", "::mlir::gpu::GPUModuleOp"> {
  let summary = "add kernels of attention with bulk copies and wgmma";
  let description = [{
    Applies to f16 and bf16 kernels that are one attention of whole tensors, with 128 or 192 queries. A second kernel
    `@f_sm_90a` beside `@f` has three or four warpgroups: one copies keys and values to a ring of stages in shared memory
    by tensor maps, the others compute 64 rows each with wgmma; setmaxnreg gives registers of the first to the others.
    `@f` refers to it (`attn.bulk_kernel`) and is lowered by the following passes, for operands that tensor maps cannot
    describe. Keys and values may be in pages (`attn.load_pages`). A step of split-KV has one warpgroup of up to 64 rows
    and a warp that copies.
  }];
  let options = [Option<"target", "target", "std::string", "\"sm_90a\"", "GPU target">];
  let dependentDialects = deviceDialects;
}

def LowerMatmulSM90 : Pass<"attn-lower-matmul-sm90", "::mlir::gpu::GPUModuleOp"> {
  let summary = "add kernels of matmuls with bulk copies and wgmma";
  let description = [{
    Applies to f16 and bf16 kernels that are one tile of a matmul, with elementwise ops that initialize or read its result.
    A second kernel `@f_sm_90a` beside `@f` has up to three warpgroups: one copies parts of both operands to a ring of
    stages in shared memory by tensor maps, the others compute 64 rows each with wgmma. The elementwise ops are evaluated
    on the sums, which pass through shared memory. `@f` refers to it (`attn.bulk_kernel`) and is lowered by the following
    passes, for operands that tensor maps cannot describe. If the number of tiles is not known, `@f_sm_90a` refers to
    `@f_sm_90a_parts`, in which several CTAs share a tile, for launches with few of them.
  }];
  let options = [Option<"target", "target", "std::string", "\"sm_90a\"", "GPU target">];
  let dependentDialects = deviceDialects;
}

def LowerStateSIMT : Pass<"attn-lower-state-simt", "::mlir::func::FuncOp"> {
  let summary = "lower attn.merge and attn.finalize of states in global memory";
  let description = [{
    Split-KV kernels store partial softmax states in global memory. The elements of the accumulator are distributed over
    the threads of a CTA; a barrier precedes the update of the maxima and sums.
  }];
  let dependentDialects = deviceDialects;
}

def LowerMatmulSM80 : Pass<"attn-lower-matmul-sm80", "::mlir::func::FuncOp"> {
  let summary = "lower matmuls in kernels to sm_80 tensor-core code";
  let description = [{
    Applies to f16 and bf16 operands in global memory, accumulated in f32. A CTA computes a 64 × 64 block. 64 columns of
    LHS and 64 rows of RHS are staged in shared memory and double-buffered with cp.async; fragments are loaded by
    ldmatrix and multiplied by mma.sync m16n8k16. All other matmuls are left to attn-lower-linalg-simt.
  }];
  let dependentDialects = deviceDialects # ["::mlir::affine::AffineDialect"];
}

def LowerGradientSM80 : Pass<"attn-lower-gradient-sm80", "::mlir::func::FuncOp"> {
  let summary = "lower the tiles of gradients of attention to sm_80 tensor-core code";
  let description = [{
    Applies to tiles of 64 × 64 pairs with 16-bit operands and head sizes of at most 128: products of rows and columns, one
    elementwise op, and sums of its results times columns. Everything between the operands and the sums stays in
    registers. All other gradients are left to attn-lower-matmul-sm80 and attn-lower-linalg-simt.
  }];
  let dependentDialects = deviceDialects # ["::mlir::affine::AffineDialect"];
}

def LowerGradientSM90 : Pass<"attn-lower-gradient-sm90", "::mlir::gpu::GPUModuleOp"> {
  let summary = "add kernels of gradients of attention with bulk copies and wgmma";
  let description = [{
    Applies to kernels of one gradient with the tiles of attn-lower-gradient-sm80. A second kernel `@f_sm_90a` beside `@f` has
    three warpgroups: one copies the matrices of rows once and those of columns to a ring of stages in shared memory by
    tensor maps, two take tiles of columns in turns and multiply with wgmma; their sums are added at the end. `@f` refers
    to it (`attn.bulk_kernel`) and is lowered by the following passes, for operands that tensor maps cannot describe.
  }];
  let options = [Option<"target", "target", "std::string", "\"sm_90a\"", "GPU target">];
  let dependentDialects = deviceDialects # ["::mlir::affine::AffineDialect"];
}

def LowerLinalgSIMT : Pass<"attn-lower-linalg-simt", "::mlir::func::FuncOp"> {
  let summary = "lower structured ops in kernels to loops over the threads of a CTA";
  let description = [{
    The result elements of an op are distributed over the threads; a thread computes each of its elements with sequential
    reduction loops. A barrier follows every op. Scalar stores of a task are executed by one thread. Supports any type.
  }];
  let dependentDialects = deviceDialects # ["::mlir::affine::AffineDialect"];
}

def PadSharedBuffers : Pass<"attn-pad-shared-buffers", "::mlir::func::FuncOp"> {
  let summary = "pad the rows of buffers, to avoid bank conflicts in shared memory";
  let description = [{
    A matrix of static size whose rows are multiples of 128 bytes becomes a part of a buffer with rows that are 16 bytes
    longer. Buffers with users that may not accept strides stay as they are, and so do all buffers of a kernel that would
    take more than half of the shared memory of the target.
  }];
  let options = [Option<"target", "target", "std::string", "\"sm_80\"", "GPU target">];
  let dependentDialects = ["::mlir::memref::MemRefDialect"];
}

def PlanSharedMemory : Pass<"attn-plan-shared-memory", "::mlir::func::FuncOp"> {
  let summary = "assign the buffers of a kernel to shared memory";
  let description = [{
    Every `memref.alloc` of a kernel becomes a view of its dynamic shared memory. Buffers with disjoint live ranges may
    share an offset. Exceeding the capacity of the target is an error.
  }];
  let options = [Option<"target", "target", "std::string", "\"sm_80\"", "GPU target">];
  let dependentDialects = deviceDialects;
}

def ConvertKernelsToLLVM : Pass<"attn-convert-kernels-to-llvm", "::mlir::gpu::GPUModuleOp"> {
  let summary = "convert the device module to the LLVM dialect";
  let description = [{
    Math functions without an instruction become polynomials or, if there is none, calls of NVIDIA's libdevice. All
    remaining ops become LLVM and NVVM. Unsupported ops are errors that name the op and its type.
  }];
  let dependentDialects = deviceDialects # ["::mlir::affine::AffineDialect", "::mlir::cf::ControlFlowDialect",
                                            "::mlir::vector::VectorDialect"];
}

def LowerLaunches : Pass<"attn-lower-launches", "::mlir::ModuleOp"> {
  let summary = "lower attn.launch to a runtime call that launches a kernel";
  let description = [{
    The captures are stored in an array of 64-bit words, one per PTX parameter of the kernel:

        saccade_launch(name, words, number of words, number of CTAs, threads per CTA, bytes of dynamic shared memory)

    A buffer is passed as an MLIR memref descriptor: allocated and aligned pointer, offset, sizes, strides. If a kernel
    refers to another one with tensor maps, `saccade_encode_tensor_map` makes each of them from the words of its buffer,
    in front of the words. If the buffer is a constant of the device module, `saccade_device_constant` returns its
    address. The other kernel is launched if all of them could be made. It may refer to a third one with more conditions
    (`attn.few_items`): of those whose conditions hold, the host launches the one with the most conditions.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
                           "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect"];
}

#endif // SACCADE_CODEGEN_GPU_PASSES_TD
