//===- ExpandConversions.cpp - Narrow floats without library calls ------------===//
//
// Replaces conversions for which the CPU target has no instruction by integer arithmetic on scalars or vectors. It runs
// after all passes that emit conversions; unexpanded ones would become a library call per element.
//
//===----------------------------------------------------------------------===//
#include "../Common/FloatBits.h"
#include "../Common/NarrowFloats.h"
#include "RewriteOps.h"
#include "SVE.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "saccade/Codegen/CPU/Passes.h"
#include "saccade/Support/CPUTarget.h"

namespace saccade {
#define GEN_PASS_DEF_EXPANDCONVERSIONS
#include "saccade/Codegen/CPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

namespace {

/// Shifts the bits into an f32 whose exponent is then too small by 112. Multiplying by 2^112 is exact and normalizes
/// subnormal numbers.
struct WidenF16 : OpRewritePattern<arith::ExtFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::ExtFOp op, PatternRewriter &rewriter) const override {
    if (!getElementTypeOrSelf(op.getIn()).isF16() || !getElementTypeOrSelf(op.getOut()).isF32())
      return failure();
    FloatBits e{rewriter, op.getLoc(), op.getType()};
    Value narrow = e.cast(op.getIn(), rewriter.getI16Type());
    Value wide = arith::ExtUIOp::create(rewriter, op.getLoc(), e.integer(), narrow);
    Value magnitude = e.mask(wide, 0x7fff), sign = e.shl(e.mask(wide, 0x8000), 16);
    Value scale = e.asFloat(e.constant((127 + 112) << 23));
    Value finite = arith::MulFOp::create(rewriter, op.getLoc(), e.asFloat(e.shl(magnitude, 13)), scale);
    // Infinity and NaN keep their mantissa under the largest exponent.
    Value exponent = e.select(e.isGreater(magnitude, 0x7bff), e.constant(0x7f800000), e.constant(0));
    rewriter.replaceOp(op, e.asFloat(e.ori(e.ori(e.asInt(finite), exponent), sign)));
    return success();
  }
};

/// f32 to bf16 in a register of SVE. LLVM 22 cannot convert vectors of fixed length.
struct RoundInSVE : OpRewritePattern<arith::TruncFOp> {
  RoundInSVE(MLIRContext *context, const CPUTarget &target)
      : OpRewritePattern<arith::TruncFOp>(context, /*benefit=*/10), target(target) {}

  LogicalResult matchAndRewrite(arith::TruncFOp op, PatternRewriter &rewriter) const override {
    Emitter e{rewriter, op.getLoc(), target, rewriter.getF32Type()};
    if (op.getIn().getType() != e.vectorType() || !getElementTypeOrSelf(op.getOut()).isBF16())
      return failure();
    int64_t lanes = e.lanes();
    Value lower =
        vector::ExtractStridedSliceOp::create(e.b, e.loc, emitRoundInSVE(e, op.getIn(), op.getIn()),
                                              ArrayRef<int64_t>{0}, ArrayRef<int64_t>{lanes / 2}, ArrayRef<int64_t>{1});
    rewriter.replaceOpWithNewOp<vector::BitCastOp>(op, op.getType(), lower);
    return success();
  }

private:
  const CPUTarget &target;
};

struct ExpandConversions : saccade::impl::ExpandConversionsBase<ExpandConversions> {
  using ExpandConversionsBase::ExpandConversionsBase;

  void runOnOperation() override {
    const CPUTarget *cpu = requireCPUTarget(getOperation(), target);
    if (!cpu)
      return signalPassFailure();
    RewritePatternSet patterns(&getContext());
    if (cpu->hasSVE)
      patterns.add<RoundInSVE>(&getContext(), *cpu);
    if (!cpu->hasBF16Dot() || cpu->hasSVE)
      arith::populateExpandBFloat16Patterns(patterns);
    if (!cpu->hasF16Conversions)
      patterns.add<WidenF16>(&getContext());
    populateNarrowFloatPatterns(patterns, cpu->hasF16Conversions);
    auto isConversion = [](Operation *op) { return isa<arith::ExtFOp, arith::TruncFOp>(op); };
    if (failed(saccade::cpu::rewriteOps(getOperation(), std::move(patterns), isConversion)))
      signalPassFailure();
  }
};

} // namespace
