//===- Passes.td - Passes of CPU code generation ----------------*- tablegen -*-===//
#ifndef SACCADE_CODEGEN_CPU_PASSES_TD
#define SACCADE_CODEGEN_CPU_PASSES_TD

include "mlir/Pass/PassBase.td"

def TargetOption : Option<"target", "target", "std::string", "\"host\"", "CPU target to generate code for">;
// Dialects of the vector code that the passes emit.
defvar vectorDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
                         "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
                         "::mlir::vector::VectorDialect"];
defvar matmulDialects = vectorDialects # ["::mlir::x86vector::X86VectorDialect"];

def LowerAccumulate : Pass<"attn-lower-accumulate", "::mlir::func::FuncOp"> {
  let summary = "lower attn.accumulate on buffers to register-blocked vector code";
  let description = [{
    Packs queries (with the sign of the scale applied), keys (into panels) and values into scratch memory. Each group of
    twelve queries then computes its scores with a register-blocked matmul over the panels of visible keys, the online
    softmax over rows that stay in the L1 cache, and the weighted values with a second matmul.
  }];
  let options = [TargetOption];
  let dependentDialects = matmulDialects;
}

def LowerUnpackedAccumulate : Pass<"attn-lower-unpacked-accumulate", "::mlir::func::FuncOp"> {
  let summary = "lower attn.accumulate with few rows to vector code that reads keys and values without packing";
  let description = [{
    Lowers the memory-bound ops marked `unpacked`. Scores are dot products along the head dimension; a block of keys ×
    rows has as many scores as a register has lanes, so their lane sums fill one register. Weighted values accumulate
    whole rows of values. A row of keys or values serves all rows of the tile while it is in the L1 cache, and later
    rows are prefetched. If the elements of a row are not contiguous, the tile is copied first.
  }];
  let options = [TargetOption];
  let dependentDialects = matmulDialects;
}

def LowerLoadPages : Pass<"attn-lower-load-pages", "::mlir::func::FuncOp"> {
  let summary = "lower attn.load_pages to vector loops";
  let description = [{
    Copies the positions of a tile page by page. Ops with few rows read their pages in place instead; their
    `attn.load_pages` does not exist any more.
  }];
  let options = [TargetOption];
  let dependentDialects = vectorDialects;
}

def LowerState : Pass<"attn-lower-state", "::mlir::func::FuncOp"> {
  let summary = "lower attn.merge and attn.finalize on buffers to vector loops";
  let description = [{
    Merges states by their maxima; divides an accumulator by its sum and converts it to the type of the output. A row
    without keys becomes 0, its log-sum-exp −inf.
  }];
  let options = [TargetOption];
  let dependentDialects = vectorDialects;
}

def LowerContraction : Pass<"attn-lower-contraction", "::mlir::func::FuncOp"> {
  let summary = "lower matmuls on buffers to register-blocked vector code";
  let description = [{
    Lowers any linalg op that is a matmul, with its dimensions in any order. Both operands are packed one block (KC) of
    the reduction at a time and multiplied by the microkernel that attention uses.
  }];
  let options = [TargetOption];
  let dependentDialects = matmulDialects;
}

def LowerPackedMatmul : Pass<"attn-lower-packed-matmul", "::mlir::func::FuncOp"> {
  let summary = "lower attn.pack and attn.packed_matmul to register-blocked vector code";
  let description = [{
    By default the whole reduction is one pass over blocks of rows that fit the L2 cache, panel by panel. The LHS is
    read without packing, and results are stored from registers to the output. A `blocked` matmul splits the reduction
    into blocks and copies the rows of the LHS.
  }];
  let options = [TargetOption];
  let dependentDialects = matmulDialects;
}

def LowerLinalg : Pass<"attn-lower-linalg", "::mlir::func::FuncOp"> {
  let summary = "lower linalg ops on buffers to vector loops";
  let description = [{
    Every structured op except contractions becomes a loop nest. The innermost loop processes one vector register at a
    time, with a masked remainder, along the dimension in which memory is contiguous. A reduction along that dimension
    keeps several vector accumulators and combines them in a fixed order. If contiguity is known at run time only, the
    loop tests it once and has a scalar version. Contractions are left to attn-lower-contraction.
  }];
  let options = [TargetOption];
  let dependentDialects = vectorDialects;
}

def ExpandMath : Pass<"attn-expand-math", "::mlir::func::FuncOp"> {
  let summary = "replace math functions by polynomials";
  let description = [{
    exp, exp2, sin, cos, tanh, erf, log, log2, log1p and expm1 of f32 scalars and vectors become arithmetic. Errors are
    below 6 ulp, those of exp, exp2, sin and cos below 3; huge angles branch to the C library. Functions of narrower
    types are computed in f32. Powers with a small constant exponent become multiplications. Functions of f64 and rarer
    functions are left to the C library.
  }];
  let options = [TargetOption];
  let dependentDialects = vectorDialects;
}

def ExpandConversions : Pass<"attn-expand-conversions", "::mlir::func::FuncOp"> {
  let summary = "replace conversions of narrow floats by integer arithmetic";
  let description = [{
    Expands conversions between f32 and bf16 or f16, of scalars and vectors, for which the CPU target has no
    instruction, and all conversions of f8E4M3FN and f8E5M2. They round to nearest even; NaN stays NaN. Values out of the
    range of f8E4M3FN become its largest number.
  }];
  let options = [TargetOption];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def PlanScratch : Pass<"attn-plan-scratch", "::mlir::ModuleOp"> {
  let summary = "assign the buffers of a task offsets in its scratch memory";
  let description = [{
    Every `memref.alloc` of a task, at any loop depth, becomes a `memref.view` of the task's scratch argument at a fixed
    offset that is a multiple of 64 bytes. Buffers of consecutive loops share memory. The pass sets the scratch size of
    every `attn.launch`. Buffers must have a static size.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::memref::MemRefDialect"];
}

def ConvertToLLVM : Pass<"attn-convert-to-llvm", "::mlir::ModuleOp"> {
  let summary = "convert host code and tasks to the LLVM dialect";
  let description = [{
    Converts functions of scf, affine, arith, math, memref and vector ops. Transfers, transposes and views are expanded
    first, and address arithmetic is hoisted out of loops. `attn.launch` becomes a call of `saccade_parallel_for` with a
    function `@<task>_run` that loads the captures from memory; buffers outside of tasks come from `saccade_allocate`.
    Public functions get a C interface. Math functions that are neither instructions nor intrinsics call the C library.
  }];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
                           "::mlir::cf::ControlFlowDialect", "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
                           "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
                           "::mlir::vector::VectorDialect"];
}

#endif // SACCADE_CODEGEN_CPU_PASSES_TD
