//===- CreateShapeFunctions.cpp - Result extents and shape checks of entries --===//
//
// Clones every entry into a function that computes and compares extents only. Runs before tiling, because the
// constraints on operands are those of ops on whole tensors.
//
//===----------------------------------------------------------------------===//
#include "ShapeChecks.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/TilingInterface.h"
#include "saccade/Dialect/Attn/Analysis/NameValues.h"
#include "saccade/Dialect/Attn/Analysis/ResolveExtents.h"
#include "saccade/Dialect/Attn/Analysis/Signatures.h"
#include "saccade/Dialect/Attn/Transforms/Passes.h"
#include "llvm/ADT/BitVector.h"

namespace saccade::attn {
#define GEN_PASS_DEF_CREATESHAPEFUNCTIONS
#include "saccade/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace saccade::attn

using namespace mlir;
using namespace saccade::attn;

/// Verifies that no op that computes tensors is left, since the shape function runs for every call.
static LogicalResult verifyCheap(func::FuncOp function) {
  for (Operation &op : function.getBody().front())
    if (isa<TilingInterface, CallOpInterface>(op))
      return op.emitOpError(
          "determines an extent of a result or an operand, expected extents that do not depend on its result");
  return success();
}

/// The messages, empty if their check was folded: then their number no longer occurs in the function.
static ArrayAttr getLiveMessages(func::FuncOp function, ArrayRef<StringRef> messages) {
  llvm::BitVector numbers(messages.size() + 1);
  function.walk([&](arith::ConstantIndexOp constant) {
    if (constant.value() > 0 && constant.value() <= static_cast<int64_t>(messages.size()))
      numbers.set(constant.value());
  });
  SmallVector<StringRef> live(messages);
  for (auto [i, text] : llvm::enumerate(live))
    if (!numbers.test(i + 1))
      text = "";
  return Builder(function.getContext()).getStrArrayAttr(live);
}

/// Removes the names of dimensions and results: the shape function has the checks, and the signature the names.
static void removeNames(func::FuncOp function) {
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    function.removeArgAttr(i, dimNamesAttr);
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    function.removeResultAttr(i, StringAttr::get(function.getContext(), resultNameAttr));
}

/// Creates the shape function after `entry`.
static LogicalResult createShapeFunction(func::FuncOp entry, bool mayReadElements, int64_t maxKeys) {
  OpBuilder builder(entry.getContext());
  builder.setInsertionPointAfter(entry);
  auto function = cast<func::FuncOp>(builder.clone(*entry));
  function.setName((entry.getName() + ".shapes").str());
  function->setAttr("attn.shapes_of", builder.getStringAttr(entry.getName()));
  function->removeAttr("attn.entry");

  Operation *terminator = function.getBody().front().getTerminator();
  builder.setInsertionPoint(terminator);
  ShapeChecks checks(builder, function.getLoc(), mayReadElements, maxKeys);
  SmallVector<std::string> names = nameValues(entry);
  checks.addForArguments(function, names);
  removeNames(function);
  for (Operation &op : llvm::make_early_inc_range(function.getBody().front()))
    checks.addFor(&op);

  checks.addForUpdatedArguments(function, names);
  llvm::BitVector isUpdating(entry.getNumResults());
  for (auto [i, result] : llvm::enumerate(getUpdatingResults(entry)))
    if (result) {
      isUpdating.set(*result);
      function.removeArgAttr(i, updatedByAttr);
    }

  Location loc = terminator->getLoc();
  SmallVector<Value> results = checks.getOutcome();
  for (auto [number, returned] : llvm::enumerate(terminator->getOperands()))
    for (int64_t i = 0, e = cast<RankedTensorType>(returned.getType()).getRank(); i < e && !isUpdating[number]; ++i)
      results.push_back(tensor::DimOp::create(builder, loc, returned, i));
  func::ReturnOp::create(builder, loc, results);
  terminator->erase();
  function.setType(builder.getFunctionType(function.getArgumentTypes(), TypeRange(ValueRange(results))));
  function.removeResAttrsAttr();
  if (failed(resolveExtents(function)) || failed(verifyCheap(function)))
    return failure();
  function->setAttr("attn.messages", getLiveMessages(function, checks.getMessages()));
  return success();
}

namespace {
struct CreateShapeFunctions : saccade::attn::impl::CreateShapeFunctionsBase<CreateShapeFunctions> {
  using CreateShapeFunctionsBase::CreateShapeFunctionsBase;

  void runOnOperation() override {
    for (auto function : llvm::to_vector(getOperation().getOps<func::FuncOp>())) {
      if (!function.isPublic() || function.isExternal() || function->hasAttr("attn.shapes_of"))
        continue;
      for (Type result : function.getResultTypes())
        if (!isa<RankedTensorType>(result)) {
          function.emitError() << "entry '" << function.getName() << "' returns " << result
                               << ", expected ranked tensors";
          return signalPassFailure();
        }
      if (!function.getBody().hasOneBlock()) {
        function.emitError() << "entry '" << function.getName() << "' has more than one block, expected one";
        return signalPassFailure();
      }
      function->setAttr("attn.entry", Signature::of(function).toAttribute());
      function->setAttr(LLVM::LLVMDialect::getEmitCWrapperAttrName(), UnitAttr::get(&getContext()));
      if (failed(createShapeFunction(function, mayReadElements, maxKeys)))
        return signalPassFailure();
      removeNames(function);
      // A name with a dot is not a C identifier, so it cannot clash with @expf, @memcpy or @saccade_allocate.
      function.setName((function.getName() + ".body").str());
    }
  }
};
} // namespace
