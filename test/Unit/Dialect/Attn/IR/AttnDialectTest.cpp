//===- AttnDialectTest.cpp - Helpers and op interfaces of attn -----------------===//
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Pipeline/Pipeline.h"
#include "gtest/gtest.h"
#include <cmath>

using namespace mlir;
using namespace saccade::attn;

namespace {

class AttnDialectTest : public ::testing::Test {
protected:
  AttnDialectTest() {
    DialectRegistry registry;
    saccade::registerDialects(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
  }

  /// The only attention of a function with these parameters and this op.
  AttentionOp parse(const std::string &parameters, const std::string &op) {
    module = parseSourceString<ModuleOp>("func.func @f(" + parameters + ") { " + op + " return }", &context);
    EXPECT_TRUE(module);
    AttentionOp found;
    if (module)
      module->walk([&](AttentionOp attention) { found = attention; });
    return found;
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};

const std::string types = "(tensor<2x?x4x64xf32>, tensor<2x2x?x64xf32>, tensor<2x2x?x40xf32>)";
const std::string parameters = "%q: tensor<2x?x4x64xf32>, %k: tensor<2x2x?x64xf32>, %v: tensor<2x2x?x40xf32>, %t: f32";
const std::string operands = "%q[b,s,h,d], %k[b,h,s,d], %v[b,h,s,d]";

} // namespace

TEST_F(AttnDialectTest, DimensionsAreFoundByName) {
  DimsAttr dims = DimsAttr::get(&context, {Dim::Seq, Dim::Head, Dim::Depth});
  EXPECT_EQ(dims.position(Dim::Seq), 0u);
  EXPECT_EQ(dims.position(Dim::Depth), 2u);
  EXPECT_EQ(dims.position(Dim::Batch), std::nullopt);
  EXPECT_EQ(dims.size(), 3u);
}

TEST_F(AttnDialectTest, ScoresAreF32ExceptForF64) {
  Builder b(&context);
  for (Type type : {Type(b.getF32Type()), Type(b.getF16Type()), Type(b.getBF16Type())})
    EXPECT_TRUE(getScoreType(type).isF32());
  EXPECT_TRUE(getScoreType(b.getF64Type()).isF64());
}

TEST_F(AttnDialectTest, ExtentsAreThoseOfTheNamedDimension) {
  AttentionOp op = parse(parameters, "%o = attn.attention " + operands + " : " + types + " -> tensor<2x?x4x40xf32>");
  ASSERT_TRUE(op);
  EXPECT_EQ(getStaticDimSize(op.getQuery(), op.getQueryDims(), Dim::Head), 4);
  EXPECT_TRUE(ShapedType::isDynamic(getStaticDimSize(op.getQuery(), op.getQueryDims(), Dim::Seq)));
  DimsAttr withoutBatch = DimsAttr::get(&context, {Dim::Seq, Dim::Depth});
  EXPECT_EQ(getStaticDimSize(op.getQuery(), withoutBatch, Dim::Head), 1);
  OpBuilder b(op);
  EXPECT_EQ(getConstantIntValue(getDimSize(b, op.getLoc(), op.getKey(), op.getKeyDims(), Dim::Head)), 2);
  auto dim = dyn_cast<Value>(getDimSize(b, op.getLoc(), op.getKey(), op.getKeyDims(), Dim::Seq));
  ASSERT_TRUE(dim && dim.getDefiningOp<tensor::DimOp>());
  EXPECT_EQ(dim.getDefiningOp<tensor::DimOp>().getConstantIndex(), 2);
}

TEST_F(AttnDialectTest, TheScaleIsOneOverTheRootOfTheHeadSize) {
  auto scaleOf = [&](const std::string &clause) {
    AttentionOp op =
        parse(parameters, "%o = attn.attention " + operands + clause + " : " + types + " -> tensor<2x?x4x40xf32>");
    return getConstantScale(cast<ScoringOpInterface>(op.getOperation()));
  };
  EXPECT_EQ(scaleOf(""), 0.125);
  EXPECT_EQ(scaleOf(" scale(0.5)"), 0.5);
  EXPECT_EQ(scaleOf(" scale(%t : f32)"), std::nullopt);
  AttentionOp dynamic =
      parse("%x: tensor<?x?xf32>", "%o = attn.attention %x[s,d], %x[s,d], %x[s,d] : (tensor<?x?xf32>, "
                                   "tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>");
  EXPECT_EQ(getConstantScale(cast<ScoringOpInterface>(dynamic.getOperation())), std::nullopt);
}

TEST_F(AttnDialectTest, RegionArgumentsHaveNames) {
  AttentionOp op = parse(parameters, "%o = attn.attention " + operands +
                                         " captures(%t : f32) mask causal<top_left> score(%s, %b, %h, %i, %j, %c) { "
                                         "%r = arith.addf %s, %c : f32 attn.yield %r : f32 } : " +
                                         types + " -> tensor<2x?x4x40xf32>");
  ASSERT_TRUE(op);
  RegionArguments score = getRegionArguments(op.getScore(), /*numbers=*/1);
  EXPECT_TRUE(score.score.getType().isF32());
  EXPECT_EQ(score.key, op.getScore().getArgument(4));
  ASSERT_EQ(score.captures.size(), 1u);
  RegionArguments mask = getRegionArguments(op.getMask(), /*numbers=*/0);
  EXPECT_FALSE(mask.score);
  EXPECT_EQ(mask.query, op.getMask().getArgument(2));
  EXPECT_EQ(mask.captures.size(), 1u);
}

TEST_F(AttnDialectTest, ResultShapesComeFromQueryAndValue) {
  AttentionOp op = parse(parameters, "%o:2 = attn.attention " + operands + " out[h,b,d,s] lse : " + types +
                                         " -> (tensor<4x2x40x?xf32>, tensor<2x4x?xf32>)");
  ASSERT_TRUE(op);
  OpBuilder b(op);
  ReifiedRankedShapedTypeDims shapes;
  ASSERT_TRUE(succeeded(op.reifyResultShapes(b, shapes)));
  ASSERT_EQ(shapes.size(), 2u);
  auto isLengthOfQuery = [&](OpFoldResult extent) {
    auto value = dyn_cast<Value>(extent);
    auto dim = value ? value.getDefiningOp<tensor::DimOp>() : nullptr;
    return dim && dim.getSource() == op.getQuery() && dim.getConstantIndex() == 1;
  };
  EXPECT_EQ(getConstantIntValues(ArrayRef(shapes[0]).drop_back()), SmallVector<int64_t>({4, 2, 40}));
  EXPECT_TRUE(isLengthOfQuery(shapes[0].back()));
  EXPECT_EQ(getConstantIntValues(ArrayRef(shapes[1]).drop_back()), SmallVector<int64_t>({2, 4}));
  EXPECT_TRUE(isLengthOfQuery(shapes[1].back()));
}

TEST_F(AttnDialectTest, BatchesHeadsAndQueriesCanBeTiledButNotKeys) {
  AttentionOp op = parse(parameters, "%o = attn.attention " + operands + " : " + types + " -> tensor<2x?x4x40xf32>");
  ASSERT_TRUE(op);
  auto tiling = cast<TilingInterface>(op.getOperation());
  EXPECT_EQ(tiling.getLoopIteratorTypes(), SmallVector<utils::IteratorType>(3, utils::IteratorType::parallel));
  OpBuilder b(op);
  SmallVector<Range> domain = tiling.getIterationDomain(b);
  ASSERT_EQ(domain.size(), 3u);
  EXPECT_EQ(getConstantIntValue(domain[0].size), 2);
  EXPECT_EQ(getConstantIntValue(domain[1].size), 4);
  // Query heads 2 and 3 belong to KV head 1.
  SmallVector<OpFoldResult> offsets = {b.getIndexAttr(1), b.getIndexAttr(3), b.getIndexAttr(5)};
  SmallVector<OpFoldResult> sizes = {b.getIndexAttr(1), b.getIndexAttr(1), b.getIndexAttr(7)};
  FailureOr<TilingResult> tile = tiling.getTiledImplementation(b, offsets, sizes);
  ASSERT_TRUE(succeeded(tile));
  auto tiled = cast<AttentionOp>(tile->tiledOps[0]);
  EXPECT_EQ(cast<RankedTensorType>(tiled.getOutput().getType()).getShape(), ArrayRef<int64_t>({1, 7, 1, 40}));
  auto keys = tiled.getKey().getDefiningOp<tensor::ExtractSliceOp>();
  ASSERT_TRUE(keys);
  EXPECT_EQ(keys.getStaticOffset(0), 1);
  EXPECT_EQ(keys.getStaticOffset(1), 1);
  EXPECT_EQ(getConstantIntValue(OpFoldResult(tiled.getAt()[2])), 5);
}
