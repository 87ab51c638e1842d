//===- BufferizableOpInterfaceImpl.cpp - What tile ops read and write -----------------===//
//
// The tile ops of attn are destination style: they write their destinations in place and read all
// else. Captured tensors become buffers as operands and stay tensors as region arguments.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Bufferization/IR/DstBufferizableOpInterfaceImpl.h"
#include "saccade/Bufferize/Bufferize.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

using namespace mlir;
using namespace mlir::bufferization;
using namespace saccade::attn;

namespace {

template <typename OpTy> struct TileOpModel : DstBufferizableOpInterfaceExternalModel<TileOpModel<OpTy>, OpTy> {
  /// What finalize overwrites needs no copy of what stood there before; the state is updated, so it does.
  bool bufferizesToMemoryRead(Operation *op, OpOperand &operand, const AnalysisState &) const {
    return !isa<FinalizeOp>(op) || !cast<DestinationStyleOpInterface>(op).isDpsInit(&operand);
  }

  /// What regions see as tensors does not count: upstream, which tells ops by their addresses, may come to an op that
  /// is bufferized already where a former one stood.
  bool hasTensorSemantics(Operation *op) const {
    return llvm::any_of(op->getOperandTypes(), llvm::IsaPred<TensorType>);
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter, const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto tileOp = cast<DestinationStyleOpInterface>(op);
    SmallVector<Value> operands, destinations;
    for (OpOperand &operand : op->getOpOperands()) {
      Value value = operand.get();
      if (isa<RankedTensorType>(value.getType())) {
        FailureOr<Value> buffer = getBuffer(rewriter, value, options, state);
        if (failed(buffer))
          return failure();
        value = *buffer;
        if (tileOp.isDpsInit(&operand))
          destinations.push_back(value);
      }
      operands.push_back(value);
    }
    // Only destinations that are tensors have a result.
    if (destinations.size() != op->getNumResults())
      return op->emitOpError("mixes tensor and buffer destinations");
    OperationState newOp(op->getLoc(), op->getName(), operands, TypeRange(),
                         op->getDiscardableAttrDictionary().getValue());
    newOp.propertiesAttr = op->getPropertiesAsAttribute();
    for (unsigned i = 0; i < op->getNumRegions(); ++i)
      newOp.addRegion();
    Operation *created = rewriter.create(newOp);
    for (auto [from, to] : llvm::zip_equal(op->getRegions(), created->getRegions()))
      rewriter.inlineRegionBefore(from, to, to.begin());
    replaceOpWithBufferizedValues(rewriter, op, destinations);
    return success();
  }
};

} // namespace

void saccade::registerBufferizableOpInterfaceExternalModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, AttnDialect *) {
    AccumulateOp::attachInterface<TileOpModel<AccumulateOp>>(*context);
    MergeOp::attachInterface<TileOpModel<MergeOp>>(*context);
    FinalizeOp::attachInterface<TileOpModel<FinalizeOp>>(*context);
  });
}
