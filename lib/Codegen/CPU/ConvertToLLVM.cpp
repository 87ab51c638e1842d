//===- ConvertToLLVM.cpp - From vector code to the LLVM dialect ---------------===//
//
// Expands compound vector, memref and affine ops and converts everything to the LLVM dialect. It is the last pass of
// CPU code generation; its input consists of loops, vector ops and launches.
//
//===----------------------------------------------------------------------===//
#include "../Common/ExpandViews.h"
#include "../Common/LowerStructure.h"
#include "Launch.h"
#include "RewriteOps.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/IndexToLLVM/IndexToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MathToLibm/MathToLibm.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/UBToLLVM/UBToLLVM.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Conversion/VectorToSCF/VectorToSCF.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Affine/Transforms/Transforms.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/Transforms/Transforms.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/Transforms/LoweringPatterns.h"
#include "mlir/Dialect/Vector/Transforms/VectorRewritePatterns.h"
#include "mlir/Dialect/X86Vector/Transforms.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "mlir/IR/Dominance.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Transforms/CSE.h"
#include "mlir/Transforms/LoopInvariantCodeMotionUtils.h"
#include "saccade/Codegen/CPU/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_CONVERTTOLLVM
#include "saccade/Codegen/CPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;

//===----------------------------------------------------------------------===//
// Expansion
//===----------------------------------------------------------------------===//

/// Lowers multi-dimensional vector ops to 1-D ops, transfers to loads and stores, and views to address arithmetic.
static void populateBreakDownPatterns(RewritePatternSet &patterns) {
  vector::populateVectorToVectorCanonicalizationPatterns(patterns);
  vector::populateVectorBitCastLoweringPatterns(patterns);
  vector::populateVectorBroadcastLoweringPatterns(patterns);
  vector::populateVectorContractLoweringPatterns(patterns, vector::VectorContractLowering::OuterProduct);
  vector::populateVectorOuterProductLoweringPatterns(patterns);
  vector::populateVectorMultiReductionLoweringPatterns(patterns, vector::VectorMultiReductionLowering::InnerReduction);
  vector::populateVectorMaskOpLoweringPatterns(patterns);
  vector::populateVectorShapeCastLoweringPatterns(patterns);
  vector::populateVectorInterleaveLoweringPatterns(patterns);
  // A 16 × 16 transpose becomes 64 shuffles of two registers; other shapes become one shuffle of all elements.
  vector::populateVectorTransposeLoweringPatterns(patterns, vector::VectorTransposeLowering::Shuffle16x16, 2);
  vector::populateVectorTransposeLoweringPatterns(patterns, vector::VectorTransposeLowering::Shuffle1D, 1);
  populateVectorToSCFConversionPatterns(patterns, VectorTransferToSCFOptions().enableFullUnroll());
  vector::populateVectorTransferLoweringPatterns(patterns, /*maxTransferRank=*/1);
  vector::populateVectorMaskMaterializationPatterns(patterns, /*force32BitVectorIndices=*/true);
  vector::populateVectorInsertExtractStridedSliceTransforms(patterns);
  vector::populateVectorStepLoweringPatterns(patterns);
  vector::populateVectorGatherLoweringPatterns(patterns);
  vector::populateVectorRankReducingFMAPattern(patterns);
  vector::populateVectorFromElementsUnrollPatterns(patterns);
  vector::populateVectorToElementsUnrollPatterns(patterns);
  memref::populateExpandStridedMetadataPatterns(patterns);
  affine::populateAffineExpandIndexOpsPatterns(patterns);
  arith::populateCeilFloorDivExpandOpsPatterns(patterns);
}

static bool isAddressType(Type type) { return type.isIntOrIndex() || isa<MemRefType>(type); }

/// Hoists address arithmetic out of loops, which the LLVM pipeline in use does not do. Vectors are not moved, because
/// the kernels are blocked for the number of registers.
static void hoistAddresses(Operation *root) {
  root->walk([](LoopLikeOpInterface loop) {
    moveLoopInvariantCode(
        loop.getLoopRegions(), [&](Value value, Region *) { return loop.isDefinedOutsideOfLoop(value); },
        [](Operation *op, Region *) {
          return isMemoryEffectFree(op) && isSpeculatable(op) && llvm::all_of(op->getResultTypes(), isAddressType);
        },
        [&](Operation *op, Region *) { loop.moveOutOfLoop(op); });
  });
}

