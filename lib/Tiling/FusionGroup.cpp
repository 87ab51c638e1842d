//===- FusionGroup.cpp - Structured ops that share a loop over tiles ----------===//
//
// A group grows backwards from its root. Each loop of a member is mapped to the loop of the root that iterates over it.
// A producer without a mapped tiled loop would be recomputed for every tile, so it is not fused.
//
//===----------------------------------------------------------------------===//
#include "FusionGroup.h"
#include "mlir/Dialect/Linalg/IR/LinalgInterfaces.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace saccade;

/// The minimum number of column tasks, unless their columns become fewer than `minColumns`.
static constexpr int64_t minColumnTasks = 4, minColumns = 64;
/// The maximum rows of a reduction tile; larger ones only hurt load balance.
static constexpr int64_t maxReductionRows = 64;

/// The most temporaries of a matmul's tile beyond the limit of one temporary, so that the tiles of a GPU fit in the
/// shared memory of a CTA together with parts of the operands.
static constexpr unsigned maxLargeTemporaries = 2;

/// Whether a loop of `op` has a static trip count of zero, which upstream tiling does not support.
static bool hasEmptyIterationSpace(linalg::LinalgOp op) { return llvm::is_contained(op.getStaticLoopRanges(), 0); }

static bool isElementwise(linalg::LinalgOp op) { return op.getNumParallelLoops() == op.getNumLoops(); }

namespace {

enum class Kind { Matmul, RowReduction, Elementwise };

class GroupBuilder {
public:
  GroupBuilder(linalg::LinalgOp root, TileLimits limits) : root(root), limits(limits) {}

  FusionGroup build() {
    FusionGroup group;
    group.root = root;
    group.tileSizes.assign(root.getNumLoops(), 0);
    group.members.insert(root);
    if (hasEmptyIterationSpace(root))
      return group;
    linalg::LinalgOp matmul = findMatmul();
    if (matmul) {
      kind = Kind::Matmul;
    } else {
      // Grow the group without tiled loops to find out whether it contains reductions.
      kind = Kind::RowReduction;
      tiledLoops.clear();
      grow();
      bool hasReduction =
          llvm::any_of(members, [](Operation *op) { return !isElementwise(cast<linalg::LinalgOp>(op)); });
      tiledLoops = hasReduction ? commonLoops() : parallelLoops();
      if (tiledLoops.empty()) {
        // No loop is common to all reductions, so they are not fused.
        tiledLoops = parallelLoops();
        hasReduction = false;
      }
      kind = hasReduction ? Kind::RowReduction : Kind::Elementwise;
    }
    sizes.assign(root.getNumLoops(), 0);
    if (matmul)
      sizeMatmul(matmul);
    else if (!tiledLoops.empty())
      kind == Kind::RowReduction ? sizeRowReduction() : sizeElementwise();
    if (llvm::any_of(sizes, [](int64_t size) { return size != 0; })) {
      tiledLoops.clear();
      for (unsigned loop = 0; loop < sizes.size(); ++loop)
        if (sizes[loop] != 0)
          tiledLoops.push_back(loop);
      grow();
      group.kept = kept;
    } else {
      members.clear();
      members.insert(root);
    }
    group.members = members;
    group.tileSizes = sizes;
    return group;
  }

private:
  static constexpr int none = -1;

  /// Returns the matmul of the group, the root or one of its inputs, or null.
  linalg::LinalgOp findMatmul() {
    if (isMatmul(root))
      return root;
    if (!isElementwise(root))
      return nullptr;
    mapLoops(root);
    for (OpOperand *input : root.getDpsInputOperands()) {
      auto producer = input->get().getDefiningOp<linalg::LinalgOp>();
      if (producer && producer->getBlock() == root->getBlock() && isMatmul(producer) &&
          countOtherUses(producer).has_value() && loopsOf(producer))
        return producer;
    }
    return nullptr;
  }

  SmallVector<unsigned> parallelLoops() {
    SmallVector<unsigned> loops;
    root.getParallelDims(loops);
    return loops;
  }

  /// The parallel loops of the root that are mapped to a loop of every reduction of the group.
  SmallVector<unsigned> commonLoops() {
    SmallVector<unsigned> loops = parallelLoops();
    for (Operation *op : members)
      if (!isElementwise(cast<linalg::LinalgOp>(op)))
        llvm::erase_if(loops, [&](unsigned loop) { return !llvm::is_contained(loopMaps[op], int(loop)); });
    return loops;
  }

  //===--- Sizes ---===//

  int64_t extent(unsigned loop, int64_t unknown) {
    int64_t size = root.getStaticLoopRanges()[loop];
    return ShapedType::isDynamic(size) ? unknown : size;
  }

  void setSize(unsigned loop, int64_t size) { sizes[loop] = std::max<int64_t>(1, std::min(size, extent(loop, size))); }

