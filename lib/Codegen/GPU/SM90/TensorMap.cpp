//===- TensorMap.cpp - Operands that bulk copies read -------------------------===//
//
// A tensor map is of a whole parameter or constant, so the position of an operand in it is what its views have added
// up.
//
//===----------------------------------------------------------------------===//
#include "TensorMap.h"
#include "WarpgroupShape.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "saccade/Runtime/BulkTensor.h"
#include "saccade/Support/Kernels.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

/// CUtensorMapDataType and CUtensorMapSwizzle.
static constexpr int64_t typeF16 = 6, typeBF16 = 9, swizzle128 = 3;

namespace {

/// Views from an operand up to a tensor, outermost last.
struct Views {
  SmallVector<memref::SubViewOp> views;
  Value tensor;                 ///< a parameter of the kernel, or a constant, or a view of it with a static position
  MemRefType type;              ///< of the tensor, with the extents that casts add
  memref::GetGlobalOp constant; ///< null if the tensor is a parameter

  BlockArgument parameter() const { return dyn_cast<BlockArgument>(tensor); }
};

} // namespace

/// The constant of which `tensor` is a view whose type has the position in the constant, or null.
static memref::GetGlobalOp constantOf(Value tensor) {
  auto type = dyn_cast<MemRefType>(tensor.getType());
  SmallVector<int64_t> strides;
  int64_t offset;
  if (!type || !type.hasStaticShape() || failed(type.getStridesAndOffset(strides, offset)) ||
      ShapedType::isDynamicShape(strides) || ShapedType::isDynamic(offset))
    return nullptr;
  // Of these, the type of the result contains the whole position. That of memref.view lacks its shift in bytes.
  while (Operation *view = tensor.getDefiningOp()) {
    if (!isa<memref::SubViewOp, memref::CastOp, memref::ExpandShapeOp, memref::CollapseShapeOp,
             memref::ReinterpretCastOp>(view))
      break;
    tensor = cast<ViewLikeOpInterface>(view).getViewSource();
  }
  return tensor.getDefiningOp<memref::GetGlobalOp>();
}

static std::optional<Views> findViews(Value operand) {
  Views found;
  SmallVector<MemRefType> casts; // of the tensor
  for (;;) {
    if ((found.constant = constantOf(operand)))
      break;
    if (auto view = operand.getDefiningOp<memref::SubViewOp>()) {
      if (llvm::any_of(view.getMixedStrides(), [](OpFoldResult step) { return getConstantIntValue(step) != 1; }))
        return std::nullopt;
      found.views.push_back(view);
      casts.clear();
      operand = view.getSource();
    } else if (auto cast = operand.getDefiningOp<memref::CastOp>();
               cast && isa<MemRefType>(cast.getType()) && isa<MemRefType>(cast.getSource().getType())) {
      casts.push_back(llvm::cast<MemRefType>(cast.getType()));
      operand = cast.getSource();
    } else {
      break;
    }
  }
  found.tensor = operand;
  found.type = dyn_cast<MemRefType>(operand.getType());
  if (found.constant)
    return found;
  BlockArgument parameter = found.parameter();
  if (!found.type || !parameter || !isa<func::FuncOp>(parameter.getOwner()->getParentOp()))
    return std::nullopt;
  auto shape = llvm::to_vector(found.type.getShape());
  for (MemRefType type : casts)
    for (auto [extent, known] : llvm::zip_equal(shape, type.getShape()))
      if (ShapedType::isDynamic(extent))
        extent = known;
  found.type = MemRefType::Builder(found.type).setShape(shape);
  return found;
}

/// The dimension of the source of a view that is dimension `dim` of the view.
static unsigned sourceDim(memref::SubViewOp view, unsigned dim) {
  llvm::SmallBitVector dropped = view.getDroppedDims();
  for (unsigned source = 0;; ++source)
    if (!dropped[source] && dim-- == 0)
      return source;
}

/// The dimension of the tensor that is dimension `dim` of the operand.
static unsigned tensorDim(const Views &found, unsigned dim) {
  for (memref::SubViewOp view : found.views)
    dim = sourceDim(view, dim);
  return dim;
}

