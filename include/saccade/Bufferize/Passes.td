//===- Passes.td - The passes of the bufferize stage ------------*- tablegen -*-===//
#ifndef SACCADE_BUFFERIZE_PASSES_TD
#define SACCADE_BUFFERIZE_PASSES_TD

include "mlir/Pass/PassBase.td"

def ResultsToDestinations : Pass<"attn-results-to-destinations", "::mlir::ModuleOp"> {
  let summary = "make the results of entries the caller's memory";
  let description = [{
    Every tensor result of a public function becomes a trailing memref argument with strides known at run time, into
    which the tensor is materialised. The caller owns all memory, and producers can write where the result is wanted.

    Entries return tensors only, have one block and are not called from within the module. Shape functions
    (`attn.shapes_of`) return extents and stay as they are.
  }];
  let dependentDialects = ["::mlir::bufferization::BufferizationDialect", "::mlir::memref::MemRefDialect"];
}

def FoldBoundaryReshapes : Pass<"attn-fold-boundary-reshapes", "::mlir::ModuleOp"> {
  let summary = "view arguments and results in another shape instead of copying them";
  let description = [{
    Collapsing dimensions is a view only where their strides fit, and those of an entry's arguments and results are
    not known before run time. So the code asks: where they fit, a collapsed argument is a view of it, and a
    computation whose expanded form is returned writes into a view of the result. Only else there is a copy.
    A result that is returned collapsed is written through its expanded view, which always exists.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::bufferization::BufferizationDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::memref::MemRefDialect",
                           "::mlir::scf::SCFDialect"];
}

def BufferizeTensors : Pass<"attn-bufferize-tensors", "::mlir::ModuleOp"> {
  let summary = "turn tensors into buffers";
  let description = [{
    One-shot bufferization with the options of this compiler: arguments have any strides and are read only, temporaries
    are compact, and computations whose result is inserted or materialised somewhere happen there. Every use of a
    `tensor.empty` gets one of its own beside it, so that no two computations, and no two threads, share a temporary.
    The regions of attn ops keep their tensors. Copies that remain are `linalg.copy`.
  }];
  let dependentDialects = ["::mlir::bufferization::BufferizationDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::memref::MemRefDialect"];
}

def PrepackRHS : Pass<"attn-prepack-rhs", "::mlir::ModuleOp"> {
  let summary = "pack the right sides of products once for all tasks";
  let description = [{
    Where several tasks multiply with the same columns of a matrix (weights), it becomes panels in a loop of its own before
    them, and the product `attn.packed_matmul`, which also takes over a fill with 0 or a broadcast bias that it started from.
    Whether it pays, and whether strides let the left side be read in place, may be known at run time only; then the
    loop stays beside it as it was, and no memory is taken where it runs. With `prepack` panels of constant arguments are
    made once for all calls, and always pay, but not of fewer columns than a vector has: they would be mostly padding. Where the rows of the left side crowd a set of the cache the
    product is `blocked`, which another choice at run time may have to tell. Panels live as long as the call and are as large as the
    matrix (twice that for 16-bit elements that are not multiplied in pairs).
  }];
  let options = [Option<"target", "target", "std::string", "\"host\"", "CPU target to generate code for">,
                 Option<"prepack", "prepack", "bool", "false", "Constant arguments are packed once for all calls">];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
                           "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
                           "::saccade::attn::AttnDialect"];
}

def TileHostOps : Pass<"attn-tile-host-ops", "::mlir::func::FuncOp"> {
  let summary = "make structured ops outside of tasks parallel loops";
  let description = [{
    Copies that bufferization adds, and the like, become loops over tiles of at most 4096 elements along their last
    parallel dimension; what has none becomes a loop of one iteration.
  }];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::memref::MemRefDialect",
                           "::mlir::scf::SCFDialect"];
}

def OutlineTasks : Pass<"attn-outline-tasks", "::mlir::ModuleOp"> {
  let summary = "make every parallel loop a task";
  let description = [{
    The body of the n-th `scf.forall` of a public function `@f` becomes the private function

        @f_task<n>(captures..., %begin: index, %end: index, %scratch: memref<?xi8>)

    marked `attn.task`, which runs the iterations [begin, end) counted row-major, the last dimension fastest; an
    `attn.launch` stands for the loop. Constants, extents and views of captures are computed again in the task.
  }];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
                           "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
                           "::saccade::attn::AttnDialect"];
}

def DropCaptures : Pass<"attn-drop-captures", "::mlir::ModuleOp"> {
  let summary = "take from tasks what they have no use for";
  let description = [{
    Captures that a task does not read, such as a matrix of which it has the panels, are arguments of the task and operands
    of its launches no longer: what a launch has to write down shrinks, and so does the code of programs with many.
  }];
}

def MergeTasks : Pass<"attn-merge-tasks", "::mlir::ModuleOp"> {
  let summary = "make tasks that do the same one task";
  let description = [{
    Layers of one kind and size become equal tasks, which differ in what is captured alone. All launches get the first.
  }];
}

def HoistConstants : Pass<"attn-hoist-constants", "::mlir::ModuleOp"> {
  let summary = "compute what depends on constants alone in a function of its own";
  let description = [{
    Of every entry `@f` the launches and structured ops whose operands come from tensors marked `attn.constant`, of known extents, and
    from numbers of the program become an entry

        @f__prepack(weights...) -> (prepacked tensors...)

    and `@f` takes what that returns as its last inputs. Weights that `@f` itself does not read are its inputs no longer. Only
    buffers of static size are prepacked, and none marked `attn.per_call`. The prepacked tensors must be passed as compact as they were returned; the shape
    function of `@f` checks that. An entry without such work stays as it is, and so does one whose checks always fail.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
                           "::saccade::attn::AttnDialect"];
}

def ReleaseTemporaries : Pass<"attn-release-temporaries", "::mlir::func::FuncOp"> {
  let summary = "free what a function allocates after its last use";
  let description = [{
    Every `memref.alloc` outside of tasks gets a `memref.dealloc` after the last op of its block that uses it or a view
    of it. The memory of tasks is scratch and is not freed.
  }];
  let dependentDialects = ["::mlir::memref::MemRefDialect"];
}

def VerifyBufferized : Pass<"attn-verify-bufferized", "::mlir::ModuleOp"> {
  let summary = "check what holds after the bufferize stage";
  let description = [{
    No tensors outside the regions of attn ops, no parallel loops, no allocation in a loop of an entry, and only
    allocations of static size in a task.
  }];
}

#endif // SACCADE_BUFFERIZE_PASSES_TD
