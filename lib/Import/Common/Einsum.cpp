//===- Einsum.cpp - Einstein's sums -------------------------------------------===//
//
// Operands are multiplied from left to right; each product is one contraction, whose maps say what the letters say.
//
//===----------------------------------------------------------------------===//
#include "saccade/Import/Common/Einsum.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Import/Common/Reductions.h"
#include "saccade/Import/Common/Requirements.h"
#include "saccade/Import/Common/Shapes.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::frontend;

namespace {

/// A label is a letter, or a dimension of the ellipsis: the number of those behind it, from this one on.
using Labels = SmallVector<int>;
constexpr int firstOfEllipsis = 256;

struct Term {
  Value tensor;
  Labels labels;
};

/// One side of a comma or of the arrow, as it is written: letters, with `firstOfEllipsis` for the ellipsis.
struct Written {
  Labels labels;
  bool hasEllipsis() const { return llvm::is_contained(labels, firstOfEllipsis); }
};

} // namespace

static FailureOr<Written> parseLabels(FrontendOp &op, StringRef text) {
  Written written;
  while (!(text = text.ltrim()).empty()) {
    if (text.consume_front("...")) {
      if (written.hasEllipsis())
        return op.error() << "a term of the equation has two ellipses";
      written.labels.push_back(firstOfEllipsis);
      continue;
    }
    if (!llvm::isAlpha(text.front()))
      return op.error() << "'" << text << "' in the equation is no letter";
    written.labels.push_back(text.front());
    text = text.drop_front();
  }
  return written;
}

/// The labels of `count` dimensions in the place of the ellipsis.
static Labels expandEllipsis(const Written &written, int count) {
  Labels labels;
  for (int label : written.labels) {
    if (label != firstOfEllipsis)
      labels.push_back(label);
    else
      for (int i = count; i > 0; --i)
        labels.push_back(firstOfEllipsis + i);
  }
  return labels;
}

/// Elements at which dimensions with the same label have the same position.
static Term takeDiagonals(ImplicitLocOpBuilder &b, const Term &term) {
  Labels kept;
  Extents extents = extentsOf(b, term.tensor), result;
  for (auto [label, extent] : llvm::zip(term.labels, extents))
    if (!llvm::is_contained(kept, label)) {
      kept.push_back(label);
      result.push_back(extent);
    }
  if (kept.size() == term.labels.size())
    return term;
  Type element = elementOf(term.tensor);
  return {generate(b, result, {}, element,
                   [&](OpBuilder &nested, Location loc, ValueRange at) -> Value {
                     auto position = llvm::map_to_vector(
                         term.labels, [&](int label) { return Value(at[llvm::find(kept, label) - kept.begin()]); });
                     return tensor::ExtractOp::create(nested, loc, term.tensor, position);
                   }),
          kept};
}

/// Σ x · y over the labels that are not `kept`.
static Term multiply(ImplicitLocOpBuilder &b, const Term &x, const Term &y, const Labels &kept) {
  Labels loops = kept;
  Extents extents(kept.size(), b.getIndexAttr(1));
  auto visit = [&](const Term &term) {
    for (auto [label, extent] : llvm::zip(term.labels, extentsOf(b, term.tensor))) {
      size_t i = llvm::find(loops, label) - loops.begin();
      if (i == loops.size()) {
        loops.push_back(label);
        extents.push_back(extent);
      } else if (!isConstantIntValue(extent, 1) && !isa<Attribute>(extents[i])) {
        // What is static says more than what is not.
        extents[i] = isa<Attribute>(extent) ? extent : extents[i];
      } else if (isConstantIntValue(extents[i], 1)) {
        extents[i] = extent;
      }
    }
  };
  visit(x);
  visit(y);
  auto map = [&](const Term &term) {
    SmallVector<AffineExpr> dims;
    for (auto [label, extent] : llvm::zip(term.labels, extentsOf(b, term.tensor))) {
      size_t i = llvm::find(loops, label) - loops.begin();
      bool stretches = isConstantIntValue(extent, 1) && !isConstantIntValue(extents[i], 1);
      dims.push_back(stretches ? b.getAffineConstantExpr(0) : b.getAffineDimExpr(i));
    }
    return AffineMap::get(loops.size(), 0, dims, b.getContext());
  };
  SmallVector<AffineExpr> first;
  for (size_t i = 0; i < kept.size(); ++i)
    first.push_back(b.getAffineDimExpr(i));
  AffineMap result = AffineMap::get(loops.size(), 0, first, b.getContext());
  Type element = elementOf(x.tensor);
  Value sums = contract(b, x.tensor, y.tensor, map(x), map(y), result, extents, getAccumulatorType(element));
  return {castElements(b, sums, element), kept};
}