bool device::isMappable(Value operand) {
  std::optional<Views> found = findViews(operand);
  return found && found->type.getRank() <= runtime::BulkTensor::maxRank;
}

bool device::isMappable(Value operand, unsigned columnDim) {
  if (!isMappable(operand))
    return false;
  std::optional<Views> found = findViews(operand);
  // A product takes 16 columns at a time. Those beyond the operand must be beyond the tensor, where they are zeros.
  int64_t columns = cast<MemRefType>(operand.getType()).getDimSize(columnDim);
  return columns % 16 == 0 || columns == found->type.getDimSize(tensorDim(*found, columnDim));
}

bool device::isMappable(Value operand, DimsAttr dims) {
  if (LoadPagesOp op = findPages(operand)) {
    int64_t pageSize = getStaticDimSize(op.getPool(), op.getDims(), Dim::Seq);
    return isMappable(op.getPool(), op.getDims()) &&
           (ShapedType::isDynamic(pageSize) || pageSize % runtime::BulkTensor::swizzleRows == 0);
  }
  return !dims.position(Dim::Head) && isMappable(operand, *dims.position(Dim::Depth));
}

bool device::hasKnownPosition(Value operand) {
  std::optional<Views> found = findViews(operand);
  Block *start = &operand.getParentRegion()->getParentOfType<func::FuncOp>().getBody().front();
  return llvm::all_of(found->views, [&](memref::SubViewOp view) { return view->getBlock() == start; });
}

std::optional<SmallVector<ParameterExtent>> device::extentsIfWhole(Value operand, unsigned dim) {
  std::optional<Views> found = findViews(operand);
  OpFoldResult extent;
  SmallVector<ParameterExtent> equal;
  for (memref::SubViewOp view : found->views) {
    dim = sourceDim(view, dim);
    if (!isZeroInteger(view.getMixedOffsets()[dim]))
      return std::nullopt;
    if (!extent)
      extent = view.getMixedSizes()[dim];
  }
  int64_t size = found->type.getDimSize(dim);
  BlockArgument tensor = found->parameter();
  if (!tensor)
    return !extent || getConstantIntValue(extent) == size ? std::optional(SmallVector<ParameterExtent>())
                                                          : std::nullopt;
  ParameterExtent whole{tensor.getArgNumber(), dim};
  if (!extent)
    return SmallVector{whole};
  if (std::optional<int64_t> constant = getConstantIntValue(extent))
    return *constant == size ? std::optional(SmallVector<ParameterExtent>()) : std::nullopt;
  Value source = cast<Value>(extent);
  int64_t ofSource = ParameterExtent::number;
  if (auto known = source.getDefiningOp<memref::DimOp>(); known && known.getConstantIndex()) {
    source = known.getSource();
    ofSource = *known.getConstantIndex();
  }
  auto parameter = dyn_cast<BlockArgument>(source);
  if (!parameter || parameter.getOwner() != tensor.getOwner())
    return std::nullopt;
  return SmallVector{whole, {parameter.getArgNumber(), ofSource}};
}

MappedOperand device::mapOperand(Value operand, unsigned rowDim, unsigned columnDim) {
  std::optional<Views> found = findViews(operand);
  MemRefType type = found->type;
  MappedOperand mapped;
  mapped.type = type;
  if (memref::GetGlobalOp constant = found->constant)
    mapped.constant = constant.getNameAttr();
  else
    mapped.argument = found->parameter().getArgNumber();
  mapped.rowDim = tensorDim(*found, rowDim);
  mapped.columnDim = tensorDim(*found, columnDim);
  // From the tensor on: a view's dimensions are some of its source's.
  OpBuilder b(operand.getContext());
  auto dimOf = llvm::to_vector(llvm::seq<unsigned>(0, type.getRank()));
  mapped.position.assign(type.getRank(), b.getIndexAttr(0));
  for (memref::SubViewOp view : llvm::reverse(found->views)) {
    SmallVector<unsigned> kept;
    llvm::SmallBitVector dropped = view.getDroppedDims();
    for (auto [dim, offset] : llvm::enumerate(view.getMixedOffsets())) {
      OpFoldResult &sum = mapped.position[dimOf[dim]];
      if (isZeroInteger(sum))
        sum = offset;
      else if (!isZeroInteger(offset)) {
        OpBuilder after(view->getBlock(), std::next(view->getIterator()));
        auto value = [&](OpFoldResult x) { return getValueOrCreateConstantIndexOp(after, view.getLoc(), x); };
        Value before = value(sum);
        sum = arith::AddIOp::create(after, view.getLoc(), before, value(offset)).getResult();
      }
      if (!dropped[dim])
        kept.push_back(dimOf[dim]);
    }
    dimOf = kept;
  }
  return mapped;
}

