//===- VectorizeRegion.h - Scalar regions, several positions at once -*- C++ -*-===//
//
// A region says what happens at one position. Code generators want it for as many consecutive
// positions as a register has lanes.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_VECTORIZEREGION_H
#define SACCADE_LIB_CODEGEN_CPU_VECTORIZEREGION_H

#include "mlir/IR/Builders.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include <functional>

namespace saccade::cpu {

/// Evaluates the scalar ops of a region (score and mask of attention, bodies of structured ops) for `lanes` positions.
///
/// Values are kept as narrow as possible: the same in every lane (a scalar), base + lane * step (a scalar too), or a
/// vector. So index arithmetic stays scalar, a comparison of a position with a bound is one vector comparison in i32,
/// and reading a captured tensor along the lanes is one load.
///
/// Bind the arguments of the block, then `run` it, then ask for what its terminator yields. Values that are defined
/// outside the block and not bound count as the same in every lane. What is made is valid from the builder's
/// insertion point on, so one object serves one straight piece of code; captures bound to it may be asked repeatedly.
class RegionVectorizer {
public:
  RegionVectorizer(mlir::OpBuilder &b, mlir::Location loc, unsigned lanes) : b(b), loc(loc), lanes(lanes) {}

  /// `from` is `scalar` in every lane.
  void bindUniform(mlir::Value from, mlir::Value scalar) { values[from] = {scalar, 0}; }
  /// `from` is an element of `vector` (vector<lanes x T>).
  void bindVector(mlir::Value from, mlir::Value vector) { values[from] = {vector, isVector}; }
  /// `from` is base + lane; `base` is an index.
  void bindContiguous(mlir::Value from, mlir::Value base) { values[from] = {base, 1}; }
  /// `from` is vector · factor with a scalar factor, and may be rounded later than where the region says: factors that
  /// are the same in every lane are collected, quotients by such are products with the reciprocal, and what is added is
  /// added by a fused instruction where there is one (`hasFMA`). This holds for what is made of `from`, and nothing else.
  void bindProduct(mlir::Value from, mlir::Value vector, mlir::Value factor, bool hasFMA) {
    values[from] = {vector, isVector, factor};
    this->hasFMA = hasFMA;
  }
  /// How tanh of such a product is computed: given 2x / ln 2, 1 / (1 + 2^x). Without it as everywhere.
  void setLogistic(std::function<mlir::Value(mlir::Value)> emit) { logistic = std::move(emit); }
  /// tensor.extract and tensor.dim of `tensor` read `memref`, whatever its strides.
  void bindBuffer(mlir::Value tensor, mlir::Value memref) { buffers[tensor] = memref; }
  /// What attn.length answers.
  void bindLength(attn::Role role, mlir::Value length) { lengths[unsigned(role)] = length; }
  /// The lanes (vector<lanes x i1>, null for all) in which captures may be read. A read outside its tensor gives some
  /// element or 0, but never touches other memory.
  void setActive(mlir::Value mask) { active = mask; }

  /// Whether `run` knows every op of `block`. What it does not know, e.g. control flow, it can still evaluate where
  /// everything that is read is the same in all lanes.
  static bool hasVectorForm(mlir::Block &block);

  /// Evaluates all ops of `block` but the terminator, except those whose results are bound already. Fails with a
  /// diagnostic on an op that has no vector form.
  llvm::LogicalResult run(mlir::Block &block);

  /// The value as vector<lanes x T>.
  mlir::Value getVector(mlir::Value from);
  /// Whether the value is the same in every lane, and then that value.
  bool isUniform(mlir::Value from) { return lookup(from).step == 0; }
  mlir::Value getUniform(mlir::Value from) { return lookup(from).value; }

private:
  /// base + lane * step with a scalar base, or a vector.
  struct Lanes {
    mlir::Value value;
    int64_t step = 0;
    mlir::Value factor = nullptr; ///< scalar; the number is value · factor + offset. Null for 1, see bindProduct.
    mlir::Value offset = nullptr; ///< scalar, null for 0
  };
  static constexpr int64_t isVector = std::numeric_limits<int64_t>::min();

  Lanes lookup(mlir::Value from);
  llvm::LogicalResult evaluate(mlir::Operation &op);
  bool evaluateUniform(mlir::Operation &op);
  bool evaluateAffine(mlir::Operation &op);
  bool evaluateProduct(mlir::Operation &op);
  bool evaluateTanh(mlir::Operation &op);
  bool evaluatePosition(mlir::Operation &op);
  bool evaluateComparison(mlir::Operation &op);
  bool evaluateRead(mlir::Operation &op);
  void evaluateElementwise(mlir::Operation &op);
  /// value · factor + addend (null for 0).
  mlir::Value multiplyAdd(const Lanes &product, mlir::Value factor, mlir::Value addend);
  /// A scalar in every lane, made once.
  mlir::Value splat(mlir::Value scalar);
  /// A scalar or vector index, moved into [0, extent).
  mlir::Value clampIndex(mlir::Value index, mlir::Value extent);
  /// mask &= condition, which is a scalar or a vector; no mask is all lanes.
  void restrict(mlir::Value &mask, mlir::Value condition);
  /// mask &= the lanes with 0 ≤ base + lane * step < extent.
  void restrictToExtent(mlir::Value &mask, mlir::Value base, int64_t step, mlir::Value extent);
  /// One element; 0 where `isInBounds` (may be null) does not hold.
  mlir::Value readScalar(mlir::Value memref, mlir::ValueRange indices, mlir::Value isInBounds);

  mlir::OpBuilder &b;
  mlir::Location loc;
  unsigned lanes;
  llvm::DenseMap<mlir::Value, Lanes> values;
  llvm::DenseMap<mlir::Value, mlir::Value> vectors; ///< vector forms of scalars that were asked for
  llvm::DenseMap<mlir::Value, mlir::Value> buffers;
  mlir::Value lengths[2];
  mlir::Value active;
  bool hasFMA = false;
  std::function<mlir::Value(mlir::Value)> logistic;
};

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_VECTORIZEREGION_H
