//===- ResultsToDestinations.cpp - Destination arguments of entries -----------===//
//
// Converts every tensor result of an entry to a trailing memref argument in which the tensor is materialised. Runs
// before bufferization, so that producers can write directly to the destination. A result that updates an argument in
// place remains: it needs the analysis of bufferization.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Bufferize/Passes.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade {
#define GEN_PASS_DEF_RESULTSTODESTINATIONS
#include "saccade/Bufferize/Passes.h.inc"
} // namespace saccade

using namespace mlir;

/// Verifies that `func` can be an entry.
static LogicalResult verifyEntry(func::FuncOp func, ModuleOp module) {
  for (auto [i, type] : llvm::enumerate(func.getResultTypes()))
    if (!isa<RankedTensorType>(type))
      return func.emitError("entry '") << func.getName() << "' has result " << i << " of type " << type
                                       << ", expected a tensor (a scalar can be a tensor without dimensions)";
  if (!func.getBody().hasOneBlock())
    return func.emitError("entry '") << func.getName() << "' has " << func.getBody().getBlocks().size()
                                     << " blocks, expected structured control flow in one";
  if (!SymbolTable::symbolKnownUseEmpty(func, module))
    return func.emitError("entry '") << func.getName()
                                     << "' is called from within the module, expected calls to be inlined";
  return success();
}

/// The destination operand tied to `value`, or null.
static OpOperand *findInit(Value value) {
  auto result = dyn_cast<OpResult>(value);
  if (!result)
    return nullptr;
  if (auto destination = dyn_cast<DestinationStyleOpInterface>(result.getOwner()))
    return destination.getTiedOpOperand(result);
  if (auto loop = dyn_cast<scf::ForallOp>(result.getOwner()))
    return loop.getTiedOpOperand(result);
  return nullptr;
}

/// Gives results with the same initial tensor separate ones; otherwise both would be computed in one destination and
/// overwrite each other.
static void separateStarts(func::ReturnOp returnOp) {
  llvm::SmallPtrSet<Value, 16> known;
  for (Value result : returnOp.getOperands()) {
    if (!known.insert(result).second)
      continue;
    for (OpOperand *init = findInit(result); init; init = findInit(init->get())) {
      Value start = init->get();
      if (known.insert(start).second || !start.getDefiningOp())
        continue;
      OpBuilder builder(init->getOwner());
      bool isCheap = isa<tensor::EmptyOp, linalg::FillOp>(start.getDefiningOp());
      start.getDefiningOp()->walk([&](linalg::LinalgOp op) { isCheap = isa<linalg::FillOp>(op); });
      if (isCheap) {
        auto number = cast<OpResult>(start).getResultNumber();
        init->set(builder.clone(*start.getDefiningOp())->getResult(number));
        continue;
      }
      auto type = cast<RankedTensorType>(start.getType());
      init->set(bufferization::AllocTensorOp::create(builder, start.getLoc(), type, ValueRange(), /*copy=*/start));
      break;
    }
  }
}

static LogicalResult convertResults(func::FuncOp func) {
  auto returnOp = cast<func::ReturnOp>(func.getBody().front().getTerminator());
  separateStarts(returnOp);
  BitVector isConverted(func.getNumResults(), true);
  SmallVector<std::optional<unsigned>> updatedBy = saccade::attn::getUpdatingResults(func);
  for (std::optional<unsigned> result : updatedBy)
    if (result)
      isConverted.reset(*result);
  SmallVector<std::pair<Value, BlockArgument>> results;
  for (auto [i, result] : llvm::enumerate(returnOp.getOperands())) {
    if (!isConverted[i])
      continue;
    auto type = cast<RankedTensorType>(result.getType());
    SmallVector<int64_t> strides(type.getRank(), ShapedType::kDynamic);
    auto layout = StridedLayoutAttr::get(func.getContext(), ShapedType::kDynamic, strides);
    auto destinationType = MemRefType::get(type.getShape(), type.getElementType(), layout);
    unsigned position = func.getNumArguments();
    if (failed(func.insertArgument(position, destinationType, func.getResultAttrDict(i), returnOp.getLoc())))
      return failure();
    results.push_back({result, func.getArgument(position)});
  }
  // A result may be computed in the memory of a later one that uses it as initial value, so it is materialised first.
  llvm::sort(results, [](const auto &x, const auto &y) {
    Operation *first = x.first.getDefiningOp(), *second = y.first.getDefiningOp();
    if (first == second)
      return x.second.getArgNumber() < y.second.getArgNumber();
    return second && (!first || first->isBeforeInBlock(second));
  });
  OpBuilder builder(returnOp);
  for (auto [result, destination] : results) {
    auto materialize =
        bufferization::MaterializeInDestinationOp::create(builder, returnOp.getLoc(), result, destination);
    materialize.setRestrict(true);
    materialize.setWritable(true);
  }
  returnOp->eraseOperands(isConverted);
  // The remaining results have new numbers.
  for (auto [i, result] : llvm::enumerate(updatedBy))
    if (result) {
      int64_t erased = llvm::count_if(isConverted.set_bits(), [&](unsigned other) { return other < *result; });
      func.setArgAttr(i, saccade::attn::updatedByAttr, builder.getI64IntegerAttr(*result - erased));
    }
  return func.eraseResults(isConverted);
}

namespace {

struct ResultsToDestinations : saccade::impl::ResultsToDestinationsBase<ResultsToDestinations> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    for (auto func : module.getOps<func::FuncOp>()) {
      // Shape functions take the inputs only and return extents.
      if (func.isExternal() || !func.isPublic() || func->hasAttr("attn.shapes_of"))
        continue;
      if (failed(verifyEntry(func, module)) || failed(convertResults(func)))
        return signalPassFailure();
    }
  }
};

} // namespace
