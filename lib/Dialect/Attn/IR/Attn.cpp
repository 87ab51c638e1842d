//===- Attn.cpp - The attn dialect: registration, attributes, helpers ---------===//
//
// Registers the dialect and implements its attributes and helpers: named dimensions, region arguments, score types and
// scales.
//
//===----------------------------------------------------------------------===//
#include "Syntax.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/InliningUtils.h"
#include "saccade/Dialect/Attn/IR/Position.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;
using namespace saccade::attn;

#include "saccade/Dialect/Attn/IR/AttnDialect.cpp.inc"
#include "saccade/Dialect/Attn/IR/AttnEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "saccade/Dialect/Attn/IR/AttnAttributes.cpp.inc"
#include "saccade/Dialect/Attn/IR/AttnInterfaces.cpp.inc"

namespace {
/// Ops of the dialect can always be inlined.
struct AttnInliner : DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;
  bool isLegalToInline(Operation *, Region *, bool, IRMapping &) const override { return true; }
  bool isLegalToInline(Region *, Region *, bool, IRMapping &) const override { return true; }
};
} // namespace

void AttnDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "saccade/Dialect/Attn/IR/AttnAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "saccade/Dialect/Attn/IR/AttnOps.cpp.inc"
      >();
  addInterfaces<AttnInliner>();
  syntax::addMaskSugars(*this);
}

//===----------------------------------------------------------------------===//
// DimsAttr
//===----------------------------------------------------------------------===//

std::optional<unsigned> DimsAttr::position(Dim dim) const {
  const auto *it = llvm::find(getDims(), dim);
  if (it == getDims().end())
    return std::nullopt;
  return it - getDims().begin();
}

LogicalResult DimsAttr::verify(function_ref<InFlightDiagnostic()> emitError, ArrayRef<Dim> dims) {
  for (auto [i, dim] : llvm::enumerate(dims))
    if (llvm::is_contained(dims.drop_front(i + 1), dim))
      return emitError() << "dimension '" << stringifyDim(dim) << "' is named twice";
  for (Dim expected : {Dim::Seq, Dim::Depth})
    if (!llvm::is_contained(dims, expected))
      return emitError() << "dimensions must name '" << stringifyDim(expected) << "' ("
                         << (expected == Dim::Seq ? "sequence" : "head size") << ")";
  return success();
}

Attribute DimsAttr::parse(AsmParser &parser, Type) {
  DimsAttr dims;
  if (syntax::parseDims(parser, dims, AsmParser::Delimiter::LessGreater))
    return {};
  return dims;
}

void DimsAttr::print(AsmPrinter &printer) const {
  printer << '<';
  llvm::interleaveComma(getDims(), printer, [&](Dim dim) { printer << stringifyDim(dim); });
  printer << '>';
}

//===----------------------------------------------------------------------===//
// AxesAttr
//===----------------------------------------------------------------------===//

std::optional<unsigned> AxesAttr::position(Dim dim) const {
  const auto *it = llvm::find(getDims(), dim);
  if (it == getDims().end())
    return std::nullopt;
  return it - getDims().begin();
}

LogicalResult AxesAttr::verify(function_ref<InFlightDiagnostic()> emitError, ArrayRef<Dim> dims) {
  for (auto [i, dim] : llvm::enumerate(dims))
    if (llvm::is_contained(dims.drop_front(i + 1), dim))
      return emitError() << "dimension '" << stringifyDim(dim) << "' is named twice";
  return success();
}

Attribute AxesAttr::parse(AsmParser &parser, Type) {
  SMLoc loc = parser.getCurrentLocation();
  SmallVector<Dim> names;
  if (syntax::parseDimNames(parser, names, AsmParser::Delimiter::LessGreater))
    return {};
  return AxesAttr::getChecked([&] { return parser.emitError(loc); }, parser.getContext(), ArrayRef<Dim>(names));
}

void AxesAttr::print(AsmPrinter &printer) const {
  printer << '<';
  llvm::interleaveComma(getDims(), printer, [&](Dim dim) { printer << stringifyDim(dim); });
  printer << '>';
}

int64_t TaskAttr::getMappingId() const { return getDim(); }
bool TaskAttr::isLinearMapping() const { return false; }
int64_t TaskAttr::getRelativeIndex() const { return getDim(); }

