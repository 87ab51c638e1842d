//===- LinearBias.h - Score regions that add a linear bias --------*- C++ -*-===//
//
// A bias that is linear in the key, such as ALiBi, needs no instruction for each score: the products of queries and
// keys are added to its part that depends on the column in a tile, and the part of a row is a part of the base of its
// weights.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_LINEARBIAS_H
#define SACCADE_LIB_CODEGEN_GPU_LINEARBIAS_H

#include "EvaluateRegion.h"
#include "saccade/Dialect/Attn/Analysis/RelativePositionTerms.h"

namespace saccade::device {

/// The region yields score + f(batch, head, query) + slope(batch, head) · key.
class LinearBias {
public:
  using Value = mlir::Value;

  /// Returns nothing if the score region of `op` is not known to have this form. `op` must outlive the object.
  static std::optional<LinearBias> find(attn::ScoringOpInterface op);

  /// Whether the bias is a function of key − query, batch and head.
  bool isOfDistance() const;

  /// Emits what is the same for all positions of a head, such as reads of captures; before the loop over tiles.
  /// Returns the slope, f32; null if it is 0.
  Value prepare(Emitter &e, RowPosition anyQuery);
  /// The bias of a pair, without the score, f32. Call `prepare` before.
  Value evaluate(Emitter &e, RowPosition query, Value key) const;

private:
  LinearBias(attn::ScoringOpInterface op);
  bool isLinear(Value x) const;
  bool dependsOnKey(Value x) const { return known.of(x).usesKey; }
  bool isUniform(Value x) const;
  Value emitSlope(Emitter &e, Value x, const mlir::IRMapping &values) const;
  PositionRegion region() const;

  /// A summand of the region.
  struct Term {
    Value value;
    bool isSubtracted;
  };
  attn::ScoringOpInterface op;
  attn::PositionDependences known;
  llvm::SmallVector<Term> terms;
  mlir::IRMapping uniform; ///< of the values that `prepare` has emitted
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_LINEARBIAS_H
