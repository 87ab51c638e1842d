//===- Products.cpp - PyTorch's matrix products -------------------------------===//
#include "saccade/Import/Common/Products.h"
#include "Torch.h"
#include "saccade/Import/Common/Einsum.h"
#include "saccade/Import/Common/Reductions.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::torch;

static LogicalResult translateMatmul(Arguments &a, Values &results) {
  FailureOr<Value> lhs = a.required("self");
  Value rhs = a.tensor("other");
  for (StringRef name : {"mat2", "tensor", "vec"})
    rhs = rhs ? rhs : a.tensor(name);
  if (failed(lhs) || !rhs)
    return a.op.error() << "the right factor is missing";
  return append(door::multiplyMatrices(a.op, *lhs, rhs), results);
}

/// A product and a bias that broadcasts to it.
static FailureOr<Value> addBias(Arguments &a, Value product, Value bias) {
  if (failed(door::requireBroadcast(a.op, {product, bias})))
    return failure();
  Type element = elementOf(product), type = door::sumType(element);
  return door::elementwise(a.op.builder(), {product, bias}, element, [&](OpBuilder &b, Location loc, ValueRange x) {
    Value sum = door::add(b, loc, door::convert(b, loc, x[0], type), door::convert(b, loc, x[1], type));
    return door::convert(b, loc, sum, element);
  });
}

/// input · weightᵀ + bias
static LogicalResult translateLinear(Arguments &a, Values &results) {
  FailureOr<Value> input = a.required("input"), weight = a.required("weight");
  if (failed(input) || failed(weight))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  door::Affine affine;
  affine.turnsRight = true;
  affine.bias = a.tensor("bias");
  if (rankOf(*weight) == 1) {
    FailureOr<Value> product = door::multiplyMatrices(a.op, *input, *weight);
    return failed(product) || !affine.bias ? append(product, results)
                                           : append(addBias(a, *product, affine.bias), results);
  }
  if (rankOf(*input) != 1)
    return append(door::multiplyAffine(a.op, *input, *weight, affine), results);
  FailureOr<Value> row = door::multiplyAffine(a.op, door::unsqueeze(b, *input, {0}), *weight, affine);
  return failed(row) ? failure() : append(door::squeeze(b, *row, {0}), results);
}

/// beta · self + alpha · lhs · rhs, of two matrices or of batches of them.
static LogicalResult translateAddition(Arguments &a, Values &results) {
  bool isBatched = a.op.getName() == "aten.baddbmm";
  FailureOr<Value> self = a.required("self"), lhs = a.required(isBatched ? "batch1" : "mat1"),
                   rhs = a.required(isBatched ? "batch2" : "mat2");
  if (failed(self) || failed(lhs) || failed(rhs))
    return failure();
  door::Affine affine;
  affine.alpha = a.number("alpha", 1);
  affine.beta = a.number("beta", 1);
  affine.bias = *self;
  auto multiply = isBatched ? door::multiplyBatches : door::multiplyAffine;
  return append(multiply(a.op, *lhs, *rhs, affine), results);
}

/// A convolution whose windows lie beside each other.
static LogicalResult translateConvolution(Arguments &a, Values &results) {
  FailureOr<Value> image = a.required("input"), filters = a.required("weight");
  if (failed(image) || failed(filters))
    return failure();
  auto filter = cast<RankedTensorType>(filters->getType());
  auto is = [&](StringRef name, ArrayRef<int64_t> wanted) {
    SmallVector<int64_t> given = a.integers(name).value_or(SmallVector<int64_t>{wanted.front()});
    // One number is meant for all dimensions.
    if (given.size() == 1)
      given.assign(wanted.size(), given.front());
    return ArrayRef<int64_t>(given) == wanted;
  };
  bool fits = filter.getRank() == 4 && rankOf(*image) == 4;
  if (fits) {
    SmallVector<int64_t> kernel(filter.getShape().drop_front(2)), stride = {1, 1};
    stride = a.integers("stride").value_or(stride);
    if (stride.size() == 1)
      stride.push_back(stride.front());
    fits = stride == kernel && is("dilation", {1, 1}) && a.integer("groups", 1) == 1 && !a.flag("transposed") &&
           is("output_padding", {0, 0}) &&
           (is("padding", {0, 0}) || a.attribute("padding") == StringAttr::get(a.op.builder().getContext(), "valid"));
  }
  if (!fits)
    return a.op.error() << "only images in two dimensions and windows beside each other are supported: strides as "
                           "large as the filters, no padding, no groups and no dilations";
  return append(door::convolvePatches(a.op, *image, *filters, a.tensor("bias")), results);
}

/// Every element of one with every one of the other.
static LogicalResult translateOuter(Arguments &a, Values &results) {
  FailureOr<Value> x = a.required("self"), y = a.required("vec2");
  if (failed(x) || failed(y))
    return failure();
  return append(door::einsum(a.op, "i,j->ij", {*x, *y}), results);
}

static LogicalResult translateEinsum(Arguments &a, Values &results) {
  (void)a.attribute("path"); // only an order
  return append(door::einsum(a.op, a.text("equation", ""), a.list("tensors")), results);
}

void torch::addProducts(door::Door &door) {
  for (StringRef name : {"aten.bmm", "aten.dot", "aten.matmul", "aten.mm", "aten.mv"})
    add(door, name, translateMatmul);
  for (StringRef name : {"aten.conv2d", "aten.convolution"})
    add(door, name, translateConvolution);
  for (StringRef name : {"aten.addmm", "aten.baddbmm"})
    add(door, name, translateAddition);
  add(door, "aten.einsum", translateEinsum);
  add(door, "aten.linear", translateLinear);
  add(door, "aten.outer", translateOuter);
}
