//===- ReductionPatterns.cpp - Smaller variants of programs -------------------===//
//
// Each pattern tries its change on a copy of the program, and applies it if the test still calls the copy interesting.
//
//===----------------------------------------------------------------------===//
#include "ReductionPatterns.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Reducer/ReductionPatternInterface.h"
#include "mlir/Reducer/Tester.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

using namespace mlir;
using namespace saccade;

namespace {

class TestedPattern : public RewritePattern {
public:
  TestedPattern(MLIRContext *context, Tester &tester)
      : RewritePattern(MatchAnyOpTypeTag(), /*benefit=*/1, context), tester(tester) {}

protected:
  using Change = function_ref<void(RewriterBase &, Operation *)>;

  /// Applies `change` to the op if the program is valid and interesting with it.
  LogicalResult attempt(PatternRewriter &rewriter, Operation *op, Change change) const {
    auto module = op->getParentOfType<ModuleOp>();
    if (!module)
      return failure();
    IRMapping mapping;
    OwningOpRef<ModuleOp> copy(cast<ModuleOp>(module->clone(mapping)));
    IRRewriter copyRewriter(op->getContext());
    change(copyRewriter, mapping.lookup(op));
    ScopedDiagnosticHandler silence(op->getContext(), [](Diagnostic &) { return success(); });
    if (failed(verify(*copy)) || tester.isInteresting(*copy).first != Tester::Interestingness::True)
      return failure();
    change(rewriter, op);
    return success();
  }

  Tester &tester;
};

/// Replaces an op by one of its operands, or by an argument of the function.
class ReplaceByValue : public TestedPattern {
public:
  using TestedPattern::TestedPattern;

  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const override {
    if (op->getNumResults() != 1 || op->getNumOperands() == 0 || op->use_empty())
      return failure();
    Type type = op->getResult(0).getType();
    for (auto [i, operand] : llvm::enumerate(op->getOperands()))
      if (operand.getType() == type && succeeded(attempt(rewriter, op, [i = i](RewriterBase &b, Operation *each) {
            b.replaceOp(each, each->getOperand(i));
          })))
        return success();
    auto function = op->getParentOfType<func::FuncOp>();
    if (!function || op->getParentOp() != function)
      return failure();
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      if (function.getArgument(i).getType() == type &&
          succeeded(attempt(rewriter, op, [i](RewriterBase &b, Operation *each) {
            b.replaceOp(each, each->getParentOfType<func::FuncOp>().getArgument(i));
          })))
        return success();
    return failure();
  }
};

/// Removes the score, mask or weight region of attention, and captures that no region reads.
class RemoveClause : public TestedPattern {
public:
  using TestedPattern::TestedPattern;

  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const override {
    auto attention = dyn_cast<attn::AttentionOp>(op);
    if (!attention)
      return failure();
    for (unsigned i = 0; i < 3; ++i)
      if (!op->getRegion(i).empty() && succeeded(attempt(rewriter, op, [i](RewriterBase &b, Operation *each) {
            b.modifyOpInPlace(each, [&] { b.eraseBlock(&each->getRegion(i).front()); });
          })))
        return success();
    bool hasRegions = llvm::any_of(op->getRegions(), [](Region &region) { return !region.empty(); });
    if (hasRegions || attention.getCaptures().empty())
      return failure();
    return attempt(rewriter, op, [](RewriterBase &b, Operation *each) {
      b.modifyOpInPlace(each, [&] { cast<attn::AttentionOp>(each).getCapturesMutable().clear(); });
    });
  }
};

struct ReductionPatterns : DialectReductionPatternInterface {
  ReductionPatterns(Dialect *dialect) : DialectReductionPatternInterface(dialect) {}
  void populateReductionPatterns(RewritePatternSet &) const override {}
  void populateReductionPatternsWithTester(RewritePatternSet &patterns, Tester &tester) const override {
    patterns.add<RemoveClause, ReplaceByValue>(patterns.getContext(), tester);
  }
};

} // namespace

void saccade::addReductionPatterns(DialectRegistry &registry) {
  registry.addExtension(
      +[](MLIRContext *, attn::AttnDialect *dialect) { dialect->addInterfaces<ReductionPatterns>(); });
}
