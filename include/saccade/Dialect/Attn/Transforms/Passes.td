//===- Passes.td - Passes over whole attention graphs -----------*- tablegen -*-===//
#ifndef SACCADE_ATTN_TRANSFORMS_PASSES_TD
#define SACCADE_ATTN_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

def CreateShapeFunctions : Pass<"attn-create-shape-functions", "::mlir::ModuleOp"> {
  let summary = "create functions that check shapes and compute result extents";
  let description = [{
    Every public function with a body is an entry. The attribute `attn.entry` records its name and the names and types of
    its arguments and results. The entry is renamed, so that its name cannot clash with functions of later stages.

    The shape function is a private function with the same arguments, marked `attn.shapes_of`. It returns index values: a
    message number (0 if the run-time shapes match), the extent found, the extent expected, and the extents of all
    results. `attn.messages` holds the messages, each followed by a 0 byte and the relation to the expected extent ("at
    least "). Both functions get `llvm.emit_c_interface`.

    It checks dynamic extents that `attn.attention`, structured ops and casts relate to one another, the cumulative
    lengths of ragged batches, and that reads of captured tensors are in bounds. Calls must have been inlined.
  }];
  let options = [Option<"mayReadElements", "may-read-elements", "bool", /*default=*/"true",
                        "whether the host can read the elements of arguments (false for GPU memory)">,
                 Option<"maxKeys", "max-keys", "int64_t", /*default=*/"0",
                        "most keys of an attention, 0 without a limit">];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
                           "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"];
}

def Lint : Pass<"attn-lint", "::mlir::ModuleOp"> {
  let summary = "warn about likely mistakes";
  let description = [{
    Changes nothing and never fails. Every warning names what was found and what was probably meant:

    - a constant scale of 1/√(width of all heads), 1/√(width that the heads are split or projected from) or 1/(head size)
      instead of 1/√(head size);
    - a captured mask with the head size in place of a sequence length (`tril(head_size)`), or a mask that compares
      positions with the head size;
    - a causal mask with top-left alignment, fewer queries than keys, and no position in `at`;
    - a score that masks keys by a large negative number such as −1e9 instead of a mask region.

    Only static extents and constant scales are checked.
  }];
}

def VerifyInput : Pass<"attn-verify-input", "::mlir::ModuleOp"> {
  let summary = "verify that a program has supported ops and types only";
  let description = [{
    A program consists of ops of attn, linalg, tensor, arith, math, scf and func on scalars and ranked tensors; loops and
    branches have scalar results. All other ops and types are errors that name the supported ones. Elements of f8E4M3FN and
    f8E5M2 may be stored, moved and converted, but not computed with.
  }];
}

