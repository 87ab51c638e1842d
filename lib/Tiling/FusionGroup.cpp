//===- FusionGroup.cpp - Structured ops that share a loop over tiles ----------===//
//
// A group grows backwards from its root. Each loop of a member is traced to the loop of the root it runs with;
// a producer that lacks a loop that is cut would be computed again for every tile, so it stays outside.
//
//===----------------------------------------------------------------------===//
#include "FusionGroup.h"
#include "mlir/Dialect/Linalg/IR/LinalgInterfaces.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace saccade;

/// Columns are cut into so many tasks at least, unless they become narrower than this.
static constexpr int64_t minColumnTasks = 4, minColumns = 64;
/// More rows of a reduction make no difference to anything but balance.
static constexpr int64_t maxReductionRows = 64;

/// Whether a loop of `op` has no steps, which is known now: upstream's tiling has no tile of nothing.
static bool hasEmptyIterationSpace(linalg::LinalgOp op) { return llvm::is_contained(op.getStaticLoopRanges(), 0); }

static bool isPointwise(linalg::LinalgOp op) { return op.getNumParallelLoops() == op.getNumLoops(); }

namespace {

enum class Kind { Product, Rows, Pointwise };

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
    linalg::LinalgOp product = findMatmul();
    if (product) {
      kind = Kind::Product;
    } else {
      // What would belong to the group if it were cut along one loop only says whether there are reductions.
      kind = Kind::Rows;
      cut.clear();
      grow();
      bool hasReduction = llvm::any_of(members, [](Operation *op) { return !isPointwise(cast<linalg::LinalgOp>(op)); });
      cut = hasReduction ? commonLoops() : parallelLoops();
      if (cut.empty()) {
        // No loop runs through all reductions: leave them outside.
        cut = parallelLoops();
        hasReduction = false;
      }
      kind = hasReduction ? Kind::Rows : Kind::Pointwise;
    }
    sizes.assign(root.getNumLoops(), 0);
    if (product)
      sizeMatmul(product);
    else if (!cut.empty())
      kind == Kind::Rows ? sizeRows() : sizePointwise();
    if (llvm::any_of(sizes, [](int64_t size) { return size != 0; })) {
      cut.clear();
      for (unsigned loop = 0; loop < sizes.size(); ++loop)
        if (sizes[loop] != 0)
          cut.push_back(loop);
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

  /// The product whose result the group works on: the root or an operand of it.
  linalg::LinalgOp findMatmul() {
    if (isMatmul(root))
      return root;
    if (!isPointwise(root))
      return nullptr;
    trace(root);
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

  /// The loops of the root that run through every reduction of the group.
  SmallVector<unsigned> commonLoops() {
    SmallVector<unsigned> loops = parallelLoops();
    for (Operation *op : members)
      if (!isPointwise(cast<linalg::LinalgOp>(op)))
        llvm::erase_if(loops, [&](unsigned loop) { return !llvm::is_contained(loopMaps[op], int(loop)); });
    return loops;
  }

  //===--- Sizes ---===//

  int64_t extent(unsigned loop, int64_t unknown) {
    int64_t size = root.getStaticLoopRanges()[loop];
    return ShapedType::isDynamic(size) ? unknown : size;
  }

  void setSize(unsigned loop, int64_t size) { sizes[loop] = std::max<int64_t>(1, std::min(size, extent(loop, size))); }

  void sizeMatmul(linalg::LinalgOp product) {
    FailureOr<linalg::ContractionDimensions> dims = linalg::inferContractionDims(product);
    assert(succeeded(dims) && "a product has rows and columns");
    MatmulBlock block = getMatmulBlock(product);
    trace(root);
    SmallVector<int> loops = product == root ? loopMaps[root] : *loopsOf(product);
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
  }

  /// Columns of a task: `most`, but a few tasks side by side where the columns are few. A short sequence may have no
  /// second tile of rows, and packing the rows again costs little.
  int64_t columnsOf(unsigned loop, int64_t most) {
    int64_t share =
        llvm::alignTo(llvm::divideCeil(extent(loop, minColumnTasks * most), minColumnTasks), minColumns / 2);
    return std::clamp(share, minColumns, std::max(minColumns, most));
  }

  void sizeRows() {
    int64_t width = 1;
    for (unsigned loop = 0; loop < root.getNumLoops(); ++loop)
      if (!llvm::is_contained(cut, loop))
        width *= extent(loop, 1024);
    for (unsigned loop : cut)
      setSize(loop, 1);
    int64_t rows = llvm::bit_floor(uint64_t(std::max<int64_t>(1, limits.tileElements / std::max<int64_t>(width, 1))));
    setSize(cut.back(), std::min(rows, maxReductionRows));
  }

  void sizePointwise() {
    int64_t budget = limits.tileElements;
    for (unsigned loop : llvm::reverse(cut)) {
      int64_t size = extent(loop, 1024);
      bool isWhole = size <= budget && !ShapedType::isDynamic(root.getStaticLoopRanges()[loop]);
      // The outermost loop is always cut, so that there is one.
      if (!isWhole || loop == cut.front())
        setSize(loop, llvm::bit_floor(uint64_t(std::min(std::max<int64_t>(size, 1), budget))));
      budget = std::max<int64_t>(1, budget / std::max<int64_t>(size, 1));
    }
  }

  //===--- Members ---===//

  /// The root's loops run with themselves.
  void trace(linalg::LinalgOp op) {
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
  }

  void grow() {
    trace(root);
    // Uses come after definitions, so one walk backwards sees all users of an op before it.
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
    bool isComplete = loops && llvm::all_of(cut, [&](unsigned loop) { return llvm::is_contained(*loops, int(loop)); });
    if (!isComplete || (*others == 0 && !isBounded(producer, *loops)))
      return;
    // Fusion makes one copy for each way that leads to the root; only equal ones become one again, and one that is
    // handed out is not equal to the others.
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
      return kind == Kind::Product;
    if (kind != Kind::Rows)
      return isPointwise(producer);
    // What follows a product is computed while its tile is still in registers or cache.
    return !isPointwise(producer) || llvm::none_of(producer.getDpsInputs(), [](Value input) {
      auto op = input.getDefiningOp<linalg::LinalgOp>();
      return op && isMatmul(op);
    });
  }

  /// The number of uses outside the group, or nothing where they, or the uses inside, keep the op out.
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
      // The loop stands where the root is.
      Operation *ancestor = root->getBlock()->findAncestorOpInBlock(*user);
      if (!ancestor || ancestor->isBeforeInBlock(root))
        return std::nullopt;
    }
    // What somebody starts from is gone afterwards.
    if (isOverwritten && inside + outside != 1)
      return std::nullopt;
    if (inside == 0)
      return std::nullopt;
    return outside;
  }

