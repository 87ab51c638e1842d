//===- NarrowFloats.cpp - Conversions of f16 and floats of 8 bits -------------===//
#include "NarrowFloats.h"
#include "FloatBits.h"

using namespace mlir;
using namespace saccade;

float saccade::widenedF8Factor(Type element) { return isa<Float8E4M3FNType>(element) ? 256 : 1; }

/// Converts through f16, which has all values. Those of f8E5M2 have the bits of f16 without its low byte. Those of
/// f8E4M3FN become f16 with the mantissa and an exponent that is too small by 8; that of NaN, 15, is doubled by a
/// shift, which is one instruction with a mask.
Value saccade::emitWidenF8(OpBuilder &b, Location loc, Value narrow) {
  FloatBits e{b, loc, narrow.getType(), /*width=*/16};
  Value bits = arith::ExtSIOp::create(b, loc, e.integer(), e.cast(narrow, b.getI8Type()));
  if (isa<Float8E5M2Type>(getElementTypeOrSelf(narrow))) {
    bits = e.shl(bits, 8);
  } else {
    Value isNaN = e.isEqual(e.mask(bits, 0x7f), 0x7f), finite = e.mask(e.shl(bits, 7), 0xbf80);
    bits = e.select(isNaN, e.shl(finite, 1), finite);
  }
  return arith::ExtFOp::create(b, loc, e.of(b.getF32Type()), e.cast(bits, b.getF16Type()));
}

namespace {

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
  NarrowFromF32(MLIRContext *context, bool hasF16) : OpRewritePattern(context), hasF16(hasF16) {}

  LogicalResult matchAndRewrite(arith::TruncFOp op, PatternRewriter &rewriter) const override {
    Type to = getElementTypeOrSelf(op.getOut());
    std::optional<NarrowFormat> format = formatOf(to);
    bool isFromF32 = getElementTypeOrSelf(op.getIn()).isF32();
    // All values of f16 and bf16 are in f32.
    if (!format || (to.isF16() && (hasF16 || !isFromF32)))
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

  bool hasF16;
};

struct WidenFromF8 : OpRewritePattern<arith::ExtFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::ExtFOp op, PatternRewriter &rewriter) const override {
    Type from = getElementTypeOrSelf(op.getIn()), to = getElementTypeOrSelf(op.getOut());
    if (!isF8(from))
      return failure();
    FloatBits e{rewriter, op.getLoc(), op.getType()};
    Value result = emitWidenF8(rewriter, op.getLoc(), op.getIn());
    if (float factor = widenedF8Factor(from); factor != 1) {
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

} // namespace

void saccade::populateNarrowFloatPatterns(RewritePatternSet &patterns, bool hasF16) {
  patterns.add<NarrowFromF32>(patterns.getContext(), hasF16);
  patterns.add<WidenFromF8>(patterns.getContext());
}
