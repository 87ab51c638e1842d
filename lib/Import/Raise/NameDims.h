//===- NameDims.h - Batch, head, sequence and depth loops -------*- C++ -*-===//
//
// Maps the loops of the two contractions to the named dimensions of attention. A named dimension may stand for several
// loops that are adjacent in every operand: KV heads and groups for heads, batches and image windows for batches.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_IMPORT_RAISE_NAMEDIMS_H
#define SACCADE_LIB_IMPORT_RAISE_NAMEDIMS_H

#include "Expr.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::raise {

/// The index of one operand dimension: a loop, a loop divided by the group size of heads, or none for extent 1.
struct Label {
  std::optional<unsigned> loop;
  int64_t group = 1;
  bool operator==(const Label &) const = default;
};

/// An operand of attention with one label per dimension.
struct Labelled {
  mlir::Value tensor;
  llvm::SmallVector<Label> labels;

  bool has(unsigned loop) const {
    return llvm::any_of(labels, [&](Label label) { return label.loop == loop; });
  }
};

/// The loops of the P·V contraction, and the contracting loop `depth` of the scores.
struct Loops {
  llvm::SmallVector<unsigned> rows; ///< loops of the weights except the key, in the order of their dimensions
  unsigned key, depth, valueDepth;
};

/// The loops that each named dimension stands for, outermost first.
struct NamedLoops {
  llvm::SmallVector<unsigned> batch, head, query;
  unsigned key;

  bool has(unsigned loop) const {
    return llvm::is_contained(batch, loop) || llvm::is_contained(head, loop) || llvm::is_contained(query, loop);
  }
};

/// The origins of `node` whose dimensions all have a label. `extents` are the trip counts of the loops.
llvm::SmallVector<Labelled> findLabelled(Node node, llvm::ArrayRef<int64_t> extents);

/// Assigns names to the loops that fit all operands. A null reason means success.
struct Naming {
  NamedLoops names;
  const char *reason = nullptr;
};
Naming nameLoops(const Graph &graph, const Loops &loops, const Labelled &query, const Labelled &key,
                 const Labelled &value);

/// The operand with named dimensions: collapses the loops of one name, drops unnamed dimensions of extent 1, and
/// inserts a sequence dimension of extent 1 if no label is in `seq`. `depth` is the loop of the depth dimension.
std::pair<mlir::Value, attn::DimsAttr> nameOperand(mlir::OpBuilder &b, mlir::Location loc, const Labelled &operand,
                                                   const NamedLoops &names, llvm::ArrayRef<unsigned> seq,
                                                   unsigned depth);

/// The grouping of a tensor with `labels` into named dimensions, outermost first, with a name for each group.
struct Grouping {
  llvm::SmallVector<mlir::ReassociationIndices> groups;
  llvm::SmallVector<attn::Dim> dims;
};
std::optional<Grouping> groupDims(llvm::ArrayRef<Label> labels, const NamedLoops &names, llvm::ArrayRef<unsigned> seq,
                                  unsigned depth);

} // namespace saccade::raise

#endif // SACCADE_LIB_IMPORT_RAISE_NAMEDIMS_H
