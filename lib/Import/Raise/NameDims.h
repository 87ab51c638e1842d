//===- NameDims.h - Which loop is batch, head, position and depth -*- C++ -*-===//
//
// Two contractions have loops; attention has named dimensions. A named dimension may stand for several loops that lie behind
// each other in every operand: heads for key heads and groups, batches for windows of images.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_IMPORT_RAISE_NAMEDIMS_H
#define SACCADE_LIB_IMPORT_RAISE_NAMEDIMS_H

#include "Expr.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::raise {

/// What one dimension of an operand is indexed by: a loop, a loop divided by the size of a group of heads, or nothing where
/// its extent is 1.
struct Label {
  std::optional<unsigned> loop;
  int64_t group = 1;
  bool operator==(const Label &) const = default;
};

/// An operand of attention with one label for each of its dimensions.
struct Labelled {
  mlir::Value tensor;
  llvm::SmallVector<Label> labels;

  bool has(unsigned loop) const {
    return llvm::any_of(labels, [&](Label label) { return label.loop == loop; });
  }
};

/// The loops of the contraction with values, and the one that scores are summed over.
struct Loops {
  llvm::SmallVector<unsigned> rows; ///< loops of a weight but for the key, in the order in which weights have them
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

/// The candidates among the origins of `node` whose dimensions each have a label.
llvm::SmallVector<Labelled> findLabelled(Node node, const Graph &graph);

/// Names the loops, so that the operands of all roles can be given named dimensions. A null reason means success.
struct Naming {
  NamedLoops names;
  const char *reason = nullptr;
};
Naming nameLoops(const Graph &graph, const Loops &loops, const Labelled &query, const Labelled &key,
                 const Labelled &value);

/// The operand with named dimensions: loops of one name are collapsed, dimensions of extent 1 without a name dropped, and a
/// sequence of length 1 is made where `seq` is not among the labels. `depth` is the loop of the last dimension.
std::pair<mlir::Value, attn::DimsAttr> nameOperand(mlir::OpBuilder &b, mlir::Location loc, const Labelled &operand,
                                                   const NamedLoops &names, llvm::ArrayRef<unsigned> seq,
                                                   unsigned depth);

/// How a tensor with `labels` is grouped into named dimensions, outermost first; a name for each group.
struct Grouping {
  llvm::SmallVector<mlir::ReassociationIndices> groups;
  llvm::SmallVector<attn::Dim> dims;
};
std::optional<Grouping> groupDims(llvm::ArrayRef<Label> labels, const NamedLoops &names, llvm::ArrayRef<unsigned> seq,
                                  unsigned depth);

} // namespace saccade::raise

#endif // SACCADE_LIB_IMPORT_RAISE_NAMEDIMS_H
