//===- AttentionOp.cpp - attn.attention: syntax, verifier, folding ------------===//
//
// The op on whole tensors. Syntax.cpp and Verify.cpp have the parts that it shares with the tile ops.
//
//===----------------------------------------------------------------------===//
#include "Syntax.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace saccade::attn;
using namespace saccade::attn::syntax;

//===----------------------------------------------------------------------===//
// Syntax
//===----------------------------------------------------------------------===//

/// Checks that there is a type for the result of every clause, and that results of tallies have the given number of
/// bins.
static ParseResult checkResultTypes(OpAsmParser &parser, SMLoc loc, const Clauses &clauses, ArrayRef<Type> types) {
  SmallVector<StringRef> names = {"output"};
  for (auto [isGiven, name] : {std::pair(clauses.hasLse, "log-sum-exp"), std::pair(clauses.hasLseLow, "its low part"),
                               std::pair(clauses.hasMax, "max"), std::pair(clauses.hasArgmax, "argmax")})
    if (isGiven)
      names.push_back(name);
  names.append(clauses.tallies.size(), "tally");
  if (types.size() != names.size()) {
    InFlightDiagnostic error = parser.emitError(loc, "has ")
                               << types.size() << " result types, expected " << names.size() << ": ";
    if (names.size() == 1)
      return error << "the output (a second needs 'lse', 'lse_low', 'max', 'argmax' or 'tally')";
    for (auto [i, name] : llvm::enumerate(names))
      error << (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") << name;
    return error;
  }
  for (auto [i, bins, type] : llvm::enumerate(clauses.bins, types.take_back(clauses.bins.size()))) {
    auto tally = dyn_cast<RankedTensorType>(type);
    if (tally && tally.getRank() > 0 && tally.getShape().back() != bins)
      return parser.emitError(loc, "tally ") << i << " has " << bins << " bins, but its result has type " << type;
  }
  return success();
}

ParseResult AttentionOp::parse(OpAsmParser &parser, OperationState &result) {
  Clauses clauses;
  SMLoc loc = parser.getCurrentLocation();
  Type types[3];
  SmallVector<Type> resultTypes;
  if (parseClauses(parser, clauses) || parser.parseOptionalAttrDict(result.attributes) || parser.parseColon() ||
      parser.parseLParen() || parser.parseType(types[0]) || parser.parseComma() || parser.parseType(types[1]) ||
      parser.parseComma() || parser.parseType(types[2]) || parser.parseRParen() ||
      parser.parseArrowTypeList(resultTypes))
    return failure();
  if (failed(refuseForeignClauses(parser, loc, clauses, "attn.attention")))
    return failure();
  if (failed(expandDropout(parser, clauses, types[0])))
    return failure();
  SmallVector<int32_t> resultSizes = {
      1, clauses.hasLse, clauses.hasLseLow, clauses.hasMax, clauses.hasArgmax, int32_t(clauses.tallies.size())};
  if (failed(checkResultTypes(parser, loc, clauses, resultTypes)))
    return failure();

  if (clauses.resolveWholeOperands(parser, loc, types, result) || Clauses::resolve(parser, clauses.sink, result))
    return failure();

  Properties &properties = result.getOrAddProperties<Properties>();
  llvm::copy(ArrayRef<int32_t>({1, 1, 1, int32_t(clauses.captures.size()), clauses.queryLength ? 1 : 0,
                                clauses.keyLength ? 1 : 0, clauses.cuSeqlensQ ? 1 : 0, clauses.cuSeqlensK ? 1 : 0,
                                clauses.scaleValue ? 1 : 0, int32_t(clauses.at.size()), clauses.sink ? 1 : 0}),
             properties.operandSegmentSizes.begin());
  llvm::copy(resultSizes, properties.resultSegmentSizes.begin());
  properties.query_dims = clauses.queryDims;
  properties.key_dims = clauses.keyDims;
  properties.value_dims = clauses.valueDims;
  properties.output_dims = clauses.outputDims ? clauses.outputDims : clauses.queryDims;
  properties.scale = clauses.scale;
  properties.qk_type = clauses.qkType;
  properties.pointwise = clauses.pointwise(parser);
  properties.stick_breaking = clauses.stickBreaking(parser);
  clauses.addRegionsTo(result);
  result.addTypes(resultTypes);
  return success();
}

void AttentionOp::print(OpAsmPrinter &printer) {
  printHead(printer, *this);
  printTyped(printer, {{"cu_seqlens_q", getCuSeqlensQ()}, {"cu_seqlens_k", getCuSeqlensK()}, {"sink", getSink()}});
  if (getOutputDims() != getQueryDims()) {
    printer << " out";
    printDims(printer, getOutputDims());
  }
  SmallVector<int64_t> bins;
  for (Value tally : getTallies())
    bins.push_back(cast<ShapedType>(tally.getType()).getShape().back());
  printRegions(printer, *this, bins);
  for (auto [result, clause] : {std::pair(getLse(), "lse"), std::pair(getLseLow(), "lse_low"),
                                std::pair(getRowMax(), "max"), std::pair(getArgmax(), "argmax")})
    if (result)
      printer << ' ' << clause;
  printer.printOptionalAttrDict(
      (*this)->getAttrs(), {"operandSegmentSizes", "resultSegmentSizes", getQueryDimsAttrName(), getKeyDimsAttrName(),
                            getValueDimsAttrName(), getOutputDimsAttrName(), getScaleAttrName(), getQkTypeAttrName(),
                            getPointwiseAttrName(), getStickBreakingAttrName()});
  printer << " : (" << getQuery().getType() << ", " << getKey().getType() << ", " << getValue().getType() << ") -> ";
  if (getNumResults() == 1)
    printer << getOutput().getType();
  else
    printer << '(' << getResultTypes() << ')';
}

void AttentionOp::getAsmBlockArgumentNames(Region &region, OpAsmSetValueNameFn setName) {
  nameRegionArguments(*this, region, setName);
}

//===----------------------------------------------------------------------===//
// Verifier
//===----------------------------------------------------------------------===//

static LogicalResult verifyOutput(AttentionOp op) {
  auto type = cast<RankedTensorType>(op.getOutput().getType());
  DimsAttr dims = op.getOutputDims();
  if (type.getRank() != dims.size())
    return op.emitOpError() << "output has rank " << type.getRank() << ", but names " << dims.size() << " dimensions";
  Type scoreType = getScoreType(getElementTypeOrSelf(op.getQuery()));
  if (type.getElementType() != getElementTypeOrSelf(op.getQuery()) && type.getElementType() != scoreType)
    return op.emitOpError() << "output has element type " << type.getElementType() << ", expected that of the query ("
                            << getElementTypeOrSelf(op.getQuery()) << ") or " << scoreType;
  for (auto [dim, what] :
       {std::pair(Dim::Batch, "batch size"), std::pair(Dim::Head, "head count"), std::pair(Dim::Seq, "length")})
    if (failed(verifySameExtent(op, what, "query", getStaticDimSize(op.getQuery(), op.getQueryDims(), dim), "output",
                                getStaticDimSize(op.getOutput(), dims, dim))))
      return failure();
  return verifySameExtent(op, "head size", "value", getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Depth),
                          "output", getStaticDimSize(op.getOutput(), dims, Dim::Depth));
}

