//===- Exp2.cpp - 2^x on vectors ----------------------------------------------===//
//
// x = n + f with integer n, 2^x = 2^n · p(f) with a minimax polynomial p (relative error; Remez
// exchange in 160 bits). There is no exponential instruction to lower to, and the library's is scalar.
//
//===----------------------------------------------------------------------===//
#include "Exp2.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace saccade::cpu;

// Constrained to p(0) = 1: a maximum that stays must not rescale what was summed. Errors 8.6e-5 (degree 3), 2.0e-9 and
// 2.5e-9 (degree 6), 3.1e-18 (degree 11). The interval is where the range reduction leaves f.
static constexpr double bf16From0To1[] = {1.0, 0.695116786445, 0.227644991135, 0.0770670420721};
static constexpr double f32From0To1[] = {1.0,
                                         0.693147044443,
                                         0.240229305552,
                                         0.0554852806202,
                                         0.00967545156522,
                                         0.00124678464508,
                                         0.000216129149696};
static constexpr double f32AroundZero[] = {1.0,
                                           0.693147206703,
                                           0.240226509223,
                                           0.0555032722667,
                                           0.00961805667852,
                                           0.00134004281776,
                                           0.000154614446986};
static constexpr double f64From0To1[] = {1.0,                     0.693147180559946235,    0.240226506959054712,
                                         0.0555041086657111632,  0.00961812909879244896,  0.00133335586615834706,
                                         0.000154035114462742881, 0.0000152531902527511925, 1.320819344985004e-6,
                                         1.02544577142324723e-7, 6.5544557738570504e-9,   6.27243695713783512e-10};
static constexpr double f64AroundZero[] = {1.0,                      0.69314718055994533,      0.240226506959101562,
                                           0.0555041086648199216,   0.00961812910758833524,   0.00133335581467899217,
                                           0.000154035304625144321, 0.0000152527334899885256, 1.32154330896763992e-6,
                                           1.01781980216719308e-7,  7.0741056135081428e-9,    4.43528270695727715e-10};

static Value polynomial(Emitter &e, Value f, ArrayRef<double> coefficients) {
  Value result = e.splat(coefficients.back());
  for (double coefficient : llvm::reverse(coefficients.drop_back()))
    result = e.fma(result, f, e.splat(coefficient));
  return result;
}

static Value call(Emitter &e, StringRef intrinsic, ValueRange args) {
  return LLVM::CallIntrinsicOp::create(e.b, e.loc, e.vectorType(), e.b.getStringAttr(intrinsic), args).getResult(0);
}

/// vreduce gives f = x − ⌊x⌋, vscalef p · 2^⌊x⌋; both treat infinities and overflow as wanted.
static Value exp2AVX512(Emitter &e, Value x, bool isF64, Exp2Error error) {
  Value zero = e.splat(0.0);
  auto integer = [&](unsigned bits, int64_t value) -> Value {
    return arith::ConstantOp::create(e.b, e.loc, e.b.getIntegerAttr(e.b.getIntegerType(bits), value));
  };
  Value allLanes = integer(e.lanes(), -1);
  Value currentRounding = integer(32, 4);
  // Immediate: no fraction bits kept, round down.
  Value roundDown = integer(32, 1);
  Value f = call(e, isF64 ? "llvm.x86.avx512.mask.reduce.pd.512" : "llvm.x86.avx512.mask.reduce.ps.512",
                 {x, roundDown, zero, allLanes, currentRounding});
  ArrayRef<double> coefficients = f32From0To1;
  if (isF64)
    coefficients = f64From0To1;
  else if (error == Exp2Error::BF16)
    coefficients = bf16From0To1;
  Value p = polynomial(e, f, coefficients);
  return call(e, isF64 ? "llvm.x86.avx512.mask.scalef.pd.512" : "llvm.x86.avx512.mask.scalef.ps.512",
              {p, x, zero, allLanes, currentRounding});
}

/// Adding 1.5 · 2^(mantissa bits) rounds to the nearest integer and leaves it in the low bits, from where it is
/// shifted into the exponent.
static Value exp2Portable(Emitter &e, Value x, bool isF64) {
  unsigned bits = isF64 ? 64 : 32, mantissa = isF64 ? 52 : 23;
  double smallest = isF64 ? -1022.0 : -126.0, largest = isF64 ? 1024.0 : 128.0;
  auto integers = VectorType::get({e.lanes()}, e.b.getIntegerType(bits));
  Value magic = e.splat(1.5 * std::ldexp(1.0, mantissa));
  // Out of range, and NaN, are put right at the end.
  // Just below the largest, n is one too many but p is below 1, so that the exponent still fits.
  Value low = e.splat(smallest);
  Value high = e.splat(isF64 ? std::nextafter(largest, 0.0) : std::nextafter(float(largest), 0.0f));
  Value clamped = e.maxf(x, low);
  Value below = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OLT, clamped, high);
  clamped = e.select(below, clamped, high);
  Value shifted = e.addf(clamped, magic);
  Value f = e.subf(clamped, e.subf(shifted, magic));
  Value p = isF64 ? polynomial(e, f, f64AroundZero) : polynomial(e, f, f32AroundZero);
  Value n = arith::BitcastOp::create(e.b, e.loc, integers, shifted);
  auto shift = DenseElementsAttr::get(integers, e.b.getIntegerAttr(integers.getElementType(), mantissa));
  n = arith::ShLIOp::create(e.b, e.loc, n, arith::ConstantOp::create(e.b, e.loc, shift));
  Value scaled = arith::AddIOp::create(e.b, e.loc, arith::BitcastOp::create(e.b, e.loc, integers, p), n);
  Value result = arith::BitcastOp::create(e.b, e.loc, e.vectorType(), scaled);
  auto where = [&](arith::CmpFPredicate predicate, Value bound, Value then) {
    Value holds = arith::CmpFOp::create(e.b, e.loc, predicate, x, bound);
    result = arith::SelectOp::create(e.b, e.loc, holds, then, result);
  };
  where(arith::CmpFPredicate::OLT, low, e.splat(0.0));
  where(arith::CmpFPredicate::OGE, e.splat(largest), e.splat(std::numeric_limits<double>::infinity()));
  where(arith::CmpFPredicate::UNO, x, x);
  return result;
}

Value saccade::cpu::emitExp2(Emitter &e, Value x, Exp2Error error) {
  bool isF64 = e.type.isF64();
  // Only levels with AVX-512 keep bf16 as it is.
  return e.target.hasAVX512 ? exp2AVX512(e, x, isF64, error) : exp2Portable(e, x, isF64);
}