  /// For each loop of `producer` the loop of the root that it runs with; nothing where its users disagree.
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

  /// Whether the tile of `producer` has a known, small size. What the root starts from is written in place.
  bool isBounded(linalg::LinalgOp producer, ArrayRef<int> loops) {
    bool isRootInit = llvm::all_of(producer->getUses(), [&](OpOperand &use) {
      return use.getOwner() == root.getOperation() && root.isDpsInit(&use);
    });
    if (isRootInit)
      return true;
    SmallVector<int64_t> extents = producer.getStaticLoopRanges();
    int64_t elements = 1;
    for (auto [loop, iterator] : llvm::enumerate(producer.getIteratorTypesArray())) {
      if (iterator != utils::IteratorType::parallel)
        continue;
      int64_t size = loops[loop] != none && !sizes.empty() ? sizes[loops[loop]] : 0;
      if (size == 0)
        size = extents[loop];
      // While the cuts are not chosen, anything may turn out to be one.
      if (ShapedType::isDynamic(size) && !sizes.empty())
        return false;
      elements *= ShapedType::isDynamic(size) ? 1 : size;
    }
    return sizes.empty() || elements <= limits.temporaryElements;
  }

  linalg::LinalgOp root;
  TileLimits limits;
  Kind kind = Kind::Pointwise;
  SmallVector<unsigned> cut;  ///< the loops of the root that are cut
  SmallVector<int64_t> sizes; ///< empty until they are chosen
  llvm::SetVector<Operation *> members;
  llvm::SmallPtrSet<Operation *, 4> kept;
  llvm::DenseMap<Operation *, SmallVector<int>> loopMaps;
  llvm::DenseMap<Operation *, unsigned> copies;
};

} // namespace

FusionGroup saccade::formGroup(linalg::LinalgOp root, TileLimits limits) { return GroupBuilder(root, limits).build(); }
