//===- MaskCount.h - How much of a mask there is to work on -------*- C++ -*-===//
//
// Counts, for sizes that are known, what the mask analysis proves about tiles, and draws it. For reports: it asks
// `analyzeMask` what compiled code asks it, and never evaluates the mask pair by pair where a box of pairs is decided.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_MASKCOUNT_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_MASKCOUNT_H

#include "saccade/Dialect/Attn/Analysis/MaskBox.h"
#include "llvm/ADT/SetVector.h"
#include <map>

namespace saccade::attn {

/// What is known of a call before there is one: lengths, captured integers and extents of captured tensors, but none of
/// their elements.
class StaticMaskInputs : public MaskInputs {
public:
  int64_t queryLength = 0, keyLength = 0;
  std::map<unsigned, int64_t> scalars;                      ///< by capture
  std::map<std::pair<unsigned, unsigned>, int64_t> extents; ///< by capture and dimension

  StagedInt length(StagedIntBuilder &, Role role) override { return role == Role::Query ? queryLength : keyLength; }
  StagedInt scalar(StagedIntBuilder &, unsigned capture) override;
  StagedInt extent(StagedIntBuilder &, unsigned capture, unsigned dim) override;
  std::optional<Interval> elements(StagedIntBuilder &, unsigned capture, llvm::ArrayRef<Interval> place) override;

  /// Captures whose numbers or extents were asked for and are not known: what was answered then means nothing.
  llvm::SmallSetVector<unsigned, 4> missing;
  /// Captured tensors whose elements were asked for.
  llvm::SmallSetVector<unsigned, 4> tables;
};

/// The scores of one head, in absolute positions; there is at least one.
struct MaskPlane {
  int64_t batch = 0, head = 0;
  int64_t firstQuery = 0, queries = 0, firstKey = 0, keys = 0;
};

/// How a kernel cuts a plane.
struct MaskTiling {
  int64_t rows = 1;  ///< queries of a task, counted from the first one
  int64_t cols = 1;  ///< keys of a step, which begins at multiples of it
  int64_t group = 1; ///< queries of a task that leave out keys together
  int64_t panel = 1; ///< keys of a step that are left out together,
  int64_t tail = 1;  ///< and at the end of the last panel
  bool hasHoles = true; ///< panels are left out between others, too
};

/// What is proved about a box of pairs.
enum class MaskKind {
  Empty,   ///< the mask holds for none
  Full,    ///< it holds for all
  Partial, ///< for some, as far as is known
  DataDependent,    ///< the same, and elements of captured tensors, which are not known, may say more
};

struct MaskCount {
  int64_t empty = 0, full = 0, partial = 0, open = 0; ///< tiles
  int64_t computed = 0;  ///< pairs that a kernel scores: none of an empty tile, of a group those in panels that are not empty
  int64_t visible = 0; ///< pairs for which the mask holds, where `isExact`, else no fewer than these
  bool isExact = true;

  int64_t tiles() const { return empty + full + partial + open; }
  MaskCount &operator+=(const MaskCount &other);
};

/// What is proved about the pairs of `plane`.
MaskKind classifyMask(mlir::Region &mask, const MaskPlane &plane, StaticMaskInputs &inputs);

/// Counts one plane. Every box asked about takes one from `budget`; nothing where it does not last for all tiles. Pairs
/// of tiles that are left then are counted as visible, and not exact.
std::optional<MaskCount> countMask(mlir::Region &mask, const MaskPlane &plane, const MaskTiling &tiling,
                                   StaticMaskInputs &inputs, int64_t &budget);

/// A picture of at most `width` × `height` cells, a line for each range of queries from the first: '#' full, '+' partial,
/// '?' open, '.' empty.
llvm::SmallVector<std::string> drawMask(mlir::Region &mask, const MaskPlane &plane, int64_t width, int64_t height,
                                        StaticMaskInputs &inputs);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_MASKCOUNT_H
