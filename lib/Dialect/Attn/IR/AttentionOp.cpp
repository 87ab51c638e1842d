//===- AttentionOp.cpp - attn.attention: syntax, verifier, folding ------------===//
//
// The whole-tensor op. What it has in common with the tile ops is in Syntax.cpp and Verify.cpp.
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
  if (!clauses.into.empty())
    return parser.emitError(loc, "'into' belongs to attn.accumulate");
  unsigned wanted = clauses.wantsLse ? 2 : 1;
  if (resultTypes.size() != wanted)
    return parser.emitError(loc, "has ") << resultTypes.size() << " result types, expected " << wanted
                                         << (clauses.wantsLse ? ": output and log-sum-exp"
                                                              : ": the output (a second needs 'lse')");

  auto resolve = [&](auto &operands, auto types) {
    return parser.resolveOperands(operands, types, loc, result.operands);
  };
  auto resolveOptional = [&](std::optional<Clauses::Typed> &typed) -> ParseResult {
    return typed ? parser.resolveOperand(typed->operand, typed->type, result.operands) : success();
  };
  SmallVector<Type> atTypes(clauses.at.size(), parser.getBuilder().getIndexType());
  if (parser.resolveOperand(clauses.query, types[0], result.operands) ||
      parser.resolveOperand(clauses.key, types[1], result.operands) ||
      parser.resolveOperand(clauses.value, types[2], result.operands) ||
      resolve(clauses.captures, ArrayRef<Type>(clauses.captureTypes)) || resolveOptional(clauses.queryLength) ||
      resolveOptional(clauses.keyLength) || resolveOptional(clauses.scaleValue) ||
      resolve(clauses.at, ArrayRef<Type>(atTypes)))
    return failure();

  Properties &properties = result.getOrAddProperties<Properties>();
  llvm::copy(ArrayRef<int32_t>({1, 1, 1, int32_t(clauses.captures.size()), clauses.queryLength ? 1 : 0,
                                clauses.keyLength ? 1 : 0, clauses.scaleValue ? 1 : 0, int32_t(clauses.at.size())}),
             properties.operandSegmentSizes.begin());
  properties.query_dims = clauses.queryDims;
  properties.key_dims = clauses.keyDims;
  properties.value_dims = clauses.valueDims;
  properties.output_dims = clauses.outputDims ? clauses.outputDims : clauses.queryDims;
  properties.scale = clauses.scale;
  for (auto *region : {&clauses.score, &clauses.mask})
    result.addRegion(*region ? std::move(*region) : std::make_unique<Region>());
  result.addTypes(resultTypes);
  return success();
}

void AttentionOp::print(OpAsmPrinter &printer) {
  printHead(printer, *this, getQLen(), getKvLen());
  if (getOutputDims() != getQueryDims()) {
    printer << " out";
    printDims(printer, getOutputDims());
  }
  printRegions(printer, *this);
  if (getLse())
    printer << " lse";
  printer.printOptionalAttrDict((*this)->getAttrs(), {"operandSegmentSizes", getQueryDimsAttrName(),
                                                      getKeyDimsAttrName(), getValueDimsAttrName(),
                                                      getOutputDimsAttrName(), getScaleAttrName()});
  printer << " : (" << getQuery().getType() << ", " << getKey().getType() << ", " << getValue().getType() << ") -> ";
  if (getLse())
    printer << '(' << getOutput().getType() << ", " << getLse().getType() << ')';
  else
    printer << getOutput().getType();
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
  for (auto [dim, what] : {std::pair(Dim::Batch, "batch size"), std::pair(Dim::Head, "head count"),
                           std::pair(Dim::Seq, "length")})
    if (failed(verifySameExtent(op, what, "query", getStaticDimSize(op.getQuery(), op.getQueryDims(), dim), "output",
                                getStaticDimSize(op.getOutput(), dims, dim))))
      return failure();
  return verifySameExtent(op, "head size", "value", getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Depth),
                          "output", getStaticDimSize(op.getOutput(), dims, Dim::Depth));
}

/// The dimensions of the log-sum-exp: those of b, h, s that the output has, in this order.
static SmallVector<Dim> getLseDims(AttentionOp op) {
  SmallVector<Dim> dims;
  for (Dim dim : {Dim::Batch, Dim::Head, Dim::Seq})
    if (op.getOutputDims().position(dim))
      dims.push_back(dim);
  return dims;
}

