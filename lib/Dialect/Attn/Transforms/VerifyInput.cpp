//===- VerifyInput.cpp - Verify the ops and types of a program ----------------===//
//
// Verifies that a program has only ops and types that the pipeline compiles. Runs first, so that later passes can
// assert this.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/BuiltinOps.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Dialect/Attn/Transforms/Passes.h"

namespace saccade::attn {
#define GEN_PASS_DEF_VERIFYINPUT
#include "saccade/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace saccade::attn

using namespace mlir;
using namespace saccade;

/// Types of elements that are stored and converted, but not computed with.
static bool isStorageType(Type type) { return isa<Float8E4M3FNType, Float8E5M2Type>(type); }

/// Scalars and ranked tensors of them.
static bool isSupportedType(Type type) {
  if (auto tensor = dyn_cast<RankedTensorType>(type))
    return !tensor.getEncoding() &&
           (isStorageType(tensor.getElementType()) || isSupportedType(tensor.getElementType()));
  if (auto integer = dyn_cast<IntegerType>(type))
    return llvm::is_contained({1, 8, 16, 32, 64}, integer.getWidth());
  return isa<IndexType, Float16Type, BFloat16Type, Float32Type, Float64Type>(type);
}

/// Whether `op` only moves or converts elements, so that their type may be a storage type.
static bool isStorageOp(Operation *op) {
  if (isa<tensor::TensorDialect, func::FuncDialect>(op->getDialect()) && !isa<func::FuncOp>(op))
    return true;
  return isa<arith::BitcastOp, arith::ConstantOp, arith::ExtFOp, arith::SelectOp, arith::TruncFOp, attn::AppendOp,
             attn::PagedOp, linalg::BroadcastOp, linalg::CopyOp, linalg::FillOp, linalg::GenericOp, linalg::TransposeOp,
             linalg::YieldOp>(op);
}

static LogicalResult verifyTypes(Operation *op, TypeRange types, StringRef what) {
  for (Type type : types) {
    bool isStored = isStorageType(getElementTypeOrSelf(type));
    auto emit = [&]() { return op->emitError() << "'" << op->getName() << "' has a" << what << " of type " << type; };
    if (isSupportedType(type) ? !isStored || isa<func::FuncOp>(op) || isStorageOp(op) : isStored && isStorageOp(op))
      continue;
    if (isStored && !isa<func::FuncOp>(op))
      return emit() << ", expected another type: such elements can be stored, moved, and converted with arith.extf and "
                       "arith.truncf only";
    return emit() << ", expected index, i1, i8, i16, i32, i64, f16, bf16, f32, f64, or a ranked tensor of them, "
                     "f8E4M3FN or f8E5M2";
  }
  return success();
}

/// Narrow types are converted from and to f32, so that one rounding is that of the conversion.
static LogicalResult verifyConversion(arith::TruncFOp op) {
  if (!isStorageType(getElementTypeOrSelf(op.getType())) || !getElementTypeOrSelf(op.getIn()).isF64())
    return success();
  return op.emitError() << "'arith.truncf' from f64 to " << getElementTypeOrSelf(op.getType())
                        << " is not supported, expected a conversion to f32 before";
}

static bool isSupportedDialect(Dialect *dialect) {
  return isa_and_nonnull<arith::ArithDialect, attn::AttnDialect, func::FuncDialect, linalg::LinalgDialect,
                         math::MathDialect, scf::SCFDialect, tensor::TensorDialect>(dialect);
}

static LogicalResult verifyOp(Operation *op) {
  if (isa<ModuleOp>(op) && op->getParentOp())
    return op->emitError("a module inside a module is not supported");
  if (!isSupportedDialect(op->getDialect()) && !isa<ModuleOp>(op))
    return op->emitError() << "'" << op->getName()
                           << "' is not supported, expected ops of attn, linalg, tensor, arith, math, scf and func";
  // Parallelism and memory layouts are chosen by the compiler.
  if (isa<scf::ForallOp, scf::ParallelOp, scf::ReduceOp, tensor::ScatterOp, tensor::GatherOp, linalg::PackOp,
          linalg::UnPackOp>(op))
    return op->emitError() << "'" << op->getName() << "' is not supported";
  if (isa<attn::AccumulateOp, attn::MergeOp, attn::FinalizeOp, attn::LaunchOp, attn::LoadDequantizedOp,
          attn::ThreadsOp>(op))
    return op->emitError() << "'" << op->getName() << "' is for use in the compiler only, expected "
                           << (isa<attn::LoadDequantizedOp>(op) ? "attn.dequantize" : "attn.attention");
  // The size and owner of a tensor's buffer must not depend on control flow.
  bool isControlFlow = isa_and_nonnull<scf::SCFDialect>(op->getDialect());
  if (isControlFlow && llvm::any_of(op->getResultTypes(), llvm::IsaPred<TensorType>))
    return op->emitError()
           << "'" << op->getName()
           << "' has a tensor result, expected scalars: loops and branches over tensors are not supported";
  if (auto func = dyn_cast<func::FuncOp>(op)) {
    if (func.isExternal())
      return op->emitError() << "function '" << func.getName() << "' has no body";
    return verifyTypes(op, func.getArgumentTypes(), "n argument");
  }
  if (auto conversion = dyn_cast<arith::TruncFOp>(op); conversion && failed(verifyConversion(conversion)))
    return failure();
  if (failed(verifyTypes(op, op->getOperandTypes(), "n operand")))
    return failure();
  return verifyTypes(op, op->getResultTypes(), " result");
}

/// Rejects recursion, since all calls are inlined. Removes functions from the call graph starting at the leaves; each
/// remaining function calls a remaining one, so following these calls finds a cycle.
static LogicalResult verifyCalls(ModuleOp module) {
  SymbolTable symbols(module);
  DenseMap<Operation *, SmallVector<func::CallOp>> calls, callers;
  DenseMap<Operation *, size_t> open;
  SmallVector<Operation *> leaves;
  for (auto function : module.getOps<func::FuncOp>()) {
    function.walk([&](func::CallOp call) {
      calls[function].push_back(call);
      callers[symbols.lookup(call.getCallee())].push_back(call);
    });
    open[function] = calls[function].size();
    if (open[function] == 0)
      leaves.push_back(function);
  }
  while (!leaves.empty())
    for (func::CallOp call : callers[leaves.pop_back_val()]) {
      Operation *caller = call->getParentOfType<func::FuncOp>();
      if (--open[caller] == 0)
        leaves.push_back(caller);
    }
  auto functions = module.getOps<func::FuncOp>();
  auto left = llvm::find_if(functions, [&](func::FuncOp function) { return open[function] != 0; });
  if (left == functions.end())
    return success();
  DenseSet<Operation *> seen;
  Operation *function = *left;
  while (true) {
    seen.insert(function);
    func::CallOp call =
        *llvm::find_if(calls[function], [&](func::CallOp each) { return open[symbols.lookup(each.getCallee())] != 0; });
    function = symbols.lookup(call.getCallee());
    if (seen.contains(function))
      return call.emitError() << "calls '" << call.getCallee() << "' recursively, expected calls without recursion";
  }
}

namespace {

struct VerifyInput : attn::impl::VerifyInputBase<VerifyInput> {
  void runOnOperation() override {
    WalkResult result = getOperation().walk<WalkOrder::PreOrder>(
        [&](Operation *op) { return failed(verifyOp(op)) ? WalkResult::interrupt() : WalkResult::advance(); });
    if (result.wasInterrupted() || failed(verifyCalls(getOperation())))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};

} // namespace
