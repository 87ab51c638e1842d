//===- HeadSizeOriginsTest.cpp - Where the head size comes from, for random producers -===//
#include "saccade/Dialect/Attn/Analysis/HeadSizeOrigins.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "test/Support/Random.h"
#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace saccade;

namespace {

/// Applies random ops to a tensor and follows one of its dimensions forwards, while the analysis goes backwards.
class RandomProducers {
public:
  RandomProducers(MLIRContext &context, unsigned seed) : random(seed), b(&context), loc(b.getUnknownLoc()) {
    b.setInsertionPointToEnd(&block);
    SmallVector<int64_t> shape;
    for (size_t rank = 2 + random.below(3); shape.size() < rank;)
      shape.push_back(draw());
    value = argument(shape);
    dim = random.below(shape.size());
  }
  ~RandomProducers() {
    while (!block.empty())
      block.back().erase();
  }

  void applyOne() {
    void (RandomProducers::*ops[])() = {
        &RandomProducers::cast,  &RandomProducers::transpose,   &RandomProducers::expand,
        &RandomProducers::slice, &RandomProducers::collapse,    &RandomProducers::matmul,
        &RandomProducers::slice, &RandomProducers::elementwise, &RandomProducers::reduce};
    (this->*ops[random.below(std::size(ops))])();
  }

  Value value;
  unsigned dim;
  /// Extents and whether a matmul reduced them, farthest first.
  SmallVector<std::pair<int64_t, bool>> expected;

private:
  ArrayRef<int64_t> shape() { return llvm::cast<RankedTensorType>(value.getType()).getShape(); }
  int64_t rank() { return shape().size(); }
  int64_t draw() { return 2 + random.below(60); }
  RankedTensorType type(ArrayRef<int64_t> shape) { return RankedTensorType::get(shape, b.getF32Type()); }
  Value argument(ArrayRef<int64_t> shape) { return block.addArgument(type(shape), loc); }
  Value empty(ArrayRef<int64_t> shape) { return tensor::EmptyOp::create(b, loc, shape, b.getF32Type()); }
  void isSplit() {
    if (!ShapedType::isDynamic(shape()[dim]))
      expected.push_back({shape()[dim], false});
  }

  void cast() {
    // The extent is unknown for a while: known extents before and after it count.
    for (int64_t i = 0; i < 2; ++i) {
      isSplit();
      SmallVector<int64_t> to(shape());
      int64_t at = random.below(to.size());
      to[at] = i == 0 ? ShapedType::kDynamic : to[at];
      for (int64_t &each : to)
        each = i == 1 && ShapedType::isDynamic(each) ? draw() : each;
      value = tensor::CastOp::create(b, loc, type(to), value);
    }
  }

  SmallVector<int64_t> permutation() {
    SmallVector<int64_t> found = llvm::to_vector(llvm::seq<int64_t>(0, rank()));
    for (int64_t i = rank() - 1; i > 0; --i)
      std::swap(found[i], found[random.below(i + 1)]);
    return found;
  }

  void transpose() {
    SmallVector<int64_t> order = permutation(), to;
    for (int64_t from : order)
      to.push_back(shape()[from]);
    value = linalg::TransposeOp::create(b, loc, value, empty(to), order)->getResult(0);
    dim = llvm::find(order, dim) - order.begin();
  }

  void expand() {
    int64_t at = random.below(rank());
    isSplit();
    SmallVector<int64_t> to(shape());
    int64_t outer = to[at] % 2 == 0 ? 2 : 1;
    to[at] /= outer;
    to.insert(to.begin() + at, outer);
    SmallVector<ReassociationIndices> groups;
    for (int64_t i = 0; i < rank(); ++i)
      groups.push_back(i < at    ? ReassociationIndices{i}
                       : i == at ? ReassociationIndices{i, i + 1}
                                 : ReassociationIndices{i + 1});
    value = tensor::ExpandShapeOp::create(b, loc, type(to), value, groups);
    dim += at < int64_t(dim) || (at == int64_t(dim) && random.chance(0.7));
  }

  /// A slice that drops some dimensions of one element.
  void slice() {
    isSplit();
    SmallVector<int64_t> sizes, to;
    SmallVector<OpFoldResult> offsets(rank(), b.getIndexAttr(0)), strides(rank(), b.getIndexAttr(1)), extents;
    unsigned target = dim;
    for (auto [i, extent] : llvm::enumerate(shape())) {
      bool isDropped = i != dim && random.chance(0.4);
      int64_t size = isDropped ? 1 : std::max<int64_t>(extent - random.below(2), 2);
      if (extent < size)
        size = extent; // an extent of 1 stays
      extents.push_back(b.getIndexAttr(size));
      isDropped &= !llvm::is_contained(shape(), 1); // which of several is dropped would be open
      if (!isDropped)
        to.push_back(size);
      target -= isDropped && i < dim;
    }
    value = tensor::ExtractSliceOp::create(b, loc, type(to), value, offsets, extents, strides);
    dim = target;
  }