static LogicalResult verifyLse(AttentionOp op) {
  if (!op.getLse())
    return success();
  auto type = cast<RankedTensorType>(op.getLse().getType());
  SmallVector<Dim> dims = getLseDims(op);
  Type scoreType = getScoreType(getElementTypeOrSelf(op.getQuery()));
  if (type.getRank() != int64_t(dims.size()))
    return op.emitOpError() << "log-sum-exp has rank " << type.getRank() << ", expected " << dims.size();
  if (type.getElementType() != scoreType)
    return op.emitOpError() << "log-sum-exp has element type " << type.getElementType() << ", expected " << scoreType;
  for (auto [i, dim] : llvm::enumerate(dims))
    if (failed(verifySameExtent(op, "extent of '" + stringifyDim(dim) + "'", "output",
                                getStaticDimSize(op.getOutput(), op.getOutputDims(), dim), "log-sum-exp",
                                type.getDimSize(i))))
      return failure();
  return success();
}

LogicalResult AttentionOp::verify() {
  if (failed(verifyOperands(*this)) || failed(verifyOutput(*this)) || failed(verifyLse(*this)))
    return failure();
  for (auto [role, length] : {std::pair("q_len", getQLen()), std::pair("kv_len", getKvLen())}) {
    auto type = length ? dyn_cast<RankedTensorType>(length.getType()) : nullptr;
    if (type && failed(verifySameExtent(*this, "batch size", "query",
                                        getStaticDimSize(getQuery(), getQueryDims(), Dim::Batch), role,
                                        type.getDimSize(0))))
      return failure();
  }
  return success();
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
  shapes.push_back(shapeOf(getOutputDims().getDims(), getOutput().getType()));
  if (getLse())
    shapes.push_back(shapeOf(getLseDims(*this), getLse().getType()));
  return success();
}

//===----------------------------------------------------------------------===//
// Canonicalisation
//===----------------------------------------------------------------------===//

namespace {

/// attention(transpose(x)[b,h,s,d]) -> attention(x[b,s,h,d]): a named dimension costs nothing, a transpose a copy.
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

/// A mask that always holds, or a score region that returns its argument, says nothing.
struct DropTrivialRegions : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AttentionOp op, PatternRewriter &rewriter) const override {
    auto yielded = [](Region &region) { return cast<YieldOp>(region.front().getTerminator()).getOperand(); };
    Region *trivial = nullptr;
    if (!op.getMask().empty() && matchPattern(yielded(op.getMask()), m_One()))
      trivial = &op.getMask();
    if (!op.getScore().empty() && yielded(op.getScore()) == op.getScore().getArgument(0))
      trivial = &op.getScore();
    if (!trivial)
      return failure();
    rewriter.modifyOpInPlace(op, [&] { rewriter.eraseBlock(&trivial->front()); });
    return success();
  }
};

/// A constant run-time scale becomes the attribute, which code generators fold.
struct FoldConstantScale : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AttentionOp op, PatternRewriter &rewriter) const override {
    FloatAttr scale;
    if (!op.getScaleValue() || !matchPattern(op.getScaleValue(), m_Constant(&scale)))
      return failure();
    rewriter.modifyOpInPlace(op, [&] {
      op.getScaleValueMutable().clear();
      op.setScaleAttr(rewriter.getF64FloatAttr(scale.getValueAsDouble()));
    });
    return success();
  }
};

/// Attention that is empty by its type, without keys or without any result, is a constant. (Slices of a dimension that
/// is statically 0 could not even be written: upstream refuses the offset 0.)
struct FoldEmptyAttention : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AttentionOp op, PatternRewriter &rewriter) const override {
    bool hasNoKeys = getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Seq) == 0 ||
                     getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Seq) == 0;
    bool hasNoResult = llvm::all_of(op->getResultTypes(), [](Type type) {
      return llvm::is_contained(cast<ShapedType>(type).getShape(), 0);
    });
    ReifiedRankedShapedTypeDims shapes;
    if ((!hasNoKeys && !hasNoResult) || failed(op.reifyResultShapes(rewriter, shapes)))
      return failure();
    double values[] = {0.0, -std::numeric_limits<double>::infinity()};
    SmallVector<Value> results;
    for (OpResult result : op->getResults()) {
      unsigned number = result.getResultNumber();
      auto type = cast<RankedTensorType>(result.getType());
      Value empty = tensor::EmptyOp::create(rewriter, op.getLoc(), shapes[number], type.getElementType());
      if (!llvm::is_contained(type.getShape(), 0)) {
        Value value = arith::ConstantOp::create(rewriter, op.getLoc(),
                                                rewriter.getFloatAttr(type.getElementType(), values[number]));
        empty = linalg::FillOp::create(rewriter, op.getLoc(), value, empty).getResult(0);
      }
      results.push_back(empty.getType() == type ? empty
                                                : tensor::CastOp::create(rewriter, op.getLoc(), type, empty));
    }
    rewriter.replaceOp(op, results);
    return success();
  }
};

} // namespace

void AttentionOp::getCanonicalizationPatterns(RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<FoldTransposedOperand, DropTrivialRegions, FoldConstantScale, FoldEmptyAttention>(context);
}
