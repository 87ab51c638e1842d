//===- BufferizeTensors.cpp - One-shot bufferization --------------------------===//
//
// Runs one-shot bufferization with the options of this compiler. It runs after tiling, which makes temporaries small,
// and before outlining, because tasks capture memory.
//
//===----------------------------------------------------------------------===//
#include "InPlaceUpdates.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotAnalysis.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotModuleBufferize.h"
#include "mlir/Dialect/Bufferization/Transforms/Transforms.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Bufferize/Passes.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade {
#define GEN_PASS_DEF_BUFFERIZETENSORS
#include "saccade/Bufferize/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace mlir::bufferization;

/// Whether `value` is cheap to recompute: an empty tensor, a slice of one, or one that is filled or broadcast to.
static bool isFresh(Value value) {
  if (auto slice = value.getDefiningOp<tensor::ExtractSliceOp>())
    return isFresh(slice.getSource());
  if (auto fill = value.getDefiningOp<linalg::FillOp>())
    return isFresh(fill.getOutputs()[0]);
  if (auto broadcast = value.getDefiningOp<linalg::BroadcastOp>())
    return isFresh(broadcast.getInit());
  return isa_and_nonnull<tensor::EmptyOp>(value.getDefiningOp());
}

/// Whether `use` writes to (a slice of) a tensor that is defined outside of the loop around the use.
static bool isWrittenInside(OpOperand &use) {
  Operation *user = use.getOwner();
  auto destination = dyn_cast<DestinationStyleOpInterface>(user);
  auto loop = dyn_cast<scf::ForOp>(user);
  bool isWritten = (destination && destination.isDpsInit(&use)) || isa<tensor::ExtractSliceOp>(user) ||
                   (loop && loop.getTiedLoopRegionIterArg(&use));
  return isWritten && user->getBlock() != use.get().getParentBlock();
}

/// Clones fresh tensors per use. A shared one causes a conflict between two computations; an empty one outside of a
/// parallel loop would be shared by threads; an initial value outside of a loop would be copied in every iteration.
static void separateFreshTensors(ModuleOp module) {
  SmallVector<Operation *> fresh;
  module.walk([&](Operation *op) {
    if (isa<tensor::EmptyOp, tensor::ExtractSliceOp, linalg::FillOp, linalg::BroadcastOp>(op) &&
        op->getNumResults() == 1 && isFresh(op->getResult(0)))
      fresh.push_back(op);
  });
  // Users first: each of their clones adds a use to their sources.
  for (Operation *op : llvm::reverse(fresh)) {
    bool isEmpty = isa<tensor::EmptyOp>(op);
    if (!isEmpty && (op->use_empty() || (op->hasOneUse() && !isWrittenInside(*op->use_begin()))))
      continue;
    for (OpOperand &use : llvm::make_early_inc_range(op->getUses())) {
      OpBuilder builder(isEmpty || isWrittenInside(use) ? use.getOwner() : op);
      use.set(builder.clone(*op)->getResult(0));
    }
    op->erase();
  }
}

/// Marks the tensor arguments of entries read-only, except those that are updated in place.
static void protectArguments(ModuleOp module) {
  Builder b(module.getContext());
  for (auto func : module.getOps<func::FuncOp>())
    for (auto [argument, result] : llvm::zip_equal(func.getArguments(), saccade::attn::getUpdatingResults(func)))
      if (func.isPublic() && isa<TensorType>(argument.getType()))
        func.setArgAttr(argument.getArgNumber(), BufferizationDialect::kWritableAttrName,
                        b.getBoolAttr(result.has_value()));
}

static OneShotBufferizationOptions getOptions() {
  OneShotBufferizationOptions options;
  options.bufferizeFunctionBoundaries = true;
  options.setFunctionBoundaryTypeConversion(LayoutMapOption::FullyDynamicLayoutMap);
  options.unknownTypeConverterFn = [](TensorType type, Attribute memorySpace, const BufferizationOptions &) {
    return getMemRefTypeWithStaticIdentityLayout(type, memorySpace);
  };
  // The code generators lower linalg.copy; memref.copy would become a library call.
  options.memCpyFn = [](OpBuilder &builder, Location loc, Value from, Value to) -> LogicalResult {
    linalg::CopyOp::create(builder, loc, from, to);
    return success();
  };
  // Regions of attn ops keep tensors; captures are bound to buffers when the op is lowered.
  options.opFilter.denyOperation(
      [](Operation *op) { return isa_and_nonnull<saccade::attn::ScoringOpInterface>(op->getParentOp()); });
  return options;
}

/// Expands a subview that drops some of its unit dimensions and keeps others. Upstream infers the dropped dimensions
/// from the strides, which is wrong for dynamic strides. A tensor slice determines them by its shape.
static void resolveDroppedDimensions(memref::SubViewOp op) {
  ArrayRef<int64_t> sizes = op.getStaticSizes();
  MemRefType type = op.getType();
  if (int64_t(sizes.size()) == type.getRank() || llvm::count(sizes, 1) == int64_t(sizes.size()) - type.getRank())
    return;
  std::optional<llvm::SmallDenseSet<unsigned>> dropped = computeRankReductionMask(sizes, type.getShape());
  if (!dropped)
    return;
  OpBuilder b(op);
  Location loc = op.getLoc();
  auto source = memref::ExtractStridedMetadataOp::create(b, loc, op.getSource());
  AffineExpr s0, s1, s2;
  bindSymbols(b.getContext(), s0, s1, s2);
  OpFoldResult offset = source.getConstifiedMixedOffset();
  SmallVector<OpFoldResult> keptSizes, keptStrides;
  SmallVector<OpFoldResult> strides = source.getConstifiedMixedStrides();
  for (unsigned i = 0; i < sizes.size(); ++i) {
    offset = affine::makeComposedFoldedAffineApply(b, loc, s0 + s1 * s2, {offset, op.getMixedOffsets()[i], strides[i]});
    if (dropped->contains(i))
      continue;
    keptSizes.push_back(op.getMixedSizes()[i]);
    keptStrides.push_back(
        affine::makeComposedFoldedAffineApply(b, loc, s0 * s1, {strides[i], op.getMixedStrides()[i]}));
  }
  auto view = memref::ReinterpretCastOp::create(b, loc, source.getBaseBuffer(), offset, keptSizes, keptStrides);
  op.replaceAllUsesWith(memref::CastOp::create(b, loc, type, view).getResult());
  op.erase();
}

namespace {

struct BufferizeTensors : saccade::impl::BufferizeTensorsBase<BufferizeTensors> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    separateFreshTensors(module);
    protectArguments(module);
    // Then a result that is computed from an argument is not written over it.
    if (failed(eliminateEmpties(module)) || failed(saccade::prepareInPlaceUpdates(module, getOptions())))
      return signalPassFailure();
    OneShotBufferizationOptions options = getOptions();
    BufferizationState state;
    if (failed(runOneShotModuleBufferize(module, options, state)) || failed(saccade::finishInPlaceUpdates(module)))
      return signalPassFailure();
    removeBufferizationAttributesInModule(module);
    module.walk(resolveDroppedDimensions);
  }

  LogicalResult eliminateEmpties(ModuleOp module) {
    OneShotBufferizationOptions options = getOptions();
    options.allowReturnAllocsFromLoops = true;
    OneShotAnalysisState state(module, options);
    if (failed(analyzeModuleOp(module, state)))
      return failure();
    IRRewriter rewriter(module.getContext());
    return eliminateEmptyTensors(rewriter, module, state);
  }
};

} // namespace