def SplitIndexCasts : Pass<"attn-split-index-casts", "::mlir::func::FuncOp"> {
  let summary = "split narrowing casts from index";
  let description = [{
    `arith.index_cast` and `arith.index_castui` from index to fewer than 64 bits become `arith.index_cast` to i64 and
    `arith.trunci`, for scalars and tensors. MLIR folds a cast from index to i8 and back to its operand, which is wrong
    for 300; it does not fold these. Casts to index stay as they are.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def Differentiate : Pass<"attn-differentiate", "::mlir::ModuleOp"> {
  let summary = "create the functions of derivatives of functions marked attn.gradient or attn.jvp";
  let description = [{
    A function `@f` with the attribute `attn.gradient` gets a gradient function `@f_gradient`, and one with `attn.jvp` a
    function of tangents `@f_jvp`. Calls must have been inlined.

    - The log-sum-exp of each attention in `@f`, and its low part, become further results unless they are results.
    - The arguments of `@f_gradient` are those of `@f`, then its results, then a gradient of each result that `@f` had
      before, if it has float elements.
    - It returns a gradient of each argument with float elements, except for those with the attribute
      `attn.no_gradient`. A gradient has the type of the argument; that of a scalar is a tensor of rank 0.

    Results that are passed in are not computed again; other values are. At points where a function has no derivative the
    gradient is that of PyTorch. A function that uses an op without a rule is an error that names the op.

    ```mlir
    func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x64xf32>, %v: tensor<?x64xf32>) -> tensor<?x64xf32>
        attributes {attn.gradient} {
      %o = attn.attention %q[s,d], %k[s,d], %v[s,d]
          : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
      return %o : tensor<?x64xf32>
    }
    // @f_gradient(%q, %k, %v, %output, %lse, %lse_low, %output_gradient) -> (gradients of %q, %k, %v)
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::math::MathDialect", "::mlir::tensor::TensorDialect"];
}

def ExpandWeights : Pass<"attn-expand-weights", "::mlir::func::FuncOp"> {
  let summary = "expand attn.weights to structured ops";
  let description = [{
    Each `attn.weights` becomes a contraction of queries and keys, and an elementwise op with the regions, the exponential
    and the bounds of the lengths. If query heads share KV heads, both have a dimension for the heads of a group.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::math::MathDialect", "::mlir::tensor::TensorDialect"];
}

def FuseElementwise : Pass<"attn-fuse-elementwise", "::mlir::func::FuncOp"> {
  let summary = "fuse elementwise ops around attention";
  let description = [{
    Generalizes named elementwise ops to `linalg.generic`, decomposes `linalg.softmax`, and converts pads, concatenations
    and generated tensors to structured ops. Then an elementwise op with a single use is fused into the elementwise op or
    reduction that uses it. Operands of matmuls and of attention are not fused.
  }];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
                           "::mlir::bufferization::BufferizationDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::math::MathDialect", "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"];
}

def FoldTransposes : Pass<"attn-fold-transposes", "::mlir::func::FuncOp"> {
  let summary = "fold transposes into attention";
  let description = [{
    Removes structured ops that only transpose a query, key or value, or that transpose an output and are its only user.
    `attn.attention` names the dimensions of its operands and its output, and reads any strides. An op that only rounds an
    output to the type of the query, and is its only user, is removed too: the output has this type then.
  }];
  let dependentDialects = ["::mlir::tensor::TensorDialect"];
}

def PlaceDequantize : Pass<"attn-place-dequantize", "::mlir::func::FuncOp"> {
  let summary = "fuse dequantized weights into matmuls and expand all others";
  let description = [{
    An `attn.dequantize` stays if it is the RHS of a matmul whose columns are its rows, and all of its columns are reduced:
    a kernel reads its blocks. Transposes and roundings before such a matmul are folded into it. A slice of rows becomes a
    slice of the blocks, and `tensor.extract` computes its element, so that a lookup of rows reads only their blocks.
    Every other `attn.dequantize` becomes a `linalg.generic` that writes all elements.
  }];
  let options = [Option<"gpu", "gpu", "bool", /*default=*/"false", "expand all">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def FlattenRows : Pass<"attn-flatten-rows", "::mlir::func::FuncOp"> {
  let summary = "collapse the rows of a matmul to one dimension";
  let description = [{
    If the rows (or columns, or the reduced dimension) of a matmul are several adjacent dimensions in every operand, such
    as batch and sequence, they are collapsed to one. The reshapes are views; they are propagated through structured ops,
    so that opposite ones cancel. A tile of rows may then span several sequences.

    A reshape of the output of attention, which joins the heads, moves after an elementwise op that is its only user, such
    as an output gate. Tasks of attention can compute an op with the dimensions of the output.

    ```mlir
    // [b, s, k] · [k, n] becomes [b·s, k] · [k, n]
    ```
  }];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def ReturnIntermediates : Pass<"attn-return-intermediates", "::mlir::ModuleOp"> {
  let summary = "return what a program computes on the way";
  let description = [{
    Every tensor of floats that an op of a public function computes becomes a further result of the function, in the
    order of the ops, unless it is one. Constants, views, copies and broadcasts are not computed. It runs before
    signatures are final: after `import`.

    A returned value is stored, so elementwise ops are not fused into its users; a matmul or attention keeps its kernel.
  }];
}

def ProveStability : Pass<"attn-prove-stability", "::mlir::func::FuncOp"> {
  let summary = "prove that row maxima are finite";
  let description = [{
    Sets `attn.stability` on every `attn.attention`: "every_step" if the running row maximum is finite in every step over
    keys, "in_order" if it is finite when steps are taken from the first key on, else "guarded": generated code then
    replaces a maximum of −∞ by 0. The proof requires a score region with a bounded result, and that every query attends
    to all keys, or to the first one. With `remarks` each op reports the proof or what it is guarded against.

    ```mlir
    %o = attn.attention %q[s,d], %k[s,d], %v[s,d] score(%s, %b, %h, %i, %j) {
        %t = math.tanh %s : f32
        attn.yield %t : f32
      } {attn.stability = "every_step"} : ...
    ```
  }];
  let options = [Option<"remarks", "remarks", "bool", "false", "Report what was proved">];
}

#endif // SACCADE_ATTN_TRANSFORMS_PASSES_TD
