//===- VerifyFacts.cpp - Facts that contradict the program ---------------------===//
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "saccade/Dialect/Attn/Analysis/RelativePositionTerms.h"
#include "saccade/Dialect/Attn/Analysis/Signatures.h"
#include "saccade/Dialect/Attn/Analysis/Stability.h"
#include "saccade/Pipeline/Passes.h"
#include "llvm/ADT/StringMap.h"

namespace saccade {
#define GEN_PASS_DEF_VERIFYFACTS
#include "saccade/Pipeline/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

//===----------------------------------------------------------------------===//
// Softmax
//===----------------------------------------------------------------------===//

/// Reports a claim that the regions do not prove.
template <typename Op> static LogicalResult verifyStability(Op op, llvm::StringRef attribute) {
  Attribute claim = op->getAttr(attribute);
  if (!claim)
    return success();
  attn::Stability proof = analyzeStability(op);
  if (getFiniteMax(op) <= proof.finiteMax)
    return success();
  return op.emitOpError() << "has " << attribute << " = " << claim
                          << ", which its regions contradict: " << proof.reason;
}

/// Whether the score reads a table that tiling has made: what was proved of the code that it replaces is lost.
static bool readsTable(Region &score) {
  return score
      .walk([](Operation *op) {
        return op->hasAttr(attn::inBoundsName) ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

//===----------------------------------------------------------------------===//
// Entries
//===----------------------------------------------------------------------===//

/// Whether an argument of this type takes values of an entry's argument, as a tensor or as a buffer.
static bool isSameArgument(Type type, Type ofEntry) {
  auto shaped = dyn_cast<ShapedType>(type), expected = dyn_cast<ShapedType>(ofEntry);
  if (!shaped || !expected)
    return type == ofEntry;
  return shaped.getElementType() == expected.getElementType() && shaped.getShape() == expected.getShape();
}

static LogicalResult verifyArguments(func::FuncOp function, const attn::Signature &entry) {
  llvm::ArrayRef<Type> types = function.getArgumentTypes(), expected = entry.type.getInputs();
  if (types.size() < expected.size())
    return function.emitError() << "'" << function.getName() << "' has " << types.size() << " arguments, but entry '"
                                << entry.name << "' has " << expected.size();
  for (auto [i, type, ofEntry] : llvm::enumerate(types.take_front(expected.size()), expected))
    if (!isSameArgument(type, ofEntry))
      return function.emitError() << "argument " << i << " of '" << function.getName() << "' is " << type
                                  << ", but that of entry '" << entry.name << "' is " << ofEntry;
  return success();
}

/// Verifies an entry and its shape function.
static LogicalResult verifyEntry(func::FuncOp function, DictionaryAttr attribute,
                                 const llvm::StringMap<SmallVector<func::FuncOp, 1>> &shapeFunctions) {
  std::optional<attn::Signature> entry = attn::Signature::from(attribute, function.getLoc());
  if (!entry)
    return function.emitError() << "'" << function.getName() << "' has a malformed 'attn.entry': " << attribute;
  if (!function.isPublic())
    return function.emitError() << "'" << function.getName() << "' of entry '" << entry->name
                                << "' is private, expected a public function";
  auto found = shapeFunctions.find(entry->name);
  size_t count = found == shapeFunctions.end() ? 0 : found->second.size();
  if (count != 1)
    return function.emitError() << "entry '" << entry->name << "' has " << count << " shape functions, expected one";
  return failure(failed(verifyArguments(function, *entry)) || failed(verifyArguments(found->second.front(), *entry)));
}

namespace {
struct VerifyFacts : saccade::impl::VerifyFactsBase<VerifyFacts> {
  void runOnOperation() override {
    markAllAnalysesPreserved();
    llvm::StringMap<SmallVector<func::FuncOp, 1>> shapeFunctions;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (auto entry = function->getAttrOfType<StringAttr>("attn.shapes_of"))
        shapeFunctions[entry.getValue()].push_back(function);
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (auto entry = function->getAttrOfType<DictionaryAttr>("attn.entry"))
        if (failed(verifyEntry(function, entry, shapeFunctions)))
          return signalPassFailure();
    WalkResult walk = getOperation().walk([](Operation *op) -> WalkResult {
      if (auto attention = dyn_cast<attn::AttentionOp>(op))
        return verifyStability(attention, attn::stabilityAttr);
      auto step = dyn_cast<attn::AccumulateOp>(op);
      if (step && !readsTable(step.getScore()))
        return verifyStability(step, attn::finiteMaxAttr);
      return success();
    });
    if (walk.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
