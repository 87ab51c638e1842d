//===- MaskCount.cpp - Tiles and pairs under a mask ---------------------------===//
//
// Classifies tiles one by one. In partial tiles, groups and panels are classified as in a kernel, and visible pairs are
// counted by halving boxes until each is empty or full.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Analysis/MaskCount.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>

using namespace mlir;
using namespace saccade::attn;

StagedInt StaticMaskInputs::scalar(StagedIntBuilder &, unsigned capture) {
  auto known = scalars.find(capture);
  if (known != scalars.end())
    return known->second;
  missing.insert(capture);
  return 0;
}

StagedInt StaticMaskInputs::extent(StagedIntBuilder &, unsigned capture, unsigned dim) {
  auto known = extents.find({capture, dim});
  if (known != extents.end())
    return known->second;
  missing.insert(capture);
  return 0;
}

std::optional<Interval> StaticMaskInputs::elements(StagedIntBuilder &, unsigned capture, ArrayRef<Interval>) {
  tables.insert(capture);
  return std::nullopt;
}

MaskCount &MaskCount::operator+=(const MaskCount &other) {
  empty += other.empty, full += other.full, partial += other.partial;
  dataDependent += other.dataDependent;
  computed += other.computed, visible += other.visible;
  isExact &= other.isExact;
  return *this;
}

MaskKind saccade::attn::classifyMask(Region &mask, const MaskPlane &plane, StaticMaskInputs &inputs) {
  if (mask.empty())
    return MaskKind::Full;
  MaskBox box{StagedInt(plane.batch),
              StagedInt(plane.head),
              {plane.firstQuery, plane.firstQuery + plane.queries - 1},
              {plane.firstKey, plane.firstKey + plane.keys - 1}};
  llvm::SmallSetVector<unsigned, 4> before;
  std::swap(before, inputs.tables);
  StagedIntBuilder numbers;
  Coverage coverage = analyzeMask(mask, box, inputs, numbers);
  bool readsElements = !inputs.tables.empty();
  inputs.tables.insert_range(before);
  if (coverage.mayHold.isConstant(0))
    return MaskKind::Empty;
  if (coverage.mayFail.isConstant(0))
    return MaskKind::Full;
  return readsElements ? MaskKind::DataDependent : MaskKind::Partial;
}

namespace {

class Counter {
public:
  Counter(Region &mask, const MaskPlane &plane, const MaskTiling &tiling, StaticMaskInputs &inputs, int64_t &budget)
      : mask(mask), plane(plane), tiling(tiling), inputs(inputs), budget(budget) {}

  std::optional<MaskCount> count();

private:
  MaskKind classify(const MaskPlane &box) {
    --budget;
    return classifyMask(mask, box, inputs);
  }
  MaskPlane box(int64_t query, int64_t queries, int64_t key, int64_t keys) {
    return {plane.batch, plane.head, query, queries, key, keys};
  }
  void countTile(const MaskPlane &tile);
  int64_t computedKeysOfGroup(const MaskPlane &group);
  void countVisible(const MaskPlane &whole, MaskKind kind);

