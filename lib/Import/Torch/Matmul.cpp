//===- Matmul.cpp - PyTorch matmuls and convolutions ----------------------===//
#include "saccade/Import/Common/Matmul.h"
#include "Torch.h"
#include "saccade/Import/Common/Convolution.h"
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

/// One number applies to all `rank` spatial dimensions.
static SmallVector<int64_t> spatialList(Arguments &a, StringRef name, int64_t rank) {
  SmallVector<int64_t> given = a.integers(name).value_or(SmallVector<int64_t>());
  if (given.size() == 1)
    given.assign(rank, given.front());
  return given;
}

static LogicalResult translateConvolution(Arguments &a, Values &results) {
  FailureOr<Value> image = a.required("input"), filters = a.required("weight");
  if (failed(image) || failed(filters))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  int64_t rank = std::max<int64_t>(rankOf(*filters) - 2, 1);
  bool isSingle = rankOf(*image) == rank + 1; // an image without a batch dimension
  Value batch = isSingle ? frontend::unsqueeze(b, *image, {0}) : *image;
  frontend::ConvolutionParams params;
  params.strides = spatialList(a, "stride", rank);
  params.dilations = spatialList(a, "dilation", rank);
  params.extra = spatialList(a, "output_padding", rank);
  params.groups = a.integer("groups", 1);
  params.isTransposed = a.flag("transposed");
  if (!params.isTransposed)
    params.extra.clear();
  if (!isa_and_nonnull<StringAttr>(a.attribute("padding")))
    params.before = params.after = spatialList(a, "padding", rank);
  else if (a.text("padding", "") == "same" && failed(padToSameSize(a.op, batch, *filters, params, /*isLower=*/false)))
    return failure();
  FailureOr<Value> result = frontend::convolve(a.op, batch, *filters, a.tensor("bias"), params);
  if (failed(result))
    return failure();
  results.push_back(isSingle ? frontend::squeeze(b, *result, {0}) : *result);
  return success();
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
