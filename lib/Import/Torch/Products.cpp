//===- Products.cpp - PyTorch's matrix products -------------------------------===//
#include "saccade/Import/Common/Products.h"
#include "Torch.h"
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

/// input · weightᵀ + bias
static LogicalResult translateLinear(Arguments &a, Values &results) {
  FailureOr<Value> input = a.required("input"), weight = a.required("weight");
  if (failed(input) || failed(weight))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  door::Affine affine;
  affine.turnsRight = true;
  affine.bias = a.tensor("bias");
  if (rankOf(*weight) == 1)
    return append(door::multiplyMatrices(a.op, *input, *weight), results);
  if (rankOf(*input) != 1)
    return append(door::multiplyAffine(a.op, *input, *weight, affine), results);
  FailureOr<Value> row = door::multiplyAffine(a.op, door::unsqueeze(b, *input, {0}), *weight, affine);
  return failed(row) ? failure() : append(door::squeeze(b, *row, {0}), results);
}

/// beta · self + alpha · mat1 · mat2
static LogicalResult translateAddmm(Arguments &a, Values &results) {
  FailureOr<Value> self = a.required("self"), lhs = a.required("mat1"), rhs = a.required("mat2");
  if (failed(self) || failed(lhs) || failed(rhs))
    return failure();
  door::Affine affine;
  affine.alpha = a.number("alpha", 1);
  affine.beta = a.number("beta", 1);
  affine.bias = *self;
  return append(door::multiplyAffine(a.op, *lhs, *rhs, affine), results);
}

/// The same with batches of matrices.
static LogicalResult translateBaddbmm(Arguments &a, Values &results) {
  FailureOr<Value> self = a.required("self"), lhs = a.required("batch1"), rhs = a.required("batch2");
  if (failed(self) || failed(lhs) || failed(rhs))
    return failure();
  FailureOr<Value> product = door::multiplyMatrices(a.op, *lhs, *rhs);
  if (failed(product) || failed(door::requireBroadcast(a.op, {*self, *product})))
    return failure();
  double alpha = a.number("alpha", 1), beta = a.number("beta", 1);
  Type element = elementOf(*product), type = door::sumType(element);
  results.push_back(
      door::elementwise(a.op.builder(), {*self, *product}, element, [&](OpBuilder &b, Location loc, ValueRange x) {
        auto scaled = [&](Value value, double factor) {
          Value wide = door::convert(b, loc, value, type);
          return factor == 1 ? wide : door::mul(b, loc, wide, door::makeNumber(b, loc, type, factor));
        };
        Value value = scaled(x[1], alpha);
        if (beta != 0)
          value = door::add(b, loc, scaled(x[0], beta), value);
        return door::convert(b, loc, value, element);
      }));
  return success();
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
           is("output_padding", {0, 0}) && (is("padding", {0, 0}) || a.text("padding", "") == "valid");
  }
  if (!fits)
    return a.op.error() << "only images in two dimensions and windows beside each other are supported: strides as "
                           "large as the filters, no padding, no groups and no dilations";
  return append(door::convolvePatches(a.op, *image, *filters, a.tensor("bias")), results);
}

//===- Einstein's sums ----------------------------------------------------===//

namespace {

/// An operand or the result of an einsum: one loop for each dimension, and the names of all loops that there are.
struct Loops {
  std::string names;
  Extents extents;

  unsigned find(char name) {
    size_t found = names.find(name);
    if (found == std::string::npos) {
      names.push_back(name);
      extents.push_back({});
      return names.size() - 1;
    }
    return found;
  }
  AffineMap map(MLIRContext *context, StringRef dims) {
    SmallVector<AffineExpr> all;
    for (char name : dims)
      all.push_back(getAffineDimExpr(find(name), context));
    return AffineMap::get(names.size(), 0, all, context);
  }
};

} // namespace

/// The product of two operands with these dimensions, summed over all that `wanted` lacks.
static FailureOr<Value> multiplyNamed(Arguments &a, ArrayRef<std::pair<Value, std::string>> operands,
                                      StringRef wanted) {
  ImplicitLocOpBuilder &b = a.op.builder();
  Loops loops;
  for (const auto &[tensor, dims] : operands)
    for (auto [name, extent] : llvm::zip(dims, door::extentsOf(b, tensor))) {
      OpFoldResult &known = loops.extents[(loops.find(name), loops.find(name))];
      std::optional<int64_t> size = known ? getConstantIntValue(known) : std::nullopt,
                             own = getConstantIntValue(extent);
      if (size && own && *size != *own)
        return a.op.error() << "dimension '" << name << "' has " << *own << " and " << *size << " elements";
      if (!known || own)
        known = extent;
    }
  Type element = elementOf(operands[0].first);
  if (elementOf(operands[1].first) != element)
    return a.op.error() << "operands of different types are not supported";
  MLIRContext *context = b.getContext();
  AffineMap left = loops.map(context, operands[0].second), right = loops.map(context, operands[1].second);
  Value sums = door::contract(b, operands[0].first, operands[1].first, left, right, loops.map(context, wanted),
                              loops.extents, door::sumType(element));
  return door::castElements(b, sums, element);
}

