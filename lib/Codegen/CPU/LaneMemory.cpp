//===- LaneMemory.cpp - Vector loads and stores with any strides --------------===//
//
// vector.load and related ops require a unit inner stride, so other accesses use a flat view of the buffer. An i1 is a
// byte in memory but a bit in a vector, which vector.load does not support; these accesses use pointers.
//
//===----------------------------------------------------------------------===//
#include "LaneMemory.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace saccade::cpu;

namespace {

/// An access to one buffer at given lane positions.
class Access {
public:
  Access(OpBuilder &b, Location loc, Value memref, ArrayRef<LaneIndex> indices, unsigned lanes)
      : b(b), loc(loc), memref(memref), type(cast<MemRefType>(memref.getType())), indices(indices), lanes(lanes) {
    int64_t offset;
    [[maybe_unused]] LogicalResult isStrided = type.getStridesAndOffset(strides, offset);
    assert(succeeded(isStrided) && "buffers are strided");
  }

  bool isUniform() const {
    return llvm::all_of(indices, [](const LaneIndex &index) { return index.isUniform(); });
  }
  bool isBoolean() const { return type.getElementType().isInteger(1); }

  /// The distance in elements between consecutive lanes, or nullopt if it is not constant.
  std::optional<int64_t> elementStep() const {
    int64_t total = 0;
    for (auto [index, stride] : llvm::zip_equal(indices, strides)) {
      if (index.isUniform())
        continue;
      if (index.vector || ShapedType::isDynamic(stride))
        return std::nullopt;
      total += index.step * stride;
    }
    return total;
  }

  /// Whether vector.load supports this access directly.
  bool isPlain() const { return elementStep() == 1 && !strides.empty() && strides.back() == 1 && !isBoolean(); }

  /// Whether lanes follow a dimension with a dynamic stride, so that they are contiguous if it is 1 at run time.
  bool mayBeContiguous() const {
    bool isLast = !indices.empty() && !indices.back().vector && indices.back().step == 1 &&
                  ShapedType::isDynamic(strides.back()) && !isBoolean();
    return isLast && llvm::all_of(indices.drop_back(), [](const LaneIndex &index) { return index.isUniform(); });
  }
  /// i1: whether that stride is 1. Call after flatten().
  Value isContiguous() {
    Value one = arith::ConstantIndexOp::create(b, loc, 1);
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, runTimeStrides.back(), one);
  }

  SmallVector<Value> bases() {
    SmallVector<Value> result;
    for (const LaneIndex &index : indices)
      result.push_back(index.vector ? arith::ConstantIndexOp::create(b, loc, 0).getResult() : index.base);
    return result;
  }

  /// The offset in elements of lane 0 (with index 0 along vector dimensions), and the base buffer.
  std::pair<Value, Value> flatten() {
    auto metadata = memref::ExtractStridedMetadataOp::create(b, loc, memref);
    Value position = metadata.getOffset();
    for (auto [i, index] : llvm::enumerate(indices))
      if (index.base && !index.vector)
        position = add(position, scale(index.base, i, metadata));
    runTimeStrides.assign(metadata.getStrides().begin(), metadata.getStrides().end());
    return {position, metadata.getBaseBuffer()};
  }

  /// The distance of each lane from that offset: vector<lanes x index>, or vector<lanes x i32> if known to suffice.
  /// Call after flatten().
  Value distances() {
    if (std::optional<int64_t> step = elementStep(); step && std::abs(*step) < (int64_t(1) << 24))
      return affineLanes(b, loc, arith::ConstantIntOp::create(b, loc, 0, 32), *step, lanes);
    auto vectorType = VectorType::get(lanes, b.getIndexType());
    Value total;
    for (auto [i, index] : llvm::enumerate(indices)) {
      if (index.isUniform())
        continue;
      Value along = index.vector;
      if (!along)
        along = affineLanes(b, loc, arith::ConstantIndexOp::create(b, loc, 0), index.step, lanes);
      if (strides[i] != 1) {
        Value stride = vector::BroadcastOp::create(b, loc, vectorType, runTimeStrides[i]);
        along = arith::MulIOp::create(b, loc, along, stride);
      }
      total = total ? add(total, along) : along;
    }
    return total;
  }