  void sizeMatmul(linalg::LinalgOp matmul) {
    FailureOr<linalg::ContractionDimensions> dims = linalg::inferContractionDims(matmul);
    assert(succeeded(dims) && "a matmul has contraction dimensions");
    MatmulBlock block = getMatmulBlock(matmul);
    mapLoops(root);
    SmallVector<int> loops = matmul == root ? loopMaps[root] : *loopsOf(matmul);
    for (auto [loop, producerLoops] : llvm::enumerate(loops)) {
      if (producerLoops == none || llvm::is_contained(dims->k, loop))
        continue;
      if (loop == dims->m.back())
        setSize(producerLoops, block.rows);
      else if (loop == dims->n.back())
        setSize(producerLoops, columnsOf(producerLoops, block.columns));
      else
        setSize(producerLoops, 1);
    }
    tileElements = 1;
    for (int64_t size : sizes)
      tileElements *= std::max<int64_t>(size, 1);
  }

  /// The columns of a task: `maxColumns`, or fewer to get `minColumnTasks` tasks. A short sequence may have a single
  /// tile of rows, and packing the rows per column tile is cheap.
  int64_t columnsOf(unsigned loop, int64_t maxColumns) {
    int64_t share =
        llvm::alignTo(llvm::divideCeil(extent(loop, minColumnTasks * maxColumns), minColumnTasks), minColumns / 2);
    return std::clamp(share, minColumns, std::max(minColumns, maxColumns));
  }

  void sizeRowReduction() {
    int64_t width = 1;
    for (unsigned loop = 0; loop < root.getNumLoops(); ++loop)
      if (!llvm::is_contained(tiledLoops, loop))
        width *= extent(loop, 1024);
    for (unsigned loop : tiledLoops)
      setSize(loop, 1);
    int64_t rows = llvm::bit_floor(uint64_t(std::max<int64_t>(1, limits.tileElements / std::max<int64_t>(width, 1))));
    setSize(tiledLoops.back(), std::min(rows, maxReductionRows));
  }

  void sizeElementwise() {
    int64_t budget = limits.tileElements;
    for (unsigned loop : llvm::reverse(tiledLoops)) {
      int64_t size = extent(loop, 1024);
      bool isWhole = size <= budget && !ShapedType::isDynamic(root.getStaticLoopRanges()[loop]);
      // The outermost loop is always tiled, so that there is at least one.
      if (!isWhole || loop == tiledLoops.front())
        setSize(loop, llvm::bit_floor(uint64_t(std::min(std::max<int64_t>(size, 1), budget))));
      budget = std::max<int64_t>(1, budget / std::max<int64_t>(size, 1));
    }
  }

  //===--- Members ---===//

  /// Restarts the group with `op`, whose loops map to themselves.
  void mapLoops(linalg::LinalgOp op) {
    SmallVector<int> loops;
    for (unsigned loop = 0; loop < op.getNumLoops(); ++loop)
      loops.push_back(loop);
    members.clear();
    members.insert(op);
    loopMaps.clear();
    kept.clear();
    loopMaps[op] = loops;
    copies.clear();
    copies[op] = 1;
    largeTemporaries = 0;
  }

  void grow() {
    mapLoops(root);
    // Uses follow definitions, so a backward walk visits all users of an op before it.
    for (auto it = std::next(root->getReverseIterator()); it != root->getBlock()->rend(); ++it)
      if (auto producer = dyn_cast<linalg::LinalgOp>(*it))
        consider(producer);
  }

  void consider(linalg::LinalgOp producer) {
    if (!producer.hasPureTensorSemantics() || !isAllowed(producer) || hasEmptyIterationSpace(producer))
      return;
    std::optional<unsigned> others = countOtherUses(producer);
    if (!others)
      return;
    std::optional<SmallVector<int>> loops = loopsOf(producer);
    bool isComplete =
        loops && llvm::all_of(tiledLoops, [&](unsigned loop) { return llvm::is_contained(*loops, int(loop)); });
    if (!isComplete || (*others == 0 && !isBounded(producer, *loops)))
      return;
    // Fusion creates one copy per use path to the root. CSE merges equal copies, but not one that is also a result of
    // the loop.
    unsigned ways = 0;
    for (Operation *user : producer->getUsers())
      ways += copies.lookup(user);
    if (*others != 0 && ways != 1)
      return;
    members.insert(producer);
    loopMaps[producer] = *loops;
    copies[producer] = ways;
    if (*others != 0)
      kept.insert(producer);
  }

  bool isAllowed(linalg::LinalgOp producer) {
    if (isMatmul(producer))
      return kind == Kind::Matmul;
    if (kind != Kind::RowReduction)
      return isElementwise(producer);
    // Elementwise ops on a matmul are fused with the matmul, while its tile is in registers or cache.
    return !isElementwise(producer) || llvm::none_of(producer.getDpsInputs(), [](Value input) {
      auto op = input.getDefiningOp<linalg::LinalgOp>();
      return op && isMatmul(op);
    });
  }