/// One operand: what the result lacks is summed, the rest permuted.
static Value sumNamed(ImplicitLocOpBuilder &b, Value tensor, std::string dims, StringRef wanted) {
  SmallVector<int64_t> summed;
  for (auto [i, name] : llvm::enumerate(dims))
    if (!wanted.contains(name))
      summed.push_back(i);
  if (!summed.empty())
    tensor = door::reduceBy(b, {door::Reduction::Zero, door::add}, tensor, summed, /*keep=*/false);
  llvm::erase_if(dims, [&](char name) { return !wanted.contains(name); });
  return door::transpose(b, tensor, llvm::map_to_vector(wanted, [&](char name) -> int64_t { return dims.find(name); }));
}

/// Names for the dimensions of every operand; an ellipsis becomes names that no one writes.
static LogicalResult readEquation(Arguments &a, ArrayRef<Value> tensors, SmallVectorImpl<std::string> &dims,
                                  std::string &wanted) {
  std::string equation = a.text("equation", "").str();
  llvm::erase_if(equation, [](char each) { return each == ' '; });
  auto [inputs, output] = StringRef(equation).split("->");
  SmallVector<StringRef> parts;
  inputs.split(parts, ',');
  if (parts.size() != tensors.size())
    return a.op.error() << "'" << equation << "' is for " << parts.size() << " operands, found " << tensors.size();
  size_t most = 0;
  auto hidden = [](size_t count) {
    std::string names;
    for (size_t i = count; i > 0; --i)
      names.push_back('0' + static_cast<char>(i));
    return names;
  };
  for (auto [part, tensor] : llvm::zip(parts, tensors)) {
    auto [front, back] = part.split("...");
    std::string names = front.str();
    if (part.contains("...")) {
      int64_t rest = rankOf(tensor) - static_cast<int64_t>(front.size() + back.size());
      if (rest < 0 || rest > 8)
        return a.op.error() << "'" << part << "' does not fit " << tensor.getType();
      names += hidden(rest) + back.str();
      most = std::max<size_t>(most, rest);
    }
    std::string sorted = names;
    llvm::sort(sorted);
    if (static_cast<int64_t>(names.size()) != rankOf(tensor) ||
        std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
      return a.op.error() << "'" << part << "' does not fit " << tensor.getType() << ", or names a dimension twice";
    dims.push_back(names);
  }
  if (StringRef(equation).contains("->")) {
    auto [front, back] = output.split("...");
    wanted = output.contains("...") ? front.str() + hidden(most) + back.str() : output.str();
  } else {
    // Names that come once, in the order of the alphabet.
    std::string all;
    for (const std::string &names : dims)
      all += names;
    wanted = hidden(most);
    for (char name = 'A'; name <= 'z'; ++name)
      if (llvm::count(all, name) == 1)
        wanted.push_back(name);
  }
  for (char name : wanted)
    if (llvm::none_of(dims, [&](const std::string &names) { return StringRef(names).contains(name); }))
      return a.op.error() << "no operand of '" << equation << "' has the dimension '" << name << "'";
  return success();
}

/// Every element of one with every one of the other.
static LogicalResult translateOuter(Arguments &a, Values &results) {
  FailureOr<Value> x = a.required("self"), y = a.required("vec2");
  if (failed(x) || failed(y))
    return failure();
  FailureOr<Value> product = multiplyNamed(a, {{*x, "i"}, {*y, "j"}}, "ij");
  return append(product, results);
}

static LogicalResult translateEinsum(Arguments &a, Values &results) {
  SmallVector<Value> tensors = a.list("tensors");
  (void)a.attribute("path"); // only an order
  SmallVector<std::string> dims;
  std::string wanted;
  if (tensors.empty() || failed(readEquation(a, tensors, dims, wanted)))
    return failure();
  // From the left, two at a time; a dimension is summed with the last operand that has it.
  std::pair<Value, std::string> all = {tensors[0], dims[0]};
  for (size_t i = 1; i < tensors.size(); ++i) {
    std::string rest = wanted, kept;
    for (const std::string &later : ArrayRef(dims).drop_front(i + 1))
      rest += later;
    for (char name : all.second + dims[i])
      if (StringRef(rest).contains(name) && !StringRef(kept).contains(name))
        kept.push_back(name);
    if (i + 1 == tensors.size())
      kept = wanted;
    FailureOr<Value> product = multiplyNamed(a, {all, {tensors[i], dims[i]}}, kept);
    if (failed(product))
      return failure();
    all = {*product, kept};
  }
  results.push_back(tensors.size() == 1 ? sumNamed(a.op.builder(), all.first, all.second, wanted) : all.first);
  return success();
}

void torch::addProducts(door::Door &door) {
  for (StringRef name : {"aten.bmm", "aten.dot", "aten.matmul", "aten.mm", "aten.mv"})
    add(door, name, translateMatmul);
  for (StringRef name : {"aten.conv2d", "aten.convolution"})
    add(door, name, translateConvolution);
  add(door, "aten.addmm", translateAddmm);
  add(door, "aten.baddbmm", translateBaddbmm);
  add(door, "aten.einsum", translateEinsum);
  add(door, "aten.linear", translateLinear);
  add(door, "aten.outer", translateOuter);
}
