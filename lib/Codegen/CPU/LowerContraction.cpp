//===- LowerContraction.cpp - Register-blocked matmul of linalg ops -----------===//
//
// Lowers linalg contractions on buffers to packing loops and the microkernels that attention uses. LowerPackedMatmul
// lowers matmuls with a prepacked RHS.
//
//===----------------------------------------------------------------------===//
#include "BlockedMatmul.h"
#include "DequantizedMatmul.h"
#include "Pack.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/IR/LinalgInterfaces.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "saccade/Codegen/CPU/Passes.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"
#include "saccade/Dialect/Attn/Analysis/Memory.h"
#include "llvm/Support/MathExtras.h"

namespace saccade {
#define GEN_PASS_DEF_LOWERCONTRACTION
#include "saccade/Codegen/CPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::cpu;

/// The widest rows of an RHS that microkernels read in place. With longer ones, the lines of a panel would be far apart
/// and compete for the same sets of the L1 cache.
static constexpr int64_t maxRowBytes = 256;

/// The outermost loop around `op` that does not change `operand`, or null.
static scf::ForOp getInvariantLoop(Operation *op, Value operand) {
  scf::ForOp found;
  for (Operation *parent = op->getParentOp(); isa<scf::ForOp, scf::IfOp>(parent); parent = parent->getParentOp()) {
    if (parent->isAncestor(operand.getParentBlock()->getParentOp()))
      break;
    if (auto loop = dyn_cast<scf::ForOp>(parent)) {
      if (mayWrite(loop, getBaseMemory(operand)))
        break;
      found = loop;
    }
  }
  return found;
}

/// The memref whose first elements in each dimension `matrix` views.
static Value getWhole(Value matrix) {
  while (auto subview = matrix.getDefiningOp<memref::SubViewOp>()) {
    if (subview.getType().getRank() != subview.getSourceType().getRank() ||
        !llvm::all_of(subview.getMixedOffsets(), isZeroInteger) ||
        !llvm::all_of(subview.getMixedStrides(), isOneInteger))
      break;
    matrix = subview.getSource();
  }
  return matrix;
}

/// The op that dequantizes the RHS `tile`, a buffer or the first part of one, if only `user` reads it; or null.
static attn::LoadDequantizedOp findDequantization(Value tile, Operation *user) {
  Value memory = getWhole(tile);
  if (!memory.getDefiningOp<memref::AllocOp>() || (memory != tile && !memory.hasOneUse()))
    return nullptr;
  attn::LoadDequantizedOp found;
  for (Operation *other : tile.getUsers()) {
    auto load = dyn_cast<attn::LoadDequantizedOp>(other);
    if (other == user)
      continue;
    if (!load || found || load->getBlock() != user->getBlock() || !load->isBeforeInBlock(user))
      return nullptr;
    found = load;
  }
  return found;
}

namespace {

/// Rewrites one contraction: C[m, n] += Σ_k A[m, k] · B[n, k] over one m, n and k loop, inside loops over the others.
/// The RHS is packed for each block of the result, or before the loops that do not change it.
class ContractionLowering {
public:
  /// Analyzes `op`, before any contraction is lowered.
  explicit ContractionLowering(linalg::LinalgOp op);
  /// Lowers the op. `prefetched`: the elementwise ops whose matrices a matmul before it has prefetched.
  /// `multiplied`: the matrices that matmuls of tiles read in place.
  void run(Emitter e, llvm::DenseSet<Operation *> &prefetched, ArrayRef<Value> multiplied);
  /// The LHS of a tile, which is read in place.
  Value getTileLHS() const { return isTile ? lhs->get() : Value(); }
  linalg::LinalgOp getOp() { return op; }
  /// Lets the op read the panels that `earlier` packs, if it has the same RHS, which nothing changes in between.
  void sharePanelsOf(ContractionLowering &earlier);
  bool isShared() const { return packer != nullptr; }
  /// Erases what this op has computed in registers.
  void eraseDequantization() {
    if (dequantization)
      dequantization.erase();
  }

private:
  linalg::LinalgOp op;
  linalg::ContractionDimensions dims;
  OpOperand *lhs, *rhs;
  bool isTile;
  linalg::FillOp zeroFill; ///< that initializes the result, or null
  Value wholeRHS;          ///< has the RHS first
  Operation *packedBefore; ///< the outermost loop that does not change `wholeRHS`, where it is packed, or null
  ContractionLowering *packer = nullptr;  ///< that packs the RHS for this op too, or null
  Value panels;                           ///< of `wholeRHS`, after `run`
  attn::LoadDequantizedOp dequantization; ///< of the RHS, which is then not in memory; or null
  memref::AllocOp buffer;                 ///< that the result begins, if nothing else views it, or null

