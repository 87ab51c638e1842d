// arith, math and affine ops on scalars and tensors.
#include "Harness.h"

using namespace saccade::reference;

namespace {

class ScalarOps : public Reference {
protected:
  /// Result, of type `to`, of `op` (the text after `%r = `) on operands %a, %b, %c of type `from`.
  Tensor result(llvm::StringRef op, llvm::StringRef from, llvm::StringRef to, llvm::ArrayRef<Tensor> operands,
                Precision precision = Precision::Exact) {
    std::string arguments;
    for (auto [i, operand] : llvm::enumerate(operands))
      arguments += (i ? ", %" : "%") + std::string(1, 'a' + i) + ": " + from.str();
    std::string source = "func.func @scalar(" + arguments + ") -> " + to.str() + " {\n %r = " + op.str() +
                         "\n return %r : " + to.str() + "\n}";
    auto results = run(source, operands, precision);
    return results.empty() ? Tensor(type(to), {}) : results[0];
  }
  double f64(llvm::StringRef op, const std::vector<double> &operands) {
    llvm::SmallVector<Tensor> arguments;
    for (double operand : operands)
      arguments.push_back(reals({}, {operand}, "f64"));
    return result(op, "f64", "f64", arguments).values[0].real;
  }
  int64_t integer(llvm::StringRef op, llvm::StringRef typeName, const std::vector<int64_t> &operands,
                  llvm::StringRef to = "") {
    llvm::SmallVector<Tensor> arguments;
    for (int64_t operand : operands)
      arguments.push_back(integers({}, {operand}, typeName));
    return result(op, typeName, to.empty() ? typeName : to, arguments).values[0].integer;
  }
};

TEST_F(ScalarOps, FloatArithmetic) {
  EXPECT_EQ(3.5, f64("arith.addf %a, %b : f64", {1.25, 2.25}));
  EXPECT_EQ(-1.0, f64("arith.subf %a, %b : f64", {1.25, 2.25}));
  EXPECT_EQ(2.8125, f64("arith.mulf %a, %b : f64", {1.25, 2.25}));
  EXPECT_EQ(1.0 / 3, f64("arith.divf %a, %b : f64", {1, 3}));
  EXPECT_EQ(-1.0, f64("arith.remf %a, %b : f64", {-7, 3}));
  EXPECT_EQ(-1.25, f64("arith.negf %a : f64", {1.25}));
  EXPECT_EQ(7.0, f64("math.fma %a, %b, %c : f64", {2, 3, 1}));
}

TEST_F(ScalarOps, ResultsOfWideIntegerOps) {
  auto both = [&](llvm::StringRef op, llvm::StringRef types, int64_t a, int64_t b, llvm::StringRef second = "i32") {
    std::string source = "func.func @wide(%a: i32, %b: i32) -> (i32, " + second.str() + ") {\n %x, %y = " + op.str() +
                         " %a, %b : " + types.str() + "\n return %x, %y : i32, " + second.str() + "\n}";
    auto results = run(source, {integers({}, {a}, "i32"), integers({}, {b}, "i32")});
    return std::pair(results[0].values[0].integer, results[1].values[0].integer);
  };
  EXPECT_EQ(std::pair(int64_t(1), int64_t(-2)), both("arith.mului_extended", "i32", -1, -1));
  EXPECT_EQ(std::pair(int64_t(1), int64_t(0)), both("arith.mulsi_extended", "i32", -1, -1));
  EXPECT_EQ(std::pair(int64_t(-3), int64_t(2)), both("arith.mului_extended", "i32", -1, 3));
  EXPECT_EQ(std::pair(int64_t(-3), int64_t(-1)), both("arith.mulsi_extended", "i32", -1, 3));
  EXPECT_EQ(std::pair(int64_t(0), int64_t(1)), both("arith.addui_extended", "i32, i1", -1, 1, "i1"));
  EXPECT_EQ(std::pair(int64_t(-1), int64_t(0)), both("arith.addui_extended", "i32, i1", -2, 1, "i1"));
}

TEST_F(ScalarOps, MaximumPropagatesNaNAndMaxnumIgnoresIt) {
  EXPECT_TRUE(std::isnan(f64("arith.maximumf %a, %b : f64", {1, NAN})));
  EXPECT_TRUE(std::isnan(f64("arith.minimumf %a, %b : f64", {NAN, 1})));
  EXPECT_EQ(1, f64("arith.maxnumf %a, %b : f64", {1, NAN}));
  EXPECT_EQ(1, f64("arith.minnumf %a, %b : f64", {NAN, 1}));
  EXPECT_EQ(2, f64("arith.maximumf %a, %b : f64", {1, 2}));
  EXPECT_EQ(1, f64("arith.minimumf %a, %b : f64", {1, 2}));
  EXPECT_FALSE(std::signbit(f64("arith.maximumf %a, %b : f64", {-0.0, 0.0})));
  EXPECT_TRUE(std::signbit(f64("arith.minimumf %a, %b : f64", {0.0, -0.0})));
}

TEST_F(ScalarOps, MathFunctions) {
  double x = 0.7;
  for (auto [name, expected] : std::initializer_list<std::pair<const char *, double>>{{"absf", std::fabs(x)},
                                                                                      {"acos", std::acos(x)},
                                                                                      {"asin", std::asin(x)},
                                                                                      {"asinh", std::asinh(x)},
                                                                                      {"atan", std::atan(x)},
                                                                                      {"atanh", std::atanh(x)},
                                                                                      {"cbrt", std::cbrt(x)},
                                                                                      {"ceil", 1},
                                                                                      {"cos", std::cos(x)},
                                                                                      {"cosh", std::cosh(x)},
                                                                                      {"erf", std::erf(x)},
                                                                                      {"erfc", std::erfc(x)},
                                                                                      {"exp", std::exp(x)},
                                                                                      {"exp2", std::exp2(x)},
                                                                                      {"expm1", std::expm1(x)},
                                                                                      {"floor", 0},
                                                                                      {"log", std::log(x)},
                                                                                      {"log10", std::log10(x)},
                                                                                      {"log1p", std::log1p(x)},
                                                                                      {"log2", std::log2(x)},
                                                                                      {"round", 1},
                                                                                      {"roundeven", 1},
                                                                                      {"rsqrt", 1 / std::sqrt(x)},
                                                                                      {"sin", std::sin(x)},
                                                                                      {"sinh", std::sinh(x)},
                                                                                      {"sqrt", std::sqrt(x)},
                                                                                      {"tan", std::tan(x)},
                                                                                      {"tanh", std::tanh(x)},
                                                                                      {"trunc", 0}})
    EXPECT_EQ(expected, f64("math." + std::string(name) + " %a : f64", {x})) << name;
  EXPECT_EQ(std::acosh(1.5), f64("math.acosh %a : f64", {1.5}));
  EXPECT_EQ(std::pow(0.7, 2.5), f64("math.powf %a, %b : f64", {0.7, 2.5}));
  EXPECT_EQ(std::atan2(0.7, -2.5), f64("math.atan2 %a, %b : f64", {0.7, -2.5}));
  EXPECT_EQ(-0.7, f64("math.copysign %a, %b : f64", {0.7, -2.5}));
  EXPECT_EQ(2, f64("math.clampf %a to [%b, %c] : f64", {3, 1, 2}));
  EXPECT_EQ(2, f64("math.roundeven %a : f64", {2.5}));
  EXPECT_EQ(3, f64("math.round %a : f64", {2.5}));
  // Whether a number is normal depends on its type.
  auto isNormal = [&](double number, const std::string &name) {
    return result("math.isnormal %a : " + name, name, "i1", {reals({}, {number}, name)}).values[0].integer;
  };
  EXPECT_EQ(1, isNormal(0x1p-14, "f16"));
  EXPECT_EQ(0, isNormal(0x1p-15, "f16"));
  EXPECT_EQ(1, isNormal(0x1p-15, "f32"));
  EXPECT_EQ(0, isNormal(INFINITY, "f64"));
}

TEST_F(ScalarOps, IntegersWrapAtTheirWidth) {
  EXPECT_EQ(-128, integer("arith.addi %a, %b : i8", "i8", {127, 1}));
  EXPECT_EQ(INT64_MIN, integer("arith.addi %a, %b : index", "index", {INT64_MAX, 1}));
  EXPECT_EQ(0, integer("arith.addi %a, %b : i1", "i1", {1, 1}));
  EXPECT_EQ(-6, integer("arith.muli %a, %b : i32", "i32", {-2, 3}));
  EXPECT_EQ(5, integer("arith.subi %a, %b : i32", "i32", {2, -3}));
  EXPECT_EQ(-4, integer("arith.shli %a, %b : i8", "i8", {63, 2}));
  EXPECT_EQ(63, integer("arith.shrui %a, %b : i8", "i8", {-4, 2}));
  EXPECT_EQ(-1, integer("arith.shrsi %a, %b : i8", "i8", {-4, 2}));
  EXPECT_EQ(4, integer("arith.andi %a, %b : i32", "i32", {6, 12}));
  EXPECT_EQ(14, integer("arith.ori %a, %b : i32", "i32", {6, 12}));
  EXPECT_EQ(10, integer("arith.xori %a, %b : i32", "i32", {6, 12}));
}

TEST_F(ScalarOps, DivisionRounding) {
  EXPECT_EQ(-3, integer("arith.divsi %a, %b : i32", "i32", {-7, 2}));
  EXPECT_EQ(-4, integer("arith.floordivsi %a, %b : i32", "i32", {-7, 2}));
  EXPECT_EQ(-3, integer("arith.ceildivsi %a, %b : i32", "i32", {-7, 2}));
  EXPECT_EQ(-1, integer("arith.remsi %a, %b : i32", "i32", {-7, 2}));
  EXPECT_EQ(124, integer("arith.divui %a, %b : i8", "i8", {-7, 2}));
  EXPECT_EQ(125, integer("arith.ceildivui %a, %b : i8", "i8", {-7, 2}));
  EXPECT_EQ(1, integer("arith.remui %a, %b : i8", "i8", {-7, 2}));
  EXPECT_EQ(INT64_MIN, integer("arith.divsi %a, %b : i64", "i64", {INT64_MIN, -1}));
  EXPECT_EQ(0, integer("arith.remsi %a, %b : i64", "i64", {INT64_MIN, -1}));
}

TEST_F(ScalarOps, MinimaMaximaAndBitCounts) {
  EXPECT_EQ(-1, integer("arith.minsi %a, %b : i8", "i8", {-1, 3}));
  EXPECT_EQ(3, integer("arith.minui %a, %b : i8", "i8", {-1, 3}));
  EXPECT_EQ(3, integer("arith.maxsi %a, %b : i8", "i8", {-1, 3}));
  EXPECT_EQ(-1, integer("arith.maxui %a, %b : i8", "i8", {-1, 3}));
  EXPECT_EQ(5, integer("math.absi %a : i8", "i8", {-5}));
  EXPECT_EQ(7, integer("math.ctpop %a : i8", "i8", {-2}));
  EXPECT_EQ(5, integer("math.ctlz %a : i8", "i8", {4}));
  EXPECT_EQ(2, integer("math.cttz %a : i8", "i8", {4}));
}

TEST_F(ScalarOps, SignedAndUnsignedComparisons) {
  EXPECT_EQ(1, integer("arith.cmpi slt, %a, %b : i8", "i8", {-1, 3}, "i1"));
  EXPECT_EQ(0, integer("arith.cmpi ult, %a, %b : i8", "i8", {-1, 3}, "i1"));
  EXPECT_EQ(1, integer("arith.cmpi slt, %a, %b : i1", "i1", {1, 0}, "i1")); // true is −1
  EXPECT_EQ(1, integer("arith.cmpi ne, %a, %b : index", "index", {4, 5}, "i1"));
  auto compare = [&](const std::string &predicate, double a, double b) {
    return result("arith.cmpf " + predicate + ", %a, %b : f32", "f32", "i1", {reals({}, {a}), reals({}, {b})})
        .values[0]
        .integer;
  };
  EXPECT_EQ(0, compare("oeq", NAN, NAN));
  EXPECT_EQ(1, compare("une", NAN, NAN));
  EXPECT_EQ(1, compare("ult", NAN, 0));
  EXPECT_EQ(0, compare("olt", NAN, 0));
  EXPECT_EQ(1, compare("oge", 2, 2));
  EXPECT_EQ(0, compare("one", 2, 2));
  EXPECT_EQ(0, compare("one", NAN, 2));
  EXPECT_EQ(1, compare("uno", NAN, 2));
}

TEST_F(ScalarOps, Conversions) {
  EXPECT_EQ(-1, integer("arith.extsi %a : i1 to i32", "i1", {1}, "i32"));
  EXPECT_EQ(1, integer("arith.extui %a : i1 to i32", "i1", {1}, "i32"));
  EXPECT_EQ(254, integer("arith.extui %a : i8 to i32", "i8", {-2}, "i32"));
  EXPECT_EQ(-2, integer("arith.trunci %a : i32 to i8", "i32", {254}, "i8"));
  EXPECT_EQ(-2, integer("arith.index_cast %a : i32 to index", "i32", {-2}, "index"));
  EXPECT_EQ(254, integer("arith.index_castui %a : i8 to index", "i8", {-2}, "index"));
  auto toFloat = [&](const std::string &op, const std::string &from, int64_t value) {
    return result(op + " %a : " + from + " to f32", from, "f32", {integers({}, {value}, from)}).values[0].real;
  };
  EXPECT_EQ(-2, toFloat("arith.sitofp", "i8", -2));
  EXPECT_EQ(254, toFloat("arith.uitofp", "i8", -2));
  EXPECT_EQ(-1, toFloat("arith.sitofp", "i1", 1));
  EXPECT_EQ(1, toFloat("arith.uitofp", "i1", 1));
  auto toInteger = [&](const std::string &op, double value) {
    return result(op + " %a : f32 to i32", "f32", "i32", {reals({}, {value})}).values[0].integer;
  };
  EXPECT_EQ(-2, toInteger("arith.fptosi", -2.75));
  EXPECT_EQ(3, toInteger("arith.fptoui", 3.5));
  EXPECT_EQ(0x3f800000, result("arith.bitcast %a : f32 to i32", "f32", "i32", {reals({}, {1})}).values[0].integer);
  EXPECT_EQ(-2.0,
            result("arith.bitcast %a : i16 to bf16", "i16", "bf16", {integers({}, {-16384}, "i16")}).values[0].real);
}

TEST_F(ScalarOps, OnlyRoundedPrecisionRounds) {
  Tensor third = reals({}, {1}), three = reals({}, {3});
  auto divide = "arith.divf %a, %b : f32";
  EXPECT_EQ(1.0 / 3, result(divide, "f32", "f32", {third, three}).values[0].real);
  EXPECT_EQ(double(1.0f / 3), result(divide, "f32", "f32", {third, three}, Precision::Rounded).values[0].real);
  Tensor precise = reals({}, {1.00390625}); // 1 + 2^-8, halfway between two bf16 values
  auto truncate = "arith.truncf %a : f32 to bf16";
  EXPECT_EQ(1.00390625, result(truncate, "f32", "bf16", {precise}).values[0].real);
  EXPECT_EQ(1.0, result(truncate, "f32", "bf16", {precise}, Precision::Rounded).values[0].real);
}

TEST_F(ScalarOps, RoundToAgreesWithTheFormats) {
  mlir::Type f16 = type("f16"), bf16 = type("bf16");
  EXPECT_EQ(65504, roundTo(f16, 65519));
  EXPECT_EQ(INFINITY, roundTo(f16, 65520));
  EXPECT_EQ(-INFINITY, roundTo(f16, -1e9));
  EXPECT_EQ(std::ldexp(1, -24), roundTo(f16, std::ldexp(1.1, -24)));
  EXPECT_EQ(0, roundTo(f16, std::ldexp(1, -25)));
  EXPECT_EQ(std::ldexp(1, -24), roundTo(f16, std::ldexp(1.5, -25)));
  EXPECT_EQ(2048, roundTo(f16, 2049));
  EXPECT_EQ(2052, roundTo(f16, 2051));
  EXPECT_EQ(256, roundTo(bf16, 257));
  EXPECT_TRUE(std::isnan(roundTo(bf16, NAN)));
  std::uniform_real_distribution<double> exponent(-30, 18);
  for (int i = 0; i < 20000; ++i) {
    double value = std::exp2(exponent(generator)) * (i % 2 ? 1 : -1);
    for (mlir::Type format : {f16, bf16}) {
      llvm::APFloat number(value);
      bool losesInfo;
      number.convert(llvm::cast<mlir::FloatType>(format).getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven,
                     &losesInfo);
      number.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &losesInfo);
      ASSERT_EQ(number.convertToDouble(), roundTo(format, value)) << value;
    }
  }
  EXPECT_EQ(std::ldexp(1, -10), epsilonOf(f16));
  EXPECT_EQ(std::ldexp(1, -7), epsilonOf(bf16));
  EXPECT_EQ(std::numeric_limits<float>::epsilon(), epsilonOf(type("f32")));
}

