//===- ExpandMath.cpp - Math functions without library calls ------------------===//
//
// Replaces math functions of f32 and narrower types by polynomials on scalars and vectors. It runs after all passes
// that emit math ops; unexpanded ones become C library calls, one per lane.
//
//===----------------------------------------------------------------------===//
#include "Exp2.h"
#include "RewriteOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "saccade/Codegen/CPU/Passes.h"
#include "saccade/Support/CPUTarget.h"

namespace saccade {
#define GEN_PASS_DEF_EXPANDMATH
#include "saccade/Codegen/CPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::cpu;

namespace {

/// Arithmetic on scalars or vectors of one shape.
struct Arithmetic {
  OpBuilder &b;
  Location loc;
  Type shape; ///< f32 or a vector of f32; all values have its extent, but may have other element types
  const CPUTarget &target;

  Type of(Type element) const {
    auto vector = dyn_cast<VectorType>(shape);
    return vector ? Type(vector.clone(element)) : element;
  }
  Value constant(Type element, Attribute value) {
    auto vector = dyn_cast<VectorType>(of(element));
    return arith::ConstantOp::create(b, loc, vector ? DenseElementsAttr::get(vector, value) : cast<TypedAttr>(value));
  }
  Value f32(double value) { return constant(b.getF32Type(), b.getF32FloatAttr(value)); }
  Value f64(double value) { return constant(b.getF64Type(), b.getF64FloatAttr(value)); }
  Value integer(unsigned bits, int64_t value) {
    return constant(b.getIntegerType(bits), b.getIntegerAttr(b.getIntegerType(bits), value));
  }
  Value add(Value x, Value y) { return arith::AddFOp::create(b, loc, x, y); }
  Value sub(Value x, Value y) { return arith::SubFOp::create(b, loc, x, y); }
  Value mul(Value x, Value y) { return arith::MulFOp::create(b, loc, x, y); }
  Value fma(Value x, Value y, Value z) {
    return target.hasFMA ? math::FmaOp::create(b, loc, x, y, z).getResult() : add(mul(x, y), z);
  }
  Value select(Value condition, Value x, Value y) { return arith::SelectOp::create(b, loc, condition, x, y); }
  Value compare(arith::CmpFPredicate predicate, Value x, Value y) {
    return arith::CmpFOp::create(b, loc, predicate, x, y);
  }
  /// x clamped to [−bound, bound]. NaN fails the comparisons and is kept.
  Value clamp(Value x, double bound) {
    Value high = f32(bound), low = f32(-bound);
    x = select(compare(arith::CmpFPredicate::OLT, high, x), high, x);
    return select(compare(arith::CmpFPredicate::OGT, low, x), low, x);
  }
  Value bits(Value x, unsigned width) { return arith::BitcastOp::create(b, loc, of(b.getIntegerType(width)), x); }

