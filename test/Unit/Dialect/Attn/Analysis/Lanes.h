//===- Lanes.h - Integer ops on many numbers at once --------------*- C++ -*-===//
//
// Interprets scalar ops with wrapping arithmetic, for all pairs of a grid or for many boxes at a time.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_TEST_UNIT_LANES_H
#define SACCADE_TEST_UNIT_LANES_H

#include "saccade/Dialect/Attn/IR/Attn.h"
#include "llvm/ADT/DenseMap.h"
#include <vector>

/// A number per lane, sign-extended from its width; i1 is 0 or 1.
using Lanes = std::vector<int64_t>;

/// A captured tensor of integers.
struct Table {
  std::vector<int64_t> shape;
  std::vector<int64_t> elements;
};

class LaneEvaluator {
public:
  explicit LaneEvaluator(size_t count) : count(count) {}

  void bind(mlir::Value value, Lanes lanes) { values[value] = std::move(lanes); }
  void bindTable(mlir::Value value, const Table &table) { tables[value] = &table; }
  int64_t queryLength = 0, keyLength = 0;

  const Lanes &operator()(mlir::Value value);

private:
  Lanes evaluate(mlir::Operation *op);

  size_t count;
  llvm::DenseMap<mlir::Value, Lanes> values;
  llvm::DenseMap<mlir::Value, const Table *> tables;
};

#endif // SACCADE_TEST_UNIT_LANES_H
