//===- NameDims.cpp - Batch, head, sequence and depth loops ---------------===//
#include "NameDims.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::raise;
using attn::Dim;

//===----------------------------------------------------------------------===//
// Labels
//===----------------------------------------------------------------------===//

static std::optional<Label> labelOf(AffineExpr index, int64_t extent) {
  if (auto loop = dyn_cast<AffineDimExpr>(index))
    return Label{loop.getPosition()};
  if (auto constant = dyn_cast<AffineConstantExpr>(index); constant && constant.getValue() == 0 && extent == 1)
    return Label{};
  auto quotient = dyn_cast<AffineBinaryOpExpr>(index);
  if (!quotient || quotient.getKind() != AffineExprKind::FloorDiv)
    return std::nullopt;
  auto loop = dyn_cast<AffineDimExpr>(quotient.getLHS());
  auto group = dyn_cast<AffineConstantExpr>(quotient.getRHS());
  return loop && group ? std::optional(Label{loop.getPosition(), group.getValue()}) : std::nullopt;
}

/// Whether iterations of a loop with `trips` cover a dimension of `extent`, `group` iterations for each position. The
/// extents of groups must be known.
static bool covers(int64_t trips, int64_t group, int64_t extent) {
  bool isKnown = !ShapedType::isDynamic(trips) && !ShapedType::isDynamic(extent);
  return isKnown ? trips == extent * group : group == 1;
}

SmallVector<Labelled> saccade::raise::findLabelled(Node node, ArrayRef<int64_t> extents) {
  SmallVector<Labelled> found;
  for (const Access &origin : node->origins) {
    Labelled labelled{origin.tensor, {}};
    uint64_t seen = 0;
    for (auto [index, extent] :
         llvm::zip_equal(origin.index, cast<RankedTensorType>(origin.tensor.getType()).getShape())) {
      std::optional<Label> label = labelOf(index, extent);
      if (!label || (label->loop && (seen >> *label->loop & 1)))
        break;
      if (label->loop && !covers(extents[*label->loop], label->group, extent))
        break;
      if (label->loop)
        seen |= uint64_t(1) << *label->loop;
      labelled.labels.push_back(*label);
    }
    if (labelled.labels.size() == origin.index.size())
      found.push_back(std::move(labelled));
  }
  return found;
}

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

std::optional<Grouping> saccade::raise::groupDims(ArrayRef<Label> labels, const NamedLoops &names,
                                                  ArrayRef<unsigned> seq, unsigned depth) {
  Grouping result;
  std::pair<Dim, ArrayRef<unsigned>> all[] = {
      {Dim::Batch, names.batch}, {Dim::Head, names.head}, {Dim::Seq, seq}, {Dim::Depth, depth}};
  std::optional<Dim> last;
  size_t lastPosition = 0;
  uint32_t used = 0;
  ReassociationIndices pending;
  for (auto [dim, label] : llvm::enumerate(labels)) {
    if (!label.loop) {
      (result.groups.empty() ? pending : result.groups.back()).push_back(dim);
      continue;
    }
    auto *named = llvm::find_if(all, [&](auto &each) { return llvm::is_contained(each.second, *label.loop); });
    if (named == std::end(all))
      return std::nullopt;
    size_t position = llvm::find(named->second, *label.loop) - named->second.begin();
    if (last == named->first) {
      if (position != lastPosition + 1)
        return std::nullopt;
      result.groups.back().push_back(dim);
    } else {
      if (used >> unsigned(named->first) & 1)
        return std::nullopt;
      used |= 1u << unsigned(named->first);
      result.groups.push_back(pending);
      pending.clear();
      result.groups.back().push_back(dim);
      result.dims.push_back(named->first);
    }
    last = named->first;
    lastPosition = position;
  }
  return result;
}

/// Whether the operand has `loop`; loops with trip count 1 may be missing.
static bool isIn(const Graph &graph, const Labelled &operand, unsigned loop) {
  return operand.has(loop) || graph.getExtent(loop) == 1;
}

