//===- ExpandConversions.cpp - 16-bit floats without library calls ------------===//
//
// Replaces conversions for which the CPU target has no instruction by integer arithmetic on scalars or vectors. It runs
// after all passes that emit conversions; unexpanded ones would become a library call per element.
//
//===----------------------------------------------------------------------===//
#include "RewriteOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
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

/// Arithmetic on i32, or on vectors of it with the extents of `shape`.
struct Bits {
  OpBuilder &b;
  Location loc;
  Type shape;

  Type of(Type element) const {
    auto vector = dyn_cast<VectorType>(shape);
    return vector ? Type(vector.clone(element)) : element;
  }
  Type i32() const { return of(b.getI32Type()); }
  Value constant(int64_t value) {
    auto bits = b.getIntegerAttr(b.getI32Type(), int64_t(int32_t(value)));
    auto vector = dyn_cast<VectorType>(i32());
    return arith::ConstantOp::create(b, loc, vector ? TypedAttr(DenseElementsAttr::get(vector, bits)) : bits);
  }
  Value cast(Value x, Type element) { return arith::BitcastOp::create(b, loc, of(element), x); }
  Value asFloat(Value x) { return cast(x, b.getF32Type()); }
  Value asInt(Value x) { return cast(x, b.getI32Type()); }
  Value mask(Value x, int64_t bits) { return arith::AndIOp::create(b, loc, x, constant(bits)); }
  Value ori(Value x, Value y) { return arith::OrIOp::create(b, loc, x, y); }
  Value add(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
  Value shl(Value x, int64_t by) { return arith::ShLIOp::create(b, loc, x, constant(by)); }
  Value shr(Value x, int64_t by) { return arith::ShRUIOp::create(b, loc, x, constant(by)); }
  Value isGreater(Value x, int64_t than) {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, x, constant(than));
  }
  Value select(Value condition, Value x, Value y) { return arith::SelectOp::create(b, loc, condition, x, y); }
};

/// Shifts the bits into an f32 whose exponent is then too small by 112. Multiplying by 2^112 is exact and normalizes
/// subnormal numbers.
struct WidenF16 : OpRewritePattern<arith::ExtFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::ExtFOp op, PatternRewriter &rewriter) const override {
    if (!getElementTypeOrSelf(op.getIn()).isF16() || !getElementTypeOrSelf(op.getOut()).isF32())
      return failure();
    Bits e{rewriter, op.getLoc(), op.getType()};
    Value narrow = e.cast(op.getIn(), rewriter.getI16Type());
    Value wide = arith::ExtUIOp::create(rewriter, op.getLoc(), e.i32(), narrow);
    Value magnitude = e.mask(wide, 0x7fff), sign = e.shl(e.mask(wide, 0x8000), 16);
    Value scale = e.asFloat(e.constant((127 + 112) << 23));
    Value finite = arith::MulFOp::create(rewriter, op.getLoc(), e.asFloat(e.shl(magnitude, 13)), scale);
    // Infinity and NaN keep their mantissa under the largest exponent.
    Value exponent = e.select(e.isGreater(magnitude, 0x7bff), e.constant(0x7f800000), e.constant(0));
    rewriter.replaceOp(op, e.asFloat(e.ori(e.ori(e.asInt(finite), exponent), sign)));
    return success();
  }
};

/// A normal result adds half an ulp (less one bit if that keeps a tie even) and truncates; a carry into the exponent is
/// correct. A subnormal result is rounded by adding 1/2, whose ulp is the ulp of the result (Giesen, "float->half
/// variants", 2012).
struct NarrowToF16 : OpRewritePattern<arith::TruncFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::TruncFOp op, PatternRewriter &rewriter) const override {
    if (!getElementTypeOrSelf(op.getIn()).isF32() || !getElementTypeOrSelf(op.getOut()).isF16())
      return failure();
    constexpr int64_t infinity = 0x7f800000, tooLarge = (127 + 16) << 23, minNormal = (127 - 14) << 23;
    constexpr int64_t half = 126 << 23;
    Bits e{rewriter, op.getLoc(), op.getType()};
    Value bits = e.asInt(op.getIn());
    Value magnitude = e.mask(bits, 0x7fffffff), sign = e.shr(e.mask(bits, 0x80000000), 16);
    Value isOdd = e.mask(e.shr(magnitude, 13), 1);
    Value normal = e.shr(e.add(e.add(magnitude, e.constant((-112 << 23) + 0xfff)), isOdd), 13);
    Value sum = arith::AddFOp::create(rewriter, op.getLoc(), e.asFloat(magnitude), e.asFloat(e.constant(half)));
    Value subnormal = e.add(e.asInt(sum), e.constant(-half));
    Value special = e.select(e.isGreater(magnitude, infinity), e.constant(0x7e00), e.constant(0x7c00));
    Value result = e.select(e.isGreater(magnitude, minNormal - 1), normal, subnormal);
    result = e.ori(e.select(e.isGreater(magnitude, tooLarge - 1), special, result), sign);
    Value narrow = arith::TruncIOp::create(rewriter, op.getLoc(), e.of(rewriter.getI16Type()), result);
    rewriter.replaceOp(op, e.cast(narrow, rewriter.getF16Type()));
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
      patterns.add<WidenF16, NarrowToF16>(&getContext());
    auto isConversion = [](Operation *op) { return isa<arith::ExtFOp, arith::TruncFOp>(op); };
    if (failed(saccade::cpu::rewriteOps(getOperation(), std::move(patterns), isConversion)))
      signalPassFailure();
  }
};

} // namespace