  /// coefficients[0] + x · (coefficients[1] + x · ...)
  Value polynomial(Value x, ArrayRef<double> coefficients, bool isF64) {
    auto literal = [&](double value) { return isF64 ? f64(value) : f32(value); };
    Value result = literal(coefficients.back());
    for (double coefficient : llvm::reverse(coefficients.drop_back()))
      result = fma(result, x, literal(coefficient));
    return result;
  }
  bool isNative() const {
    auto vector = dyn_cast<VectorType>(shape);
    return vector && vector.getRank() == 1 && !vector.isScalable() &&
           vector.getNumElements() * 32 == int64_t(target.vectorBits);
  }
  /// x · 2^n for an integral n in [−252, 254].
  Value scaleByPower(Value x, Value n) {
    if (target.hasAVX512 && isNative()) {
      auto literal = [&](unsigned width, int64_t value) -> Value {
        return arith::ConstantOp::create(b, loc, b.getIntegerAttr(b.getIntegerType(width), value));
      };
      return LLVM::CallIntrinsicOp::create(b, loc, shape, b.getStringAttr("llvm.x86.avx512.mask.scalef.ps.512"),
                                           ValueRange{x, n, f32(0.0), literal(16, -1), literal(32, 4)})
          .getResult(0);
    }
    // Two factors, because a single f32 cannot represent 2^n for subnormal or nearly infinite results.
    Value whole = arith::FPToSIOp::create(b, loc, of(b.getI32Type()), n);
    Value half = arith::ShRSIOp::create(b, loc, whole, integer(32, 1));
    Value rest = arith::SubIOp::create(b, loc, whole, half);
    for (Value power : {half, rest}) {
      Value biased = arith::AddIOp::create(b, loc, power, integer(32, 127));
      biased = arith::ShLIOp::create(b, loc, biased, integer(32, 23));
      x = mul(x, arith::BitcastOp::create(b, loc, shape, biased));
    }
    return x;
  }
};

bool isF32(Type type) { return getElementTypeOrSelf(type).isF32(); }

/// e^x and 2^x: n = round(x / ln 2), r = x − n ln 2, 2^n e^r, with the polynomial of Cephes (Moshier 1992). ln 2 is
/// split in two parts (Cody-Waite reduction) so that r is accurate for large x.
template <typename OpTy> struct ExpandExponential : OpRewritePattern<OpTy> {
  ExpandExponential(MLIRContext *context, const CPUTarget &target)
      : OpRewritePattern<OpTy>(context, /*benefit=*/10), target(target) {}

  LogicalResult matchAndRewrite(OpTy op, PatternRewriter &rewriter) const override {
    constexpr bool isBase2 = std::is_same_v<OpTy, math::Exp2Op>;
    if (!isF32(op.getType()))
      return failure();
    Arithmetic a{rewriter, op.getLoc(), op.getType(), target};
    Value x = op.getOperand();
    // Without AVX-512, emitExp2 does not cover results from 2^127 on.
    if (isBase2 && a.isNative() && target.hasAVX512) {
      Emitter emitter{rewriter, op.getLoc(), target, rewriter.getF32Type()};
      rewriter.replaceOp(op, emitExp2(emitter, x));
      return success();
    }
    // Beyond these bounds the result is 0 or infinite. NaN fails both comparisons and is restored at the end.
    double low = isBase2 ? -151.0 : -104.0, high = isBase2 ? 129.0 : 89.0;
    Value clamped = a.select(a.compare(arith::CmpFPredicate::OGT, x, a.f32(low)), x, a.f32(low));
    clamped = a.select(a.compare(arith::CmpFPredicate::OLT, clamped, a.f32(high)), clamped, a.f32(high));
    // Adding 1.5 · 2^23 leaves no fraction bits, so it rounds to the nearest integer.
    Value magic = a.f32(12582912.0);
    Value scaled = isBase2 ? clamped : a.mul(clamped, a.f32(1.44269504088896341));
    Value n = a.sub(a.add(scaled, magic), magic);
    Value r;
    if (isBase2) {
      r = a.mul(a.sub(clamped, n), a.f32(0.693147180559945309));
    } else {
      r = a.fma(n, a.f32(-0.693359375), clamped);
      r = a.fma(n, a.f32(2.12194440e-4), r);
    }
    static constexpr double tail[] = {5.0000001201e-1, 1.6666665459e-1, 4.1665795894e-2,
                                      8.3334519073e-3, 1.3981999507e-3, 1.9875691500e-4};
    Value p = a.polynomial(r, tail, /*isF64=*/false);
    p = a.fma(a.mul(r, r), p, r);
    p = a.scaleByPower(a.add(p, a.f32(1.0)), n);
    rewriter.replaceOp(op, a.select(a.compare(arith::CmpFPredicate::UNO, x, x), x, p));
    return success();
  }

  const CPUTarget &target;
};

/// sin x and cos x of f32, computed in f64: k = round(x / (π/2)), r = x − k π/2, and the polynomial of the quadrant
/// (those of fdlibm's single-precision kernels). RoPE angles grow with the position, so reducing them in f32 would lose
/// the fraction. If a lane is too large for this reduction, which is rare, the C library computes it in f64.
template <typename OpTy> struct ExpandCircular : OpRewritePattern<OpTy> {
  ExpandCircular(MLIRContext *context, const CPUTarget &target)
      : OpRewritePattern<OpTy>(context, /*benefit=*/10), target(target) {}

  LogicalResult matchAndRewrite(OpTy op, PatternRewriter &rewriter) const override {
    constexpr bool isSine = std::is_same_v<OpTy, math::SinOp>;
    if (!isF32(op.getType()))
      return failure();
    Arithmetic a{rewriter, op.getLoc(), op.getType(), target};
    if (auto vector = dyn_cast<VectorType>(op.getType()); vector && (vector.getRank() != 1 || vector.isScalable()))
      return failure();
    Value x = arith::ExtFOp::create(rewriter, op.getLoc(), a.of(rewriter.getF64Type()), op.getOperand());
    // Adding 1.5 · 2^52 rounds and leaves the integer in the low bits.
    Value magic = a.f64(6755399441055744.0);
    Value shifted = a.add(a.mul(x, a.f64(0.636619772367581343)), magic);
    Value k = a.sub(shifted, magic);
    Value r = a.fma(k, a.f64(-1.57079632673412561417e+00), x);
    r = a.fma(k, a.f64(-6.07710050650619224932e-11), r);
    Value r2 = a.mul(r, r);
    static constexpr double sinTail[] = {1.0, -0.166666666416265235595, 0.0083333293858894631756,
                                         -0.000198393348360966317347, 0.0000027183114939898219064};
    static constexpr double cosTail[] = {1.0, -0.499999997251031003120, 0.0416666233237390631894,
                                         -0.00138867637746099294692, 0.0000243904487962774090654};
    Value sine = a.mul(a.polynomial(r2, sinTail, /*isF64=*/true), r);
    Value cosine = a.polynomial(r2, cosTail, /*isF64=*/true);
    Value quadrant = a.bits(shifted, 64);
    if (!isSine)
      quadrant = arith::AddIOp::create(rewriter, op.getLoc(), quadrant, a.integer(64, 1));
    auto bit = [&](int64_t mask) -> Value {
      Value masked = arith::AndIOp::create(rewriter, op.getLoc(), quadrant, a.integer(64, mask));
      return arith::CmpIOp::create(rewriter, op.getLoc(), arith::CmpIPredicate::ne, masked, a.integer(64, 0));
    };
    Value result = a.select(bit(1), cosine, sine);
    result = a.select(bit(2), arith::NegFOp::create(rewriter, op.getLoc(), result), result);
    rewriter.replaceOp(op, correctLarge(a, x, arith::TruncFOp::create(rewriter, op.getLoc(), op.getType(), result)));
    return success();
  }

private:
  /// Selects the C library's result for lanes in which |x| exceeds the range of the reduction. The first part of π/2
  /// has 33 bits, so its product with k is exact for |x| < 2^20. With FMA the product is not rounded, and only the
  /// error of the second part limits the range.
  Value correctLarge(Arithmetic &a, Value x, Value reduced) const {
    Value magnitude = math::AbsFOp::create(a.b, a.loc, x);
    Value isLarge = a.compare(arith::CmpFPredicate::OGT, magnitude, a.f64(target.hasFMA ? 0x1p31 : 0x1p20));
    Value isAnyLarge = isLarge;
    if (isa<VectorType>(isLarge.getType()))
      isAnyLarge = vector::ReductionOp::create(a.b, a.loc, vector::CombiningKind::OR, isLarge);
    auto branch = scf::IfOp::create(a.b, a.loc, reduced.getType(), isAnyLarge, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(a.b);
    a.b.setInsertionPointToStart(branch.thenBlock());
    Value exact = arith::TruncFOp::create(a.b, a.loc, reduced.getType(), OpTy::create(a.b, a.loc, x));
    scf::YieldOp::create(a.b, a.loc, a.select(isLarge, exact, reduced));
    a.b.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(a.b, a.loc, reduced);
    return branch.getResult(0);
  }

  const CPUTarget &target;
};

/// x · p(x²) / q(x²) with x clamped to ±bound. NaN stays NaN.
Value oddQuotient(Arithmetic &a, Value x, double bound, ArrayRef<double> numerator, ArrayRef<double> denominator) {
  x = a.clamp(x, bound);
  Value square = a.mul(x, x), above = a.mul(x, a.polynomial(square, numerator, /*isF64=*/false));
  return arith::DivFOp::create(a.b, a.loc, above, a.polynomial(square, denominator, /*isF64=*/false));
}

/// tanh x of f32: the minimax quotient of degrees 9 and 8 for |x| ≤ 8.6 (Lawson's iteration; relative error 2^-26).
/// Upstream's approximation has degrees 13 and 6. The result never exceeds 1 and is exactly 1 at the bound.
struct ExpandTanh : OpRewritePattern<math::TanhOp> {
  ExpandTanh(MLIRContext *context, const CPUTarget &target)
      : OpRewritePattern(context, /*benefit=*/10), target(target) {}

  LogicalResult matchAndRewrite(math::TanhOp op, PatternRewriter &rewriter) const override {
    if (!isF32(op.getType()))
      return failure();
    static constexpr double numerator[] = {1.0, 1.3406879467e-1, 3.5264064156e-3, 2.112246249e-5, 1.4082586221e-8};
    static constexpr double denominator[] = {1.0000000133, 4.6740201447e-1, 2.5993918371e-2, 3.336278211e-4,
                                             8.0706833647e-7};
    Arithmetic a{rewriter, op.getLoc(), op.getType(), target};
    rewriter.replaceOp(op, oddQuotient(a, op.getOperand(), 8.154932, numerator, denominator));
    return success();
  }

  const CPUTarget &target;
};

/// erf x of f32: the minimax quotient of degrees 11 and 10 for |x| ≤ 3.85 (Lawson's iteration; relative error 2^-26);
/// beyond, erf x rounds to 1. Upstream's approximation computes four quotients and selects one.
struct ExpandErf : OpRewritePattern<math::ErfOp> {
  ExpandErf(MLIRContext *context, const CPUTarget &target)
      : OpRewritePattern(context, /*benefit=*/10), target(target) {}

  LogicalResult matchAndRewrite(math::ErfOp op, PatternRewriter &rewriter) const override {
    if (!isF32(op.getType()))
      return failure();
    static constexpr double numerator[] = {1.128379151,    1.878996087e-1, 5.24799523e-2,
                                           3.674009694e-3, 2.85676144e-4,  2.108260802e-6};
    static constexpr double denominator[] = {
        1.0, 4.998545669e-1, 1.131297434e-1, 1.478505268e-2, 1.145519231e-3, 3.873178813e-5};
    Arithmetic a{rewriter, op.getLoc(), op.getType(), target};
    // Rounding can exceed 1 slightly, and does so at the bound.
    rewriter.replaceOp(op, a.clamp(oddQuotient(a, op.getOperand(), 3.9, numerator, denominator), 1.0));
    return success();
  }

  const CPUTarget &target;
};

struct ExpandMath : saccade::impl::ExpandMathBase<ExpandMath> {
  using ExpandMathBase::ExpandMathBase;

  void runOnOperation() override {
    const CPUTarget *cpu = requireCPUTarget(getOperation(), target);
    if (!cpu)
      return signalPassFailure();
    MLIRContext *context = &getContext();
    RewritePatternSet patterns(context);
    // Powers with a small constant exponent become multiplications.
    populateMathAlgebraicSimplificationPatterns(patterns);
    patterns.add<ExpandExponential<math::ExpOp>, ExpandExponential<math::Exp2Op>, ExpandCircular<math::SinOp>,
                 ExpandCircular<math::CosOp>, ExpandTanh, ExpandErf>(context, *cpu);
    // Measured errors of these upstream approximations are below 6 ulp; that of atan is not.
    auto isAccurate = [](StringRef name) {
      return llvm::is_contained({math::LogOp::getOperationName(), math::Log2Op::getOperationName(),
                                 math::Log1pOp::getOperationName(), math::ExpM1Op::getOperationName(),
                                 math::ErfcOp::getOperationName()},
                                name);
    };
    populateMathPolynomialApproximationPatterns(patterns, isAccurate);
    populateMathF32ExpansionPatterns(patterns, [](StringRef) { return true; });
    auto isMath = [](Operation *op) { return isa<math::MathDialect>(op->getDialect()); };
    if (failed(rewriteOps(getOperation(), std::move(patterns), isMath)))
      signalPassFailure();
  }
};

} // namespace
