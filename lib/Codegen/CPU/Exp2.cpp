//===- Exp2.cpp - 2^x on vectors ----------------------------------------------===//
//
// x = n + f with integer n, 2^x = 2^n · p(f) with a minimax polynomial p (relative error; Remez exchange in 160 bits).
// CPUs have no exponential instruction, and the C library's function is scalar.
//
//===----------------------------------------------------------------------===//
#include "Exp2.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include <cmath>

using namespace mlir;
using namespace saccade::cpu;

// Constrained to p(0) = 1, so that an unchanged row maximum does not rescale the accumulator. Relative errors are at
// most 1.0e-4 (degree 3), 2.9e-6 (4), 2.5e-9 (6) and 3.1e-18 (11). The interval is the range of f after range
// reduction.
static constexpr double bf16From0To1[] = {1.0, 0.695116786445, 0.227644991135, 0.0770670420721};
static constexpr double bf16AroundZero[] = {1.0, 0.693282927097, 0.242210959275, 0.055008931124};
static constexpr double f16From0To1[] = {1.0, 0.693044844903, 0.241280204752, 0.0522424742223, 0.0134266842722};
static constexpr double f16AroundZero[] = {1.0, 0.693124193418, 0.240240986099, 0.0559064245965, 0.00958285309564};
static constexpr double f32From0To1[] = {
    1.0, 0.693147044443, 0.240229305552, 0.0554852806202, 0.00967545156522, 0.00124678464508, 0.000216129149696};
static constexpr double f32AroundZero[] = {
    1.0, 0.693147206703, 0.240226509223, 0.0555032722667, 0.00961805667852, 0.00134004281776, 0.000154614446986};
static constexpr double f64From0To1[] = {1.0,
                                         0.693147180559946235,
                                         0.240226506959054712,
                                         0.0555041086657111632,
                                         0.00961812909879244896,
                                         0.00133335586615834706,
                                         0.000154035114462742881,
                                         0.0000152531902527511925,
                                         1.320819344985004e-6,
                                         1.02544577142324723e-7,
                                         6.5544557738570504e-9,
                                         6.27243695713783512e-10};
static constexpr double f64AroundZero[] = {1.0,
                                           0.69314718055994533,
                                           0.240226506959101562,
                                           0.0555041086648199216,
                                           0.00961812910758833524,
                                           0.00133335581467899217,
                                           0.000154035304625144321,
                                           0.0000152527334899885256,
                                           1.32154330896763992e-6,
                                           1.01781980216719308e-7,
                                           7.0741056135081428e-9,
                                           4.43528270695727715e-10};

/// Selects the shortest polynomial that meets the error bound.
static ArrayRef<double> choose(bool isF64, Exp2Error error, ArrayRef<double> f64, ArrayRef<double> f32,
                               ArrayRef<double> f16, ArrayRef<double> bf16) {
  if (isF64)
    return f64;
  return error == Exp2Error::BF16 ? bf16 : error == Exp2Error::F16 ? f16 : f32;
}

static Value polynomial(Emitter &e, Value f, ArrayRef<double> coefficients) {
  Value result = e.splat(coefficients.back());
  for (double coefficient : llvm::reverse(coefficients.drop_back()))
    result = e.fma(result, f, e.splat(coefficient));
  return result;
}

static Value call(Emitter &e, StringRef intrinsic, ValueRange args) {
  return LLVM::CallIntrinsicOp::create(e.b, e.loc, e.vectorType(), e.b.getStringAttr(intrinsic), args).getResult(0);
}

/// vreduce computes f = x − ⌊x⌋, vscalef computes p · 2^⌊x⌋; both handle infinities and overflow. The mask of vscalef
/// selects 0 for lanes that would underflow; without `isCounted` these become subnormal.
static Value exp2AVX512(Emitter &e, Value x, Value isCounted, bool isF64, Exp2Error error) {
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
  Value p = polynomial(e, f, choose(isF64, error, f64From0To1, f32From0To1, f16From0To1, bf16From0To1));
  Value lanes =
      isCounted ? LLVM::BitcastOp::create(e.b, e.loc, e.b.getIntegerType(e.lanes()), isCounted).getResult() : allLanes;
  return call(e, isF64 ? "llvm.x86.avx512.mask.scalef.pd.512" : "llvm.x86.avx512.mask.scalef.ps.512",
              {p, x, zero, lanes, currentRounding});
}

