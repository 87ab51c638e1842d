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

/// Ops with two operands on all lanes. The kind of an op is looked up once, not for each lane.
struct BinaryOp {
  const Lanes &lhs, &rhs;
  unsigned width;

  template <typename Function> Lanes each(Function function) const {
    Lanes result(lhs.size());
    for (size_t lane = 0; lane < result.size(); ++lane)
      result[lane] = int64_t(function(lhs[lane], rhs[lane]));
    return result;
  }

  template <typename Function> Lanes eachUnsigned(Function function) const {
    return each([&](int64_t x, int64_t y) { return function(asUnsigned(x, width), asUnsigned(y, width)); });
  }

  /// Signed numbers of one bit are 0 and -1.
  template <typename Function> Lanes eachSigned(Function function) const {
    return each([&](int64_t x, int64_t y) { return width == 1 ? function(-x, -y) : function(x, y); });
  }

  Lanes compare(arith::CmpIPredicate predicate) const;
  Lanes compute(Operation *op) const;
};

Lanes BinaryOp::compare(arith::CmpIPredicate predicate) const {
  using arith::CmpIPredicate;
  switch (predicate) {
  case CmpIPredicate::eq:
    return eachUnsigned(std::equal_to<uint64_t>());
  case CmpIPredicate::ne:
    return eachUnsigned(std::not_equal_to<uint64_t>());
  case CmpIPredicate::slt:
    return eachSigned(std::less<int64_t>());
  case CmpIPredicate::sle:
    return eachSigned(std::less_equal<int64_t>());
  case CmpIPredicate::sgt:
    return eachSigned(std::greater<int64_t>());
  case CmpIPredicate::sge:
    return eachSigned(std::greater_equal<int64_t>());
  case CmpIPredicate::ult:
    return eachUnsigned(std::less<uint64_t>());
  case CmpIPredicate::ule:
    return eachUnsigned(std::less_equal<uint64_t>());
  case CmpIPredicate::ugt:
    return eachUnsigned(std::greater<uint64_t>());
  case CmpIPredicate::uge:
    return eachUnsigned(std::greater_equal<uint64_t>());
  }
  llvm_unreachable("unknown predicate");
}

Lanes BinaryOp::compute(Operation *op) const {
  if (auto compared = dyn_cast<arith::CmpIOp>(op))
    return compare(compared.getPredicate());
  if (isa<arith::AddIOp>(op))
    return eachUnsigned(std::plus<uint64_t>());
  if (isa<arith::SubIOp>(op))
    return eachUnsigned(std::minus<uint64_t>());
  if (isa<arith::MulIOp>(op))
    return eachUnsigned(std::multiplies<uint64_t>());
  if (isa<arith::AndIOp>(op))
    return each(std::bit_and<int64_t>());
  if (isa<arith::OrIOp>(op))
    return each(std::bit_or<int64_t>());
  if (isa<arith::XOrIOp>(op))
    return each(std::bit_xor<int64_t>());
  if (isa<arith::MinSIOp>(op))
    return each([](int64_t x, int64_t y) { return std::min(x, y); });
  if (isa<arith::MaxSIOp>(op))
    return each([](int64_t x, int64_t y) { return std::max(x, y); });
  if (isa<arith::MinUIOp>(op))
    return eachUnsigned([](uint64_t x, uint64_t y) { return std::min(x, y); });
  if (isa<arith::MaxUIOp>(op))
    return eachUnsigned([](uint64_t x, uint64_t y) { return std::max(x, y); });
  if (isa<arith::FloorDivSIOp>(op))
    return each([](int64_t x, int64_t y) { return floorDiv(x, safe(y, x)); });
  if (isa<arith::CeilDivSIOp>(op))
    return each([](int64_t x, int64_t y) { return ceilDiv(x, safe(y, x)); });
  if (isa<arith::DivSIOp>(op))
    return each([](int64_t x, int64_t y) { return x / safe(y, x); });
  if (isa<arith::RemSIOp>(op))
    return each([](int64_t x, int64_t y) { return x % safe(y, x); });
  if (isa<arith::DivUIOp>(op))
    return eachUnsigned([](uint64_t x, uint64_t y) { return x / std::max<uint64_t>(y, 1); });
  if (isa<arith::CeilDivUIOp>(op))
    return eachUnsigned([](uint64_t x, uint64_t y) { return llvm::divideCeil(x, std::max<uint64_t>(y, 1)); });
  if (isa<arith::RemUIOp>(op))
    return eachUnsigned([](uint64_t x, uint64_t y) { return x % std::max<uint64_t>(y, 1); });
  // A shift by the width of the type or more gives 0 here.
  if (isa<arith::ShLIOp>(op))
    return eachUnsigned([this](uint64_t x, uint64_t y) { return y < width ? x << y : 0; });
  if (isa<arith::ShRUIOp>(op))
    return eachUnsigned([this](uint64_t x, uint64_t y) { return y < width ? x >> y : 0; });
  if (isa<arith::ShRSIOp>(op))
    return each([this](int64_t x, int64_t y) { return asUnsigned(y, width) < width ? x >> y : 0; });
  ADD_FAILURE() << "an op that the test cannot evaluate: " << op->getName().getStringRef().str();
  return Lanes(lhs.size(), 0);
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
  const Lanes &first = operands[0];
  if (isa<arith::TruncIOp>(op))
    return first;
  bool isSelect = isa<arith::SelectOp>(op), isExtended = isa<arith::IndexCastOp, arith::ExtSIOp>(op);
  bool isExtendedByZeros = isa<arith::IndexCastUIOp, arith::ExtUIOp>(op);
  if (!isSelect && !isExtended && !isExtendedByZeros && !isa<math::AbsIOp>(op))
    return BinaryOp{first, operands[1], width}.compute(op);
  for (size_t lane = 0; lane < count; ++lane) {
    int64_t x = first[lane];
    if (isSelect)
      result[lane] = operands[x ? 1 : 2][lane];
    else if (isExtended)
      result[lane] = width == 1 ? -x : x;
    else if (isExtendedByZeros)
      result[lane] = int64_t(asUnsigned(x, width));
    else
      result[lane] = x < 0 ? int64_t(-uint64_t(x)) : x;
  }
  return result;
}