SmallVector<Dim> AttentionOp::getResultDims(Value result) {
  if (result == getOutput())
    return llvm::to_vector(getOutputDims().getDims());
  SmallVector<Dim> dims = getRowDims(getOutputDims());
  if (llvm::is_contained(getTallies(), result))
    dims.push_back(Dim::Depth);
  return dims;
}

/// Verifies a result other than the output.
static LogicalResult verifyRowResult(AttentionOp op, StringRef role, Value result, Type element) {
  NamedOperand output{"output", op.getOutput(), op.getOutputDims()};
  return verifyRows(op, role, result, element, output, op.getResultDims(result));
}

static LogicalResult verifyRowResults(AttentionOp op) {
  Type scoreType = getScoreType(getElementTypeOrSelf(op.getQuery()));
  for (auto [role, result] :
       {std::pair("log-sum-exp", op.getLse()), std::pair("low part of the log-sum-exp", op.getLseLow()),
        std::pair("max", op.getRowMax())})
    if (result && failed(verifyRowResult(op, role, result, scoreType)))
      return failure();
  if (op.getLseLow() && !op.getLse())
    return op.emitOpError() << "has the low part of the log-sum-exp, expected 'lse' as well";
  if (op.getArgmax() && failed(verifyRowResult(op, "argmax", op.getArgmax(), IntegerType::get(op.getContext(), 64))))
    return failure();
  if (op.getTallies().size() != op.getTallyRegions().size())
    return op.emitOpError() << "has " << op.getTallyRegions().size() << " tally regions, but " << op.getTallies().size()
                            << " results for them";
  for (auto [i, tally] : llvm::enumerate(op.getTallies()))
    if (failed(verifyRowResult(op, ("tally " + Twine(i)).str(), tally, scoreType)))
      return failure();
  return success();
}

