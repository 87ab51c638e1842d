//===- LinearChecks.cpp - Checks of linear attention in calls -----------------===//
//
// The conditions on run-time sizes of attn.linear and its gradient.
//
//===----------------------------------------------------------------------===//
#include "ShapeChecks.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

void ShapeChecks::addForLinear(LinearOpInterface op) {
  auto size = [&](Value value, DimsAttr dims, Dim dim) { return getDimSize(builder, loc, value, dims, dim); };
  auto query = [&](Dim dim) { return size(op.getQuery(), op.getQueryDims(), dim); };
  auto key = [&](Dim dim) { return size(op.getKey(), op.getKeyDims(), dim); };
  auto value = [&](Dim dim) { return size(op.getValue(), op.getValueDims(), dim); };
  if (op.getCuSeqlens())
    addForOffsets("cu_seqlens", "value", op.getCuSeqlens(), value(Dim::Seq));
  requireSame(key(Dim::Batch), query(Dim::Batch), "key has another batch size than query");
  requireSame(value(Dim::Batch), query(Dim::Batch), "value has another batch size than query");
  requireGroups(value(Dim::Head), key(Dim::Head), "number of value heads is not a multiple of the number of KV heads");
  requireSame(value(Dim::Seq), key(Dim::Seq), "value has another length than key");
  requireSame(key(Dim::Depth), query(Dim::Depth), "key has another head size than query");
  if (op.getCausal() || op.getCuSeqlens())
    requireSame(key(Dim::Seq), query(Dim::Seq), "key has another length than query, though it is causal");
  requireGroups(getOutputHeads(builder, op), query(Dim::Head),
                "number of value heads is neither a multiple nor a divisor of the number of query heads");
  requireGroups(getOutputHeads(builder, op), value(Dim::Head),
                "number of query heads is neither a multiple nor a divisor of the number of value heads");
  auto owned = [&](const NamedOperand &owner, Dim dim) { return size(owner.value, owner.dims, dim); };
  for (auto [role, gate, axes] : {std::tuple("decay", op.getDecay(), op.getDecayAxesAttr()),
                                  std::tuple("beta", op.getBeta(), op.getBetaAxesAttr())})
    for (size_t i = 0; gate && i < axes.getDims().size(); ++i) {
      NamedOperand owner = op.getFactorOwner(axes.getDims()[i]);
      requireSame(extent(gate, i), owned(owner, axes.getDims()[i]),
                  Twine(role) + " has another extent of '" + stringifyDim(axes.getDims()[i]) + "' than " + owner.role);
    }
  if (Value erase = op.getErase()) {
    for (Dim dim : {Dim::Batch, Dim::Seq})
      requireSame(size(erase, op.getEraseDimsAttr(), dim), key(dim),
                  Twine("erase has another extent of '") + stringifyDim(dim) + "' than key");
    requireGroups(value(Dim::Head), size(erase, op.getEraseDimsAttr(), Dim::Head),
                  "number of value heads is not a multiple of the number of heads of erase");
  }
  if (op.getKvLen())
    requireSame(extent(op.getKvLen(), 0), value(Dim::Batch), "kv_len has another batch size than value");
  if (op.getState())
    addForState(op, "state", op.getState());
}

void ShapeChecks::addForState(LinearOpInterface op, StringRef role, Value state) {
  SmallVector<Dim> dims = op.getStateDims();
  for (auto [i, dim] : llvm::enumerate(dims))
    requireSame(extent(state, i),
                dim == Dim::Batch ? getBatches(builder, op)
                                  : getDimSize(builder, loc, op.getValue(), op.getValueDims(), dim),
                Twine(role) + " has another extent of '" + stringifyDim(dim) + "' than value");
  requireSame(extent(state, dims.size()), getDimSize(builder, loc, op.getKey(), op.getKeyDims(), Dim::Depth),
              Twine(role) + " has another extent of 'd' than key");
  auto linear = dyn_cast<LinearOp>(op.getOperation());
  // A dynamic head size of values is rejected later.
  if (int64_t columns = getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Depth); !ShapedType::isDynamic(columns))
    requireSame(extent(state, dims.size() + 1),
                builder.getIndexAttr(columns + (linear && linear.getNormalize() ? 1 : 0)),
                Twine(role) + " has another number of columns than the output requires");
}

void ShapeChecks::addForLinearGradient(LinearGradientOp op) {
  addForLinear(op);
  for (Dim dim : {Dim::Batch, Dim::Seq, Dim::Depth})
    requireSame(getDimSize(builder, loc, op.getOutputGradient(), op.getOutputDims(), dim),
                dim == Dim::Depth ? getDimSize(builder, loc, op.getValue(), op.getValueDims(), dim)
                                  : getDimSize(builder, loc, op.getQuery(), op.getQueryDims(), dim),
                Twine("output gradient has another extent of '") + stringifyDim(dim) + "' than the output");
  requireSame(getDimSize(builder, loc, op.getOutputGradient(), op.getOutputDims(), Dim::Head),
              getOutputHeads(builder, op), "output gradient has another head count than the output");
  if (op.getStateGradient())
    addForState(op, "state gradient", op.getStateGradient());
}
