//===- Passes.td - Code for the CPU -----------------------------*- tablegen -*-===//
#ifndef SACCADE_CODEGEN_CPU_PASSES_TD
#define SACCADE_CODEGEN_CPU_PASSES_TD

include "mlir/Pass/PassBase.td"

def TargetOption : Option<"target", "target", "std::string", "\"host\"", "CPU target to generate code for">;
// What vector code is made of.
defvar vectorDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
                         "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
                         "::mlir::vector::VectorDialect"];
defvar matmulDialects = vectorDialects # ["::mlir::x86vector::X86VectorDialect"];

def LowerAccumulate : Pass<"attn-lower-accumulate", "::mlir::func::FuncOp"> {
  let summary = "turns attn.accumulate on buffers into register-blocked vector code";
  let description = [{
    Packs queries (times the sign of the scale), keys (rows into lanes) and values into scratch memory, then takes
    twelve queries at a time: scores by a register-blocked product over those panels of keys that the mask lets them reach, the online
    softmax over the rows in the first-level cache, and weighted values by a second product.
  }];
  let options = [TargetOption];
  let dependentDialects = matmulDialects;
}

def LowerUnpackedAccumulate : Pass<"attn-lower-unpacked-accumulate", "::mlir::func::FuncOp"> {
  let summary = "turns attn.accumulate with few rows into vector code that reads keys and values in place";
  let description = [{
    For the ops marked `unpacked`, which memory bounds. Scores are dot products along the head, as many keys × rows at a
    time as a register has lanes, so that their sums over lanes fill one; weighted values are sums of whole rows of values.
    All rows of the tile work on a row of keys or values while it is in the first-level cache, and rows ahead are asked
    for. Where elements of a row are not neighbours, the tile is copied first.
  }];
  let options = [TargetOption];
  let dependentDialects = matmulDialects;
}

def LowerState : Pass<"attn-lower-state", "::mlir::func::FuncOp"> {
  let summary = "turns attn.merge and attn.finalize on buffers into vector loops";
  let description = [{
    Joins states by their maxima; divides an accumulator by its sum and converts it to the type of the output. A row
    without keys becomes 0, its log-sum-exp −inf.
  }];
  let options = [TargetOption];
  let dependentDialects = vectorDialects;
}

def LowerContraction : Pass<"attn-lower-contraction", "::mlir::func::FuncOp"> {
  let summary = "turns matrix products on buffers into register-blocked vector code";
  let description = [{
    Any linalg op that is a product of two matrices, whatever the order of their dimensions: both sides are packed a
    stretch of the reduction at a time, and the same register-blocked product as in attention does the rest.
  }];
  let options = [TargetOption];
  let dependentDialects = matmulDialects;
}

def LowerPackedMatmul : Pass<"attn-lower-packed-matmul", "::mlir::func::FuncOp"> {
  let summary = "turns attn.pack and attn.packed_matmul into register-blocked vector code";
  let description = [{
    The whole reduction in one pass over blocks of rows that fit the second-level cache, panel by panel, the rows read
    where they are. Results go from registers to where they are wanted. A `blocked` product takes blocks of the reduction, and
    copies of rows.
  }];
  let options = [TargetOption];
  let dependentDialects = matmulDialects;
}

def LowerLinalg : Pass<"attn-lower-linalg", "::mlir::func::FuncOp"> {
  let summary = "turns linalg ops on buffers into vector loops";
  let description = [{
    Every structured op that is no contraction becomes a loop nest whose innermost loop takes as many elements at
    once as a register of the target holds, with a masked remainder. The dimension for it is the one along which
    memory is contiguous. A reduction along it keeps several vector accumulators and joins them in a fixed order.
    Where only the run time knows whether memory is contiguous, the loop asks once and has a scalar form beside it.
    Contractions are left for attn-lower-contraction.
  }];
  let options = [TargetOption];
  let dependentDialects = vectorDialects;
}

def ExpandMath : Pass<"attn-expand-math", "::mlir::func::FuncOp"> {
  let summary = "replaces math functions by polynomials";
  let description = [{
    exp, exp2, sin, cos, tanh, erf, log, log2, log1p and expm1 of f32 scalars and vectors become arithmetic (errors
    below 6 units in the last place, exp, exp2, sin and cos below 3; huge angles branch to the C library); those
    of narrower types are computed in f32. Powers with a small constant exponent become products. Functions of f64 and
    rarer ones are left for the C library.
  }];
  let options = [TargetOption];
  let dependentDialects = vectorDialects;
}

def ExpandConversions : Pass<"attn-expand-conversions", "::mlir::func::FuncOp"> {
  let summary = "replaces conversions of 16-bit floats by integer arithmetic";
  let description = [{
    Conversions between f32 and bf16 or f16 that the level has no instruction for, of scalars and vectors. They round to
    nearest even; NaN stays NaN.
  }];
  let options = [TargetOption];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def PlanScratch : Pass<"attn-plan-scratch", "::mlir::ModuleOp"> {
  let summary = "give the buffers of a task their place in its scratch memory";
  let description = [{
    Every `memref.alloc` of a task, at any depth of its loops, becomes a `memref.view` of the task's scratch argument at
    a fixed offset, a multiple of 64 bytes. Buffers of loops that follow one another share memory. Every `attn.launch`
    is told how many bytes its task needs. The size of buffers must be static.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::memref::MemRefDialect"];
}

def ConvertToLLVM : Pass<"attn-convert-to-llvm", "::mlir::ModuleOp"> {
  let summary = "converts everything to the LLVM dialect";
  let description = [{
    Takes functions of scf, affine, arith, math, memref and vector ops. Transfers, transposes and views are broken down
    first, address arithmetic leaves loops. `attn.launch` becomes a call of `saccade_parallel_for` with a function
    `@<task>_run` that takes the captures from memory; buffers outside of tasks come from `saccade_allocate`. Public
    functions get a C interface. Math functions that are neither instructions nor intrinsics call the C library.
  }];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
                           "::mlir::cf::ControlFlowDialect", "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
                           "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
                           "::mlir::vector::VectorDialect"];
}

#endif // SACCADE_CODEGEN_CPU_PASSES_TD
