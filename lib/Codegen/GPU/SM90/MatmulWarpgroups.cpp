//===- MatmulWarpgroups.cpp - A tile of a matmul on warpgroups ----------------===//
//
// One thread copies parts of both operands to a ring of stages; the warpgroups that compute add their products to sums
// in registers. Products of four warpgroups, in two CTAs, hide the latency of each other.
//
//===----------------------------------------------------------------------===//
#include "../SharedMemory.h"
#include "MatmulEpilogue.h"
#include "Ring.h"
#include "WGMMA.h"
#include "saccade/Support/Kernels.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

/// The named barrier of the warpgroups that compute; 0 is that of all threads.
static constexpr int64_t sumsBarrier = 1;

namespace {

class MatmulRoles {
public:
  MatmulRoles(const Emitter &e, const MatmulItem &item, const MatmulShape &shape, Value shared, Value steps,
              const MatmulPart &part)
      : e(e), item(item), shape(shape), shared(shared), steps(steps), part(part),
        ring(this->e.add(shared, shape.barriers()), shape.stages), element(getElementTypeOrSelf(item.lhs.value)) {}

  void initBarriers() {
    e.ifElse(e.isEqual(e.thread(), e.i32(0)), [&] {
      ring.init(e, shape.consumerWarps());
      NVVM::FenceMbarrierInitOp::create(e.b, e.loc);
    });
    e.barrier();
  }

  void produce(const MappedOperand &lhs, const MappedOperand &rhs, Value lhsMap, Value rhsMap) {
    e.ifElse(e.isEqual(e.thread(), e.i32(32 * shape.consumerWarps())), [&] {
      e.loop(e.i32(0), steps, 1, [&](Value step) {
        RingPlace at = ring.at(e, step);
        at.waitUntilEmpty(e);
        at.full.expect(e, shape.stageBytes());
        Value first = e.mul(step, shape.depth);
        copy(lhs, lhsMap, first, part.row, shape.rows, shape.isLhsTransposed, lhsTile(at.stage), at.full);
        copy(rhs, rhsMap, first, part.column, shape.columns, shape.isRhsTransposed, rhsTile(at.stage), at.full);
      });
    });
  }

  void consume() {
    Value warp = e.div(e.thread(), 32), lane = e.rem(e.thread(), 32);
    // Uniform in the warp, which LLVM cannot know.
    Value group = e.shuffleFrom(e.div(warp, 4), e.i32(0));
    SmallVector<Value> zeros(shape.sums(), e.scalar(0.0)), sums;
    if (shape.addsApart)
      sums = e.loop(e.i32(0), steps, MatmulShape::stagesApart, zeros, [&](Value first, ValueRange before) {
        Value end = e.min(e.add(first, MatmulShape::stagesApart), steps);
        SmallVector<Value> sums = addProducts(first, end, zeros, group, lane);
        for (auto [sum, other] : llvm::zip_equal(sums, before))
          sum = e.addf(other, sum);
        return sums;
      });
    else
      sums = addProducts(e.i32(0), steps, zeros, group, lane);
    // The sums take the place of the stages, which other warpgroups may still read.
    NamedBarrier{e.i32(sumsBarrier), 32 * shape.consumerWarps()}.wait(e);
    Value firstRow = e.mul(warp, WarpgroupShape::warpRows),
          ofWarp = e.add(shared, e.mul(firstRow, shape.sumRowBytes()));
    storeSums(sums, ofWarp, lane);
    NVVM::SyncWarpOp::create(e.b, e.loc, e.i32(-1));
    emitMatmulEpilogue(e, item, shape, ofWarp, {e.add(part.row, firstRow), part.column});
  }

private:
  using Group = WarpgroupShape;

