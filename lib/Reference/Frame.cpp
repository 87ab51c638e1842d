//===- Frame.cpp - Values of one execution of a region ------------------------===//
#include "Frame.h"
#include "Program.h"
#include "ScalarOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace saccade::reference;

//===----------------------------------------------------------------------===//
// Semantics
//===----------------------------------------------------------------------===//

const Semantics *saccade::reference::semanticsOf(Operation *op) {
  static const SemanticsTable table = [] {
    SemanticsTable table;
    addAppendSemantics(table);
    addAttentionSemantics(table);
    addAttentionTileSemantics(table);
    addGradientSemantics(table);
    addJvpSemantics(table);
    addDequantizeSemantics(table);
    addPagedSemantics(table);
    addLinearSemantics(table);
    addLinearGradientSemantics(table);
    addControlFlowSemantics(table);
    addTensorSemantics(table);
    addSliceSemantics(table);
    addReshapeSemantics(table);
    addSoftmaxSemantics(table);
    addWeightsSemantics(table);
    return table;
  }();
  if (const Semantics *semantics = table.find(op->getName().getStringRef()))
    return semantics;
  if (isa<linalg::LinalgOp>(op))
    return &linalgSemantics();
  return scalarFunction(op) ? &elementwiseSemantics() : nullptr;
}

//===----------------------------------------------------------------------===//
// Frame
//===----------------------------------------------------------------------===//

class Frame::Nesting {
public:
  explicit Nesting(unsigned &depth) : depth(&depth) { ++depth; }
  Nesting(Nesting &&other) noexcept : depth(std::exchange(other.depth, nullptr)) {}
  ~Nesting() {
    if (depth)
      --*depth;
  }

private:
  unsigned *depth;
};

FailureOr<Frame::Nesting> Frame::enter(Operation *op) {
  constexpr unsigned limit = 2000;
  if (*depth == limit)
    return op->emitOpError() << "is part of a chain of more than " << limit
                             << " ops, which is too deep for the reference interpreter";
  return Nesting(*depth);
}

std::pair<Frame *, Value> Frame::resolve(Value value) {
  Frame *frame = this;
  while (true) {
    while (frame->region != value.getParentRegion()) {
      frame = frame->parent;
      assert(frame && "value is not visible from this frame");
    }
    auto it = frame->aliases.find(value);
    if (it == frame->aliases.end())
      return {frame, value};
    std::tie(frame, value) = it->second;
  }
}

const Cells *Frame::computed(Value name) {
  auto [home, value] = resolve(name);
  auto it = home->values.find(value);
  return it == home->values.end() ? nullptr : it->second.get();
}

Frame *Frame::existingChild(Operation *op) const {
  auto it = children.find(op);
  return it == children.end() ? nullptr : it->second.get();
}

FailureOr<Cells *> Frame::cells(Value name) {
  auto [home, value] = resolve(name);
  if (auto it = home->values.find(value); it != home->values.end())
    return it->second.get();
  auto result = cast<OpResult>(value);
  Operation *op = result.getOwner();
  const Semantics *semantics = semanticsOf(op);
  if (!semantics)
    return op->emitOpError() << "is not supported by the reference interpreter";
  FailureOr<Nesting> nesting = home->enter(op);
  if (failed(nesting))
    return failure();
  Shape shape;
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (type && type.hasStaticShape())
    shape.assign(type.getShape().begin(), type.getShape().end());
  else if (type && failed(semantics->shape(op, *home, result.getResultNumber(), shape)))
    return failure();
  if (type) {
    assert(shape.size() == size_t(type.getRank()));
    for (auto [declared, extent] : llvm::zip_equal(type.getShape(), shape))
      if (extent < 0 || (!ShapedType::isDynamic(declared) && declared != extent))
        return op->emitOpError() << "has a result of shape [" << ArrayRef<int64_t>(shape) << "], expected " << type;
  }
  FailureOr<std::shared_ptr<Cells>> fresh = Cells::create(getElementTypeOrSelf(value), shape);
  if (failed(fresh))
    return op->emitOpError() << "has a result of shape [" << ArrayRef<int64_t>(shape)
                             << "], which is too large for the reference interpreter";
  return (home->values[value] = *fresh).get();
}

FailureOr<Cells *> Frame::demand(Value name, const Box &box) {
  FailureOr<Cells *> storage = cells(name);
  if (failed(storage))
    return failure();
  std::optional<Box> missing = (*storage)->unknownPart(box);
  if (!missing)
    return storage;
  auto [home, value] = resolve(name);
  auto result = cast<OpResult>(value);
  FailureOr<Nesting> nesting = home->enter(result.getOwner());
  if (failed(nesting))
    return failure();
  const Semantics *semantics = semanticsOf(result.getOwner());
  if (failed(semantics->evaluate(result.getOwner(), *home, result.getResultNumber(), *missing)))
    return failure();
  (*storage)->setKnown(*missing);
  return storage;
}

FailureOr<Cells *> Frame::demandAll(Value value) {
  FailureOr<Cells *> storage = cells(value);
  if (failed(storage))
    return failure();
  return demand(value, Box::whole((*storage)->getShape()));
}

FailureOr<std::shared_ptr<Cells>> Frame::take(Value name) {
  if (failed(demandAll(name)))
    return failure();
  auto [home, value] = resolve(name);
  return home->values[value];
}

FailureOr<Scalar> Frame::scalar(Value value) {
  FailureOr<Cells *> storage = demand(value, Box{});
  if (failed(storage))
    return failure();
  return *(*storage)->data();
}

FailureOr<int64_t> Frame::index(OpFoldResult value) {
  if (std::optional<int64_t> constant = getConstantIntValue(value))
    return *constant;
  FailureOr<Scalar> number = scalar(cast<Value>(value));
  if (failed(number))
    return failure();
  return number->integer;
}

LogicalResult Frame::indices(ArrayRef<OpFoldResult> values, SmallVectorImpl<int64_t> &numbers) {
  for (OpFoldResult value : values) {
    FailureOr<int64_t> number = index(value);
    if (failed(number))
      return failure();
    numbers.push_back(*number);
  }
  return success();
}

Frame &Frame::child(Operation *op, Region &body, bool isNested) {
  std::unique_ptr<Frame> &frame = children[op];
  if (!frame)
    frame = std::make_unique<Frame>(body, *this, isNested);
  return *frame;
}

std::shared_ptr<Program> &Frame::program(Region *body) { return programs[body]; }
