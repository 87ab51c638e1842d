//===- AffineValue.h - Integers of a mask as affine forms ---------*- C++ -*-===//
//
// The abstract values of MaskBox: affine forms over atoms, with addition, scaling and bounds.
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

/// An integer of a region: equal to `form` if `isValid`, else any value of its type.
struct AffineValue {
  AffineForm form;
  StagedInt isValid = 1;

  static AffineValue unknown() { return {{}, 0}; }
};

/// A variable of the forms. All uses of an atom have the same value for the same pair of positions.
struct Atom {
  Interval bounds;
  StagedInt isSmall;   ///< whether both bounds fit `atomBits`, so that sums of products fit 64 bits
  int64_t modulus = 1; ///< the atom is `residue` modulo this
  StagedInt residue = 0;
  /// Set for quotients ⌊dividend / divisor⌋.
  AffineForm dividend;
  std::optional<StagedInt> divisor;
};

/// The atoms of one box, and arithmetic on forms over them.
class AffineSpace {
public:
  explicit AffineSpace(StagedIntBuilder &b) : b(b) {}

  /// A new atom with these bounds, or a constant if they are equal.
  AffineForm atom(Interval bounds, int64_t modulus = 1, StagedInt residue = 0);
  /// ⌊form / divisor⌋ and form − ⌊form / divisor⌋ · divisor for a positive divisor. Equal operands have equal results.
  AffineForm quotient(const AffineForm &form, StagedInt divisor);
  AffineForm remainder(const AffineForm &form, StagedInt divisor);

  /// Whether `number` is small enough to be a factor of forms.
  static bool isFactor(int64_t number);
  /// a · x + c · y.
  AffineValue combine(const AffineValue &x, int64_t a, const AffineValue &y, int64_t c);
  /// The range of a valid form.
  Interval bounds(const AffineForm &form);
  /// Whether the forms share an atom.
  static bool areRelated(const AffineForm &x, const AffineForm &y);
  /// (modulus, residue): every value of the form is congruent to `residue`. The modulus of a point is 0.
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
