//===- Passes.td - Passes of the bufferize stage ----------------*- tablegen -*-===//
#ifndef SACCADE_BUFFERIZE_PASSES_TD
#define SACCADE_BUFFERIZE_PASSES_TD

include "mlir/Pass/PassBase.td"

def ResultsToDestinations : Pass<"attn-results-to-destinations", "::mlir::ModuleOp"> {
  let summary = "turn the results of entries into destination arguments";
  let description = [{
    Every tensor result of a public function becomes a trailing memref argument with strides known at run time, into
    which the tensor is materialised. The caller owns all memory, and producers can write directly to the destination.

    Entries return tensors only, have one block and are not called from within the module. Shape functions
    (`attn.shapes_of`) return extents and are not changed.
  }];
  let dependentDialects = ["::mlir::bufferization::BufferizationDialect", "::mlir::memref::MemRefDialect"];
}

def FoldBoundaryReshapes : Pass<"attn-fold-boundary-reshapes", "::mlir::ModuleOp"> {
  let summary = "reshape arguments and results by views instead of copies";
  let description = [{
    Collapsed dimensions are a view only if their strides are compatible, and the strides of an entry's arguments and
    results are known at run time only. The pass emits a test: with compatible strides, a collapsed argument is read
    through a view, and a computation whose expanded form is returned writes through a view of the result. Otherwise the
    tensor is copied. A collapsed result is written through its expanded view, which always exists.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::bufferization::BufferizationDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::memref::MemRefDialect",
                           "::mlir::scf::SCFDialect"];
}

def BufferizeTensors : Pass<"attn-bufferize-tensors", "::mlir::ModuleOp"> {
  let summary = "turn tensors into buffers";
  let description = [{
    One-shot bufferization: arguments have any strides and are read only, temporaries are compact, and a computation
    whose result is inserted or materialised writes directly to that destination. Every use of a `tensor.empty` gets its
    own copy of the op next to the user, so no two computations, and no two threads, share a temporary. The regions of
    attn ops keep their tensors. Remaining copies are `linalg.copy`.
  }];
  let dependentDialects = ["::mlir::bufferization::BufferizationDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::memref::MemRefDialect"];
}

def PrepackRHS : Pass<"attn-prepack-rhs", "::mlir::ModuleOp"> {
  let summary = "pack the RHS of matmuls once for all tasks";
  let description = [{
    If several tasks multiply with the same columns of a matrix (weights), a separate loop before them packs these
    columns into panels, and the matmul becomes `attn.packed_matmul`. It also absorbs the fill with 0 or the broadcast
    bias that initializes the result. If profitability or the stride of the LHS is known at run time only, the original
    loop is kept as the other branch, which allocates nothing.

    With `prepack`, panels of constant arguments are made once for all calls. This always pays off unless the matrix has
    fewer columns than a vector has lanes and panels would be mostly padding. If the rows of the LHS conflict in a cache
    set, which may be a run-time test, the matmul is `blocked`. Panels live as long as the call and are as large as the
    matrix (twice that for 16-bit elements with a packing factor of 1).
  }];
  let options = [Option<"target", "target", "std::string", "\"host\"", "CPU target to generate code for">,
                 Option<"prepack", "prepack", "bool", "false", "Pack constant arguments once for all calls">];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
                           "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
                           "::saccade::attn::AttnDialect"];
}

def TileHostOps : Pass<"attn-tile-host-ops", "::mlir::func::FuncOp"> {
  let summary = "turn structured ops outside of tasks into parallel loops";
  let description = [{
    Structured ops outside of tasks, such as copies that bufferization adds, become loops over tiles of at most 4096
    elements along their last parallel dimension. An op without parallel dimensions becomes a loop of one iteration.
  }];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::memref::MemRefDialect",
                           "::mlir::scf::SCFDialect"];
}

def OutlineTasks : Pass<"attn-outline-tasks", "::mlir::ModuleOp"> {
  let summary = "outline every parallel loop as a task";
  let description = [{
    The body of an `scf.forall` of a public function `@f` becomes a private function that is named after its ops, such as

        @f.matmul_bias_gelu(captures..., %begin: index, %end: index, %scratch: memref<?xi8>)

    marked `attn.task`, which runs the iterations [begin, end) in row-major order, the last dimension fastest. A
    number from 2 on is added to the name of further tasks with these ops (`@f.matmul_bias_gelu_2`). An
    `attn.launch` replaces the loop. Constants, extents and views of captures are recomputed in the task, which refers
    to constant tensors (`memref.get_global`) itself. With `gpu`, captures are reshaped by the host, since a tensor map
    describes a capture as it is.
  }];
  let options = [Option<"gpu", "gpu", "bool", "false", "capture reshaped buffers">];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
                           "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
                           "::saccade::attn::AttnDialect"];
}

def DropCaptures : Pass<"attn-drop-captures", "::mlir::ModuleOp"> {
  let summary = "remove unused captures of tasks";
  let description = [{
    Removes captures that a task does not use, such as a matrix whose panels it reads, from the arguments of the task
    and the operands of its launches. A launch then stores fewer captures, which reduces code size.
  }];
}

def MergeTasks : Pass<"attn-merge-tasks", "::mlir::ModuleOp"> {
  let summary = "merge equal tasks";
  let description = [{
    Layers of one kind and size become equal tasks that differ in their captures only. All launches then use the first
    of them.
  }];
}

def HoistConstants : Pass<"attn-hoist-constants", "::mlir::ModuleOp"> {
  let summary = "hoist computations of constants into a prepack function";
  let description = [{
    In every entry `@f`, the launches and structured ops that depend only on constants and on tensors marked
    `attn.constant` with static extents move to a new entry

        @f__prepack(weights...) -> (prepacked tensors...)

    whose results become the last inputs of `@f`. Weights that `@f` itself does not read are removed from its inputs.
    Only buffers of static size without `attn.per_call` are prepacked. The prepacked tensors must be passed with the
    strides of a compact tensor; the shape function of `@f` checks that. An entry without such computations, or whose
    checks always fail, is not changed.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
                           "::saccade::attn::AttnDialect"];
}

def ReleaseTemporaries : Pass<"attn-release-temporaries", "::mlir::func::FuncOp"> {
  let summary = "free buffers after their last use";
  let description = [{
    Every `memref.alloc` outside of tasks gets a `memref.dealloc` after the last op of its block that uses the buffer or
    a view of it. Buffers of tasks are scratch memory and are not freed.
  }];
  let dependentDialects = ["::mlir::memref::MemRefDialect"];
}

def VerifyBufferized : Pass<"attn-verify-bufferized", "::mlir::ModuleOp"> {
  let summary = "verify the invariants of bufferized IR";
  let description = [{
    Checks that there are no tensors outside the regions of attn ops, no parallel loops, no allocations in a loop of an
    entry, and only allocations of static size in a task.
  }];
}

#endif // SACCADE_BUFFERIZE_PASSES_TD
