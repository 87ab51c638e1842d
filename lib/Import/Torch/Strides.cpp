//===- Strides.cpp - PyTorch as_strided -----------------------------------===//
//
// `as_strided` reads the memory of its operand regardless of its dimensions. The attribute self_stride gives the memory
// layout of the operand. A dense operand is transposed to memory order and flattened, and elements are read by their
// offset.
//
//===----------------------------------------------------------------------===//
#include "Torch.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::torch;

/// The elements in memory order: transposes dimensions to descending strides and flattens them. Emits an error for
/// non-dense layouts.
static FailureOr<Value> inMemoryOrder(Arguments &a, Value tensor) {
  auto type = cast<RankedTensorType>(tensor.getType());
  auto strides = a.integers("self_stride");
  if (!strides || static_cast<int64_t>(strides->size()) != type.getRank() || !type.hasStaticShape())
    return a.op.error() << "'self_stride' must have the strides of " << type << ", and its extents must be static";
  SmallVector<int64_t> order = llvm::to_vector(llvm::seq<int64_t>(0, type.getRank()));
  // The position of dimensions with extent 1 is arbitrary.
  llvm::sort(order, [&](int64_t x, int64_t y) {
    return std::tuple((*strides)[x], type.getDimSize(x), y) > std::tuple((*strides)[y], type.getDimSize(y), x);
  });
  int64_t expected = 1;
  for (int64_t dim : llvm::reverse(order)) {
    if (type.getDimSize(dim) == 1)
      continue;
    if ((*strides)[dim] != expected)
      return a.op.error() << "a tensor with a non-dense memory layout is not supported";
    expected *= type.getDimSize(dim);
  }
  ImplicitLocOpBuilder &b = a.op.builder();
  return frontend::reshape(b, frontend::transpose(b, tensor, order), {b.getIndexAttr(type.getNumElements())});
}

static LogicalResult translateAsStrided(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  auto size = a.integers("size"), strides = a.integers("stride");
  if (!size || !strides || size->size() != strides->size())
    return a.op.error() << "'size' and 'stride' must be constant and have the same length";
  FailureOr<Value> flat = inMemoryOrder(a, *tensor);
  if (failed(flat))
    return failure();
  int64_t own = a.integer("self_offset", 0), offset = a.integer("storage_offset", own) - own;
  int64_t first = offset, last = offset;
  for (auto [extent, stride] : llvm::zip(*size, *strides))
    (stride < 0 ? first : last) += (extent - 1) * stride;
  bool isEmpty = llvm::is_contained(*size, 0);
  if (!isEmpty && (first < 0 || last >= cast<RankedTensorType>(flat->getType()).getNumElements()))
    return a.op.error() << "the strides read outside of " << tensor->getType();
  ImplicitLocOpBuilder &b = a.op.builder();
  Extents extents = getAsIndexOpFoldResult(b.getContext(), *size);
  results.push_back(frontend::generate(
      b, extents, {}, elementOf(*tensor), [&](OpBuilder &nested, Location loc, ValueRange at) -> Value {
        Value place = arith::ConstantIndexOp::create(nested, loc, offset);
        for (auto [i, stride] : llvm::zip(at, *strides)) {
          Value distance = frontend::mul(nested, loc, i, arith::ConstantIndexOp::create(nested, loc, stride));
          place = frontend::add(nested, loc, place, distance);
        }
        return tensor::ExtractOp::create(nested, loc, *flat, place);
      }));
  return success();
}

void torch::addStrides(frontend::Frontend &frontend) { add(frontend, "aten.as_strided", translateAsStrided); }