/// The position `position` in dimension `dim` of a tensor that may be repeated along it, with stride 0: it is 0 then,
/// because the tensor map has one position (`BulkTensor::describe`).
static OpFoldResult positionIfRepeated(const Views &found, unsigned dim, OpFoldResult position) {
  int64_t stride = found.type.getStridesAndOffset().first[dim];
  if (stride == 0)
    return Builder(found.tensor.getContext()).getIndexAttr(0);
  if (!ShapedType::isDynamic(stride) || isZeroInteger(position))
    return position;
  Location loc = found.tensor.getLoc();
  OpBuilder b(found.views.front());
  if (auto value = dyn_cast<Value>(position))
    b.setInsertionPointAfterValue(value);
  Value steps = memref::ExtractStridedMetadataOp::create(b, loc, found.tensor).getStrides()[dim];
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  Value isRepeated = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, steps, zero);
  Value whole = getValueOrCreateConstantIndexOp(b, loc, position);
  return arith::SelectOp::create(b, loc, isRepeated, zero, whole).getResult();
}

MappedOperand device::mapRepeatedOperand(Value operand, unsigned rowDim, unsigned columnDim) {
  MappedOperand mapped = mapOperand(operand, rowDim, columnDim);
  mapped.mayBeRepeated = true;
  SmallVector<unsigned> dims = mapped.order();
  for (unsigned dim : ArrayRef(dims).drop_front(2))
    mapped.position[dim] = positionIfRepeated(*findViews(operand), dim, mapped.position[dim]);
  return mapped;
}

MappedOperand device::mapOperand(Value operand, DimsAttr dims) {
  if (LoadPagesOp op = findPages(operand)) {
    MappedOperand mapped = mapOperand(op.getPool(), op.getDims());
    mapped.pages = op;
    mapped.pageDim = tensorDim(*findViews(op.getPool()), *op.getDims().position(Dim::Batch));
    return mapped;
  }
  return mapOperand(operand, *dims.position(Dim::Seq), *dims.position(Dim::Depth));
}

SmallVector<unsigned> MappedOperand::order() const {
  SmallVector<unsigned> result = {columnDim, rowDim};
  for (unsigned dim = 0; dim < type.getRank(); ++dim)
    if (dim != columnDim && dim != rowDim)
      result.push_back(dim);
  return result;
}

SmallVector<int64_t> MappedOperand::plan(int64_t rows, int64_t columns) const {
  bool isBF16 = type.getElementType().isBF16();
  SmallVector<int64_t> words = {isBF16 ? typeBF16 : typeF16, /*bytes=*/2, swizzle128, type.getRank()};
  llvm::append_range(words, order());
  words.append({columns, pages ? -rows : rows});
  words.append(type.getRank() - 2, mayBeRepeated ? 0 : 1);
  return words;
}

SmallVector<Value> MappedOperand::coordinates(Emitter &e, Value row, int64_t column, Value page) const {
  return coordinates(e, row, e.i32(column), page);
}

SmallVector<Value> MappedOperand::coordinates(Emitter &e, Value row, Value column, Value page) const {
  SmallVector<Value> result;
  for (unsigned dim : order()) {
    Value start = e.toI32(getValueOrCreateConstantIndexOp(e.b, e.loc, position[dim]));
    bool isPage = page && dim == pageDim;
    Value offset = dim == columnDim ? column : dim == rowDim ? row : isPage ? page : Value();
    result.push_back(offset ? e.add(start, offset) : start);
  }
  return result;
}

