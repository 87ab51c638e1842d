//===- Matmul.cpp - PyTorch matmuls and convolutions ----------------------===//
#include "saccade/Import/Common/Matmul.h"
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
    return a.op.error() << "the RHS is missing";
  return append(frontend::importMatmul(a.op, *lhs, rhs), results);
}

/// product + bias, where the bias broadcasts.
static FailureOr<Value> addBias(Arguments &a, Value product, Value bias) {
  if (failed(frontend::requireBroadcast(a.op, {product, bias})))
    return failure();
  Type element = elementOf(product), type = frontend::getAccumulatorType(element);
  return frontend::elementwise(a.op.builder(), {product, bias}, element, [&](OpBuilder &b, Location loc, ValueRange x) {
    Value sum = frontend::add(b, loc, frontend::convert(b, loc, x[0], type), frontend::convert(b, loc, x[1], type));
    return frontend::convert(b, loc, sum, element);
  });
}

/// input · weightᵀ + bias
static LogicalResult translateLinear(Arguments &a, Values &results) {
  FailureOr<Value> input = a.required("input"), weight = a.required("weight");
  if (failed(input) || failed(weight))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  frontend::GemmParams params;
  params.transB = true;
  params.bias = a.tensor("bias");
  if (rankOf(*weight) == 1) {
    FailureOr<Value> product = frontend::importMatmul(a.op, *input, *weight);
    return failed(product) || !params.bias ? append(product, results)
                                           : append(addBias(a, *product, params.bias), results);
  }
  if (rankOf(*input) != 1)
    return append(frontend::importGemm(a.op, *input, *weight, params), results);
  FailureOr<Value> row = frontend::importGemm(a.op, frontend::unsqueeze(b, *input, {0}), *weight, params);
  return failed(row) ? failure() : append(frontend::squeeze(b, *row, {0}), results);
}

/// beta · self + alpha · lhs · rhs (addmm, baddbmm).
static LogicalResult translateAddition(Arguments &a, Values &results) {
  bool isBatched = a.op.getName() == "aten.baddbmm";
  FailureOr<Value> self = a.required("self"), lhs = a.required(isBatched ? "batch1" : "mat1"),
                   rhs = a.required(isBatched ? "batch2" : "mat2");
  if (failed(self) || failed(lhs) || failed(rhs))
    return failure();
  frontend::GemmParams params;
  params.alpha = a.number("alpha", 1);
  params.beta = a.number("beta", 1);
  params.bias = *self;
  auto multiply = isBatched ? frontend::importBatchedGemm : frontend::importGemm;
  return append(multiply(a.op, *lhs, *rhs, params), results);
}

/// Only convolutions with non-overlapping windows (patch embedding).
static LogicalResult translateConvolution(Arguments &a, Values &results) {
  FailureOr<Value> image = a.required("input"), filters = a.required("weight");
  if (failed(image) || failed(filters))
    return failure();
  auto filter = cast<RankedTensorType>(filters->getType());
  auto is = [&](StringRef name, ArrayRef<int64_t> expected) {
    SmallVector<int64_t> given = a.integers(name).value_or(SmallVector<int64_t>{expected.front()});
    // A single number applies to all dimensions.
    if (given.size() == 1)
      given.assign(expected.size(), given.front());
    return ArrayRef<int64_t>(given) == expected;
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
    return a.op.error()
           << "only 2-D images and non-overlapping windows are supported: strides equal to the filter size, "
              "no padding, no groups and no dilations";
  return append(frontend::convolvePatches(a.op, *image, *filters, a.tensor("bias")), results);
}

/// Outer product.
static LogicalResult translateOuter(Arguments &a, Values &results) {
  FailureOr<Value> x = a.required("self"), y = a.required("vec2");
  if (failed(x) || failed(y))
    return failure();
  return append(frontend::einsum(a.op, "i,j->ij", {*x, *y}), results);
}

static LogicalResult translateEinsum(Arguments &a, Values &results) {
  (void)a.attribute("path"); // only the contraction order
  return append(frontend::einsum(a.op, a.text("equation", ""), a.list("tensors")), results);
}

void torch::addMatmuls(frontend::Frontend &frontend) {
  for (StringRef name : {"aten.bmm", "aten.dot", "aten.matmul", "aten.mm", "aten.mv"})
    add(frontend, name, translateMatmul);
  for (StringRef name : {"aten.conv2d", "aten.convolution"})
    add(frontend, name, translateConvolution);
  for (StringRef name : {"aten.addmm", "aten.baddbmm"})
    add(frontend, name, translateAddition);
  add(frontend, "aten.einsum", translateEinsum);
  add(frontend, "aten.linear", translateLinear);
  add(frontend, "aten.outer", translateOuter);
}