  /// The sums of the products of the steps [begin, end), of which there is one at least. A step starts its product
  /// before it waits for that of the step before, so that the tensor cores have work during the wait.
  SmallVector<Value> addProducts(Value begin, Value end, ArrayRef<Value> zeros, Value group, Value lane) {
    Value isLeader = e.isEqual(lane, e.i32(0));
    SmallVector<Value> sums = e.loop(begin, end, 1, zeros, [&](Value step, ValueRange before) {
      RingPlace at = ring.at(e, step);
      at.full.wait(e, at.parity);
      // 64 rows are a box if they are contiguous, else a part of the box of all rows.
      Value rows = e.add(lhsTile(at.stage), e.mul(group, Group::boxBytes(Group::groupRows)));
      ProductTile lhs{tileDescriptor(e, rows, /*leadingBytes=*/16), shape.isLhsTransposed};
      int64_t leading = shape.isRhsTransposed ? Group::boxBytes(shape.depth) : 16;
      ProductTile rhs{tileDescriptor(e, rhsTile(at.stage), leading), shape.isRhsTransposed};
      SmallVector<Value> sums = addTileProduct(e, element, before, lhs, rhs, shape.depth / 16);
      sums = waitForGroups(e, 1, sums);
      ring.at(e, e.add(step, -1)).empty.arriveIf(e, e.andi(isLeader, e.isLess(begin, step)));
      return sums;
    });
    sums = waitForGroups(e, 0, sums);
    // The producer does not wait for the last step of all.
    if (shape.addsApart)
      ring.at(e, e.add(end, -1)).empty.arriveIf(e, isLeader);
    return sums;
  }

  Value lhsTile(Value stage) { return e.add(shared, e.mul(stage, shape.stageBytes())); }
  Value rhsTile(Value stage) { return e.add(lhsTile(stage), shape.lhsBytes()); }

  /// Copies `extent` rows from `begin` on, or columns if k is that of rows, from element `first` of k on.
  void copy(const MappedOperand &operand, Value map, Value first, Value begin, int64_t extent, bool isTransposed,
            Value target, const Mbarrier &full) {
    for (int64_t box = 0; box < MatmulShape::boxes(extent, isTransposed); ++box) {
      Value along = e.add(begin, box * Group::boxColumns);
      copyBox(e, map, isTransposed ? operand.coordinates(e, first, along) : operand.coordinates(e, along, first),
              e.add(target, box * Group::boxBytes(shape.depth)), full);
    }
  }

  /// A lane holds two columns of each eight, in rows lane / 4 and lane / 4 + 8.
  void storeSums(ArrayRef<Value> sums, Value ofWarp, Value lane) {
    Value row = e.mul(e.div(lane, 4), shape.sumRowBytes()), column = e.mul(e.rem(lane, 4), 8);
    Value base = e.sharedPointer(e.add(e.add(ofWarp, row), column));
    auto pair = VectorType::get({2}, e.type);
    for (int64_t i = 0, n = sums.size(); i < n; i += 2) {
      Value values = LLVM::PoisonOp::create(e.b, e.loc, pair);
      for (int64_t half : {0, 1})
        values = LLVM::InsertElementOp::create(e.b, e.loc, values, sums[i + half], e.i32(half));
      int64_t offset = i / 4 * 32 + i % 4 / 2 * 8 * shape.sumRowBytes();
      LLVM::StoreOp::create(e.b, e.loc, values, e.advance(base, e.b.getI8Type(), static_cast<int32_t>(offset)),
                            /*alignment=*/8);
    }
  }

  Emitter e;
  const MatmulItem &item;
  const MatmulShape &shape;
  Value shared, steps; ///< i32
  MatmulPart part;
  Ring ring;
  Type element;
};

} // namespace

/// Erases a buffer whose ops have been erased, with its views.
static void eraseBuffer(Operation *buffer) {
  for (Operation *view : llvm::make_early_inc_range(buffer->getUsers()))
    eraseBuffer(view);
  if (buffer->use_empty())
    buffer->erase();
}

