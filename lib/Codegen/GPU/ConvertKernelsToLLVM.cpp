//===- ConvertKernelsToLLVM.cpp - Convert device code to the LLVM dialect -----===//
//
// Lowers math functions to instructions, polynomials or libdevice calls, and converts the device module to LLVM and
// NVVM. It is the last pass on device code; the host is converted as on CPUs.
//
//===----------------------------------------------------------------------===//
#include "../Common/ExpandViews.h"
#include "../Common/LowerStructure.h"
#include "../Common/NarrowFloats.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/GPUToNVVM/GPUToNVVMPass.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/UBToLLVM/UBToLLVM.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Affine/Transforms/Transforms.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/MemRef/Transforms/Transforms.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "saccade/Codegen/GPU/Passes.h"
#include "saccade/Support/Kernels.h"

namespace saccade {
#define GEN_PASS_DEF_CONVERTKERNELSTOLLVM
#include "saccade/Codegen/GPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

/// Expands math functions into polynomials and views into address arithmetic.
static LogicalResult breakDown(mlir::gpu::GPUModuleOp module) {
  RewritePatternSet patterns(module.getContext());
  // Powers with a small constant exponent become multiplications, narrow types f32, 1/√x a division.
  populateMathAlgebraicSimplificationPatterns(patterns);
  populateMathF32ExpansionPatterns(patterns, [](StringRef) { return true; });
  math::populateExpansionPatterns(patterns, {"rsqrt"});
  // The upstream polynomials with an error below 6 ulp.
  populateMathPolynomialApproximationPatterns(patterns, [](StringRef name) {
    return llvm::is_contained({math::TanhOp::getOperationName(), math::ErfOp::getOperationName(),
                               math::ExpOp::getOperationName(), math::ExpM1Op::getOperationName(),
                               math::LogOp::getOperationName(), math::Log1pOp::getOperationName(),
                               math::Log2Op::getOperationName()},
                              name);
  });
  populateNarrowFloatPatterns(patterns, /*hasF16=*/true);
  memref::populateExpandStridedMetadataPatterns(patterns);
  affine::populateAffineExpandIndexOpsPatterns(patterns);
  arith::populateCeilFloorDivExpandOpsPatterns(patterns);
  return applyPatternsGreedily(module, std::move(patterns));
}

/// Whether LLVM lowers a math op to instructions instead of a call.
static bool isInstruction(Operation *op) {
  return isa<math::AbsFOp, math::AbsIOp, math::CeilOp, math::FloorOp, math::TruncOp, math::RoundEvenOp, math::SqrtOp,
             math::FmaOp, math::CopySignOp, math::CountLeadingZerosOp, math::CountTrailingZerosOp, math::CtPopOp,
             math::IsFiniteOp, math::IsInfOp, math::IsNaNOp, math::IsNormalOp>(op) ||
         (isa<math::Exp2Op>(op) && getElementTypeOrSelf(op->getResult(0).getType()).isF32());
}

/// Converts functions that are neither instructions nor polynomials to libdevice calls. This includes arith.remf: LLVM
/// expands it by a division, which is wrong if the quotient is not representable.
static LogicalResult callLibdevice(mlir::gpu::GPUModuleOp module) {
  auto isCall = [](Operation *op) {
    return isa<arith::RemFOp>(op) || (isa_and_present<math::MathDialect>(op->getDialect()) && !isInstruction(op));
  };
  WalkResult calls =
      module.walk([&](Operation *op) { return isCall(op) ? WalkResult::interrupt() : WalkResult::advance(); });
  if (!calls.wasInterrupted())
    return success();
  MLIRContext *context = module.getContext();
  LLVMTypeConverter converter(context);
  RewritePatternSet patterns(context);
  populateLibDeviceConversionPatterns(converter, patterns);
  ConversionTarget target(*context);
  // An op of unknown legality is converted if a pattern matches, and kept otherwise.
  target.markUnknownOpDynamicallyLegal(
      [&](Operation *op) -> std::optional<bool> { return isCall(op) ? std::nullopt : std::optional<bool>(true); });
  return applyPartialConversion(module, target, std::move(patterns));
}

/// Rejects ops that no pass has lowered and math ops that LLVM would lower to calls.
static LogicalResult checkOps(mlir::gpu::GPUModuleOp module) {
  WalkResult result = module.walk([](Operation *op) -> WalkResult {
    if (isa<linalg::LinalgOp>(op))
      return op->emitOpError("is not supported on GPUs");
    if (!isa_and_present<math::MathDialect>(op->getDialect()) || isInstruction(op))
      return WalkResult::advance();
    return op->emitOpError() << "on " << getElementTypeOrSelf(op->getResult(0).getType())
                             << " is not supported on GPUs";
  });
  return failure(result.wasInterrupted());
}

static LogicalResult convert(mlir::gpu::GPUModuleOp module) {
  MLIRContext *context = module.getContext();
  LLVMTypeConverter converter(context);
  SymbolTableCollection symbolTables;
  RewritePatternSet patterns(context);
  arith::populateArithToLLVMConversionPatterns(converter, patterns);
  cf::populateControlFlowToLLVMConversionPatterns(converter, patterns);
  populateFinalizeMemRefToLLVMConversionPatterns(converter, patterns);
  populateFuncToLLVMConversionPatterns(converter, patterns);
  populateMathToLLVMConversionPatterns(converter, patterns, /*approximateLog1p=*/false);
  populateVectorToLLVMConversionPatterns(converter, patterns);
  ub::populateUBToLLVMConversionPatterns(converter, patterns);
  LLVMConversionTarget target(*context);
  target.addLegalDialect<NVVM::NVVMDialect>();
  target.addLegalOp<mlir::gpu::GPUModuleOp>();
  return saccade::convertFully(module, target, std::move(patterns));
}

namespace {

struct ConvertKernelsToLLVM : saccade::impl::ConvertKernelsToLLVMBase<ConvertKernelsToLLVM> {
  void runOnOperation() override {
    mlir::gpu::GPUModuleOp module = getOperation();
    expandViews(module);
    if (failed(breakDown(module)) || failed(callLibdevice(module)) || failed(checkOps(module)) ||
        failed(saccade::lowerStructure(module.getOperation())) || failed(convert(module)))
      return signalPassFailure();
    Builder builder(&getContext());
    for (auto kernel : module.getOps<LLVM::LLVMFuncOp>()) {
      if (!kernel->hasAttr(kernelAttr))
        continue;
      kernel->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(), builder.getUnitAttr());
      // Tensor maps are passed by value, and only read.
      auto maps = kernel->getAttrOfType<ArrayAttr>(tensorMapsAttr);
      for (unsigned i = 0; maps && i < maps.size(); ++i) {
        auto map = TypeAttr::get(LLVM::LLVMArrayType::get(builder.getI8Type(), tensorMapBytes));
        kernel.setArgAttr(i, LLVM::LLVMDialect::getByValAttrName(), map);
        kernel.setArgAttr(i, LLVM::LLVMDialect::getAlignAttrName(), builder.getI64IntegerAttr(tensorMapAlignment));
        kernel.setArgAttr(i, NVVM::NVVMDialect::getGridConstantAttrName(), builder.getUnitAttr());
      }
      auto threads = kernel->getAttrOfType<IntegerAttr>(threadsAttr);
      kernel->setAttr(NVVM::NVVMDialect::getReqntidAttrName(),
                      builder.getDenseI32ArrayAttr({static_cast<int32_t>(threads ? threads.getInt() : threadsPerCTA)}));
      // Without this ptxas ignores setmaxnreg in kernels that would start with fewer registers (C7508).
      if (maps && !kernel->hasAttr(NVVM::NVVMDialect::getMinctasmAttrName()))
        kernel->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(), builder.getI32IntegerAttr(1));
    }
  }
};

} // namespace
