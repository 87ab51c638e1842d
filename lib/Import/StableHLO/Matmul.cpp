//===- Matmul.cpp - StableHLO dot_general and convolutions ----------------===//
#include "saccade/Import/Common/Matmul.h"
#include "StableHLO.h"
#include "saccade/Import/Common/Convolution.h"
#include "saccade/Import/Common/Reductions.h"
#include "saccade/Import/Common/Requirements.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::stablehlo;
using frontend::Extents;

/// The loops are batches, free dimensions of the LHS, free dimensions of the RHS, and contracting dimensions. The
/// result has all except the contracting ones, in this order.
static LogicalResult translateDot(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 2)))
    return failure();
  auto numbers = requireOpaque(op, "dot_dimension_numbers", "dot");
  if (failed(numbers))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  RankedTensorType types[] = {typeOf(op.operand(0)), typeOf(op.operand(1))};
  SmallVector<int64_t> batches[2], contracting[2];
  for (auto [i, side] : llvm::enumerate(ArrayRef<StringRef>{"lhs", "rhs"})) {
    auto found = numbers->integers((side + "_batching_dimensions").str());
    auto depth = numbers->integers((side + "_contracting_dimensions").str());
    if (!found || !depth)
      return op.error() << "the dimension numbers are not integers";
    batches[i] = *found;
    contracting[i] = *depth;
    SmallVector<int64_t> both(*found);
    both.append(*depth);
    if (failed(requireDims(op, both, types[i].getRank(), side)))
      return failure();
  }
  if (batches[0].size() != batches[1].size() || contracting[0].size() != contracting[1].size())
    return op.error() << "found " << batches[0].size() << " and " << batches[1].size() << " batches, "
                      << contracting[0].size() << " and " << contracting[1].size() << " contracting dimensions";
  Type element = declaredElement(op);
  if (!element || element.isInteger(1) || isa<FloatType>(element) != isa<FloatType>(types[0].getElementType()) ||
      isa<FloatType>(element) != isa<FloatType>(types[1].getElementType()))
    return op.error() << "cannot multiply " << types[0] << " and " << types[1] << " to elements of " << element;

  Extents extents[] = {frontend::extentsOf(b, op.operand(0)), frontend::extentsOf(b, op.operand(1))}, loops;
  SmallVector<AffineExpr> dims[2], result;
  for (unsigned i : {0u, 1u})
    dims[i].resize(extents[i].size());
  auto join = [&](ArrayRef<int64_t> lhs, ArrayRef<int64_t> rhs, StringRef what) -> LogicalResult {
    for (auto [l, r] : llvm::zip(lhs, rhs)) {
      if (failed(frontend::requireEqual(op, types[1].getDimSize(r), types[0].getDimSize(l), what)))
        return failure();
      dims[0][l] = dims[1][r] = b.getAffineDimExpr(loops.size());
      // Prefer static extents.
      loops.push_back(isa<Attribute>(extents[1][r]) ? extents[1][r] : extents[0][l]);
    }
    return success();
  };
  if (failed(join(batches[0], batches[1], "batches")))
    return failure();
  for (unsigned i : {0u, 1u})
    for (auto [dim, extent] : llvm::enumerate(extents[i])) {
      if (dims[i][dim] || llvm::is_contained(contracting[i], static_cast<int64_t>(dim)))
        continue;
      dims[i][dim] = b.getAffineDimExpr(loops.size());
      loops.push_back(extent);
    }
  for (size_t i = 0; i < loops.size(); ++i)
    result.push_back(b.getAffineDimExpr(i));
  if (failed(join(contracting[0], contracting[1], "contracting dimensions")))
    return failure();
  auto map = [&](ArrayRef<AffineExpr> each) { return AffineMap::get(loops.size(), 0, each, b.getContext()); };
  Value product = frontend::contract(b, op.operand(0), op.operand(1), map(dims[0]), map(dims[1]), map(result), loops,
                                     frontend::getAccumulatorType(element));
  results.push_back(frontend::castElements(b, product, element));
  return success();
}

/// The positions of the dimensions `names` in a layout such as [b, f, 0, 1]; nullopt if it has others.
static std::optional<SmallVector<int64_t>> layoutOf(const frontend::OpaqueText::Item &item, ArrayRef<StringRef> names) {
  SmallVector<int64_t> places;
  for (StringRef name : names) {
    auto found = llvm::find(item.words, name);
    if (found == item.words.end())
      return std::nullopt;
    places.push_back(found - item.words.begin());
  }
  return item.words.size() == names.size() ? std::optional(places) : std::nullopt;
}

/// The convolution, without dilation of the image and batch groups.
static LogicalResult translateConvolution(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 2)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  auto numbers = requireOpaque(op, "dimension_numbers", "conv");
  if (failed(numbers))
    return failure();
  RankedTensorType imageType = typeOf(op.operand(0)), filterType = typeOf(op.operand(1));
  SmallVector<std::string> spatial;
  for (int64_t i = 0; i < imageType.getRank() - 2; ++i)
    spatial.push_back(std::to_string(i));
  auto namesWith = [&](StringRef first, StringRef second) {
    SmallVector<StringRef> names = {first, second};
    llvm::append_range(names, spatial);
    return names;
  };
  using Layout = std::optional<SmallVector<int64_t>>;
  bool hasLayouts = numbers->items.size() == 3;
  Layout image = hasLayouts ? layoutOf(numbers->items[0], namesWith("b", "f")) : Layout();
  Layout filter = hasLayouts ? layoutOf(numbers->items[1], namesWith("o", "i")) : Layout();
  Layout result = hasLayouts ? layoutOf(numbers->items[2], namesWith("b", "f")) : Layout();
  if (!image || !filter || !result || filterType.getRank() != imageType.getRank() ||
      !isa_and_nonnull<FloatType>(declaredElement(op)))
    return op.error() << "cannot convolve " << imageType << " and " << filterType
                      << ", expected one to three spatial dimensions";
  SmallVector<int64_t> ones(spatial.size(), 1), padding(2 * spatial.size(), 0);
  padding = op.integers("padding").value_or(padding);
  auto reversal = op.getOperation()->getAttrOfType<DenseBoolArrayAttr>("window_reversal");
  bool fits = op.integers("lhs_dilation").value_or(ones) == ones && op.integer("batch_group_count", 1) == 1 &&
              padding.size() == 2 * spatial.size() &&
              (!reversal || llvm::none_of(reversal.asArrayRef(), [](bool each) { return each; }));
  if (!fits)
    return op.error() << "convolutions of dilated images, with batch groups or reversed windows are not supported";
  frontend::ConvolutionParams params;
  params.strides = op.integers("window_strides").value_or(ones);
  params.dilations = op.integers("rhs_dilation").value_or(ones);
  params.groups = op.integer("feature_group_count", 1);
  for (size_t i = 0; i < padding.size(); i += 2) { // (start, end) of each dimension
    params.before.push_back(padding[i]);
    params.after.push_back(padding[i + 1]);
  }
  FailureOr<Value> product =
      frontend::convolve(op, frontend::transpose(b, op.operand(0), *image),
                         frontend::transpose(b, op.operand(1), *filter), /*bias=*/nullptr, params);
  if (failed(product))
    return failure();
  results.push_back(frontend::transpose(b, frontend::castElements(b, *product, declaredElement(op)),
                                        invertPermutationVector(*result)));
  return success();
}

void stablehlo::addMatmuls(frontend::Frontend &frontend) {
  frontend.translators["convolution"] = translateConvolution;
  frontend.translators["dot_general"] = translateDot;
}
