//===- Exponential.cpp - Exponential and logarithm -------------------------------===//
//
// f32 uses an instruction of the special function unit, f64 range reduction and a series.
//
//===----------------------------------------------------------------------===//
#include "Emitter.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <cmath>
#include <numbers>

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

static constexpr int mantissaBits = 52, bias = 1023;

static Value i64(Emitter &e, int64_t value) { return arith::ConstantIntOp::create(e.b, e.loc, value, 64); }
static Value bitsOf(Emitter &e, Value x) { return arith::BitcastOp::create(e.b, e.loc, e.b.getI64Type(), x); }
static Value fromBits(Emitter &e, Value bits) { return arith::BitcastOp::create(e.b, e.loc, e.type, bits); }
static Value compareTo(Emitter &e, arith::CmpFPredicate how, Value x, double y) {
  return arith::CmpFOp::create(e.b, e.loc, how, x, e.scalar(y));
}

/// Σ coefficients[i] · x^i.
static Value polynomial(Emitter &e, Value x, ArrayRef<double> coefficients) {
  Value sum = e.scalar(coefficients.back());
  for (double coefficient : llvm::reverse(coefficients.drop_back()))
    sum = e.fma(sum, x, e.scalar(coefficient));
  return sum;
}

Value Emitter::exp2(Value x) {
  Emitter &e = *this;
  if (e.type.isF32())
    return e.approxIntrinsic("ex2", x);
  // 2^x = 2^n · e^t with |t| ≤ ln(2) / 2; 14 terms suffice for full precision.
  Value n = math::RoundEvenOp::create(e.b, e.loc, x);
  Value t = e.mulf(e.subf(x, n), e.scalar(std::numbers::ln2));
  SmallVector<double> series;
  for (int i = 0; i < 14; ++i)
    series.push_back(1.0 / std::tgamma(i + 1));
  // Build 2^n from its bits; results that are not normal are replaced below.
  Value clamped =
      LLVM::MaxNumOp::create(e.b, e.loc, LLVM::MinNumOp::create(e.b, e.loc, n, e.scalar(bias)), e.scalar(1 - bias));
  Value exponent = arith::FPToSIOp::create(e.b, e.loc, e.b.getI64Type(), clamped);
  Value field = arith::ShLIOp::create(e.b, e.loc, e.add(exponent, i64(e, bias)), i64(e, mantissaBits));
  Value result = e.mulf(polynomial(e, t, series), fromBits(e, field));
  result = e.select(compareTo(e, arith::CmpFPredicate::OLT, x, 1 - bias), e.scalar(0.0), result);
  return e.select(compareTo(e, arith::CmpFPredicate::OGT, x, bias), e.scalar(INFINITY), result);
}

Value Emitter::log(Value x) {
  Emitter &e = *this;
  if (e.type.isF32())
    return e.mulf(e.approxIntrinsic("lg2", x), e.scalar(std::numbers::ln2));
  // x = 2^n · m with m in [√½, √2): subtracting the bits of √½ rounds to the nearest power of two.
  Value bits = bitsOf(e, x), half = i64(e, llvm::bit_cast<int64_t>(std::numbers::sqrt2 / 2));
  Value shifted = e.sub(bits, half);
  Value n = arith::ShRSIOp::create(e.b, e.loc, shifted, i64(e, mantissaBits));
  Value m = fromBits(e, e.sub(bits, arith::ShLIOp::create(e.b, e.loc, n, i64(e, mantissaBits))));
  // log(m) = 2 · artanh(s), s = (m − 1) / (m + 1).
  Value s = arith::DivFOp::create(e.b, e.loc, e.subf(m, e.scalar(1.0)), e.addf(m, e.scalar(1.0)));
  SmallVector<double> series;
  for (int i = 0; i < 12; ++i)
    series.push_back(2.0 / (2 * i + 1));
  Value log = e.mulf(s, polynomial(e, e.mulf(s, s), series));
  log = e.fma(arith::SIToFPOp::create(e.b, e.loc, e.type, n), e.scalar(std::numbers::ln2), log);
  log = e.select(compareTo(e, arith::CmpFPredicate::OLT, x, INFINITY), log, x); // and NaN
  return e.select(compareTo(e, arith::CmpFPredicate::OEQ, x, 0.0), e.minusInfinity(), log);
}