  Region &mask;
  MaskPlane plane;
  MaskTiling tiling;
  StaticMaskInputs &inputs;
  int64_t &budget;
  MaskCount total;
};

/// The number of keys for which a group computes scores: those of panels that are not empty or, without holes, from the
/// first to the last of these panels. The empty end of the last panel is skipped.
int64_t Counter::computedKeysOfGroup(const MaskPlane &group) {
  auto isEmpty = [&](int64_t first, int64_t last) {
    return budget > 0 &&
           classify(box(group.firstQuery, group.queries, group.firstKey + first, last - first)) == MaskKind::Empty;
  };
  int64_t computed = 0, lastBegin = 0, lastEnd = 0;
  bool isAnyVisible = false;
  for (int64_t begin = 0; begin < group.keys; begin += tiling.panel) {
    int64_t end = std::min(begin + tiling.panel, group.keys);
    if (isEmpty(begin, end))
      continue;
    // Without holes, panels between this one and the previous one are computed as well.
    if (isAnyVisible && !tiling.hasHoles)
      computed += begin - lastEnd;
    computed += end - begin;
    lastBegin = begin, lastEnd = end, isAnyVisible = true;
  }
  for (int64_t end = lastEnd; end > lastBegin; end = lastEnd) {
    lastEnd = llvm::alignDown(end - 1, tiling.tail);
    if (lastEnd <= lastBegin || !isEmpty(lastEnd, end))
      break;
    computed -= end - lastEnd;
  }
  return computed;
}

/// Counts the pairs of a box for which the mask holds. Data-dependent boxes are not halved below a panel of a group.
void Counter::countVisible(const MaskPlane &whole, MaskKind kind) {
  SmallVector<std::pair<MaskPlane, MaskKind>> boxes = {{whole, kind}};
  while (!boxes.empty()) {
    auto [current, kind] = boxes.pop_back_val();
    if (kind == MaskKind::Empty)
      continue;
    int64_t pairs = current.queries * current.keys;
    bool isSmall = kind == MaskKind::DataDependent ? pairs <= tiling.group * tiling.panel : pairs == 1;
    if (kind == MaskKind::Full || isSmall || budget <= 0) {
      total.visible += pairs;
      total.isExact &= kind == MaskKind::Full;
      continue;
    }
    MaskPlane first = current, second = current;
    if (current.queries > current.keys) {
      first.queries /= 2;
      second.firstQuery += first.queries, second.queries -= first.queries;
    } else {
      first.keys /= 2;
      second.firstKey += first.keys, second.keys -= first.keys;
    }
    for (const MaskPlane &half : {first, second})
      boxes.emplace_back(half, classify(half));
  }
}

void Counter::countTile(const MaskPlane &tile) {
  MaskKind kind = classify(tile);
  int64_t &tiles = kind == MaskKind::Empty           ? total.empty
                   : kind == MaskKind::Full          ? total.full
                   : kind == MaskKind::DataDependent ? total.dataDependent
                                                     : total.partial;
  ++tiles;
  countVisible(tile, kind);
  if (kind == MaskKind::Full)
    total.computed += tile.queries * tile.keys;
  if (kind == MaskKind::Empty || kind == MaskKind::Full)
    return;
  for (int64_t row = 0; row < tile.queries; row += tiling.group) {
    MaskPlane group = tile;
    group.firstQuery += row, group.queries = std::min(tiling.group, tile.queries - row);
    total.computed += group.queries * computedKeysOfGroup(group);
  }
}

std::optional<MaskCount> Counter::count() {
  int64_t firstStep = llvm::divideFloorSigned(plane.firstKey, tiling.cols) * tiling.cols;
  int64_t lastKey = plane.firstKey + plane.keys, lastQuery = plane.firstQuery + plane.queries;
  int64_t tiles = llvm::divideCeil(lastKey - firstStep, tiling.cols) * llvm::divideCeil(plane.queries, tiling.rows);
  if (tiles > budget)
    return std::nullopt;
  for (int64_t query = plane.firstQuery; query < lastQuery; query += tiling.rows)
    for (int64_t step = firstStep; step < lastKey; step += tiling.cols) {
      int64_t key = std::max(step, plane.firstKey);
      countTile(box(query, std::min(tiling.rows, lastQuery - query), key, std::min(step + tiling.cols, lastKey) - key));
    }
  return total;
}

} // namespace

std::optional<MaskCount> saccade::attn::countMask(Region &mask, const MaskPlane &plane, const MaskTiling &tiling,
                                                  StaticMaskInputs &inputs, int64_t &budget) {
  return Counter(mask, plane, tiling, inputs, budget).count();
}

SmallVector<std::string> saccade::attn::drawMask(Region &mask, const MaskPlane &plane, int64_t width, int64_t height,
                                                 StaticMaskInputs &inputs) {
  width = std::min(width, plane.keys), height = std::min(height, plane.queries);
  SmallVector<std::string> lines;
  auto edge = [](int64_t cell, int64_t cells, int64_t extent) { return cell * extent / cells; };
  for (int64_t line = 0; line < height; ++line) {
    std::string &text = lines.emplace_back();
    for (int64_t cell = 0; cell < width; ++cell) {
      int64_t query = edge(line, height, plane.queries), key = edge(cell, width, plane.keys);
      MaskKind kind = classifyMask(mask,
                                   {plane.batch, plane.head, plane.firstQuery + query,
                                    edge(line + 1, height, plane.queries) - query, plane.firstKey + key,
                                    edge(cell + 1, width, plane.keys) - key},
                                   inputs);
      text += kind == MaskKind::Empty           ? '.'
              : kind == MaskKind::Full          ? '#'
              : kind == MaskKind::DataDependent ? '?'
                                                : '+';
    }
  }
  return lines;
}