  Value emitWholePanels(Emitter &e, Value result);
  Value emitPanelsInPlace(Emitter &e, const ProductTraits &traits);
  Value matrix(Emitter &e, Value memory, OpOperand *operand, unsigned rowLoop, unsigned columnLoop, ArrayRef<Value> at);
};

ContractionLowering::ContractionLowering(linalg::LinalgOp op)
    : op(op), dims(*linalg::inferContractionDims(op)), lhs(op.getDpsInputOperand(0)), rhs(op.getDpsInputOperand(1)),
      isTile(op->hasAttr(tileMatmulAttr)), packedBefore(nullptr) {
  // The operand whose map contains m is the LHS.
  if (!op.getMatchingIndexingMap(lhs).isFunctionOfDim(dims.m.back()))
    std::swap(lhs, rhs);
  if (auto alloc = getWhole(op.getDpsInits()[0]).getDefiningOp<memref::AllocOp>(); alloc && alloc->hasOneUse())
    buffer = alloc;
  if (!isTile && op.getMatchingIndexingMap(rhs).getDimPosition(0) == dims.n.back())
    dequantization = findDequantization(rhs->get(), op);
  MatmulBlock block = getMatmulBlock(op);
  SmallVector<int64_t> extents = op.getStaticLoopRanges();
  // A result may have more columns or terms than a block, such as many features of linear attention.
  auto fits = [&](unsigned loop, int64_t most) {
    return ShapedType::isDynamic(extents[loop]) || extents[loop] <= most;
  };
  if (!isTile || !fits(dims.n.back(), block.columns) || !fits(dims.k.back(), block.depth))
    return;
  if (!ShapedType::isDynamic(extents[dims.k.back()]))
    zeroFill = getZeroFill(op);
  // A tile at the edge of a mask has a part of the RHS. All of it is packed if its size is known.
  wholeRHS = getWhole(rhs->get());
  auto isAtMost = [&](unsigned loop, int64_t most) {
    for (auto [dim, expr] : llvm::enumerate(op.getMatchingIndexingMap(rhs).getResults())) {
      int64_t extent = cast<MemRefType>(wholeRHS.getType()).getDimSize(dim);
      if (cast<AffineDimExpr>(expr).getPosition() == loop && (ShapedType::isDynamic(extent) || extent > most))
        return false;
    }
    return true;
  };
  if (!isAtMost(dims.n.back(), block.columns) || !isAtMost(dims.k.back(), block.depth))
    wholeRHS = rhs->get();
  packedBefore = getInvariantLoop(op, wholeRHS);
}

void ContractionLowering::sharePanelsOf(ContractionLowering &earlier) {
  if (packer || !wholeRHS || wholeRHS != earlier.wholeRHS || op->getOperandTypes().empty())
    return;
  auto isAlongN = [](ContractionLowering &each) {
    return each.op.getMatchingIndexingMap(each.rhs).getResult(0).isFunctionOfDim(each.dims.n.back());
  };
  auto elementsOf = [](ContractionLowering &each) {
    return llvm::map_to_vector(each.op->getOperandTypes(), [](Type type) { return getElementTypeOrSelf(type); });
  };
  auto type = cast<MemRefType>(wholeRHS.getType());
  if (!type.hasStaticShape() || type.getRank() != 2 || isAlongN(*this) != isAlongN(earlier) ||
      elementsOf(*this) != elementsOf(earlier))
    return;
  Operation *first = earlier.packedBefore ? earlier.packedBefore : earlier.op.getOperation();
  Operation *last = packedBefore ? packedBefore : op.getOperation();
  if (first->getBlock() != last->getBlock() || !first->isBeforeInBlock(last))
    return;
  for (Operation *each = first; each != last; each = each->getNextNode())
    if (mayWrite(each, getBaseMemory(wholeRHS)))
      return;
  packer = &earlier;
  earlier.packedBefore = first;
}

/// A view of `result`, the matrix of the op, whose rows consist of whole panels, or null. A result that has fewer
/// columns begins `buffer`, whose elements beyond them are not used.
Value ContractionLowering::emitWholePanels(Emitter &e, Value result) {
  auto type = cast<MemRefType>(result.getType());
  int64_t columns = buffer ? buffer.getType().getDimSize(1) : type.getDimSize(1);
  if (type.getElementType() != e.type || type.getStridesAndOffset().first.back() != 1 ||
      ShapedType::isDynamic(columns) || columns % (2 * e.lanes()) != 0)
    return nullptr;
  Value zero = e.index(0);
  return buffer ? emitBlock(e, buffer, {zero, e.size(result, 0), zero, e.index(columns)}) : result;
}

/// The RHS of a tile as panels, or null if its memory has not the order of panels that a microkernel reads: rows along
/// n that are contiguous, in the compute type, and as wide as one panel or as a few.
Value ContractionLowering::emitPanelsInPlace(Emitter &e, const ProductTraits &traits) {
  auto type = cast<MemRefType>(rhs->get().getType());
  if (!isTile || type.getRank() != 2 || traits.form != attn::ProductForm::MultiplyAdd ||
      type.getElementType() != e.type || !op.getMatchingIndexingMap(rhs).getResult(0).isFunctionOfDim(dims.k.back()))
    return nullptr;
  auto [strides, offset] = type.getStridesAndOffset();
  int64_t width = 2 * e.lanes(), columns = type.getDimSize(1);
  if (ShapedType::isDynamic(columns) || strides[0] != columns || strides[1] != 1 || columns % width != 0 ||
      columns * type.getElementTypeBitWidth() > 8 * maxRowBytes)
    return nullptr;
  auto metadata = memref::ExtractStridedMetadataOp::create(e.b, e.loc, rhs->get());
  auto panels = MemRefType::get({columns / width, type.getDimSize(0), width}, type.getElementType(),
                                StridedLayoutAttr::get(e.b.getContext(), offset, {width, columns, 1}));
  SmallVector<OpFoldResult> sizes = {e.b.getIndexAttr(columns / width), memref::getMixedSize(e.b, e.loc, rhs->get(), 0),
                                     e.b.getIndexAttr(width)};
  SmallVector<OpFoldResult> steps = {e.b.getIndexAttr(width), e.b.getIndexAttr(columns), e.b.getIndexAttr(1)};
  return memref::ReinterpretCastOp::create(e.b, e.loc, panels, metadata.getBaseBuffer(),
                                           metadata.getConstifiedMixedOffset(), sizes, steps);
}

/// A view of `memory`, which has the dimensions of `operand`, as a matrix over two loops, at the indices `at` of all
/// others.
Value ContractionLowering::matrix(Emitter &e, Value memory, OpOperand *operand, unsigned rowLoop, unsigned columnLoop,
                                  ArrayRef<Value> at) {
  auto type = cast<MemRefType>(memory.getType());
  SmallVector<OpFoldResult> offsets, sizes, strides(type.getRank(), e.b.getIndexAttr(1));
  SmallVector<int64_t> shape;
  SmallVector<unsigned> kept;
  bool isTransposed = false;
  for (auto [i, expr] : llvm::enumerate(op.getMatchingIndexingMap(operand).getResults())) {
    unsigned loop = cast<AffineDimExpr>(expr).getPosition();
    bool isKept = loop == rowLoop || loop == columnLoop;
    if (isKept && shape.empty())
      isTransposed = loop == columnLoop;
    if (isKept) {
      shape.push_back(type.getDimSize(i));
      kept.push_back(i);
    }
    offsets.push_back(isKept ? OpFoldResult(e.b.getIndexAttr(0)) : OpFoldResult(at[loop]));
    sizes.push_back(isKept ? memref::getMixedSize(e.b, e.loc, memory, i) : e.b.getIndexAttr(1));
  }
  MemRefType reduced = memref::SubViewOp::inferRankReducedResultType(shape, type, offsets, sizes, strides);
  auto slice = memref::SubViewOp::create(e.b, e.loc, reduced, memory, offsets, sizes, strides);
  Value view = slice;
  // The types of a slice do not tell which of several extents of 1 are dropped.
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  if (dropped[kept[0]] || dropped[kept[1]]) {
    slice.erase();
    Value whole = memref::SubViewOp::create(e.b, e.loc, memory, offsets, sizes, strides);
    auto metadata = memref::ExtractStridedMetadataOp::create(e.b, e.loc, whole);
    auto any =
        StridedLayoutAttr::get(e.b.getContext(), ShapedType::kDynamic, {ShapedType::kDynamic, ShapedType::kDynamic});
    view = memref::ReinterpretCastOp::create(
        e.b, e.loc, MemRefType::get(shape, type.getElementType(), any, type.getMemorySpace()), metadata.getBaseBuffer(),
        OpFoldResult(metadata.getOffset()), SmallVector<OpFoldResult>{sizes[kept[0]], sizes[kept[1]]},
        SmallVector<OpFoldResult>{metadata.getStrides()[kept[0]], metadata.getStrides()[kept[1]]});
  }
  return isTransposed ? emitTransposed(e, view) : view;
}

void ContractionLowering::run(Emitter e, llvm::DenseSet<Operation *> &prefetched, ArrayRef<Value> multiplied) {
  unsigned m = dims.m.back(), n = dims.n.back(), k = dims.k.back();
  SmallVector<int64_t> extents = op.getStaticLoopRanges();
  auto atMost = [&](int64_t limit, unsigned loop) {
    return ShapedType::isDynamic(extents[loop]) ? limit : std::clamp<int64_t>(extents[loop], 1, limit);
  };
  MatmulBlock block = getMatmulBlock(op);
  auto typeOf = [](Value operand) { return getElementTypeOrSelf(operand); };
  const ProductTraits &traits =
      chooseProduct(e.target, typeOf(op.getDpsInputs()[0]), typeOf(op.getDpsInputs()[1]), typeOf(op.getDpsInits()[0]));
  const Product &product = Product::of(traits);
  int64_t width = 2 * e.lanes(), elements = traits.stride();
  block.rows = atMost(block.rows, m);
  block.columns = llvm::alignTo(atMost(block.columns, n), width);
  block.depth = traits.units(atMost(block.depth, k));
  auto alloc = [&](int64_t columns, int64_t depth) {
    return e.alloc(product.panelsShape(e, llvm::divideCeil(columns, width), traits.units(depth)));
  };
  std::optional<QuantizedRows> weights;
  std::optional<DequantizedPacking> dequantizedPacking;
  if (dequantization) {
    weights.emplace(e, attn::QuantizedWeights::of(dequantization), dequantizedSlots, block.columns);
    dequantizedPacking.emplace(e, *weights, product, typeOf(rhs->get()));
  }
  auto pack = [&](Value rhs, const ResultBlock &at, Value kPack, Value kPacks, Value panels) {
    Value first = e.mul(kPack, elements);
    Value depth = e.min(e.mul(kPacks, elements), e.sub(e.size(rhs, 1), first));
    if (dequantizedPacking)
      return dequantizedPacking->pack(at.column, at.columns, first, depth, panels);
    product.packPanels(e, emitBlock(e, rhs, {at.column, at.columns, first, depth}), at.columns, panels);
  };
  Value packed, panelsInPlace = emitPanelsInPlace(e, traits);
  if (packer && !panelsInPlace) {
    packed = packer->panels;
  } else if (packedBefore && !panelsInPlace) {
    OpBuilder::InsertionGuard guard(e.b);
    e.b.setInsertionPoint(packedBefore);
    Value all = matrix(e, wholeRHS, rhs, n, k, {}), zero = e.index(0);
    auto shape = cast<MemRefType>(all.getType()).getShape();
    auto capacity = [](int64_t extent, int64_t ofBlock) { return ShapedType::isDynamic(extent) ? ofBlock : extent; };
    packed = alloc(capacity(shape[0], block.columns), capacity(shape[1], block.depth * elements));
    pack(all, {zero, zero, zero, e.size(all, 0)}, zero, emitUnits(e, traits, e.size(all, 1)), packed);
  }
  panels = packed;
  bool isPackedWhole = packed != nullptr;
  bool isZero = zeroFill != nullptr;
  if (isZero)
    zeroFill.erase();
  SmallVector<Range> ranges = op.createLoopRanges(e.b, e.loc);
  BlockedMatmul matmul(e, product, block);
  if (isTile && ranges.size() == 3) {
    bool isKnown = !ShapedType::isDynamic(extents[m]) && !ShapedType::isDynamic(extents[n]);
    matmul.prefetchInPlace(emitEpilogueMatrices(e, op, op.getDpsInits()[0], &prefetched),
                           isKnown ? emitNextMatrices(e, op, matmul.groupsOf(extents[m], extents[n]), multiplied)
                                   : SmallVector<NextMatrices>());
  }
  if (!packed && !panelsInPlace)
    packed = alloc(block.columns, block.depth * elements);
  auto multiplyPacked = [&](Value lhs, Value rhs, Value result) {
    auto begin = [&](Value tile, const ResultBlock &at) {
      if (!isZero)
        return Product::of(attn::ProductForm::MultiplyAdd)
            .packRows(e, emitBlock(e, result, at), at.rows, at.rows, tile);
      e.loop(e.index(0), at.rows, 1, [&](Value r) {
        e.loop(e.index(0), e.roundUp(at.columns, e.lanes()), e.lanes(),
               [&](Value c) { e.storeVector(e.splat(0.0), tile, {r, c}); });
      });
    };
    matmul.run(lhs, result, begin,
               [&](const ResultBlock &at, Value kPack, Value kPacks) -> BlockedMatmul::Panels {
                 if (panelsInPlace)
                   return {panelsInPlace, e.div(at.column, width), kPack, {}, {}};
                 if (!isPackedWhole)
                   pack(rhs, at, kPack, kPacks, packed);
                 return BlockedMatmul::Panels{packed, e.index(0), e.index(0), {}, {}};
               },
               {isTile ? emitWholePanels(e, result) : Value(), isZero});
  };
  bool inInt8 = dequantization && multipliesInInt8(e.target, dequantization);
  auto nameFamily = [&](bool mayBeFew, bool mayBeMany) {
    std::string form = (stringifyBlockFormat(dequantization.getFormat()) + " weights ").str();
    if (mayBeFew)
      form += inInt8 ? "multiplied in int8 in registers" : "dequantized in registers";
    if (mayBeFew && mayBeMany)
      form += inInt8 ? " or dequantized in packing" : " or in packing";
    else if (mayBeMany)
      form += "dequantized in packing";
    setKernelFamily(e, op, mayBeMany ? traits : traitsOf(attn::ProductForm::MultiplyAdd), form);
  };
  auto multiply = [&](Value lhs, Value rhs, Value result) {
    if (!dequantization)
      return multiplyPacked(lhs, rhs, result);
    Value isFew = e.isLess(e.size(lhs, 0), e.index((traits.inTiles ? maxDotRowsBeforeTiles : maxDotRows) + 1));
    std::optional<int64_t> isKnown = getConstantIntValue(isFew);
    nameFamily(!isKnown || *isKnown, !isKnown || !*isKnown);
    auto inRegisters = [&] { emitDequantizedDot(e, *weights, lhs, result, block.columns, inInt8); };
    auto packed = [&] { multiplyPacked(lhs, rhs, result); };
    if (isKnown)
      return *isKnown ? inRegisters() : packed();
    e.ifElse(isFew, inRegisters, packed);
  };

  SmallVector<Value> at(ranges.size());
  std::function<void(unsigned)> nest = [&](unsigned loop) {
    if (loop == ranges.size()) {
      OpOperand *init = op.getDpsInitOperand(0);
      Value result = matrix(e, init->get(), init, m, n, at);
      auto into = [&](Value result) {
        multiply(matrix(e, lhs->get(), lhs, m, k, at), matrix(e, rhs->get(), rhs, n, k, at), result);
      };
      // Contiguous rows are accumulated in place.
      return isTile ? emitByInnerStride(e, result, into, [&] { into(result); }) : into(result);
    }
    if (loop == m || loop == n || loop == k)
      return nest(loop + 1);
    e.loop(e.index(0), getValueOrCreateConstantIndexOp(e.b, e.loc, ranges[loop].size), 1, [&](Value i) {
      at[loop] = i;
      nest(loop + 1);
    });
  };
  nest(0);
}

struct LowerContraction : saccade::impl::LowerContractionBase<LowerContraction> {
  using LowerContractionBase::LowerContractionBase;

