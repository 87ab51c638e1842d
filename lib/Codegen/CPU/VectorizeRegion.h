//===- VectorizeRegion.h - Vector evaluation of scalar regions ----*- C++ -*-===//
//
// A region computes the value at one position. The code generators evaluate it for one position per vector lane.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_VECTORIZEREGION_H
#define SACCADE_LIB_CODEGEN_CPU_VECTORIZEREGION_H

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Builders.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include <functional>

namespace saccade::cpu {

/// Evaluates the scalar ops of a region (score and mask of attention, bodies of structured ops) for `lanes` positions.
///
/// Values are represented as uniform (a scalar), affine in the lane (base + lane * step with a scalar base), or a
/// vector. Index arithmetic thus stays scalar, a comparison of a position with a bound is one vector comparison in i32,
/// and reading a captured tensor along the lanes is one load.
///
/// A position divided by a constant, such as k div 4, is equal in groups of lanes. It and what is computed from it are
/// vectors with one element per group, if the position of lane 0 is a multiple of the divisor, which is tested at run
/// time. Random numbers that come in blocks are thus generated once per block.
///
/// Usage: bind the block arguments, `run` the block, then get the operands of its terminator. Values that are defined
/// outside of the block and not bound are uniform. Emitted values are valid from the builder's insertion point on, so
/// an object may be used in straight-line code only.
class RegionVectorizer {
public:
  RegionVectorizer(mlir::OpBuilder &b, mlir::Location loc, unsigned lanes) : b(b), loc(loc), lanes(lanes) {}

  /// `from` is `scalar` in every lane.
  void bindUniform(mlir::Value from, mlir::Value scalar) { values[from] = {scalar, 0}; }
  /// `from` is an element of `vector` (vector<lanes x T>).
  void bindVector(mlir::Value from, mlir::Value vector) { values[from] = {vector, isVector}; }
  /// `from` is base + lane; `base` is an index, a multiple of `multiple`.
  void bindContiguous(mlir::Value from, mlir::Value base, int64_t multiple = 1) {
    values[from] = {base, 1};
    if (multiple > 1)
      multiples[base] = multiple;
  }
  /// Reads of `matrix`, a row and an element, are in bounds, and read row `place` of `memref`.
  void bindRow(mlir::Value matrix, mlir::Value memref, mlir::Value place) { rows[matrix] = {memref, place}; }
  /// `from` is vector · factor with a scalar factor. Arithmetic on `from` may be reassociated: uniform factors are
  /// folded into `factor`, divisions by uniform values become multiplications by the reciprocal, and additions are
  /// fused if `hasFMA`. Other values are rounded as written in the region.
  void bindProduct(mlir::Value from, mlir::Value vector, mlir::Value factor, bool hasFMA) {
    values[from] = {vector, isVector, factor};
    this->hasFMA = hasFMA;
  }
  /// Sets the emitter of 1 / (1 + 2^x), which then computes tanh of values based on bindProduct.
  void setLogistic(std::function<mlir::Value(mlir::Value)> emit) { logistic = std::move(emit); }
  /// Sets another emitter of 1 / (1 + 2^x), which then computes 1 / (1 + e^-x) of any values.
  void setSigmoid(std::function<mlir::Value(mlir::Value)> emit) { sigmoid = std::move(emit); }
  /// The x of an `op` that is 1 / (1 + e^-x); null for other ops.
  static mlir::Value matchSigmoid(mlir::Operation &op);
  /// tensor.extract and tensor.dim of `tensor` read `memref`, whatever its strides.
  void bindBuffer(mlir::Value tensor, mlir::Value memref) { buffers[tensor] = memref; }
  /// attn.length of `role` is `length`.
  void bindLength(attn::Role role, mlir::Value length) { lengths[unsigned(role)] = length; }
  /// Sets the lanes (vector<lanes x i1>, null for all) in which captures may be read. An out-of-bounds read returns
  /// some element or 0, but never accesses other memory.
  void setActive(mlir::Value mask) { active = mask; }

  /// Whether `run` can vectorize every op of `block`. Other ops, such as control flow, are supported on uniform
  /// operands only.
  static bool hasVectorForm(mlir::Block &block);

  /// The largest divisor of a division in `block` whose quotients `run` computes once per group of lanes, for lanes
  /// that are consecutive positions; 1 if there is none. `isPosition`: whether a value is the position.
  static int64_t largestGroup(mlir::Block &block, llvm::function_ref<bool(mlir::Value)> isPosition);

