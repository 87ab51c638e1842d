//===- Lanes.cpp - Integer ops on many numbers at once ------------------------===//
#include "Lanes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace saccade::attn;

static unsigned widthOf(Type type) { return type.isIndex() ? 64 : type.getIntOrFloatBitWidth(); }

/// The low bits as a signed number; i1 is 0 or 1.
static int64_t wrap(int64_t value, unsigned width) {
  if (width == 1)
    return value & 1;
  return width >= 64 ? value : int64_t(uint64_t(value) << (64 - width)) >> (64 - width);
}

static uint64_t asUnsigned(int64_t value, unsigned width) {
  return width >= 64 ? uint64_t(value) : uint64_t(value) & ((uint64_t(1) << width) - 1);
}

/// A division by 0 or with overflow is unspecified: it divides by 1 here.
static int64_t safe(int64_t divisor, int64_t dividend) {
  return divisor == 0 || (divisor == -1 && dividend == INT64_MIN) ? 1 : divisor;
}

static int64_t floorDiv(int64_t x, int64_t y) { return x / y - (x % y != 0 && (x < 0) != (y < 0)); }
static int64_t ceilDiv(int64_t x, int64_t y) { return x / y + (x % y != 0 && (x < 0) == (y < 0)); }

static int64_t compute(Operation *op, int64_t x, int64_t y, unsigned width) {
  uint64_t ux = asUnsigned(x, width), uy = asUnsigned(y, width);
  if (isa<arith::AddIOp>(op))
    return int64_t(ux + uy);
  if (isa<arith::SubIOp>(op))
    return int64_t(ux - uy);
  if (isa<arith::MulIOp>(op))
    return int64_t(ux * uy);
  if (isa<arith::AndIOp>(op))
    return x & y;
  if (isa<arith::OrIOp>(op))
    return x | y;
  if (isa<arith::XOrIOp>(op))
    return x ^ y;
  if (isa<arith::MinSIOp>(op))
    return std::min(x, y);
  if (isa<arith::MaxSIOp>(op))
    return std::max(x, y);
  if (isa<arith::MinUIOp>(op))
    return int64_t(std::min(ux, uy));
  if (isa<arith::MaxUIOp>(op))
    return int64_t(std::max(ux, uy));
  if (isa<arith::FloorDivSIOp>(op))
    return floorDiv(x, safe(y, x));
  if (isa<arith::CeilDivSIOp>(op))
    return ceilDiv(x, safe(y, x));
  if (isa<arith::DivSIOp>(op))
    return x / safe(y, x);
  if (isa<arith::RemSIOp>(op))
    return x % safe(y, x);
  if (isa<arith::DivUIOp>(op))
    return int64_t(ux / std::max<uint64_t>(uy, 1));
  if (isa<arith::CeilDivUIOp>(op))
    return int64_t(ux / std::max<uint64_t>(uy, 1) + (ux % std::max<uint64_t>(uy, 1) != 0));
  if (isa<arith::RemUIOp>(op))
    return int64_t(ux % std::max<uint64_t>(uy, 1));
  bool isInside = uy < width;
  if (isa<arith::ShLIOp>(op))
    return isInside ? int64_t(ux << uy) : 0;
  if (isa<arith::ShRSIOp>(op))
    return isInside ? x >> uy : 0;
  if (isa<arith::ShRUIOp>(op))
    return isInside ? int64_t(ux >> uy) : 0;
  ADD_FAILURE() << "an op that the test cannot evaluate: " << op->getName().getStringRef().str();
  return 0;
}

const Lanes &LaneEvaluator::operator()(Value value) {
  if (auto known = values.find(value); known != values.end())
    return known->second;
  Operation *op = value.getDefiningOp();
  EXPECT_NE(op, nullptr) << "an argument that is not bound";
  Lanes lanes = op ? evaluate(op) : Lanes(count, 0);
  unsigned width = widthOf(value.getType());
  for (int64_t &lane : lanes)
    lane = wrap(lane, width);
  return values[value] = std::move(lanes);
}

Lanes LaneEvaluator::evaluate(Operation *op) {
  APInt constant;
  if (matchPattern(op->getResult(0), m_ConstantInt(&constant)))
    return Lanes(count, constant.getSExtValue());
  if (auto length = dyn_cast<LengthOp>(op))
    return Lanes(count, length.getRole() == Role::Query ? queryLength : keyLength);
  Lanes result(count);
  if (auto dim = dyn_cast<tensor::DimOp>(op))
    return Lanes(count, tables.at(dim.getSource())->shape[*dim.getConstantIndex()]);
  if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
    // Out-of-bounds reads are unspecified: they are clamped here.
    const Table &table = *tables.at(extract.getTensor());
    SmallVector<Lanes> place;
    for (Value index : extract.getIndices())
      place.push_back((*this)(index));
    for (size_t lane = 0; lane < count; ++lane) {
      int64_t offset = 0;
      for (size_t dim = 0; dim < place.size(); ++dim)
        offset = offset * table.shape[dim] + std::clamp<int64_t>(place[dim][lane], 0, table.shape[dim] - 1);
      result[lane] = table.elements[offset];
    }
    return result;
  }
  SmallVector<Lanes, 3> operands;
  for (Value operand : op->getOperands())
    operands.push_back((*this)(operand));
  unsigned width = widthOf(op->getOperand(0).getType());
  for (size_t lane = 0; lane < count; ++lane) {
    int64_t x = operands[0][lane];
    if (isa<arith::SelectOp>(op))
      result[lane] = operands[x ? 1 : 2][lane];
    else if (isa<arith::IndexCastOp, arith::ExtSIOp>(op))
      result[lane] = width == 1 ? -x : x;
    else if (isa<arith::TruncIOp>(op))
      result[lane] = x;
    else if (isa<arith::IndexCastUIOp, arith::ExtUIOp>(op))
      result[lane] = int64_t(asUnsigned(x, width));
    else if (isa<math::AbsIOp>(op))
      result[lane] = x < 0 ? int64_t(-uint64_t(x)) : x;
    else if (auto compared = dyn_cast<arith::CmpIOp>(op))
      result[lane] = arith::applyCmpPredicate(compared.getPredicate(), APInt(64, uint64_t(x)).trunc(width),
                                              APInt(64, uint64_t(operands[1][lane])).trunc(width));
    else
      result[lane] = compute(op, x, operands[1][lane], width);
  }
  return result;
}