/// Hoists and deduplicates address arithmetic of a function, which is fully expanded at this point.
static void simplifyAddresses(func::FuncOp function) {
  hoistAddresses(function);
  IRRewriter rewriter(function.getContext());
  DominanceInfo dominance(function);
  eliminateCommonSubExpressions(rewriter, dominance, function);
}

//===----------------------------------------------------------------------===//
// Conversion
//===----------------------------------------------------------------------===//

static LogicalResult convert(ModuleOp module, const LLVMTypeConverter &converter) {
  SymbolTableCollection symbolTables;
  RewritePatternSet patterns(module.getContext());
  saccade::populateRuntimeCallPatterns(converter, patterns);
  arith::populateArithToLLVMConversionPatterns(converter, patterns);
  cf::populateControlFlowToLLVMConversionPatterns(converter, patterns);
  cf::populateAssertToLLVMConversionPattern(converter, patterns);
  index::populateIndexToLLVMConversionPatterns(converter, patterns);
  populateFinalizeMemRefToLLVMConversionPatterns(converter, patterns);
  populateFuncToLLVMConversionPatterns(converter, patterns);
  // Instructions and intrinsics are preferred to calls. Computing log1p by log would lose all digits near 0.
  populateMathToLLVMConversionPatterns(converter, patterns, /*approximateLog1p=*/false, /*benefit=*/2);
  populateMathToLibmConversionPatterns(patterns, /*benefit=*/1);
  populateVectorToLLVMConversionPatterns(converter, patterns, /*reassociateFPReductions=*/false,
                                         /*force32BitVectorIndices=*/true);
  populateX86VectorLegalizeForLLVMExportPatterns(converter, patterns);
  ub::populateUBToLLVMConversionPatterns(converter, patterns);
  LLVMConversionTarget target(*module.getContext());
  configureX86VectorLegalizeForExportTarget(target);
  target.addLegalOp<ModuleOp>();
  // GPU modules are converted by the GPU pipeline.
  target.addLegalOp<gpu::GPUModuleOp>();
  target.markOpRecursivelyLegal<gpu::GPUModuleOp>();
  return saccade::convertFully(module, target, std::move(patterns));
}

/// Marks the scratch argument noalias: nothing else points into the scratch memory of a running task.
static void markScratch(LLVM::LLVMFuncOp task) {
  // The last argument was a one-dimensional memref: allocated pointer, aligned pointer, offset, size, stride.
  for (unsigned fromEnd : {4, 5})
    task.setArgAttr(task.getNumArguments() - fromEnd, LLVM::LLVMDialect::getNoAliasAttrName(),
                    UnitAttr::get(task.getContext()));
  task->removeAttr("attn.task");
}

namespace {

struct ConvertToLLVM : saccade::impl::ConvertToLLVMBase<ConvertToLLVM> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    LowerToLLVMOptions options(&getContext());
    options.allocLowering = LowerToLLVMOptions::AllocLowering::None;
    LLVMTypeConverter converter(&getContext(), options);
    for (auto func : module.getOps<func::FuncOp>()) {
      if (func.isPublic() && !func.isExternal())
        func->setAttr(LLVM::LLVMDialect::getEmitCWrapperAttrName(), UnitAttr::get(&getContext()));
      // The LLVM dialect does not know this attribute.
      for (unsigned i = 0; i < func.getNumArguments(); ++i)
        func.removeArgAttr(i, "attn.constant");
    }
    saccade::createTaskRunners(module, converter);
    saccade::expandViews(module);
    RewritePatternSet breakDown(&getContext());
    populateBreakDownPatterns(breakDown);
    auto isCompound = [](Operation *op) {
      return isa<vector::VectorDialect, memref::MemRefDialect, affine::AffineDialect>(op->getDialect()) ||
             isa<arith::CeilDivSIOp, arith::CeilDivUIOp, arith::FloorDivSIOp>(op);
    };
    if (failed(saccade::cpu::rewriteOps(module, std::move(breakDown), isCompound)))
      return signalPassFailure();
    // Not the kernels of a GPU, which are converted already.
    auto functions = llvm::map_to_vector(module.getOps<func::FuncOp>(), [](auto op) { return op.getOperation(); });
    for (auto function : module.getOps<func::FuncOp>())
      simplifyAddresses(function);
    if (failed(saccade::lowerStructure(functions)) || failed(convert(module, converter)))
      return signalPassFailure();
    saccade::createFailurePaths(module);
    for (auto func : module.getOps<LLVM::LLVMFuncOp>())
      if (func->hasAttr("attn.task"))
        markScratch(func);
  }
};

} // namespace