/// Emits the roles of warpgroups for a part of a tile, of at most `shape.rows` rows and `shape.columns` columns.
static void emitRoles(func::FuncOp kernel, const MatmulItem &item, const MatmulShape &shape,
                      function_ref<MatmulPart(Emitter &)> getPart) {
  Location loc = item.matmul->getLoc();
  Block *body = &kernel.getBody().front();
  MappedOperand lhs = mapRepeatedOperand(item.lhs.value, item.lhs.rowDim, item.lhs.columnDim);
  MappedOperand rhs = mapRepeatedOperand(item.rhs.value, item.rhs.rowDim, item.rhs.columnDim);
  OpBuilder b(body->getTerminator());
  Emitter e{b, loc, b.getF32Type()};
  unsigned depthDim = item.lhs.isTransposed ? item.lhs.rowDim : item.lhs.columnDim;
  Value depth = e.toI32(e.size(item.lhs.value, depthDim));

  SmallVector<Value> maps = addTensorMaps(kernel, {{lhs, MatmulShape::boxRows(shape.rows, shape.isLhsTransposed)},
                                                   {rhs, MatmulShape::boxRows(shape.columns, shape.isRhsTransposed)}});
  kernel->setAttr(threadsAttr, b.getI64IntegerAttr(shape.threads()));
  kernel->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(), b.getI32IntegerAttr(shape.ctas));
  SmallVector<int64_t> equal;
  for (ParameterExtent extent : item.equalExtents)
    equal.append({extent.argument, extent.dim});
  if (!equal.empty())
    kernel->setAttr(equalExtentsAttr, b.getDenseI64ArrayAttr(equal));

  Value pointer = getDynamicShared(e, shape.bytes(), WarpgroupShape::tileAlignment);
  Value shared = LLVM::PtrToIntOp::create(b, loc, b.getI32Type(), pointer);
  Value steps = e.div(e.add(depth, shape.depth - 1), shape.depth);
  MatmulPart part = getPart(e);
  auto emitPart = [&] {
    MatmulRoles roles(e, item, shape, shared, steps, part);
    roles.initBarriers();
    Value isConsumer = e.isLess(e.thread(), e.i32(32 * shape.consumerWarps()));
    e.ifElse(isConsumer, [&] { roles.consume(); }, [&] { roles.produce(lhs, rhs, maps[0], maps[1]); });
  };
  if (part.exists)
    e.ifElse(part.exists, emitPart);
  else
    emitPart();

  for (linalg::LinalgOp op : item.ops)
    op->erase();
  for (auto buffer : llvm::to_vector(body->getOps<memref::AllocOp>()))
    eraseBuffer(buffer);
}

void device::emitMatmulItem(func::FuncOp kernel, const MatmulItem &item, const MatmulShape &shape) {
  emitRoles(kernel, item, shape, [](Emitter &e) { return MatmulPart{e.i32(0), e.i32(0)}; });
}

void device::emitMatmulParts(func::FuncOp kernel, MatmulItem item, int64_t sharedBytes) {
  int64_t parts = item.parts(), partsOfRow = item.partsOfRow();
  // A kernel of one item need not read the number of its CTA.
  OpBuilder b = OpBuilder::atBlockBegin(&kernel.getBody().front());
  auto ctas = kernel.getOps<NVVM::BlockIdXOp>();
  NVVM::BlockIdXOp cta =
      ctas.empty() ? NVVM::BlockIdXOp::create(b, item.matmul->getLoc(), b.getI32Type()) : *ctas.begin();
  b.setInsertionPointAfter(cta);
  Emitter e{b, cta.getLoc(), b.getF32Type()};
  Value number = e.div(cta, parts), index = e.rem(cta, parts);
  Operation *users[] = {number.getDefiningOp(), index.getDefiningOp()};
  cta.getResult().replaceUsesWithIf(number, [&](OpOperand &use) { return !llvm::is_contained(users, use.getOwner()); });
  kernel->setAttr(partsAttr, b.getI64IntegerAttr(parts));
  item.rows = std::min(item.rows, MatmulItem::partSize);
  item.columns = std::min(item.columns, MatmulItem::partSize);
  emitRoles(kernel, item, item.shape(sharedBytes), [&](Emitter &e) {
    Value row = e.mul(e.div(index, partsOfRow), MatmulItem::partSize);
    Value column = e.mul(e.rem(index, partsOfRow), MatmulItem::partSize);
    Value result = item.matmul.getDpsInits()[0];
    auto isWithin = [&](Value at, unsigned dim) { return e.isLess(at, e.toI32(e.size(result, dim))); };
    return MatmulPart{row, column, e.andi(isWithin(row, item.rowDim), isWithin(column, item.columnDim))};
  });
}
