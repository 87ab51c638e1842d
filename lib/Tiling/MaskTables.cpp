//===- MaskTables.cpp - Block minima and maxima of mask captures --------------===//
//
// Builds each table as a structured reduction over blocks, so that it is tiled into tasks and vectorized like other
// ops.
//
//===----------------------------------------------------------------------===//
#include "MaskTables.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/Analysis/RuntimeMaskInputs.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

static constexpr int64_t minMaxBlock = RuntimeMaskInputs::minMaxBlock;

/// The element type of a table: i8 for i1, i64 for index, else that of the tensor. It must have neutral elements.
static Type tableElement(RankedTensorType type) {
  Type element = type.getElementType();
  if (element.isInteger(1))
    return IntegerType::get(type.getContext(), 8);
  return element.isIndex() ? IntegerType::get(type.getContext(), 64) : element;
}

static std::pair<Value, Value> makeTables(OpBuilder &b, Location loc, Value tensor) {
  auto type = cast<RankedTensorType>(tensor.getType());
  Type element = tableElement(type);
  unsigned rank = type.getRank(), width = element.getIntOrFloatBitWidth();
  Value last = tensor::DimOp::create(b, loc, tensor, rank - 1);
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, tensor);
  Value round = arith::AddIOp::create(b, loc, last, arith::ConstantIndexOp::create(b, loc, minMaxBlock - 1));
  sizes.back() = arith::DivUIOp::create(b, loc, round, arith::ConstantIndexOp::create(b, loc, minMaxBlock)).getResult();
  SmallVector<Value> inits;
  for (const APInt &neutral : {APInt::getSignedMaxValue(width), APInt::getSignedMinValue(width)}) {
    Value number = arith::ConstantOp::create(b, loc, b.getIntegerAttr(element, neutral));
    Value empty = tensor::EmptyOp::create(b, loc, sizes, element);
    inits.push_back(linalg::FillOp::create(b, loc, number, empty).getResult(0));
  }
  // This operand only gives the extent of the reduced dimension; its elements are not read.
  Value within = tensor::EmptyOp::create(b, loc, ArrayRef<int64_t>{minMaxBlock}, b.getI8Type());
  AffineMap identity = b.getMultiDimIdentityMap(rank + 1), outer = identity.dropResult(rank),
            inner = identity.getSubMap({rank});
  SmallVector<utils::IteratorType> iterators(rank, utils::IteratorType::parallel);
  iterators.push_back(utils::IteratorType::reduction);
  SmallVector<Type> types = llvm::map_to_vector(inits, [](Value init) { return init.getType(); });
  auto reduce = linalg::GenericOp::create(
      b, loc, types, within, inits, ArrayRef{inner, outer, outer}, iterators,
      [&](OpBuilder &nested, Location, ValueRange arguments) {
        SmallVector<Value> place;
        for (unsigned dim = 0; dim < rank; ++dim)
          place.push_back(linalg::IndexOp::create(nested, loc, dim));
        // The last block is padded with the last element.
        Value start =
            arith::MulIOp::create(nested, loc, place.back(), arith::ConstantIndexOp::create(nested, loc, minMaxBlock));
        Value position = arith::AddIOp::create(nested, loc, start, linalg::IndexOp::create(nested, loc, rank));
        Value end = arith::SubIOp::create(nested, loc, last, arith::ConstantIndexOp::create(nested, loc, 1));
        place.back() = arith::MinSIOp::create(nested, loc, position, end);
        Value number = tensor::ExtractOp::create(nested, loc, tensor, place);
        if (number.getType().isIndex())
          number = arith::IndexCastOp::create(nested, loc, element, number);
        else if (number.getType() != element)
          number = arith::ExtUIOp::create(nested, loc, element, number);
        Value low = arith::MinSIOp::create(nested, loc, arguments[1], number);
        Value high = arith::MaxSIOp::create(nested, loc, arguments[2], number);
        linalg::YieldOp::create(nested, loc, ValueRange{low, high});
      });
  return {reduce.getResult(0), reduce.getResult(1)};
}

std::pair<Value, Value> MaskTables::of(Value tensor, Operation *user) {
  Operation *place = user;
  for (Operation *around = user->getParentOp(); around; around = around->getParentOp()) {
    bool isOutside = !around->isAncestor(tensor.getParentBlock()->getParentOp());
    if (isa<scf::ForallOp, scf::ForOp, scf::IfOp>(around) && isOutside)
      place = around;
  }
  auto &known = made[{tensor, place->getBlock()}];
  if (!known.first) {
    // As early as possible, so that later users can share the tables.
    OpBuilder b(place);
    if (Operation *producer = tensor.getDefiningOp(); producer && producer->getBlock() == place->getBlock())
      b.setInsertionPointAfter(producer);
    else if (tensor.getParentBlock() == place->getBlock())
      b.setInsertionPointToStart(place->getBlock());
    known = makeTables(b, place->getLoc(), tensor);
  }
  return known;
}