  void runOnOperation() override {
    const CPUTarget *cpu = requireCPUTarget(getOperation(), target);
    if (!cpu)
      return signalPassFailure();
    SmallVector<ContractionLowering> lowerings;
    getOperation().walk([&](linalg::LinalgOp op) {
      if (isMatmul(op) && op.hasPureBufferSemantics())
        lowerings.emplace_back(op);
    });
    for (unsigned i = 0; i < lowerings.size(); ++i)
      for (unsigned j = 0; j < i; ++j)
        if (!lowerings[j].isShared())
          lowerings[i].sharePanelsOf(lowerings[j]);
    llvm::DenseSet<Operation *> prefetched;
    llvm::SetVector<Value> multiplied;
    for (ContractionLowering &lowering : lowerings)
      if (Value lhs = lowering.getTileLHS())
        multiplied.insert(lhs);
    for (ContractionLowering &lowering : lowerings) {
      linalg::LinalgOp op = lowering.getOp();
      // 16-bit operands accumulate in f32.
      bool isF64 = llvm::any_of(op->getOperandTypes(), [](Type type) { return getElementTypeOrSelf(type).isF64(); });
      OpBuilder b(op);
      FloatType type = isF64 ? FloatType(b.getF64Type()) : FloatType(b.getF32Type());
      lowering.run({b, op.getLoc(), *cpu, type}, prefetched, multiplied.getArrayRef());
      op.erase();
      lowering.eraseDequantization();
    }
    getOperation().walk([&](attn::LoadDequantizedOp op) {
      OpBuilder b(op);
      Emitter e{b, op.getLoc(), *cpu, b.getF32Type()};
      emitLoadDequantized(e, op);
      op.erase();
    });
  }
};

} // namespace
