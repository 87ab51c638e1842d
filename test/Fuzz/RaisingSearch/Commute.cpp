//===- Commute.cpp - Rewrites that keep the meaning -----------------------===//
#include "Search.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"

using namespace mlir;
using namespace saccade;

/// Moves ops of `block` down to the first op that needs them, or any place before that.
static void reorder(Block &block, search::Random &random) {
  SmallVector<Operation *> ops = llvm::map_to_vector(block.without_terminator(), [](Operation &op) { return &op; });
  for (Operation *op : llvm::reverse(ops)) {
    Operation *limit = block.getTerminator();
    for (Operation *user : op->getUsers()) {
      Operation *here = block.findAncestorOpInBlock(*user);
      if (here && here->isBeforeInBlock(limit))
        limit = here;
    }
    int64_t places = 0;
    for (Operation *next = op->getNextNode(); next != limit; next = next->getNextNode())
      ++places;
    Operation *before = limit;
    for (size_t up = random.below(places + 1); up > 0; --up)
      before = before->getPrevNode();
    op->moveBefore(before);
  }
}

void search::commute(func::FuncOp function, Random &random) {
  SmallVector<linalg::LinalgOp> named;
  function.walk([&](linalg::LinalgOp op) {
    if (!isa<linalg::GenericOp>(op) && random.chance(0.5))
      named.push_back(op);
  });
  IRRewriter rewriter(function.getContext());
  for (linalg::LinalgOp op : named) {
    rewriter.setInsertionPoint(op);
    (void)linalg::generalizeNamedOp(rewriter, op);
  }
  function.walk([&](Operation *op) {
    if (op->hasTrait<OpTrait::IsCommutative>() && op->getNumOperands() == 2 && random.chance(0.5)) {
      Value lhs = op->getOperand(0);
      op->setOperand(0, op->getOperand(1));
      op->setOperand(1, lhs);
    }
  });
  SmallVector<Block *> blocks = {&function.getBody().front()};
  function.walk([&](linalg::GenericOp op) { blocks.push_back(op.getBlock()); });
  for (Block *block : blocks)
    reorder(*block, random);
}