  void collapse() {
    if (rank() < 2)
      return;
    int64_t at = random.below(rank() - 1);
    if (at == int64_t(dim) || at + 1 == int64_t(dim))
      expected.clear(); // not one dimension before
    SmallVector<int64_t> to(shape());
    to[at] *= to[at + 1];
    to.erase(to.begin() + at + 1);
    SmallVector<ReassociationIndices> groups;
    for (int64_t i = 0; i < rank() - 1; ++i)
      groups.push_back(i < at    ? ReassociationIndices{i}
                       : i == at ? ReassociationIndices{i, i + 1}
                                 : ReassociationIndices{i + 1});
    value = tensor::CollapseShapeOp::create(b, loc, type(to), value, groups);
    dim -= at < int64_t(dim);
  }

  void matmul() {
    if (rank() != 2)
      return;
    int64_t width = shape()[1], columns = draw();
    value =
        linalg::MatmulOp::create(b, loc, ValueRange{value, argument({width, columns})}, empty({shape()[0], columns}))
            ->getResult(0);
    expected.clear();
    expected.push_back({width, true});
  }

  Value generic(Value input, AffineMap read, Value other, AffineMap readOther, ArrayRef<int64_t> to, AffineMap write,
                ArrayRef<utils::IteratorType> loops) {
    AffineMap maps[] = {readOther, read, write};
    return linalg::GenericOp::create(b, loc, TypeRange(type(to)), ValueRange{other, input}, empty(to), maps, loops,
                                     [](OpBuilder &b, Location loc, ValueRange args) {
                                       Value sum = arith::AddFOp::create(b, loc, args[0], args[1]);
                                       linalg::YieldOp::create(b, loc, sum);
                                     })
        ->getResult(0);
  }

  /// Adds a row. The tensor is read as the result is written, or in another order.
  void elementwise() {
    if (rank() < 2)
      return;
    SmallVector<utils::IteratorType> loops(rank(), utils::IteratorType::parallel);
    AffineMap identity = b.getMultiDimIdentityMap(rank());
    SmallVector<int64_t> order = random.chance(0.7) ? llvm::to_vector(llvm::seq<int64_t>(0, rank())) : permutation();
    AffineMap read = AffineMap::getPermutationMap(order, b.getContext());
    SmallVector<int64_t> to(rank());
    for (auto [loop, extent] : llvm::zip_equal(order, shape()))
      to[loop] = extent;
    if (read != identity)
      expected.clear();
    value = generic(value, read, argument({to[0]}), identity.getMajorSubMap(1), to, identity, loops);
    dim = order[dim];
  }

  /// A sum over the last dimension, which is no matmul.
  void reduce() {
    if (rank() < 2 || int64_t(dim) == rank() - 1)
      return;
    SmallVector<utils::IteratorType> loops(rank(), utils::IteratorType::parallel);
    loops.back() = utils::IteratorType::reduction;
    AffineMap identity = b.getMultiDimIdentityMap(rank()), outer = identity.getMajorSubMap(rank() - 1);
    SmallVector<int64_t> to(shape().drop_back());
    value = generic(value, identity, argument({to[0]}), identity.getMajorSubMap(1), to, outer, loops);
    expected.clear();
  }

  search::Random random;
  Block block;
  OpBuilder b;
  Location loc;
};

TEST(HeadSizeOrigins, TheDimensionIsFollowedThroughRandomProducers) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  context.loadDialect<arith::ArithDialect, linalg::LinalgDialect, tensor::TensorDialect>();
  unsigned found = 0, projected = 0;
  for (unsigned seed = 1; seed <= 2000; ++seed) {
    RandomProducers producers(context, seed);
    for (unsigned count = 1 + seed % 6; count > 0; --count)
      producers.applyOne();
    SmallVector<std::pair<int64_t, bool>> origins;
    for (attn::HeadSizeOrigin each : attn::findHeadSizeOrigins(producers.value, producers.dim))
      origins.push_back({each.extent, each.isProjected});
    std::reverse(origins.begin(), origins.end());
    ASSERT_EQ(producers.expected, origins) << "seed " << seed;
    found += origins.size();
    projected += llvm::count_if(origins, [](auto each) { return each.second; });
  }
  EXPECT_GT(found, 1000u);
  EXPECT_GT(projected, 100u);
}

} // namespace
