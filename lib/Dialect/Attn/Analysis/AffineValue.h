//===- AffineValue.h - Integers of a mask as affine forms ---------*- C++ -*-===//
//
// The abstract values of MaskBox: forms, the atoms they are made of, and how they are added, scaled and bounded.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_DIALECT_ATTN_ANALYSIS_AFFINEVALUE_H
#define SACCADE_LIB_DIALECT_ATTN_ANALYSIS_AFFINEVALUE_H

#include "saccade/Dialect/Attn/Analysis/StagedInt.h"
#include "llvm/ADT/SmallVector.h"

namespace saccade::attn {

/// constant + Σ coefficient · atom.
struct AffineForm {
  StagedInt constant;
  llvm::SmallVector<std::pair<unsigned, int64_t>, 4> terms; ///< by atom, ascending; no coefficient is 0

  bool operator==(const AffineForm &other) const { return constant == other.constant && terms == other.terms; }
  bool isPoint() const { return terms.empty(); }
};

/// An integer of a region: equal to `form` where `isValid`, else anything that its type can hold.
struct AffineValue {
  AffineForm form;
  StagedInt isValid = 1;

  static AffineValue unknown() { return {{}, 0}; }
};

/// A number that forms are made of; two uses of one atom have the same value for the same pair of positions.
struct Atom {
  Interval bounds;
  StagedInt isSmall;      ///< whether both bounds fit into `atomBits`, so that sums of products stay in 64 bits
  int64_t modulus = 1; ///< the atom is `residue` modulo this
  StagedInt residue = 0;
  /// Of quotients: ⌊dividend / divisor⌋.
  AffineForm dividend;
  std::optional<StagedInt> divisor;
};

/// The atoms of one box, and arithmetic on forms over them.
class AffineSpace {
public:
  explicit AffineSpace(StagedIntBuilder &b) : b(b) {}

  /// A new atom with these bounds; a number where they meet.
  AffineForm atom(Interval bounds, int64_t modulus = 1, StagedInt residue = 0);
  /// ⌊form / divisor⌋ and form − ⌊form / divisor⌋ · divisor for a divisor that is positive, as far as they are known:
  /// the same for equal operands.
  AffineForm quotient(const AffineForm &form, StagedInt divisor);
  AffineForm remainder(const AffineForm &form, StagedInt divisor);

  /// Whether forms may be multiplied by it.
  static bool isFactor(int64_t number);
  /// left · x + right · y.
  AffineValue combine(const AffineValue &x, int64_t left, const AffineValue &y, int64_t right);
  /// What the form lies in, where it is valid.
  Interval bounds(const AffineForm &form);
  /// Whether both have an atom in common.
  static bool areRelated(const AffineForm &x, const AffineForm &y);
  /// Every value of the form is form.residue modulo this, 0 for a point.
  std::pair<int64_t, StagedInt> congruence(const AffineForm &form);

  /// −2^bits ≤ number ≤ 2^bits.
  StagedInt isWithin(StagedInt number, unsigned bits);

private:
  bool cancelQuotient(AffineForm &form, StagedInt &isValid);

  StagedIntBuilder &b;
  llvm::SmallVector<Atom, 8> atoms;
  struct Division {
    AffineForm dividend;
    StagedInt divisor;
    AffineForm result;
  };
  llvm::SmallVector<Division, 4> quotients, remainders;
};

} // namespace saccade::attn

#endif // SACCADE_LIB_DIALECT_ATTN_ANALYSIS_AFFINEVALUE_H
