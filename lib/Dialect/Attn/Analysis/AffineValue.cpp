//===- AffineValue.cpp - Integers of a mask as affine forms -------------------===//
//
// Arithmetic on affine forms. All sums fit 64 bits: a form has at most six terms of 2^20 · 2^40 and a constant of 2^60,
// or it is not valid.
//
//===----------------------------------------------------------------------===//
#include "AffineValue.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <numeric>

using namespace saccade::attn;

static constexpr unsigned atomBits = 40, coefficientBits = 20, constantBits = 60, maxTerms = 6;

bool AffineSpace::isFactor(int64_t number) {
  constexpr int64_t limit = int64_t(1) << coefficientBits;
  return -limit <= number && number <= limit;
}

StagedInt AffineSpace::isWithin(StagedInt number, unsigned bits) {
  if (number.getBits() <= bits)
    return 1;
  int64_t limit = int64_t(1) << bits;
  return b.both(b.isAtMost(number, limit), b.isAtMost(-limit, number));
}

AffineForm AffineSpace::atom(Interval bounds, int64_t modulus, StagedInt residue) {
  if (bounds.isPoint())
    return {bounds.low, {}};
  Atom fresh{bounds, b.both(isWithin(bounds.low, atomBits), isWithin(bounds.high, atomBits)), modulus, residue, {}, {}};
  atoms.push_back(fresh);
  return {0, {{unsigned(atoms.size() - 1), 1}}};
}

Interval AffineSpace::bounds(const AffineForm &form) {
  Interval sum = form.constant;
  for (auto [index, coefficient] : form.terms) {
    const Interval &atom = atoms[index].bounds;
    sum.low = b.add(sum.low, b.mul(coefficient > 0 ? atom.low : atom.high, coefficient));
    sum.high = b.add(sum.high, b.mul(coefficient > 0 ? atom.high : atom.low, coefficient));
  }
  return sum;
}

bool AffineSpace::areRelated(const AffineForm &x, const AffineForm &y) {
  return llvm::any_of(x.terms, [&](auto &term) {
    return llvm::any_of(y.terms, [&](auto &other) { return term.first == other.first; });
  });
}

/// sum += factor · form, for the terms only; false if a coefficient becomes too large or there are too many terms.
static bool addTerms(AffineForm &sum, const AffineForm &form, int64_t factor) {
  for (auto [atom, coefficient] : form.terms) {
    auto *place = llvm::find_if(sum.terms, [&, atom = atom](auto &term) { return term.first >= atom; });
    if (place == sum.terms.end() || place->first != atom)
      place = sum.terms.insert(place, {atom, 0});
    place->second += coefficient * factor; // of 20 bits each
    if (!AffineSpace::isFactor(place->second))
      return false;
    if (place->second == 0)
      sum.terms.erase(place);
  }
  return sum.terms.size() <= maxTerms;
}

AffineValue AffineSpace::combine(const AffineValue &x, int64_t a, const AffineValue &y, int64_t c) {
  AffineValue result{{}, b.both(x.isValid, y.isValid)};
  for (auto [value, factor] : {std::pair(&x, a), std::pair(&y, c)}) {
    if (!isFactor(factor) || !addTerms(result.form, value->form, factor))
      return AffineValue::unknown();
    // At most 2^59, so that the sum does not overflow.
    StagedInt constant = value->form.constant;
    unsigned bits = constantBits - 1 - llvm::Log2_64_Ceil(std::max<uint64_t>(std::abs(factor), 1));
    result.isValid = b.both(result.isValid, isWithin(constant, bits));
    StagedInt scaled = b.mul(constant.withBits(bits), factor).withBits(constantBits - 1);
    result.form.constant = b.add(result.form.constant, scaled).withBits(constantBits);
    for (auto [atom, coefficient] : value->form.terms)
      result.isValid = b.both(result.isValid, atoms[atom].isSmall);
  }
  // x − c · ⌊x / c⌋ is a remainder.
  while (cancelQuotient(result.form, result.isValid))
    ;
  return result;
}

bool AffineSpace::cancelQuotient(AffineForm &form, StagedInt &isValid) {
  for (auto [atom, coefficient] : form.terms) {
    if (!atoms[atom].divisor)
      continue;
    StagedInt divisor = *atoms[atom].divisor;
    AffineForm dividend = atoms[atom].dividend;
    std::optional<int64_t> step = divisor.getConstant();
    if (!step || dividend.terms.empty() || coefficient % *step != 0)
      continue;
    // form = rest + factor · (dividend − step · quotient), if this cancels the terms of the dividend.
    int64_t factor = -coefficient / *step;
    AffineForm rest = form;
    rest.terms.erase(llvm::find_if(rest.terms, [&, atom = atom](auto &term) { return term.first == atom; }));
    if (!addTerms(rest, dividend, -factor) || rest.terms.size() + dividend.terms.size() + 1 != form.terms.size())
      continue;
    isValid = b.both(isValid, isWithin(dividend.constant, constantBits - 1 - coefficientBits));
    rest.constant = b.sub(rest.constant, b.mul(dividend.constant, factor));
    isValid = b.both(isValid, isWithin(rest.constant, constantBits - 2));
    rest.constant = rest.constant.withBits(constantBits - 2);
    AffineForm rem = remainder(dividend, divisor);
    if (!addTerms(rest, rem, factor))
      continue;
    rest.constant = b.add(rest.constant, b.mul(rem.constant, factor)).withBits(constantBits);
    form = rest;
    return true;
  }
  return false;
}

std::pair<int64_t, StagedInt> AffineSpace::congruence(const AffineForm &form) {
  int64_t modulus = 0;
  StagedInt residue = form.constant;
  for (auto [index, coefficient] : form.terms) {
    const Atom &atom = atoms[index];
    modulus = std::gcd(modulus, coefficient * atom.modulus);
    if (!atom.residue.isConstant(0))
      residue = b.add(residue, b.mul(atom.residue, coefficient));
  }
  return {modulus, residue};
}

AffineForm AffineSpace::quotient(const AffineForm &form, StagedInt divisor) {
  for (const Division &known : quotients)
    if (known.dividend == form && known.divisor == divisor)
      return known.result;
  Interval of = bounds(form);
  AffineForm result = atom({b.floorDiv(of.low, divisor), b.floorDiv(of.high, divisor)});
  if (!result.isPoint()) {
    atoms.back().dividend = form;
    atoms.back().divisor = divisor;
  }
  quotients.push_back({form, divisor, result});
  return result;
}

AffineForm AffineSpace::remainder(const AffineForm &form, StagedInt divisor) {
  for (const Division &known : remainders)
    if (known.dividend == form && known.divisor == divisor)
      return known.result;
  // If the quotient is the same for the whole interval, the remainder is a difference, else in [0, divisor).
  Interval of = bounds(form);
  StagedInt first = b.floorDiv(of.low, divisor), last = b.floorDiv(of.high, divisor);
  StagedInt isOne = b.isEqual(first, last), start = b.mul(first, divisor);
  StagedInt low = b.select(isOne, b.sub(of.low, start), 0);
  StagedInt high = b.select(isOne, b.sub(of.high, start), b.sub(divisor, 1));
  auto [modulus, residue] = congruence(form);
  std::optional<int64_t> step = divisor.getConstant();
  modulus = step ? std::gcd(modulus, *step) : 1;
  AffineForm result = atom({low.withBits(divisor.getBits()), high.withBits(divisor.getBits())}, modulus, residue);
  remainders.push_back({form, divisor, result});
  return result;
}
