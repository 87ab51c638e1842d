//===- Passes.td - Passes over whole attention graphs -----------*- tablegen -*-===//
#ifndef SACCADE_ATTN_TRANSFORMS_PASSES_TD
#define SACCADE_ATTN_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

def CreateShapeFunctions : Pass<"attn-create-shape-functions", "::mlir::ModuleOp"> {
  let summary = "give every entry a function that checks shapes and computes result extents";
  let description = [{
    Every public function with a body is an entry. It is marked `attn.entry`, which keeps its name and the names
    and types of its arguments and results as they are now, and renamed, so that the user's choice of name meets nothing
    that later stages call. Beside it comes a private function
    of the same arguments that returns, as index values, a message number (0 where the run-time shapes fit), the
    extent found, the extent expected, and the extents of all results. It is marked `attn.shapes_of`, and
    `attn.messages` holds the texts, each with a 0 and the words that stand before the extent expected behind it.
    Both get `llvm.emit_c_interface`.

    Checked are the extents that `attn.attention`, structured ops and casts relate to one another and that are not
    known before run time, offsets of packed sequences, and whether what regions read of captured tensors is there. Calls
    must have been inlined.
  }];
  let options = [Option<"mayReadElements", "may-read-elements", "bool", /*default=*/"true",
                        "whether the memory of arguments is there to be read: not that of a GPU">];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
                           "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"];
}

def Lint : Pass<"attn-lint", "::mlir::ModuleOp"> {
  let summary = "warn about what is allowed but hardly meant";
  let description = [{
    Changes nothing and never fails. Every warning says what was found and what was probably meant:

    - a constant scale of 1/√ the width of all heads, or of the width that heads are cut or projected from, and one of
      1/ the head size without the root, instead of 1/√ the head size;
    - a captured mask with the head size where a query or key length belongs (`tril(head_size)`), and a mask that
      compares positions with the head size;
    - a causal mask aligned at the top left with fewer queries than keys, and no position given by `at`;
    - a score that is set to, or lowered by, a number like −1e9 where a key is not to be seen, instead of a mask region.

    Only extents and scales that are known before run time are looked at.
  }];
}

def VerifyInput : Pass<"attn-verify-input", "::mlir::ModuleOp"> {
  let summary = "refuse ops and types that the compiler does not know";
  let description = [{
    A program is made of ops of attn, linalg, tensor, arith, math, scf and func, on scalars and ranked tensors; loops
    and branches have scalar results. Anything else gets a diagnostic at its location that names it and says what is
    supported.
  }];
}

def SplitIndexCasts : Pass<"attn-split-index-casts", "::mlir::func::FuncOp"> {
  let summary = "split casts of positions to few bits";
  let description = [{
    `arith.index_cast` and `arith.index_castui` from index to fewer than 64 bits become `arith.index_cast` to i64 and
    `arith.trunci`, for scalars and tensors. MLIR folds a cast from index to i8 and back to its operand, which is wrong
    for 300; it does not fold these. Casts to index stay: two of them never stand around a type that is too narrow.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def FuseElementwise : Pass<"attn-fuse-elementwise", "::mlir::func::FuncOp"> {
  let summary = "bring what surrounds attention into few structured ops";
  let description = [{
    Named elementwise ops become `linalg.generic`, `linalg.softmax` its parts, and pads, concatenations and generated
    tensors structured ops. Then an elementwise op that is used once is fused into the elementwise op or reduction
    that uses it. Nothing is computed twice, and operands of matrix products and of attention are left alone.
  }];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
                           "::mlir::bufferization::BufferizationDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::math::MathDialect", "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"];
}

def FoldTransposes : Pass<"attn-fold-transposes", "::mlir::func::FuncOp"> {
  let summary = "let attention read and write what lies transposed";
  let description = [{
    Structured ops that do nothing but permute the dimensions of a query, key or value go away, and so does one that alone
    reads an output: `attn.attention` names the dimensions of its operands and of its output, and reads any strides.
  }];
  let dependentDialects = ["::mlir::tensor::TensorDialect"];
}

def FlattenRows : Pass<"attn-flatten-rows", "::mlir::func::FuncOp"> {
  let summary = "make the rows of a matrix product one dimension";
  let description = [{
    A product whose rows (or columns, or depth) are several neighbouring dimensions in every operand, such as batch and sequence,
    becomes one of matrices, between reshapes that cost nothing. The structured ops around it follow, so that reshapes meet and
    undo each other. Then a block of rows may reach over the end of a sequence.

    ```mlir
    // [b, s, k] · [k, n] becomes [b·s, k] · [k, n]
    ```
  }];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def ProveStability : Pass<"attn-prove-stability", "::mlir::func::FuncOp"> {
  let summary = "prove that no softmax subtracts −∞ from −∞, or have it guarded";
  let description = [{
    Every `attn.attention` gets `attn.stability`: "every_step" where the running maximum of a row is finite in every step
    over keys, "in_order" where it is if steps are taken from the first key on, else "guarded", and code takes 0 for a maximum
    of −∞. Proved is it where the score region bounds its result whatever it is given, and every query sees every key, or the
    first one. With `remarks` each op says what was proved, and how, or what is guarded against.

    ```mlir
    %o = attn.attention %q[s,d], %k[s,d], %v[s,d] score(%s, %b, %h, %i, %j) {
        %t = math.tanh %s : f32
        attn.yield %t : f32
      } {attn.stability = "every_step"} : ...
    ```
  }];
  let options = [Option<"remarks", "remarks", "bool", "false", "Say what was proved">];
}

#endif // SACCADE_ATTN_TRANSFORMS_PASSES_TD