  /// A one-dimensional view with unit stride that starts at `position`.
  Value view(Value position, Value buffer) {
    auto layout = StridedLayoutAttr::get(b.getContext(), ShapedType::kDynamic, {1});
    auto flat = MemRefType::get({ShapedType::kDynamic}, type.getElementType(), layout, type.getMemorySpace());
    // The extent is not used: the caller guarantees that indices are in bounds.
    OpFoldResult extent = b.getIndexAttr(std::numeric_limits<int32_t>::max());
    OpFoldResult one = b.getIndexAttr(1);
    Value size = getValueOrCreateConstantIndexOp(b, loc, extent);
    return memref::ReinterpretCastOp::create(b, loc, flat, buffer, OpFoldResult(position), ArrayRef<OpFoldResult>{size},
                                             ArrayRef<OpFoldResult>{one});
  }

  /// The byte address of `position`, for elements of one byte.
  Value address(Value position, Value buffer) {
    Value start = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, buffer);
    Value integer = arith::IndexCastOp::create(b, loc, b.getI64Type(), add(start, position));
    return LLVM::IntToPtrOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()), integer);
  }

  /// One byte address per lane.
  Value addresses(Value position, Value buffer) {
    Value distance = distances();
    Type wide = VectorType::get(lanes, b.getI64Type());
    if (cast<VectorType>(distance.getType()).getElementType().isIndex())
      distance = arith::IndexCastOp::create(b, loc, wide, distance);
    else
      distance = arith::ExtSIOp::create(b, loc, wide, distance);
    Type pointers = VectorType::get(lanes, LLVM::LLVMPointerType::get(b.getContext()));
    return LLVM::GEPOp::create(b, loc, pointers, b.getI8Type(), address(position, buffer),
                               ArrayRef<LLVM::GEPArg>{distance});
  }

private:
  Value add(Value left, Value right) { return arith::AddIOp::create(b, loc, left, right); }

  Value scale(Value index, unsigned dim, memref::ExtractStridedMetadataOp metadata) {
    return strides[dim] == 1 ? index : arith::MulIOp::create(b, loc, index, metadata.getStrides()[dim]).getResult();
  }

  OpBuilder &b;
  Location loc;
  Value memref;
  MemRefType type;
  ArrayRef<LaneIndex> indices;
  unsigned lanes;
  SmallVector<int64_t> strides;
  SmallVector<Value> runTimeStrides;
};

Value allLanes(OpBuilder &b, Location loc, unsigned lanes) {
  auto type = VectorType::get(lanes, b.getI1Type());
  return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, true));
}

Value zeroes(OpBuilder &b, Location loc, Type type) { return arith::ConstantOp::create(b, loc, b.getZeroAttr(type)); }

} // namespace

Value saccade::cpu::loadLanes(OpBuilder &b, Location loc, Value memref, ArrayRef<LaneIndex> indices, unsigned lanes,
                              Value mask) {
  Access access(b, loc, memref, indices, lanes);
  Type element = cast<MemRefType>(memref.getType()).getElementType();
  auto type = VectorType::get(lanes, element);
  if (access.isUniform()) {
    Value scalar = memref::LoadOp::create(b, loc, memref, access.bases());
    return vector::BroadcastOp::create(b, loc, type, scalar);
  }
  if (access.isPlain()) {
    if (!mask)
      return vector::LoadOp::create(b, loc, type, memref, access.bases());
    return vector::MaskedLoadOp::create(b, loc, type, memref, access.bases(), mask, zeroes(b, loc, type));
  }
  auto [position, buffer] = access.flatten();
  bool isContiguous = access.elementStep() == 1;
  if (!access.isBoolean()) {
    Value view = access.view(position, buffer);
    Value zero = arith::ConstantIndexOp::create(b, loc, 0);
    if (isContiguous && !mask)
      return vector::LoadOp::create(b, loc, type, view, zero);
    if (isContiguous)
      return vector::MaskedLoadOp::create(b, loc, type, view, zero, mask, zeroes(b, loc, type));
    auto gather = [&]() -> Value {
      return vector::GatherOp::create(b, loc, type, view, zero, access.distances(),
                                      mask ? mask : allLanes(b, loc, lanes), zeroes(b, loc, type));
    };
    if (!access.mayBeContiguous())
      return gather();
    // A gather takes one access per lane, so a dynamic stride is tested for 1.
    auto chosen = scf::IfOp::create(b, loc, type, access.isContiguous(), /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(chosen.thenBlock());
    Value loaded = mask ? vector::MaskedLoadOp::create(b, loc, type, view, zero, mask, zeroes(b, loc, type)).getResult()
                        : vector::LoadOp::create(b, loc, type, view, zero).getResult();
    scf::YieldOp::create(b, loc, loaded);
    b.setInsertionPointToStart(chosen.elseBlock());
    scf::YieldOp::create(b, loc, gather());
    return chosen.getResult(0);
  }
  auto bytes = VectorType::get(lanes, b.getI8Type());
  Value none = zeroes(b, loc, bytes), loaded;
  if (isContiguous && !mask)
    loaded = LLVM::LoadOp::create(b, loc, bytes, access.address(position, buffer), /*alignment=*/1);
  else if (isContiguous)
    loaded = LLVM::MaskedLoadOp::create(b, loc, bytes, access.address(position, buffer), mask, none, /*alignment=*/1);
  else
    loaded = LLVM::masked_gather::create(b, loc, bytes, access.addresses(position, buffer),
                                         mask ? mask : allLanes(b, loc, lanes), none, /*alignment=*/1);
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, loaded, none);
}

