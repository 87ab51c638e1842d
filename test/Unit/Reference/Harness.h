//===- Harness.h - Runs programs from text --------------------------*- C++ -*-===//
#ifndef SACCADE_TEST_UNIT_REFERENCE_HARNESS_H
#define SACCADE_TEST_UNIT_REFERENCE_HARNESS_H

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Reference/Interpreter.h"
#include "gtest/gtest.h"
#include <cmath>
#include <random>

namespace saccade::reference {

class Reference : public testing::Test {
protected:
  Reference() {
    context.loadDialect<attn::AttnDialect, mlir::affine::AffineDialect, mlir::arith::ArithDialect,
                        mlir::func::FuncDialect, mlir::linalg::LinalgDialect, mlir::math::MathDialect,
                        mlir::memref::MemRefDialect, mlir::scf::SCFDialect, mlir::tensor::TensorDialect>();
  }

  mlir::Type type(llvm::StringRef name) { return mlir::parseType(name, &context); }

  Tensor reals(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<double> values, llvm::StringRef name = "f32") {
    return Tensor::ofReals(type(name), shape, values);
  }
  Tensor integers(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> values, llvm::StringRef name = "index") {
    return Tensor::ofIntegers(type(name), shape, values);
  }
  Tensor index(int64_t value) { return integers({}, {value}); }

  /// Normally distributed elements, rounded to the element type.
  Tensor random(llvm::ArrayRef<int64_t> shape, llvm::StringRef name = "f32", double deviation = 1) {
    Tensor tensor(type(name), shape);
    std::normal_distribution<double> normal(0, deviation);
    for (Scalar &value : tensor.values)
      value.real = roundTo(tensor.elementType, normal(generator));
    return tensor;
  }

  /// Parses a module and returns its last function.
  mlir::func::FuncOp parse(llvm::StringRef source) {
    module = mlir::parseSourceString<mlir::ModuleOp>(source, &context);
    if (!module)
      return {};
    mlir::func::FuncOp last;
    for (auto function : module->getOps<mlir::func::FuncOp>())
      last = function;
    return last;
  }

  llvm::SmallVector<Tensor> run(mlir::func::FuncOp function, llvm::ArrayRef<Tensor> arguments,
                                Precision precision = Precision::Exact) {
    auto results = interpret(function, arguments, precision);
    EXPECT_TRUE(mlir::succeeded(results));
    return mlir::succeeded(results) ? *results : llvm::SmallVector<Tensor>(function.getNumResults());
  }
  llvm::SmallVector<Tensor> run(llvm::StringRef source, llvm::ArrayRef<Tensor> arguments,
                                Precision precision = Precision::Exact) {
    mlir::func::FuncOp function = parse(source);
    EXPECT_TRUE(function);
    return function ? run(function, arguments, precision) : llvm::SmallVector<Tensor>();
  }

  /// The diagnostics of a program that fails; empty if it succeeds.
  std::string errorOf(llvm::StringRef source, llvm::ArrayRef<Tensor> arguments) {
    std::string message;
    mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &diagnostic) {
      message += diagnostic.str();
      return mlir::success();
    });
    mlir::func::FuncOp function = parse(source);
    if (!function)
      return "does not parse: " + message;
    bool failed = mlir::failed(interpret(function, arguments));
    EXPECT_EQ(failed, !message.empty());
    return message;
  }

  static std::vector<double> realsOf(const Tensor &tensor) {
    std::vector<double> values;
    for (Scalar value : tensor.values)
      values.push_back(value.real);
    return values;
  }
  static std::vector<int64_t> integersOf(const Tensor &tensor) {
    std::vector<int64_t> values;
    for (Scalar value : tensor.values)
      values.push_back(value.integer);
    return values;
  }

  static void expectNear(const Tensor &actual, llvm::ArrayRef<double> expected, double tolerance = 1e-14) {
    ASSERT_EQ(size_t(actual.size()), expected.size());
    for (int64_t i = 0; i < actual.size(); ++i)
      if (!(std::isnan(expected[i]) && std::isnan(actual.values[i].real)) && expected[i] != actual.values[i].real)
        EXPECT_NEAR(actual.values[i].real, expected[i], tolerance * std::max(1.0, std::abs(expected[i])))
            << "at element " << i;
  }

  std::mt19937 generator{7};
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

} // namespace saccade::reference

#endif // SACCADE_TEST_UNIT_REFERENCE_HARNESS_H