  /// Returns the number of uses outside of the group, or nullopt if a use prevents fusion.
  std::optional<unsigned> countOtherUses(linalg::LinalgOp producer) {
    unsigned inside = 0, outside = 0;
    bool isOverwritten = false;
    for (OpOperand &use : producer->getUses()) {
      Operation *user = use.getOwner();
      if (members.contains(user)) {
        auto consumer = cast<linalg::LinalgOp>(user);
        if (isMatmul(consumer) && consumer.isDpsInput(&use))
          return std::nullopt;
        isOverwritten |= consumer.isDpsInit(&use);
        ++inside;
        continue;
      }
      ++outside;
      // The loop is inserted at the root, so uses outside must follow it. The body of a member may read any element.
      Operation *ancestor = root->getBlock()->findAncestorOpInBlock(*user);
      if (!ancestor || members.contains(ancestor) || ancestor->isBeforeInBlock(root))
        return std::nullopt;
    }
    // A tensor used as an init is overwritten, so it must have no other use.
    if (isOverwritten && inside + outside != 1)
      return std::nullopt;
    if (inside == 0)
      return std::nullopt;
    return outside;
  }

  /// Maps each loop of `producer` to a loop of the root, or to `none`. Returns nullopt if its users disagree.
  std::optional<SmallVector<int>> loopsOf(linalg::LinalgOp producer) {
    SmallVector<int> loops(producer.getNumLoops(), none);
    bool isFirst = true;
    for (OpOperand &use : producer->getUses()) {
      if (!members.contains(use.getOwner()))
        continue;
      auto consumer = cast<linalg::LinalgOp>(use.getOwner());
      unsigned result = cast<OpResult>(use.get()).getResultNumber();
      AffineMap read = consumer.getMatchingIndexingMap(&use);
      AffineMap written = producer.getMatchingIndexingMap(producer.getDpsInitOperand(result));
      SmallVector<int> producerLoops(producer.getNumLoops(), none);
      for (auto [to, from] : llvm::zip_equal(read.getResults(), written.getResults())) {
        auto consumerLoop = dyn_cast<AffineDimExpr>(to), producerLoop = dyn_cast<AffineDimExpr>(from);
        if (!consumerLoop || !producerLoop)
          return std::nullopt;
        producerLoops[producerLoop.getPosition()] = loopMaps[consumer][consumerLoop.getPosition()];
      }
      if (!isFirst && producerLoops != loops)
        return std::nullopt;
      loops = producerLoops;
      isFirst = false;
    }
    return loops;
  }

  /// Whether the tile of `producer` has a static size within the limit; a group of a matmul may have a few temporaries
  /// of the matmul's tile. An init is written in place.
  bool isBounded(linalg::LinalgOp producer, ArrayRef<int> loops) {
    auto isInitOf = [&](function_ref<bool(linalg::LinalgOp)> isUser) {
      return llvm::all_of(producer->getUses(), [&](OpOperand &use) {
        auto user = cast<linalg::LinalgOp>(use.getOwner());
        return user.isDpsInit(&use) && isUser(user);
      });
    };
    if (isInitOf([&](linalg::LinalgOp user) { return user == root; }))
      return true;
    SmallVector<int64_t> extents = producer.getStaticLoopRanges();
    int64_t elements = 1;
    for (auto [loop, iterator] : llvm::enumerate(producer.getIteratorTypesArray())) {
      if (iterator != utils::IteratorType::parallel)
        continue;
      int64_t size = loops[loop] != none && !sizes.empty() ? sizes[loops[loop]] : 0;
      if (size == 0)
        size = extents[loop];
      // Before the tiled loops are chosen, any loop may become one.
      if (ShapedType::isDynamic(size) && !sizes.empty())
        return false;
      elements *= ShapedType::isDynamic(size) ? 1 : size;
    }
    if (sizes.empty() || elements <= limits.temporaryElements)
      return true;
    auto isNarrow = [](Type type) {
      Type element = getElementTypeOrSelf(type);
      return element.isIntOrFloat() && element.getIntOrFloatBitWidth() <= 32;
    };
    if (kind != Kind::Matmul || elements > tileElements || !llvm::all_of(producer->getResultTypes(), isNarrow))
      return false;
    if (isInitOf(isMatmul))
      return true;
    largeTemporaries += producer->getNumResults();
    return largeTemporaries <= maxLargeTemporaries;
  }

  linalg::LinalgOp root;
  TileLimits limits;
  Kind kind = Kind::Elementwise;
  SmallVector<unsigned> tiledLoops; ///< the tiled loops of the root
  SmallVector<int64_t> sizes;       ///< empty until they are chosen
  int64_t tileElements = 0;         ///< of the tile of the matmul
  unsigned largeTemporaries = 0;    ///< of the group so far, of up to as many elements
  llvm::SetVector<Operation *> members;
  llvm::SmallPtrSet<Operation *, 4> kept;
  llvm::DenseMap<Operation *, SmallVector<int>> loopMaps;
  llvm::DenseMap<Operation *, unsigned> copies;
};

} // namespace

FusionGroup saccade::formGroup(linalg::LinalgOp root, TileLimits limits) { return GroupBuilder(root, limits).build(); }