Naming saccade::raise::nameLoops(const Graph &graph, const Loops &loops, const Labelled &query, const Labelled &key,
                                 const Labelled &value) {
  Naming naming;
  naming.names.key = loops.key;
  auto labelIn = [](const Labelled &operand, unsigned loop) {
    auto found = llvm::find_if(operand.labels, [&](Label label) { return label.loop == loop; });
    return found == operand.labels.end() ? Label{} : *found;
  };
  for (auto [operand, allowed] : {std::pair(&query, loops.depth), {&key, loops.depth}, {&value, loops.valueDepth}})
    for (Label label : operand->labels)
      if (label.loop && *label.loop != allowed && *label.loop != loops.key &&
          !llvm::is_contained(loops.rows, *label.loop)) {
        naming.reason = "an operand has a dimension that is neither a score dimension nor the depth";
        return naming;
      }
  if (!query.has(loops.depth) || !key.has(loops.depth) || !key.has(loops.key) || !value.has(loops.key) ||
      !value.has(loops.valueDepth) || query.has(loops.key)) {
    naming.reason = "an operand lacks its depth or sequence dimension";
    return naming;
  }
  // Only the heads of keys and values may be repeated.
  for (const Labelled *operand : {&query, &key, &value})
    for (Label label : operand->labels)
      if (label.group > 1 && (operand == &query || !llvm::is_contained(loops.rows, *label.loop))) {
        naming.reason = "an operand is repeated along another dimension than its heads";
        return naming;
      }
  // `shared`: loops of keys or values; `grouped`: loops of which several iterations share a KV head; `own`: loops of
  // queries only.
  SmallVector<unsigned> shared, grouped, own;
  for (unsigned loop : loops.rows) {
    if (!isIn(graph, query, loop)) {
      naming.reason = "the query is broadcast along batches or heads";
      return naming;
    }
    Label inKey = labelIn(key, loop), inValue = labelIn(value, loop);
    if (inKey != inValue && graph.getExtent(loop) != 1) {
      naming.reason = "keys and values have different heads";
      return naming;
    }
    (inKey.group > 1 ? grouped : inKey.loop || inValue.loop ? shared : own).push_back(loop);
  }
  if (grouped.size() > 1) {
    naming.reason = "keys are repeated along more than one dimension";
    return naming;
  }
  auto fits = [&](const NamedLoops &names) {
    return groupDims(query.labels, names, names.query, loops.depth) &&
           groupDims(key.labels, names, loops.key, loops.depth) &&
           groupDims(value.labels, names, loops.key, loops.valueDepth);
  };
  // The query sequence is the longest loop of the queries, the last of equally long ones.
  SmallVector<std::optional<unsigned>> candidates(own.begin(), own.end());
  llvm::sort(candidates, [&](auto a, auto b) {
    auto rank = [&](auto loop) { return std::pair(uint64_t(graph.getExtent(*loop)), llvm::find(own, *loop)); };
    return rank(a) > rank(b); // dynamic ones first
  });
  if (own.empty())
    candidates = {std::nullopt};
  for (std::optional<unsigned> sequence : candidates) {
    // Loops with trip count 1 that no operand has need no name.
    SmallVector<unsigned> groups = llvm::filter_to_vector(
        own, [&](unsigned loop) { return loop != sequence && (query.has(loop) || graph.getExtent(loop) != 1); });
    // Heads are the grouped loop, or a shared loop followed by the groups, or the last shared loop.
    SmallVector<std::optional<unsigned>> outerLoops = {std::nullopt};
    if (grouped.empty() && (shared.size() > 1 || !groups.empty()))
      for (unsigned loop : shared)
        outerLoops.push_back(loop);
    for (std::optional<unsigned> major : llvm::reverse(outerLoops)) {
      NamedLoops names{{}, grouped, {}, loops.key};
      if (major)
        names.head.push_back(*major);
      names.head.append(groups.begin(), groups.end());
      for (unsigned loop : shared)
        if (loop != major)
          names.batch.push_back(loop);
      if (sequence)
        names.query = {*sequence};
      if (fits(names)) {
        naming.names = names;
        return naming;
      }
    }
  }
  naming.reason = "batch and head dimensions are not adjacent in every operand";
  return naming;
}

std::pair<Value, attn::DimsAttr> saccade::raise::nameOperand(OpBuilder &b, Location loc, const Labelled &operand,
                                                             const NamedLoops &names, ArrayRef<unsigned> seq,
                                                             unsigned depth) {
  Grouping grouping = *groupDims(operand.labels, names, seq, depth);
  Value tensor = operand.tensor;
  if (grouping.groups.size() != operand.labels.size())
    tensor = tensor::CollapseShapeOp::create(b, loc, tensor, grouping.groups);
  SmallVector<Dim> dims = grouping.dims;
  if (!llvm::is_contained(dims, Dim::Seq)) {
    // [h, d] -> [1, h, d]
    auto type = cast<RankedTensorType>(tensor.getType());
    SmallVector<int64_t> shape = {1};
    llvm::append_range(shape, type.getShape());
    SmallVector<ReassociationIndices> groups = {{0, 1}};
    for (int64_t dim = 1; dim < type.getRank(); ++dim)
      groups.push_back({dim + 1});
    SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, tensor);
    sizes.insert(sizes.begin(), b.getIndexAttr(1));
    tensor = tensor::ExpandShapeOp::create(b, loc, RankedTensorType::get(shape, type.getElementType()), tensor, groups,
                                           sizes);
    dims.insert(dims.begin(), Dim::Seq);
  }
  return {tensor, attn::DimsAttr::get(b.getContext(), dims)};
}
