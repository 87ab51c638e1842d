//===- Derivative.h - Derivatives by both modes and by differences --*- C++ -*-===//
//
// Differentiates scalar code in reverse and forward mode, evaluates the result with the scalar functions of the
// reference interpreter, and compares with finite differences in f64.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_TEST_UNIT_DERIVATIVE_H
#define SACCADE_TEST_UNIT_DERIVATIVE_H

#include "../Analysis/RandomRegion.h"
#include "mlir/IR/BuiltinOps.h"
#include "saccade/Dialect/Attn/Derivatives/ScalarDerivatives.h"
#include "gtest/gtest.h"

/// The inputs for which an op is smooth.
enum class Domain { Any, Small, Positive, Unit, AboveOne, Flag };

/// The domains of the operands of an op in the table of rules; empty for an op that the tests do not know.
llvm::ArrayRef<Domain> domainsOf(llvm::StringRef name);
/// A number of the domain.
double anyOf(Domain domain, std::mt19937_64 &random);

/// A number for each argument of a region.
using Point = llvm::SmallVector<Scalar>;

/// Scalar code `region` whose float arguments are inputs. An argument that is a tensor has one element. Inputs that are
/// not floats are constant.
class Derivative {
public:
  /// Differentiates the operands of the terminator, with the derivatives `seeds`. Failures are reported by diagnostics.
  Derivative(mlir::Region &region, llvm::ArrayRef<double> seeds);
  bool isValid() const { return valid; }

  /// For each argument, Σ seed · ∂result/∂argument; 0 for arguments that are not floats.
  std::vector<double> reverse(const Point &point);
  std::vector<double> forward(const Point &point);
  /// The same by central differences of fourth order with steps of `step`.
  std::vector<double> differences(const Point &point, double step);
  /// Σ seed · result.
  double value(const Point &point);

  /// The code of both modes, for tests of its form.
  mlir::Block &reverseCode() { return reverseRegion.front(); }
  mlir::Block &forwardCode() { return forwardRegion.front(); }

private:
  /// The results of the block, and Σ seed · result, for each point.
  std::vector<std::vector<double>> run(mlir::Block &block, llvm::ArrayRef<Point> points);
  std::vector<double> sumOfResults(mlir::Block &block, llvm::ArrayRef<Point> points);

  mlir::Region &region;
  std::vector<double> seeds;
  mlir::Region reverseRegion, forwardRegion; ///< arguments: those of the region; forward mode also their tangents
  bool valid = false;
};

class DerivativesTest : public testing::Test {
protected:
  DerivativesTest();
  /// The body of a function on values %x, %y, %c : f64, f64, i1 and %t : tensor<?xf64>, that ends with `return`.
  mlir::Region &parse(const std::string &body);
  /// Reverse mode of `body`, which returns one f64, with respect to %x, %y, %c, %t; forward mode must agree.
  std::vector<double> derivatives(const std::string &body, double x, double y = 0, bool c = false, double t = 0);
  /// The diagnostic of differentiating `body`.
  std::string errorOf(const std::string &body);

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

#endif // SACCADE_TEST_UNIT_DERIVATIVE_H