static LogicalResult verifySink(AttentionOp op) {
  Value sink = op.getSink();
  if (!sink)
    return success();
  Type element = getElementTypeOrSelf(sink), query = getElementTypeOrSelf(op.getQuery());
  if (element != query && element != getScoreType(query))
    return op.emitOpError() << "sink has element type " << element << ", expected that of the query (" << query
                            << ") or " << getScoreType(query);
  auto type = dyn_cast<RankedTensorType>(sink.getType());
  return !type ? success()
               : verifySameExtent(op, "head count", "query",
                                  getStaticDimSize(op.getQuery(), op.getQueryDims(), Dim::Head), "sink",
                                  type.getDimSize(0));
}

/// Without a softmax there are no results of one.
static LogicalResult verifyNormalizer(AttentionOp op) {
  if (op.hasSoftmax())
    return success();
  for (auto [role, value] :
       {std::pair("a sink", op.getSink()), std::pair("a log-sum-exp", Value(op.getLse())),
        std::pair("a row maximum", Value(op.getRowMax())), std::pair("an argmax", Value(op.getArgmax()))})
    if (value)
      return op.emitOpError() << "has " << role << ", but a normalizer in place of the softmax";
  if (!op.getTallies().empty())
    return op.emitOpError() << "has a tally, but a normalizer in place of the softmax";
  return success();
}

LogicalResult AttentionOp::verify() {
  return failure(failed(verifyWholeOperands(*this)) || failed(verifyOutput(*this)) || failed(verifyRowResults(*this)) ||
                 failed(verifySink(*this)) || failed(verifyNormalizer(*this)));
}

LogicalResult AttentionOp::verifyRegions() { return syntax::verifyRegions(*this); }

LogicalResult AttentionOp::reifyResultShapes(OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) {
  auto sizeOf = [&](Dim dim) {
    return dim == Dim::Depth ? getDimSize(b, getLoc(), getValue(), getValueDims(), dim)
                             : getDimSize(b, getLoc(), getQuery(), getQueryDims(), dim);
  };
  auto shapeOf = [&](ArrayRef<Dim> dims, Type type) {
    SmallVector<OpFoldResult> shape;
    for (auto [dim, extent] : llvm::zip_equal(dims, cast<ShapedType>(type).getShape()))
      shape.push_back(ShapedType::isDynamic(extent) ? sizeOf(dim) : OpFoldResult(b.getIndexAttr(extent)));
    return shape;
  };
  for (Value result : getOperation()->getResults())
    shapes.push_back(shapeOf(getResultDims(result), result.getType()));
  return success();
}

//===----------------------------------------------------------------------===//
// Canonicalization
//===----------------------------------------------------------------------===//

namespace {

/// attention(transpose(x)[b,h,s,d]) -> attention(x[b,s,h,d]), which avoids the copy.
struct FoldTransposedOperand : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AttentionOp op, PatternRewriter &rewriter) const override {
    auto fold = [&](Value operand, DimsAttr dims) -> std::pair<Value, DimsAttr> {
      auto transpose = operand.getDefiningOp<linalg::TransposeOp>();
      if (!transpose)
        return {operand, dims};
      SmallVector<Dim> names(dims.size());
      for (auto [position, source] : llvm::enumerate(transpose.getPermutation()))
        names[source] = dims.getDims()[position];
      return {transpose.getInput(), DimsAttr::get(op.getContext(), names)};
    };
    auto [query, queryDims] = fold(op.getQuery(), op.getQueryDims());
    auto [key, keyDims] = fold(op.getKey(), op.getKeyDims());
    auto [value, valueDims] = fold(op.getValue(), op.getValueDims());
    if (query == op.getQuery() && key == op.getKey() && value == op.getValue())
      return failure();
    rewriter.modifyOpInPlace(op, [&, &query = query, &key = key, &value = value, &queryDims = queryDims,
                                  &keyDims = keyDims, &valueDims = valueDims] {
      op.getQueryMutable().assign(query);
      op.getKeyMutable().assign(key);
      op.getValueMutable().assign(value);
      op.setQueryDimsAttr(queryDims);
      op.setKeyDimsAttr(keyDims);
      op.setValueDimsAttr(valueDims);
    });
    return success();
  }
};