TEST_F(ScalarOps, AffineMaps) {
  auto affine = [&](const std::string &op) {
    return run("func.func @affine(%i: index, %n: index) -> index { %r = " + op + " return %r : index }",
               {index(-7), index(3)})[0]
        .values[0]
        .integer;
  };
  EXPECT_EQ(-3 * 7 + 3 + 1, affine("affine.apply affine_map<(d0)[s0] -> (d0 * 3 + s0 + 1)>(%i)[%n]"));
  EXPECT_EQ(-3, affine("affine.apply affine_map<(d0)[s0] -> (d0 floordiv s0)>(%i)[%n]"));
  EXPECT_EQ(-2, affine("affine.apply affine_map<(d0)[s0] -> (d0 ceildiv s0)>(%i)[%n]"));
  EXPECT_EQ(2, affine("affine.apply affine_map<(d0)[s0] -> (d0 mod s0)>(%i)[%n]"));
  EXPECT_EQ(-7, affine("affine.min affine_map<(d0)[s0] -> (s0, d0, 4)>(%i)[%n]"));
  EXPECT_EQ(4, affine("affine.max affine_map<(d0)[s0] -> (s0, d0, 4)>(%i)[%n]"));
}

TEST_F(ScalarOps, ElementwiseOnTensors) {
  auto results = run(R"(
    func.func @elements(%a: tensor<?xf32>, %b: tensor<?xf32>, %c: i1) -> (tensor<?xf32>, tensor<?xf32>, tensor<?xi1>) {
      %sum = arith.addf %a, %b : tensor<?xf32>
      %which = arith.select %c, %a, %sum : tensor<?xf32>
      %less = arith.cmpf olt, %a, %b : tensor<?xf32>
      return %sum, %which, %less : tensor<?xf32>, tensor<?xf32>, tensor<?xi1>
    })",
                     {reals({3}, {1, 2, 3}), reals({3}, {10, 0, 30}), integers({}, {0}, "i1")});
  EXPECT_EQ((std::vector<double>{11, 2, 33}), realsOf(results[0]));
  EXPECT_EQ((std::vector<double>{11, 2, 33}), realsOf(results[1]));
  EXPECT_EQ((std::vector<int64_t>{1, 0, 1}), integersOf(results[2]));
}

} // namespace
