//===- CausalConvolution.cpp - ONNX CausalConvWithState, opset 27 ---------===//
//
// Translates to one elementwise op over shifted slices of the state with the input behind it, one slice for each tap.
//
//===----------------------------------------------------------------------===//
#include "Onnx.h"
#include "saccade/Import/Common/Functions.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using frontend::Extents;
using frontend::sliceLastDim;

namespace {

/// The verified operands and attributes of the op.
struct Convolution {
  Value input, weight, bias, past;
  int64_t width;
  bool isActivated;
};

} // namespace

static RankedTensorType typeOf(Value tensor) { return cast<RankedTensorType>(tensor.getType()); }

static FailureOr<Convolution> readConvolution(FrontendOp &op) {
  if (failed(requireOperands(op, 2, 4)))
    return failure();
  Convolution found{op.operand(0), op.operand(1), op.operand(2), op.operand(3), 0, false};
  RankedTensorType input = typeOf(found.input), weight = typeOf(found.weight);
  if (input.getRank() != 3 || !isa<FloatType>(input.getElementType()))
    return op.error() << "the input is " << input << ", expected [batch, channels, length] of floating point";
  if (weight.getRank() != 3 || weight.isDynamicDim(0) || weight.getDimSize(1) != 1 || weight.getDimSize(2) < 1)
    return op.error() << "the weight is " << weight << ", expected [channels, 1, width] with static extents";
  found.width = weight.getDimSize(2);
  for (auto [operand, rank, role] :
       {std::tuple(found.weight, 3, "the weight"), {found.bias, 1, "the bias"}, {found.past, 3, "past_state"}})
    if (operand && (typeOf(operand).getRank() != rank || elementOf(operand) != input.getElementType()))
      return op.error() << role << " is " << operand.getType() << ", expected " << rank << " dimension"
                        << (rank == 1 ? "" : "s") << " of " << input.getElementType();
  if (failed(requireEqual(op, input.getDimSize(1), weight.getDimSize(0), "channels of the input")))
    return failure();
  if (found.bias &&
      failed(requireEqual(op, typeOf(found.bias).getDimSize(0), weight.getDimSize(0), "elements of the bias")))
    return failure();
  if (found.past) {
    auto expected =
        RankedTensorType::get({input.getDimSize(0), weight.getDimSize(0), found.width - 1}, input.getElementType());
    if (failed(verifyCompatibleShape(found.past.getType(), expected)))
      return op.error() << "past_state is " << found.past.getType() << ", expected [batch, channels, width - 1] as in "
                        << expected;
  }
  StringRef activation = op.text("activation", "none");
  if (!llvm::is_contained({"none", "silu", "swish"}, activation))
    return op.error() << "unknown activation '" << activation << "', expected none, silu or swish";
  found.isActivated = activation != "none";
  return found;
}

static LogicalResult translateCausalConvWithState(FrontendOp &op, Values &results) {
  FailureOr<Convolution> found = readConvolution(op);
  if (failed(found))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Extents extents = frontend::extentsOf(b, found->input);
  OpFoldResult channels = b.getIndexAttr(typeOf(found->weight).getDimSize(0)), one = b.getIndexAttr(1);
  extents[1] = channels;
  Type element = elementOf(found->input), type = element.isF64() ? element : b.getF32Type();
  OpFoldResult kept = b.getIndexAttr(found->width - 1);
  Value past = found->past, whole = found->input;
  if (!past)
    past = frontend::splat(b, {extents[0], channels, kept}, element, 0);
  if (found->width > 1)
    whole = frontend::concat(b, {past, frontend::reshape(b, found->input, extents)}, 2);

  // Slices by taps, then weights by taps [channels, 1], then the bias.
  SmallVector<Value> inputs;
  for (int64_t tap = 0; tap < found->width; ++tap)
    inputs.push_back(sliceLastDim(b, whole, b.getIndexAttr(tap), extents[2]));
  for (int64_t tap = 0; tap < found->width; ++tap)
    inputs.push_back(frontend::selectIndex(b, found->weight, 2, tap));
  if (found->bias)
    inputs.push_back(frontend::reshape(b, found->bias, {channels, one}));
  results.push_back(frontend::elementwise(b, inputs, element, [&](OpBuilder &nested, Location loc, ValueRange in) {
    auto wide = llvm::map_to_vector(in, [&](Value each) { return frontend::convert(nested, loc, each, type); });
    Value sum = found->bias ? wide.back() : Value();
    for (int64_t tap = 0; tap < found->width; ++tap) {
      Value product = frontend::mul(nested, loc, wide[tap], wide[found->width + tap]);
      sum = sum ? frontend::add(nested, loc, sum, product) : product;
    }
    if (found->isActivated)
      sum = frontend::swish(nested, loc, sum, 1);
    return frontend::convert(nested, loc, sum, element);
  }));
  if (!op.isUsed(1))
    results.push_back(Value());
  else
    results.push_back(found->width == 1 ? past : sliceLastDim(b, whole, extents[2], kept));
  return success();
}

void onnx::addCausalConvolution(frontend::Frontend &frontend) {
  frontend.translators["CausalConvWithState"] = translateCausalConvWithState;
}