void saccade::cpu::storeLanes(OpBuilder &b, Location loc, Value vector, Value memref, ArrayRef<LaneIndex> indices,
                              Value mask) {
  auto type = cast<VectorType>(vector.getType());
  unsigned lanes = type.getNumElements();
  Access access(b, loc, memref, indices, lanes);
  if (access.isPlain()) {
    if (mask)
      vector::MaskedStoreOp::create(b, loc, memref, access.bases(), mask, vector);
    else
      vector::StoreOp::create(b, loc, vector, memref, access.bases());
    return;
  }
  auto [position, buffer] = access.flatten();
  bool isContiguous = access.elementStep() == 1;
  if (!access.isBoolean()) {
    Value view = access.view(position, buffer);
    Value zero = arith::ConstantIndexOp::create(b, loc, 0);
    if (isContiguous && !mask)
      vector::StoreOp::create(b, loc, vector, view, zero);
    else if (isContiguous)
      vector::MaskedStoreOp::create(b, loc, view, zero, mask, vector);
    else
      vector::ScatterOp::create(b, loc, /*result=*/Type(), view, zero, access.distances(),
                                mask ? mask : allLanes(b, loc, lanes), vector);
    return;
  }
  Value bytes = arith::ExtUIOp::create(b, loc, VectorType::get(lanes, b.getI8Type()), vector);
  if (isContiguous && !mask)
    LLVM::StoreOp::create(b, loc, bytes, access.address(position, buffer), /*alignment=*/1);
  else if (isContiguous)
    LLVM::MaskedStoreOp::create(b, loc, bytes, access.address(position, buffer), mask, /*alignment=*/1);
  else
    LLVM::masked_scatter::create(b, loc, bytes, access.addresses(position, buffer),
                                 mask ? mask : allLanes(b, loc, lanes), /*alignment=*/1);
}

Value saccade::cpu::affineLanes(OpBuilder &b, Location loc, Value base, int64_t step, unsigned lanes) {
  Type element = base.getType();
  auto type = VectorType::get(lanes, element);
  SmallVector<Attribute> steps;
  for (unsigned lane = 0; lane < lanes; ++lane) {
    // Narrow integer arithmetic wraps, so the steps are truncated.
    APInt value(64, uint64_t(step) * lane);
    steps.push_back(element.isIndex() ? b.getIndexAttr(value.getSExtValue())
                                      : b.getIntegerAttr(element, value.trunc(element.getIntOrFloatBitWidth())));
  }
  Value offsets = arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, steps));
  if (matchPattern(base, m_Zero()))
    return offsets;
  return arith::AddIOp::create(b, loc, vector::BroadcastOp::create(b, loc, type, base), offsets);
}

Value saccade::cpu::firstLanes(OpBuilder &b, Location loc, Value count, unsigned lanes) {
  Value narrow = arith::MinSIOp::create(b, loc, count, arith::ConstantIndexOp::create(b, loc, lanes));
  narrow = arith::IndexCastOp::create(b, loc, b.getI32Type(), narrow);
  auto type = VectorType::get(lanes, b.getI32Type());
  Value iota = affineLanes(b, loc, arith::ConstantIntOp::create(b, loc, 0, 32), 1, lanes);
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, iota,
                               vector::BroadcastOp::create(b, loc, type, narrow));
}
