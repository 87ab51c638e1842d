//===- ExpandConversions.cpp - Narrow floats without library calls ------------===//
//
// Replaces conversions for which the CPU target has no instruction by integer arithmetic on scalars or vectors. It runs
// after all passes that emit conversions; unexpanded ones would become a library call per element.
//
//===----------------------------------------------------------------------===//
#include "FloatBits.h"
#include "RewriteOps.h"
#include "WidenF8.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "saccade/Codegen/CPU/Passes.h"
#include "saccade/Support/CPUTarget.h"

namespace saccade {
#define GEN_PASS_DEF_EXPANDCONVERSIONS
#include "saccade/Codegen/CPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using saccade::cpu::FloatBits;

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

/// A format narrower than f32, whose codes ascend with the magnitude.
struct NarrowFormat {
  int64_t bits, mantissa, minExponent; ///< sizes in bits, exponent of the smallest normal number
  int64_t largest;                     ///< the code that values out of range become
  int64_t nan;
};

/// The format of `type`, or nullopt if conversions to it are not expanded. As in PyTorch, values out of the range of
/// f8E4M3FN become its largest number.
std::optional<NarrowFormat> formatOf(Type type) {
  if (type.isF16())
    return NarrowFormat{16, 10, -14, 0x7c00, 0x7e00};
  if (isa<Float8E5M2Type>(type))
    return NarrowFormat{8, 2, -14, 0x7c, 0x7f};
  if (isa<Float8E4M3FNType>(type))
    return NarrowFormat{8, 3, -6, 0x7e, 0x7f};
  return std::nullopt;
}

/// A normal result adds half an ulp (less one bit if that keeps a tie even) and truncates; a carry into the exponent is
/// correct. A subnormal result is rounded by adding a number whose ulp is the ulp of the result (Giesen, "float->half
/// variants", 2012).
struct NarrowFromF32 : OpRewritePattern<arith::TruncFOp> {
  NarrowFromF32(MLIRContext *context, bool hasF16C) : OpRewritePattern(context), hasF16C(hasF16C) {}

  LogicalResult matchAndRewrite(arith::TruncFOp op, PatternRewriter &rewriter) const override {
    Type to = getElementTypeOrSelf(op.getOut());
    std::optional<NarrowFormat> format = formatOf(to);
    bool isFromF32 = getElementTypeOrSelf(op.getIn()).isF32();
    // All values of f16 and bf16 are in f32.
    if (!format || (to.isF16() && (hasF16C || !isFromF32)))
      return failure();
    constexpr int64_t bias = 127, mantissa = 23, infinity = 0x7f800000;
    int64_t dropped = mantissa - format->mantissa, minNormal = (bias + format->minExponent) << mantissa;
    int64_t rounder = (bias + format->minExponent + dropped) << mantissa;
    FloatBits e{rewriter, op.getLoc(), op.getType()};
    Value wide = op.getIn();
    if (!isFromF32)
      wide = arith::ExtFOp::create(rewriter, op.getLoc(), e.of(rewriter.getF32Type()), wide);
    Value bits = e.asInt(wide);
    Value magnitude = e.mask(bits, 0x7fffffff), sign = e.shr(e.mask(bits, 0x80000000), 32 - format->bits);
    Value isOdd = e.mask(e.shr(magnitude, dropped), 1);
    int64_t half = int64_t(1) << (dropped - 1), rebias = (bias + format->minExponent - 1) << mantissa;
    Value normal = e.shr(e.add(e.add(magnitude, e.constant(half - 1 - rebias)), isOdd), dropped);
    Value sum = arith::AddFOp::create(rewriter, op.getLoc(), e.asFloat(magnitude), e.asFloat(e.constant(rounder)));
    Value subnormal = e.add(e.asInt(sum), e.constant(-rounder));
    Value result = e.select(e.isGreater(magnitude, minNormal - 1), normal, subnormal);
    result = arith::MinSIOp::create(rewriter, op.getLoc(), result, e.constant(format->largest));
    result = e.ori(e.select(e.isGreater(magnitude, infinity), e.constant(format->nan), result), sign);
    Type integer = rewriter.getIntegerType(format->bits);
    Value narrow = arith::TruncIOp::create(rewriter, op.getLoc(), e.of(integer), result);
    rewriter.replaceOp(op, e.cast(narrow, to));
    return success();
  }

  bool hasF16C;
};

struct WidenFromF8 : OpRewritePattern<arith::ExtFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::ExtFOp op, PatternRewriter &rewriter) const override {
    Type from = getElementTypeOrSelf(op.getIn()), to = getElementTypeOrSelf(op.getOut());
    if (!cpu::isF8(from))
      return failure();
    FloatBits e{rewriter, op.getLoc(), op.getType()};
    Value result = cpu::emitWidenF8(rewriter, op.getLoc(), op.getIn());
    if (float factor = cpu::widenedF8Factor(from); factor != 1) {
      Value bits = e.constant(llvm::bit_cast<int32_t>(factor));
      result = arith::MulFOp::create(rewriter, op.getLoc(), result, e.asFloat(bits));
    }
    if (to.isF64())
      result = arith::ExtFOp::create(rewriter, op.getLoc(), op.getType(), result);
    else if (!to.isF32())
      result = arith::TruncFOp::create(rewriter, op.getLoc(), op.getType(), result);
    rewriter.replaceOp(op, result);
    return success();
  }
};

struct ExpandConversions : saccade::impl::ExpandConversionsBase<ExpandConversions> {
  using ExpandConversionsBase::ExpandConversionsBase;

  void runOnOperation() override {
    const CPUTarget *cpu = requireCPUTarget(getOperation(), target);
    if (!cpu)
      return signalPassFailure();
    RewritePatternSet patterns(&getContext());
    if (!cpu->hasBF16Dot)
      arith::populateExpandBFloat16Patterns(patterns);
    if (!cpu->hasF16C)
      patterns.add<WidenF16>(&getContext());
    patterns.add<NarrowFromF32>(&getContext(), cpu->hasF16C);
    patterns.add<WidenFromF8>(&getContext());
    auto isConversion = [](Operation *op) { return isa<arith::ExtFOp, arith::TruncFOp>(op); };
    if (failed(saccade::cpu::rewriteOps(getOperation(), std::move(patterns), isConversion)))
      signalPassFailure();
  }
};

} // namespace
