//===- RegionOps.h - The ops that regions permit ------------------*- C++ -*-===//
//
// A table of all scalar ops that the verifier permits in regions, found by asking the verifier, so that a new op is
// drawn by the random tests without a change to them.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_TEST_UNIT_REGIONOPS_H
#define SACCADE_TEST_UNIT_REGIONOPS_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/OperationSupport.h"
#include <map>
#include <string>
#include <vector>

/// The types of operands and results with which an op verifies.
struct Signature {
  mlir::RegisteredOperationName name;
  llvm::SmallVector<mlir::Type, 3> operands;
  llvm::SmallVector<mlir::Type> results;
  bool hasPredicate; ///< the op compares
};

class RegionOps {
public:
  /// `context` has loaded the dialects that programs may use.
  explicit RegionOps(mlir::MLIRContext &context);

  /// The signatures of each op that regions permit, by name. Constants and ops on tensors are not included.
  const std::map<std::string, std::vector<Signature>> &all() const { return signatures; }
  /// The names of all signatures, and the types that they use.
  llvm::ArrayRef<std::string> names() const { return opNames; }
  llvm::ArrayRef<mlir::Type> types() const { return scalarTypes; }

  static mlir::Operation *create(mlir::OpBuilder &b, mlir::Location loc, const Signature &signature,
                                 mlir::ValueRange operands, int64_t predicate);

private:
  std::map<std::string, std::vector<Signature>> signatures;
  std::vector<std::string> opNames;
  llvm::SmallVector<mlir::Type> scalarTypes;
};

#endif // SACCADE_TEST_UNIT_REGIONOPS_H