/// Adding 1.5 · 2^(mantissa bits) + bias rounds to the nearest integer and leaves the exponent field of 2^n in the low
/// bits; a shift moves it into place. The smallest field is 0, which represents 0.0. NaN propagates through the
/// polynomial.
static Value exp2Portable(Emitter &e, Value x, Value isCounted, bool isF64, Exp2Error error) {
  unsigned bits = isF64 ? 64 : 32, mantissa = isF64 ? 52 : 23;
  double bias = isF64 ? 1023.0 : 127.0;
  auto integers = VectorType::get({e.lanes()}, e.b.getIntegerType(bits));
  Value clamped = e.select(isCounted, x, e.splat(-bias));
  Value magic = e.splat(1.5 * std::ldexp(1.0, mantissa) + bias);
  Value shifted = e.addf(clamped, magic);
  Value f = e.subf(clamped, e.subf(shifted, magic));
  Value p = polynomial(e, f, choose(isF64, error, f64AroundZero, f32AroundZero, f16AroundZero, bf16AroundZero));
  Value field = arith::BitcastOp::create(e.b, e.loc, integers, shifted);
  auto shift = DenseElementsAttr::get(integers, e.b.getIntegerAttr(integers.getElementType(), mantissa));
  Value power = arith::ShLIOp::create(e.b, e.loc, field, arith::ConstantOp::create(e.b, e.loc, shift));
  return e.mulf(p, arith::BitcastOp::create(e.b, e.loc, e.vectorType(), power));
}

Value saccade::cpu::emitExp2(Emitter &e, Value x, Exp2Error error, double smallest) {
  bool isF64 = e.type.isF64();
  // True for NaN.
  Value isCounted =
      arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::UGE, x, e.splat(isF64 ? -1022.0 : smallest));
  return (e.target.hasAVX512 ? exp2AVX512 : exp2Portable)(e, x, isCounted, isF64, error);
}

Value saccade::cpu::emitApproxLogistic(Emitter &e, Value x) {
  // Without AVX-512, emitExp2 does not handle overflow. NaN fails the comparison and is kept.
  if (!e.target.hasAVX512) {
    Value bound = e.splat(126.0);
    x = e.select(arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OLT, bound, x), bound, x);
  }
  Value sum = e.addf(emitExp2(e, x, Exp2Error::F16), e.splat(1.0));
  return arith::DivFOp::create(e.b, e.loc, e.splat(1.0), sum);
}

/// The bits of 1/d are about those of a constant minus those of d, with a relative error of 0.051 (the constant
/// balances its ends). A step of Newton's method squares the error, one of Halley's cubes it.
static Value reciprocal(Emitter &e, Value d, Exp2Error error) {
  auto integers = VectorType::get({e.lanes()}, e.b.getI32Type());
  Value magic =
      arith::ConstantOp::create(e.b, e.loc, DenseElementsAttr::get(integers, e.b.getI32IntegerAttr(0x7EF311C3)));
  Value bits = arith::SubIOp::create(e.b, e.loc, magic, arith::BitcastOp::create(e.b, e.loc, integers, d));
  Value r = arith::BitcastOp::create(e.b, e.loc, e.vectorType(), bits), negated = arith::NegFOp::create(e.b, e.loc, d);
  auto residual = [&] { return e.fma(negated, r, e.splat(1.0)); };
  auto newton = [&] { r = e.fma(r, residual(), r); };
  if (error != Exp2Error::BF16)
    newton();
  if (error == Exp2Error::F16) {
    newton();
    return r;
  }
  Value rest = residual();
  return e.fma(r, e.fma(rest, rest, rest), r);
}

Value saccade::cpu::emitLogistic(Emitter &e, Value x, Exp2Error error) {
  // True for NaN.
  Value limit = e.splat(100.0), isCounted = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::ULT, x, limit);
  // vscalef needs no bounds of x.
  Value power = e.target.hasAVX512 ? exp2AVX512(e, x, /*isCounted=*/Value(), /*isF64=*/false, error)
                                   : emitExp2(e, e.select(isCounted, x, limit), error);
  return e.select(isCounted, reciprocal(e, e.addf(power, e.splat(1.0)), error), e.splat(0.0));
}

Value Emitter::exp2(Value x) { return emitExp2(*this, x, Exp2Error::Unit, smallestWeight); }
