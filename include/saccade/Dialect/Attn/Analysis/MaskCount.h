//===- MaskCount.h - Tiles and pairs under a mask -----------------*- C++ -*-===//
//
// Counts, for given sizes, the tiles that `analyzeMask` proves empty, full or partial, and draws them. Used for
// reports; boxes are classified by the same analysis as in compiled code, and halved only if they are partial.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_MASKCOUNT_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_MASKCOUNT_H

#include "saccade/Dialect/Attn/Analysis/MaskBox.h"
#include "llvm/ADT/SetVector.h"
#include <map>

namespace saccade::attn {

/// Mask inputs that are known before a call: lengths, captured integers and extents of captured tensors, but no
/// elements.
class StaticMaskInputs : public MaskInputs {
public:
  int64_t queryLength = 0, keyLength = 0;
  std::map<unsigned, int64_t> scalars;                      ///< by capture
  std::map<std::pair<unsigned, unsigned>, int64_t> extents; ///< by capture and dimension

  StagedInt length(StagedIntBuilder &, Role role) override { return role == Role::Query ? queryLength : keyLength; }
  StagedInt scalar(StagedIntBuilder &, unsigned capture) override;
  StagedInt extent(StagedIntBuilder &, unsigned capture, unsigned dim) override;
  std::optional<Interval> elements(StagedIntBuilder &, unsigned capture, llvm::ArrayRef<Interval> place) override;

  /// Captures whose values or extents were read but are not known. Results of the analysis are then meaningless.
  llvm::SmallSetVector<unsigned, 4> missing;
  /// Captured tensors whose elements were read.
  llvm::SmallSetVector<unsigned, 4> tables;
};

/// The scores of a head, in absolute positions; not empty.
struct MaskPlane {
  int64_t batch = 0, head = 0;
  int64_t firstQuery = 0, queries = 0, firstKey = 0, keys = 0;
};

/// The tiling of a plane by a kernel.
struct MaskTiling {
  int64_t rows = 1;     ///< queries of a task, counted from the first one
  int64_t cols = 1;     ///< keys of a step; steps start at multiples of it
  int64_t group = 1;    ///< queries of a task that skip the same keys
  int64_t panel = 1;    ///< granularity in which keys of a step are skipped
  int64_t tail = 1;     ///< granularity in which keys at the end of the last panel are skipped
  bool hasHoles = true; ///< panels between visible panels are skipped as well
};

/// The proved classification of a box of pairs.
enum class MaskKind {
  Empty,         ///< the mask holds for no pair
  Full,          ///< the mask holds for all pairs
  Partial,       ///< neither is proved
  DataDependent, ///< neither is proved; it depends on elements of captured tensors
};

struct MaskCount {
  int64_t empty = 0, full = 0, partial = 0, dataDependent = 0; ///< tiles
  int64_t computed = 0; ///< pairs whose scores a kernel computes: those in panels that are not skipped
  int64_t visible = 0;  ///< pairs for which the mask holds, an upper bound unless `isExact`
  bool isExact = true;

  int64_t tiles() const { return empty + full + partial + dataDependent; }
  MaskCount &operator+=(const MaskCount &other);
};

/// Classifies the pairs of `plane`.
MaskKind classifyMask(mlir::Region &mask, const MaskPlane &plane, StaticMaskInputs &inputs);

/// Counts a plane. Every classified box takes one from `budget`. Nullopt if there are more tiles than that; if the
/// budget ends within tiles, their remaining pairs count as visible and the result is not exact.
std::optional<MaskCount> countMask(mlir::Region &mask, const MaskPlane &plane, const MaskTiling &tiling,
                                   StaticMaskInputs &inputs, int64_t &budget);

/// A picture of at most `width` × `height` cells, with a line for each range of queries: '#' full, '+' partial,
/// '?' data-dependent, '.' empty.
llvm::SmallVector<std::string> drawMask(mlir::Region &mask, const MaskPlane &plane, int64_t width, int64_t height,
                                        StaticMaskInputs &inputs);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_MASKCOUNT_H
