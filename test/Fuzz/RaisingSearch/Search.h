//===- Search.h - Random near misses of graphs with attention --------*- C++ -*-===//
#ifndef SACCADE_TEST_FUZZ_RAISINGSEARCH_SEARCH_H
#define SACCADE_TEST_FUZZ_RAISINGSEARCH_SEARCH_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "saccade/Reference/Interpreter.h"
#include "test/Support/Random.h"
#include <string>

namespace saccade::search {

/// Changes one thing in `function` that probably changes its meaning, and returns a description. Returns an empty text
/// if it drew a change that is not possible; the function may then be invalid.
std::string mutate(mlir::func::FuncOp function, Random &random);

/// Rewrites `function` without changing its meaning: commutes operands, reorders ops, writes named ops as generic ones.
void commute(mlir::func::FuncOp function, Random &random);

/// Values for the arguments of `function`. The attributes test.shape and test.values of an argument give its extents
/// and the kind of its values. Set 0 is harmless; the others have empty rows, infinities and a large spread.
llvm::SmallVector<reference::Tensor> drawArguments(mlir::func::FuncOp function, unsigned set, uint64_t seed);
constexpr unsigned numSets = 3;

/// What the comparison of a raised graph with the plain one found.
struct Outcome {
  std::string difference; ///< empty if none
  int64_t compared = 0;   ///< elements at which the plain graph has a value that attention must have, too
};
/// Evaluates both in f64. Elements at which the plain graph is NaN are skipped, and so are those that depend on how
/// large the numbers are that hide keys; the results of a query whose keys are all hidden may be 0.
Outcome compare(mlir::func::FuncOp plain, mlir::func::FuncOp raised, uint64_t seed);

} // namespace saccade::search

#endif // SACCADE_TEST_FUZZ_RAISINGSEARCH_SEARCH_H
