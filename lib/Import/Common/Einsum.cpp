//===- Einsum.cpp - Einstein summation ------------------------------------===//
//
// Operands are contracted pairwise from inputText to resultText. The indexing maps of each contraction follow from the
// letters.
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

/// A label is a letter or a dimension of the ellipsis. Ellipsis dimensions are numbered from the last one, starting
/// after `firstOfEllipsis`.
using Labels = SmallVector<int>;
constexpr int firstOfEllipsis = 256;

struct Term {
  Value tensor;
  Labels labels;
};

/// The labels of one term as parsed, with `firstOfEllipsis` in place of the ellipsis.
struct ParsedTerm {
  Labels labels;
  bool hasEllipsis() const { return llvm::is_contained(labels, firstOfEllipsis); }
};

} // namespace

static FailureOr<ParsedTerm> parseLabels(FrontendOp &op, StringRef text) {
  ParsedTerm parsed;
  while (!(text = text.ltrim()).empty()) {
    if (text.consume_front("...")) {
      if (parsed.hasEllipsis())
        return op.error() << "a term of the equation has two ellipses";
      parsed.labels.push_back(firstOfEllipsis);
      continue;
    }
    if (!llvm::isAlpha(text.front()))
      return op.error() << "'" << text << "' in the equation is not a letter";
    parsed.labels.push_back(text.front());
    text = text.drop_front();
  }
  return parsed;
}

/// Replaces the ellipsis by the labels of `count` dimensions.
static Labels expandEllipsis(const ParsedTerm &parsed, int count) {
  Labels labels;
  for (int label : parsed.labels) {
    if (label != firstOfEllipsis)
      labels.push_back(label);
    else
      for (int i = count; i > 0; --i)
        labels.push_back(firstOfEllipsis + i);
  }
  return labels;
}

/// Takes the diagonal of dimensions with the same label.
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
        // Prefer static extents.
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
      bool broadcasts = isConstantIntValue(extent, 1) && !isConstantIntValue(extents[i], 1);
      dims.push_back(broadcasts ? b.getAffineConstantExpr(0) : b.getAffineDimExpr(i));
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

/// Σ x over the labels that are not in `kept`; the result dimensions are in the order of `kept`.
static Value reduceRest(ImplicitLocOpBuilder &b, const Term &x, const Labels &kept) {
  SmallVector<int64_t> reduced;
  Labels rest;
  for (auto [i, label] : llvm::enumerate(x.labels))
    if (llvm::is_contained(kept, label))
      rest.push_back(label);
    else
      reduced.push_back(i);
  Value sums = x.tensor;
  if (!reduced.empty())
    sums = reduceBy(b, {Reduction::Zero, add}, sums, reduced, /*keepDims=*/false);
  auto order = llvm::map_to_vector(kept, [&](int label) -> int64_t { return llvm::find(rest, label) - rest.begin(); });
  return transpose(b, sums, order);
}

/// Emits an error if labels have different extents that do not broadcast, or if a diagonal has extents that are not
/// provably equal.
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
        return op.error() << "a letter of the equation has extents " << known << " and " << extent;
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
  auto [inputText, resultText] = equation.split("->");
  bool isExplicit = equation.contains("->");
  SmallVector<StringRef> texts;
  inputText.split(texts, ',');
  if (texts.size() != inputs.size())
    return op.error() << "the equation has " << texts.size() << " terms, expected one for each of " << inputs.size()
                      << " inputs";

  SmallVector<Term> terms;
  int ellipsisRank = 0; // of the longest ellipsis
  llvm::MapVector<int, int> counts;
  for (auto [text, input] : llvm::zip(texts, inputs)) {
    FailureOr<ParsedTerm> parsed = parseLabels(op, text);
    if (failed(parsed))
      return failure();
    int ellipsisDims = rankOf(input) - parsed->labels.size() + parsed->hasEllipsis();
    if (ellipsisDims < 0 || (ellipsisDims > 0 && !parsed->hasEllipsis()))
      return op.error() << "the term '" << text.trim() << "' does not fit " << input.getType();
    ellipsisRank = std::max(ellipsisRank, ellipsisDims);
    terms.push_back({input, expandEllipsis(*parsed, ellipsisDims)});
    for (int label : terms.back().labels)
      ++counts[label];
  }
  if (failed(verifyExtents(op, terms)))
    return failure();

  ParsedTerm expected;
  if (isExplicit) {
    FailureOr<ParsedTerm> parsed = parseLabels(op, resultText);
    if (failed(parsed))
      return failure();
    expected = *parsed;
  } else {
    // Implicit output: the ellipsis, then every letter that occurs once, in alphabetical order.
    for (auto [label, count] : counts)
      if (label < firstOfEllipsis && count == 1)
        expected.labels.push_back(label);
    llvm::sort(expected.labels);
    expected.labels.insert(expected.labels.begin(), firstOfEllipsis);
  }
  Labels result = expandEllipsis(expected, ellipsisRank);
  for (auto [i, label] : llvm::enumerate(result))
    if (!counts.contains(label) || llvm::is_contained(ArrayRef(result).take_front(i), label))
      return op.error() << "the result of the equation repeats a letter or has one that no term has";

  for (Term &term : terms)
    term = takeDiagonals(b, term);
  Term product = terms.front();
  for (size_t i = 1; i < terms.size(); ++i) {
    Labels kept = result;
    if (i + 1 < terms.size()) {
      // Keep the labels of the result and of later terms; reduce all others.
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
  return product.labels == result ? product.tensor : reduceRest(b, product, result);
}
