//===- BufferizableOpInterfaceImpl.cpp - Bufferization of attn tile ops -------===//
//
// The tile ops of attn are in destination-passing style: they write their destinations and read all other operands.
// Captured tensors become buffers as operands and stay tensors as region arguments.
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
  /// finalize, load_dequantized and load_pages overwrite their destinations; accumulate and merge read and update the
  /// state.
  bool bufferizesToMemoryRead(Operation *op, OpOperand &operand, const AnalysisState &) const {
    return !isa<FinalizeOp, LoadDequantizedOp, LoadPagesOp>(op) ||
           !cast<DestinationStyleOpInterface>(op).isDpsInit(&operand);
  }

  /// Ignores tensors in regions. Upstream identifies ops by address and may visit a new, already bufferized op at the
  /// address of an erased one.
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
    LoadDequantizedOp::attachInterface<TileOpModel<LoadDequantizedOp>>(*context);
    LoadPagesOp::attachInterface<TileOpModel<LoadPagesOp>>(*context);
  });
}