MappedOperand MappedOperand::in(const IRMapping &copies) const {
  MappedOperand copy = *this;
  for (OpFoldResult &each : copy.position)
    if (auto value = dyn_cast<Value>(each))
      each = copies.lookupOrDefault(value);
  if (pages)
    copy.pages = cast<LoadPagesOp>(copies.lookup(copy.pages.getOperation()));
  return copy;
}

/// The number of an operand's tensor in a tensor map (tensorMapsAttr). A constant is added to `constants` and becomes
/// visible to the host.
static int64_t numberOf(const MappedOperand &operand, func::FuncOp kernel, SmallVectorImpl<Attribute> &constants) {
  if (!operand.constant)
    return operand.argument;
  Attribute constant = ArrayAttr::get(kernel.getContext(), {operand.constant, TypeAttr::get(operand.type)});
  auto at = llvm::find(constants, constant);
  int64_t number = -1 - std::distance(constants.begin(), at);
  if (at == constants.end())
    constants.push_back(constant);
  SymbolTable::setSymbolVisibility(SymbolTable::lookupNearestSymbolFrom(kernel, operand.constant),
                                   SymbolTable::Visibility::Public);
  return number;
}

/// Which calls have tensor maps of `operands`, as the text of `bulkConditionAttr`; empty if all calls with dense
/// tensors have.
static std::string findCondition(ArrayRef<BoxedOperand> operands) {
  constexpr int64_t alignment = runtime::BulkTensor::alignment;
  bool hasAnyRow = false, hasAnyPage = false;
  for (const BoxedOperand &boxed : operands) {
    const MappedOperand &operand = boxed.operand;
    int64_t columns = operand.type.getDimSize(operand.columnDim);
    int64_t bytes = columns * operand.type.getElementTypeBitWidth() / 8;
    if (operand.columnDim + 1 != operand.type.getRank())
      return "not launched for dense tensors: rows of an operand are not contiguous";
    if (!ShapedType::isDynamic(columns) && bytes % alignment != 0)
      return llvm::formatv("not launched for dense tensors: rows have {0} bytes, not a multiple of {1}", bytes,
                           alignment);
    hasAnyRow |= ShapedType::isDynamic(columns);
    hasAnyPage |= operand.pages && operand.type.isDynamicDim(operand.rowDim);
  }
  if (hasAnyRow)
    return llvm::formatv("launched if rows are multiples of {0} bytes", alignment);
  return hasAnyPage ? llvm::formatv("launched if pages have a multiple of {0} keys", runtime::BulkTensor::swizzleRows)
                    : std::string();
}

SmallVector<Value> device::addTensorMaps(func::FuncOp kernel, ArrayRef<BoxedOperand> operands) {
  Builder b(kernel.getContext());
  Block &body = kernel.getBody().front();
  SmallVector<Value> maps;
  SmallVector<Attribute> plans, constants;
  for (auto [operand, rows] : operands) {
    SmallVector<int64_t> plan = operand.plan(rows, WarpgroupShape::boxColumns);
    plan.insert(plan.begin(), numberOf(operand, kernel, constants));
    plans.push_back(b.getDenseI64ArrayAttr(plan));
    maps.push_back(body.insertArgument(maps.size(), LLVM::LLVMPointerType::get(b.getContext()), kernel.getLoc()));
  }
  kernel.setFunctionType(b.getFunctionType(body.getArgumentTypes(), {}));
  kernel->setAttr(tensorMapsAttr, b.getArrayAttr(plans));
  if (!constants.empty())
    kernel->setAttr(mappedConstantsAttr, b.getArrayAttr(constants));
  if (std::string condition = findCondition(operands); !condition.empty())
    kernel->setAttr(bulkConditionAttr, b.getStringAttr(condition));
  return maps;
}

func::FuncOp device::copyForTensorMaps(func::FuncOp kernel, SymbolTable &kernels, StringRef suffix) {
  func::FuncOp copy = kernel.clone();
  copy.setName((kernel.getName() + bulkKernelSuffix + suffix).str());
  kernels.insert(copy);
  return copy;
}