ArrayAttr saccade::attn::taskMapping(MLIRContext *context, unsigned rank) {
  auto dims =
      llvm::map_to_vector(llvm::seq(rank), [&](unsigned dim) -> Attribute { return TaskAttr::get(context, dim); });
  return ArrayAttr::get(context, dims);
}

LogicalResult ScheduleAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t rows, int64_t cols,
                                   int64_t depth) {
  if (rows <= 0 || cols <= 0 || depth < 0)
    return emitError() << "schedule has rows " << rows << ", cols " << cols << ", depth " << depth
                       << ", expected positive tiles";
  return success();
}

LogicalResult SplitKVAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t queries, int64_t rows,
                                  int64_t cols, bool) {
  if (queries <= 0 || rows < queries || cols <= 0)
    return emitError() << "split_kv has queries " << queries << ", rows " << rows << ", cols " << cols
                       << ", expected positive tiles and rows for all queries of a head";
  return success();
}

//===----------------------------------------------------------------------===//
// Helpers
//===----------------------------------------------------------------------===//

FloatType saccade::attn::getScoreType(Type elementType) {
  if (elementType.isF64())
    return Float64Type::get(elementType.getContext());
  return Float32Type::get(elementType.getContext());
}

RegionArguments saccade::attn::getRegionArguments(Region &region, unsigned numbers) {
  Block &block = region.front();
  RegionArguments args;
  if (numbers)
    args.score = block.getArgument(0);
  args.batch = block.getArgument(numbers);
  args.head = block.getArgument(numbers + 1);
  args.query = block.getArgument(numbers + 2);
  args.key = block.getArgument(numbers + 3);
  args.captures = block.getArguments().drop_front(numbers + 4);
  return args;
}

SmallVector<Dim> saccade::attn::getRowDims(DimsAttr outputDims) {
  return llvm::filter_to_vector(ArrayRef({Dim::Batch, Dim::Head, Dim::Seq}),
                                [&](Dim dim) { return outputDims.position(dim).has_value(); });
}

SmallVector<NamedRegion> saccade::attn::getNamedRegions(ScoringOpInterface op) {
  static constexpr StringRef score[] = {"s"}, weight[] = {"p"};
  SmallVector<NamedRegion> regions;
  for (const NamedRegion &named : {NamedRegion{"mask", &op.getMask(), {}}, NamedRegion{"score", &op.getScore(), score},
                                   op.getPointwise() ? NamedRegion{"normalizer", &op.getWeight(), score}
                                                     : NamedRegion{"weight", &op.getWeight(), weight}})
    if (!named.region->empty())
      regions.push_back(named);
  for (Region &tally : op.getTallyRegions())
    regions.push_back({"tally", &tally, score});
  if (auto derivative = dyn_cast<DerivativeOpInterface>(op.getOperation());
      derivative && !derivative.getDerivative().empty())
    regions.push_back({derivative.getDerivativeName(), &derivative.getDerivative(), derivative.getDerivativeNumbers()});
  return regions;
}

void saccade::attn::cloneRegions(ScoringOpInterface from, ScoringOpInterface to) {
  for (auto [source, copy] : llvm::zip_equal(from->getRegions(), to->getRegions())) {
    IRMapping mapping;
    source.cloneInto(&copy, mapping);
  }
}

bool saccade::attn::isProportional(Region &weight) {
  Block &block = weight.front();
  DenseSet<Value> readers = {block.getArgument(0)}, proportional = {block.getArgument(0)};
  auto isFixed = [&](Value value) { return !readers.contains(value); };
  auto follows = [&](Value value) { return proportional.contains(value) || matchPattern(value, m_AnyZeroFloat()); };
  for (Operation &op : block.without_terminator()) {
    if (llvm::all_of(op.getOperands(), isFixed))
      continue;
    readers.insert_range(op.getResults());
    bool holds = false;
    if (isa<arith::MulFOp>(op))
      holds = (follows(op.getOperand(0)) && isFixed(op.getOperand(1))) ||
              (follows(op.getOperand(1)) && isFixed(op.getOperand(0)));
    else if (isa<arith::DivFOp>(op))
      holds = follows(op.getOperand(0)) && isFixed(op.getOperand(1));
    else if (isa<arith::SelectOp>(op))
      holds = isFixed(op.getOperand(0)) && follows(op.getOperand(1)) && follows(op.getOperand(2));
    else if (isa<arith::AddFOp, arith::SubFOp, arith::NegFOp>(op))
      holds = llvm::all_of(op.getOperands(), follows);
    if (holds)
      proportional.insert(op.getResult(0));
  }
  return follows(cast<YieldOp>(block.getTerminator()).getOperand());
}

