//===- FloatFacts.cpp - What raising knows of functions of floats -------------===//
//
// A row for each op, also where nothing is known of it.
//
//===----------------------------------------------------------------------===//
#include "FloatFacts.h"
#include "llvm/ADT/STLExtras.h"

using namespace saccade::raise;

static constexpr FloatFacts rows[] = {
    {.name = "arith.addf", .keepsZero = true},
    {.name = "arith.subf", .keepsZero = true},
    {.name = "arith.mulf", .keepsZero = true},
    {.name = "arith.divf", .hasPole = true},
    {.name = "arith.remf"},
    {.name = "arith.negf", .keepsZero = true},
    {.name = "arith.maximumf", .keepsZero = true},
    {.name = "arith.minimumf", .keepsZero = true},
    {.name = "arith.maxnumf", .keepsZero = true, .dropsNaN = true},
    {.name = "arith.minnumf", .keepsZero = true, .dropsNaN = true},
    {.name = "arith.select"},
    {.name = "arith.extf", .keepsZero = true},
    {.name = "arith.truncf", .keepsZero = true},
    {.name = "arith.bitcast", .dropsNaN = true},
    {.name = "math.absf", .keepsZero = true, .isFinite = true},
    {.name = "math.copysign", .keepsZero = true, .isFinite = true, .dropsNaN = true},
    {.name = "math.clampf", .dropsNaN = true},
    {.name = "math.fma", .keepsZero = true},
    {.name = "math.ceil", .keepsZero = true, .isFinite = true},
    {.name = "math.floor", .keepsZero = true, .isFinite = true},
    {.name = "math.round", .keepsZero = true, .isFinite = true},
    {.name = "math.roundeven", .keepsZero = true, .isFinite = true},
    {.name = "math.trunc", .keepsZero = true, .isFinite = true},
    {.name = "math.exp", .isFinite = true},
    {.name = "math.exp2", .isFinite = true},
    {.name = "math.expm1", .keepsZero = true, .isFinite = true},
    {.name = "math.log", .hasPole = true},
    {.name = "math.log2", .hasPole = true},
    {.name = "math.log10", .hasPole = true},
    {.name = "math.log1p", .keepsZero = true, .hasPole = true},
    {.name = "math.sqrt", .keepsZero = true},
    {.name = "math.rsqrt", .hasPole = true},
    {.name = "math.cbrt", .keepsZero = true, .isFinite = true},
    {.name = "math.powf", .hasPole = true, .dropsNaN = true},
    {.name = "math.fpowi", .hasPole = true, .dropsNaN = true},
    {.name = "math.sin", .keepsZero = true, .isFinite = true},
    {.name = "math.cos", .isFinite = true},
    {.name = "math.sincos", .isFinite = true},
    {.name = "math.tan", .keepsZero = true},
    {.name = "math.asin", .keepsZero = true},
    {.name = "math.acos"},
    {.name = "math.atan", .keepsZero = true, .isFinite = true},
    {.name = "math.atan2", .isFinite = true},
    {.name = "math.sinh", .keepsZero = true, .isFinite = true},
    {.name = "math.cosh", .isFinite = true},
    {.name = "math.tanh", .keepsZero = true, .isFinite = true, .isBounded = true},
    {.name = "math.asinh", .keepsZero = true, .isFinite = true},
    {.name = "math.acosh"},
    {.name = "math.atanh", .keepsZero = true, .hasPole = true},
    {.name = "math.erf", .keepsZero = true, .isFinite = true, .isBounded = true},
    {.name = "math.erfc", .isFinite = true},
};

const FloatFacts &saccade::raise::floatFacts(llvm::StringRef name) {
  static constexpr FloatFacts nothing = {};
  const FloatFacts *found = llvm::find_if(rows, [&](const FloatFacts &row) { return row.name == name; });
  return found == std::end(rows) ? nothing : *found;
}

bool saccade::raise::hasFloatFacts(llvm::StringRef name) { return !floatFacts(name).name.empty(); }
