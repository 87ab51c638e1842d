//===- GivenSizes.cpp - Sizes of an attention before a call -------------------===//
#include "GivenSizes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

/// Parses a group.
static llvm::Error parseGroup(StringRef text, std::vector<GivenSize> &into) {
  auto [function, list] = text.contains(':') ? text.split(':') : std::pair(StringRef(), text);
  SmallVector<StringRef> items;
  list.split(items, ',');
  for (StringRef item : items) {
    auto [name, number] = item.split('=');
    int64_t value;
    if (name.trim().empty() || number.trim().getAsInteger(10, value))
      return llvm::createStringError("'" + item + "' is not a size, expected NAME=NUMBER, as in q=4096");
    bool isExtent = llvm::is_contained({"b", "h", "q", "k"}, name.trim());
    if (isExtent && value < 0)
      return llvm::createStringError("size '" + item + "' is negative, expected at least 0");
    into.push_back({function.trim().str(), name.trim().str(), value});
  }
  return llvm::Error::success();
}

llvm::Expected<std::vector<GivenSize>> saccade::parseGivenSizes(StringRef text) {
  std::vector<GivenSize> sizes;
  SmallVector<StringRef> groups;
  text.split(groups, ';', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (StringRef group : groups)
    if (llvm::Error error = parseGroup(group, sizes))
      return error;
  return sizes;
}

KnownSizes::KnownSizes(AttentionOp op, StringRef function, ArrayRef<StringRef> names,
                       const std::vector<GivenSize> &sizes, std::vector<bool> &isUsed)
    : op(op), function(function), names(names), sizes(sizes), isUsed(isUsed) {
  auto size = [&](std::initializer_list<std::pair<Value, DimsAttr>> operands, Dim dim,
                  StringRef name) -> std::optional<int64_t> {
    for (auto [operand, dims] : operands)
      if (int64_t extent = getStaticDimSize(operand, dims, dim); !ShapedType::isDynamic(extent))
        return extent;
    return given(name);
  };
  batches = size({{op.getQuery(), op.getQueryDims()}, {op.getKey(), op.getKeyDims()}}, Dim::Batch, "b");
  heads = size({{op.getQuery(), op.getQueryDims()}}, Dim::Head, "h");
  queries = size({{op.getQuery(), op.getQueryDims()}}, Dim::Seq, "q");
  keys = size({{op.getKey(), op.getKeyDims()}, {op.getValue(), op.getValueDims()}}, Dim::Seq, "k");
}

std::optional<int64_t> KnownSizes::given(StringRef name) {
  std::optional<int64_t> found;
  for (auto [i, size] : llvm::enumerate(sizes))
    if (size.name == name && (size.function.empty() || size.function == function)) {
      isUsed[i] = true;
      found = size.value;
    }
  return found;
}

std::string KnownSizes::nameOf(Value value) {
  // Casts keep the name.
  while (Operation *producer = value.getDefiningOp()) {
    if (producer->getNumOperands() != 1 || !(isa<tensor::CastOp>(producer) || value.getType().isIntOrIndex()))
      return "";
    value = producer->getOperand(0);
  }
  auto argument = cast<BlockArgument>(value);
  bool isOfFunction = isa<func::FuncOp>(argument.getOwner()->getParentOp());
  return isOfFunction && argument.getArgNumber() < names.size() ? names[argument.getArgNumber()].str() : "";
}

std::optional<int64_t> KnownSizes::extentOf(Value tensor, unsigned dim) {
  while (auto cast = tensor.getDefiningOp<tensor::CastOp>())
    tensor = cast.getSource();
  auto type = cast<ShapedType>(tensor.getType());
  if (!type.isDynamicDim(dim))
    return type.getDimSize(dim);
  struct Operand {
    Value value;
    DimsAttr dims;
    std::optional<int64_t> length;
  };
  for (const Operand &operand :
       {Operand{op.getQuery(), op.getQueryDims(), queries}, Operand{op.getKey(), op.getKeyDims(), keys},
        Operand{op.getValue(), op.getValueDims(), keys}})
    if (operand.value == tensor) {
      Dim named = operand.dims.getDims()[dim];
      if (named == Dim::Seq)
        return operand.length;
      if (named == Dim::Batch)
        return batches;
      if (named == Dim::Head && operand.value == op.getQuery())
        return heads;
    }
  return std::nullopt;
}

std::optional<int64_t> KnownSizes::evaluate(Value value, unsigned depth) {
  APInt constant;
  if (matchPattern(value, m_ConstantInt(&constant)))
    return constant.getSExtValue();
  Operation *producer = value.getDefiningOp();
  if (!producer) {
    std::string name = nameOf(value);
    return name.empty() || !value.getType().isIntOrIndex() ? std::nullopt : given(name);
  }
  if (auto dim = dyn_cast<tensor::DimOp>(producer)) {
    std::optional<int64_t> place = dim.getConstantIndex();
    auto type = cast<ShapedType>(dim.getSource().getType());
    return place && *place >= 0 && *place < type.getRank() ? extentOf(dim.getSource(), *place) : std::nullopt;
  }
  if (depth == 0 || producer->getNumRegions() != 0 || producer->getNumResults() != 1 || !isMemoryEffectFree(producer))
    return std::nullopt;
  SmallVector<Attribute> operands;
  for (Value operand : producer->getOperands()) {
    if (!operand.getType().isIntOrIndex())
      return std::nullopt;
    std::optional<int64_t> number = evaluate(operand, depth - 1);
    if (!number)
      return std::nullopt;
    operands.push_back(Builder(op.getContext()).getIntegerAttr(operand.getType(), *number));
  }
  SmallVector<OpFoldResult> results;
  if (operands.empty() || failed(producer->fold(operands, results)) || results.size() != 1)
    return std::nullopt;
  auto folded = dyn_cast_or_null<IntegerAttr>(dyn_cast<Attribute>(results[0]));
  return folded ? std::optional(folded.getValue().getSExtValue()) : std::nullopt;
}