bool saccade::attn::needsSoftmaxWeights(ScoringOpInterface op) {
  return op.hasSoftmax() && !op.getWeight().empty() && !isProportional(op.getWeight());
}

int64_t saccade::attn::getStaticDimSize(Value value, DimsAttr dims, Dim dim) {
  std::optional<unsigned> position = dims.position(dim);
  return position ? cast<ShapedType>(value.getType()).getDimSize(*position) : 1;
}

OpFoldResult saccade::attn::getDimSize(OpBuilder &b, Location loc, Value value, DimsAttr dims, Dim dim) {
  int64_t size = getStaticDimSize(value, dims, dim);
  if (!ShapedType::isDynamic(size))
    return b.getIndexAttr(size);
  unsigned position = *dims.position(dim);
  if (isa<MemRefType>(value.getType()))
    return memref::getMixedSize(b, loc, value, position);
  return tensor::getMixedSize(b, loc, value, position);
}

/// The static number of ragged sequences with `offsets` or, without them, of batches of `value`.
static int64_t staticBatches(Value offsets, Value value, DimsAttr dims) {
  if (!offsets)
    return getStaticDimSize(value, dims, Dim::Batch);
  int64_t size = cast<RankedTensorType>(offsets.getType()).getDimSize(0);
  return ShapedType::isDynamic(size) ? size : std::max<int64_t>(size - 1, 0);
}

int64_t saccade::attn::getStaticBatches(ScoringOpInterface op, Role role) {
  bool isQuery = role == Role::Query;
  return staticBatches(op.getCuSeqlens(role), isQuery ? op.getQuery() : op.getKey(),
                       isQuery ? op.getQueryDims() : op.getKeyDims());
}

int64_t saccade::attn::getStaticBatches(LinearOpInterface op) {
  return staticBatches(op.getCuSeqlens(), op.getValue(), op.getValueDims());
}

/// The number of ragged sequences with `offsets` or, without them, the batches of `value`.
static OpFoldResult emitBatches(OpBuilder &b, Location loc, Value offsets, Value value, DimsAttr dims) {
  if (!offsets)
    return getDimSize(b, loc, value, dims, Dim::Batch);
  AffineExpr size = b.getAffineSymbolExpr(0), zero = b.getAffineConstantExpr(0);
  auto map = AffineMap::get(0, 1, {size - 1, zero}, b.getContext());
  return affine::makeComposedFoldedAffineMax(b, loc, map, {tensor::getMixedSize(b, loc, offsets, 0)});
}

OpFoldResult saccade::attn::getBatches(OpBuilder &b, ScoringOpInterface op, Role role) {
  bool isQuery = role == Role::Query;
  return emitBatches(b, op.getLoc(), op.getCuSeqlens(role), isQuery ? op.getQuery() : op.getKey(),
                     isQuery ? op.getQueryDims() : op.getKeyDims());
}

OpFoldResult saccade::attn::getBatches(OpBuilder &b, LinearOpInterface op) {
  return emitBatches(b, op.getLoc(), op.getCuSeqlens(), op.getValue(), op.getValueDims());
}

Position saccade::attn::emitPosition(OpBuilder &b, Location loc, ScoringOpInterface op) {
  if (!op.getAt().empty())
    return Position::of(op.getAt());
  auto zero = [&]() -> Value { return arith::ConstantIndexOp::create(b, loc, 0); };
  return {zero(), zero(), zero(), zero()};
}

std::optional<double> saccade::attn::getConstantScale(ScoringOpInterface op) {
  if (op.getScaleValue())
    return std::nullopt;
  if (FloatAttr scale = op.getScaleAttr())
    return scale.getValueAsDouble();
  int64_t depth = getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Depth);
  if (ShapedType::isDynamic(depth))
    return std::nullopt;
  return depth == 0 ? 1.0 : 1.0 / std::sqrt(static_cast<double>(depth));
}