/// Σ x over the labels that are not `kept`, which are in the order of `kept` then.
static Value sumRest(ImplicitLocOpBuilder &b, const Term &x, const Labels &kept) {
  SmallVector<int64_t> reduced;
  Labels rest;
  for (auto [i, label] : llvm::enumerate(x.labels))
    if (llvm::is_contained(kept, label))
      rest.push_back(label);
    else
      reduced.push_back(i);
  Value sums = x.tensor;
  if (!reduced.empty())
    sums = reduceBy(b, {Reduction::Zero, add}, sums, reduced, /*keep=*/false);
  auto order = llvm::map_to_vector(kept, [&](int label) -> int64_t { return llvm::find(rest, label) - rest.begin(); });
  return transpose(b, sums, order);
}

/// Refuses labels whose extents differ and do not broadcast, and diagonals unless it is known that they do not differ.
static LogicalResult verifyExtents(FrontendOp &op, ArrayRef<Term> terms) {
  for (const Term &term : terms) {
    Extents extents = extentsOf(op.builder(), term.tensor);
    for (auto [i, label] : llvm::enumerate(term.labels))
      if (size_t first = llvm::find(term.labels, label) - term.labels.begin();
          !isEqualConstantIntOrValue(extents[first], extents[i]))
        return op.error() << "dimensions " << first << " and " << i << " of " << term.tensor.getType()
                          << " have the same letter, expected the same extent";
  }
  llvm::DenseMap<int, int64_t> found;
  for (const Term &term : terms)
    for (auto [label, extent] : llvm::zip(term.labels, cast<RankedTensorType>(term.tensor.getType()).getShape())) {
      if (ShapedType::isDynamic(extent) || extent == 1)
        continue;
      int64_t &known = found.try_emplace(label, extent).first->second;
      if (known != extent)
        return op.error() << "one dimension of the equation has the extents " << known << " and " << extent;
    }
  return success();
}

FailureOr<Value> frontend::einsum(FrontendOp &op, StringRef equation, ArrayRef<Value> inputs) {
  ImplicitLocOpBuilder &b = op.builder();
  if (inputs.empty() || llvm::is_contained(inputs, Value()))
    return op.error() << "an input is missing";
  Type element = elementOf(inputs.front());
  for (Value input : inputs)
    if (elementOf(input) != element || element.isInteger(1))
      return op.error() << "found elements of " << elementOf(input) << " and " << element
                        << ", expected numbers of one type";
  auto [left, right] = equation.split("->");
  bool isExplicit = equation.contains("->");
  SmallVector<StringRef> texts;
  left.split(texts, ',');
  if (texts.size() != inputs.size())
    return op.error() << "the equation has " << texts.size() << " terms, and there are " << inputs.size() << " inputs";

  SmallVector<Term> terms;
  int stretched = 0; // dimensions of the longest ellipsis
  llvm::MapVector<int, int> counts;
  for (auto [text, input] : llvm::zip(texts, inputs)) {
    FailureOr<Written> written = parseLabels(op, text);
    if (failed(written))
      return failure();
    int hidden = rankOf(input) - written->labels.size() + written->hasEllipsis();
    if (hidden < 0 || (hidden > 0 && !written->hasEllipsis()))
      return op.error() << "the term '" << text.trim() << "' does not fit " << input.getType();
    stretched = std::max(stretched, hidden);
    terms.push_back({input, expandEllipsis(*written, hidden)});
    for (int label : terms.back().labels)
      ++counts[label];
  }
  if (failed(verifyExtents(op, terms)))
    return failure();

  Written expected;
  if (isExplicit) {
    FailureOr<Written> written = parseLabels(op, right);
    if (failed(written))
      return failure();
    expected = *written;
  } else {
    // Every letter that comes once, in the order of the alphabet, behind what the ellipsis stands for.
    for (auto [label, count] : counts)
      if (label < firstOfEllipsis && count == 1)
        expected.labels.push_back(label);
    llvm::sort(expected.labels);
    expected.labels.insert(expected.labels.begin(), firstOfEllipsis);
  }
  Labels result = expandEllipsis(expected, stretched);
  for (auto [i, label] : llvm::enumerate(result))
    if (!counts.contains(label) || llvm::is_contained(ArrayRef(result).take_front(i), label))
      return op.error() << "the result of the equation has a letter twice, or one that no term has";

  for (Term &term : terms)
    term = takeDiagonals(b, term);
  Term product = terms.front();
  for (size_t i = 1; i < terms.size(); ++i) {
    Labels kept = result;
    if (i + 1 < terms.size()) {
      // What the result or a term behind has; letters of neither are summed now.
      kept.clear();
      Labels both = product.labels;
      llvm::append_range(both, terms[i].labels);
      for (int label : both)
        if (!llvm::is_contained(kept, label) && (llvm::is_contained(result, label) ||
                                                 llvm::any_of(ArrayRef(terms).drop_front(i + 1), [&](const Term &term) {
                                                   return llvm::is_contained(term.labels, label);
                                                 })))
          kept.push_back(label);
    }
    product = multiply(b, product, terms[i], kept);
  }
  return product.labels == result ? product.tensor : sumRest(b, product, result);
}