  /// Evaluates all ops of `block` except the terminator and ops whose results are bound. Emits a diagnostic and fails
  /// on an op that cannot be vectorized.
  llvm::LogicalResult run(mlir::Block &block);

  /// The value as vector<lanes x T>.
  mlir::Value getVector(mlir::Value from);
  /// Whether the value is uniform; getUniform returns it as a scalar.
  bool isUniform(mlir::Value from) { return lookup(from).step == 0; }
  mlir::Value getUniform(mlir::Value from) { return lookup(from).value; }

private:
  /// base + lane * step with a scalar base, or a vector.
  struct Lanes {
    mlir::Value value;
    int64_t step = 0;
    mlir::Value factor = nullptr; ///< scalar; the result is value · factor + offset. Null for 1, see bindProduct.
    mlir::Value offset = nullptr; ///< scalar, null for 0
    unsigned group = 1;           ///< number of consecutive lanes that an element of the vector is for
  };
  static constexpr int64_t isVector = std::numeric_limits<int64_t>::min();

  Lanes lookup(mlir::Value from);
  llvm::LogicalResult evaluate(mlir::Operation &op);
  /// Evaluates the ops from `from` on in two versions: `base` is a multiple of `divisor`, or any number.
  llvm::LogicalResult runVersions(mlir::Block &block, mlir::Block::iterator from, mlir::Value base, int64_t divisor);
  llvm::LogicalResult runFrom(mlir::Block &block, mlir::Block::iterator from);
  bool evaluateInGroups(mlir::Operation &op);
  bool evaluateUniform(mlir::Operation &op);
  bool evaluateAffine(mlir::Operation &op);
  bool evaluateProduct(mlir::Operation &op);
  bool evaluateTanh(mlir::Operation &op);
  bool evaluateSigmoid(mlir::Operation &op);
  bool evaluatePosition(mlir::Operation &op);
  bool evaluateComparison(mlir::Operation &op);
  bool evaluateRead(mlir::Operation &op);
  bool evaluateRowRead(mlir::Operation &op);
  void evaluateElementwise(mlir::Operation &op);
  /// value · factor + addend (null for 0).
  mlir::Value multiplyAdd(const Lanes &product, mlir::Value factor, mlir::Value addend);
  /// A broadcast scalar, cached. `size`: number of elements, 0 for one per lane.
  mlir::Value splat(mlir::Value scalar, unsigned size = 0);
  /// The value with one element for each group of `group` lanes. It is uniform, or has this group.
  mlir::Value getGroups(mlir::Value from, unsigned group);
  /// A scalar or vector index, clamped to [0, extent).
  mlir::Value clampIndex(mlir::Value index, mlir::Value extent);
  /// mask &= condition, a scalar or a vector; a null mask is all lanes.
  void restrict(mlir::Value &mask, mlir::Value condition);
  /// mask &= the lanes with 0 ≤ base + lane * step < extent.
  void restrictToExtent(mlir::Value &mask, mlir::Value base, int64_t step, mlir::Value extent);
  /// Loads one element; 0 if `isInBounds` (may be null) is false.
  mlir::Value readScalar(mlir::Value memref, mlir::ValueRange indices, mlir::Value isInBounds);

  mlir::OpBuilder &b;
  mlir::Location loc;
  unsigned lanes;
  llvm::DenseMap<mlir::Value, Lanes> values;
  llvm::DenseMap<mlir::Value, mlir::Value> vectors;                     ///< cached vectors of non-vector values
  llvm::DenseMap<std::pair<mlir::Value, unsigned>, mlir::Value> splats; ///< by scalar and number of elements
  /// The positions of lane 0 that are multiples of the number.
  llvm::SmallDenseMap<mlir::Value, int64_t> multiples;
  /// The quotient of lane 0 of quotients that are successive numbers in groups of lanes.
  llvm::SmallDenseMap<mlir::Value, mlir::Value> quotients;
  bool mayTestGroups = true; ///< false in a version, since one test is enough
  llvm::DenseMap<mlir::Value, mlir::Value> buffers;
  llvm::SmallDenseMap<mlir::Value, std::pair<mlir::Value, mlir::Value>> rows; ///< see bindRow
  mlir::Value lengths[2];
  mlir::Value active;
  bool hasFMA = false;
  std::function<mlir::Value(mlir::Value)> logistic, sigmoid;
};

/// For a read of element (row, column / 2^n) by a structured op with the loops row and column: n, if the column is
/// known to be in bounds. The row is, as shape functions check that what is read by a loop covers it.
std::optional<int64_t> matchRowRead(mlir::memref::LoadOp load);

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_VECTORIZEREGION_H