/// Erases masks that always hold, and score and weight regions that are the identity.
struct DropTrivialRegions : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AttentionOp op, PatternRewriter &rewriter) const override {
    auto yielded = [](Region &region) { return cast<YieldOp>(region.front().getTerminator()).getOperand(); };
    Region *trivial = nullptr;
    if (!op.getMask().empty() && matchPattern(yielded(op.getMask()), m_One()))
      trivial = &op.getMask();
    for (Region *region : {&op.getScore(), &op.getWeight()})
      if (!region->empty() && yielded(*region) == region->getArgument(0) &&
          !(op.getPointwise() && region == &op.getWeight()))
        trivial = region;
    if (!trivial)
      return failure();
    rewriter.modifyOpInPlace(op, [&] { rewriter.eraseBlock(&trivial->front()); });
    return success();
  }
};

/// Converts a constant scale operand to the attribute, which code generators fold and which must be finite.
struct FoldConstantScale : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AttentionOp op, PatternRewriter &rewriter) const override {
    FloatAttr scale;
    if (!op.getScaleValue() || !matchPattern(op.getScaleValue(), m_Constant(&scale)) || !scale.getValue().isFinite())
      return failure();
    rewriter.modifyOpInPlace(op, [&] {
      op.getScaleValueMutable().clear();
      op.setScaleAttr(rewriter.getF64FloatAttr(scale.getValueAsDouble()));
    });
    return success();
  }
};

/// The value of a result for a row without keys and without a sink.
TypedAttr getValueWithoutKeys(AttentionOp op, Value result) {
  Type element = getElementTypeOrSelf(result);
  if (result == op.getArgmax())
    return IntegerAttr::get(element, -1);
  bool isMaximum = result == op.getLse() || result == op.getRowMax();
  return FloatAttr::get(element, isMaximum ? -std::numeric_limits<double>::infinity() : 0.0);
}

/// Replaces attention with a static extent of 0, of the keys or of all results, by a constant. (Upstream rejects slices
/// of a dimension of static extent 0, so it cannot be tiled.)
struct FoldEmptyAttention : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AttentionOp op, PatternRewriter &rewriter) const override {
    bool hasNoKeys = getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Seq) == 0 ||
                     getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Seq) == 0;
    bool hasNoResult = llvm::all_of(op->getResultTypes(),
                                    [](Type type) { return llvm::is_contained(cast<ShapedType>(type).getShape(), 0); });
    ReifiedRankedShapedTypeDims shapes;
    // The log-sum-exp of a row without keys is the sink, which is not a constant.
    bool isConstant = hasNoResult || (hasNoKeys && !(op.getSink() && op.getLse()));
    if (!isConstant || failed(op.reifyResultShapes(rewriter, shapes)))
      return failure();
    SmallVector<Value> results;
    for (OpResult result : op->getResults()) {
      unsigned number = result.getResultNumber();
      auto type = cast<RankedTensorType>(result.getType());
      Value empty = tensor::EmptyOp::create(rewriter, op.getLoc(), shapes[number], type.getElementType());
      if (!llvm::is_contained(type.getShape(), 0)) {
        Value value = arith::ConstantOp::create(rewriter, op.getLoc(), getValueWithoutKeys(op, result));
        empty = linalg::FillOp::create(rewriter, op.getLoc(), value, empty).getResult(0);
      }
      results.push_back(empty.getType() == type ? empty : tensor::CastOp::create(rewriter, op.getLoc(), type, empty));
    }
    rewriter.replaceOp(op, results);
    return success();
  }
};

} // namespace

void AttentionOp::getCanonicalizationPatterns(RewritePatternSet &results, MLIRContext *context) {
  results.add<FoldTransposedOperand, DropTrivialRegions, FoldConstantScale, FoldEmptyAttention>(context);
}
