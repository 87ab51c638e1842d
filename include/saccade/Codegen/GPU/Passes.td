//===- Passes.td - Code for GPUs --------------------------------*- tablegen -*-===//
#ifndef SACCADE_CODEGEN_GPU_PASSES_TD
#define SACCADE_CODEGEN_GPU_PASSES_TD

include "mlir/Pass/PassBase.td"

// What device code is made of.
defvar deviceDialects = ["::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
                         "::mlir::memref::MemRefDialect", "::mlir::NVVM::NVVMDialect", "::mlir::scf::SCFDialect"];

def OutlineKernels : Pass<"attn-outline-kernels", "::mlir::ModuleOp"> {
  let summary = "make every task a kernel whose CTAs are its work items";
  let description = [{
    A task `@f_task0(captures..., begin, end, scratch)` becomes the kernel `@f_task0(captures...)` of the device module:
    the body of its loop over items, with the number of the CTA for the item. All parameters of a kernel are 64 bits wide,
    so that a launch needs not know their types. What is left of the task is a declaration, for `attn.launch`.
  }];
  let dependentDialects = ["::mlir::gpu::GPUDialect", "::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect",
                           "::mlir::memref::MemRefDialect", "::mlir::arith::ArithDialect"];
}

def LowerAttentionSIMT : Pass<"attn-lower-attention-simt", "::mlir::func::FuncOp"> {
  let summary = "turns attention in kernels into code for any GPU";
  let description = [{
    A thread takes one query: it holds the query and its accumulator in memory of its own, and the CTA shares the keys and
    values of a step as f32 in shared memory. Any head size, f16, bf16 and f32. Eight threads share a row of few queries,
    whose state lies in memory. The portable form: nothing in it needs more than the first GPUs had.
  }];
  let dependentDialects = deviceDialects;
}

def LowerAttentionSM80 : Pass<"attn-lower-attention-sm80", "::mlir::func::FuncOp"> {
  let summary = "turns attention in kernels into products of the tensor cores of sm_80";
  let description = [{
    For f16 and bf16 with an accumulator that fits into registers: keys and values come asynchronously into shared memory
    (cp.async; the values of a step while its scores are computed, the next keys while values are summed), fragments by
    ldmatrix, products by mma.sync m16n8k16, the online softmax in f32 in registers. What has other strides or alignment
    comes element by element. Few queries, whose state lies in memory, are 16 rows of all four warps, which share the keys of a
    step. Other types and sizes are left for attn-lower-attention-simt.
  }];
  let dependentDialects = deviceDialects;
}

def LowerStateSIMT : Pass<"attn-lower-state-simt", "::mlir::func::FuncOp"> {
  let summary = "joins and finishes states of attention that lie in memory";
  let description = [{
    `attn.merge` and `attn.finalize` of states that kernels hand on: an element of an accumulator is a thread's, and all wait
    for each other before maxima and sums change.
  }];
  let dependentDialects = deviceDialects;
}

def LowerMatmulSM80 : Pass<"attn-lower-matmul-sm80", "::mlir::func::FuncOp"> {
  let summary = "turns matrix products in kernels into products of the tensor cores of sm_80";
  let description = [{
    Products of f16 or bf16 in memory of the caller's, summed in f32: blocks of 64 × 64, 64 steps of both sides in shared
    memory while the next ones come (cp.async), fragments by ldmatrix, products by mma.sync m16n8k16. Other products, and those
    of what a kernel has computed itself, are left for attn-lower-linalg-simt.
  }];
  let dependentDialects = deviceDialects # ["::mlir::affine::AffineDialect"];
}

def LowerLinalgSIMT : Pass<"attn-lower-linalg-simt", "::mlir::func::FuncOp"> {
  let summary = "turns structured ops in kernels into loops of every thread";
  let description = [{
    The threads of a CTA deal the elements of the results out among each other and compute each of them as the op says, with
    its reductions in a loop; behind every op all wait for each other. What tasks store themselves one thread stores.
    Any type. The portable form.
  }];
  let dependentDialects = deviceDialects # ["::mlir::affine::AffineDialect"];
}

def PlanSharedMemory : Pass<"attn-plan-shared-memory", "::mlir::func::FuncOp"> {
  let summary = "gives the buffers of a kernel their place in shared memory";
  let description = [{
    Every `memref.alloc` of a kernel becomes a view of its dynamic shared memory. Buffers that are not needed at the same
    time may share a place. More than the target has is refused.
  }];
  let options = [Option<"target", "target", "std::string", "\"sm_80\"", "architecture to generate code for">];
  let dependentDialects = deviceDialects;
}

def ConvertKernelsToLLVM : Pass<"attn-convert-kernels-to-llvm", "::mlir::gpu::GPUModuleOp"> {
  let summary = "convert the device module to the LLVM dialect";
  let description = [{
    Math functions become polynomials where the instruction set has none, and calls of NVIDIA's libdevice where there is
    no polynomial, then everything becomes LLVM and NVVM. What has no form on a GPU is refused with a message that names
    the function and its type.
  }];
  let dependentDialects = deviceDialects # ["::mlir::affine::AffineDialect", "::mlir::cf::ControlFlowDialect",
                                            "::mlir::vector::VectorDialect"];
}

def LowerLaunches : Pass<"attn-lower-launches", "::mlir::ModuleOp"> {
  let summary = "turns attn.launch into a call of the runtime that starts a kernel";
  let description = [{
    The captures become a row of 64-bit words, one for each parameter that the kernel has in PTX:

        saccade_launch(name, words, count of words, count of CTAs, bytes of dynamic shared memory)

    where a buffer is its pointer (twice), its offset, its extents and its strides, as everywhere in MLIR.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
                           "::mlir::memref::MemRefDialect"];
}

#endif // SACCADE_CODEGEN_GPU_PASSES_TD
