//===- RandomMask.cpp - Mask regions drawn at random --------------------------===//
//
// Half of the terms are common in masks (windows, blocks, documents, dilation), half are arbitrary: all integer ops in
// all widths, extreme numbers, tables of tables.
//
//===----------------------------------------------------------------------===//
#include "RandomMask.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace saccade::attn;

static unsigned typeWidth(Type type) { return type.isIndex() ? 64 : type.getIntOrFloatBitWidth(); }

RandomMask::RandomMask(MLIRContext &context, uint64_t seed, int64_t extent, bool usesScalars)
    : extent(extent), usesScalars(usesScalars), random(seed), b(&context), loc(b.getUnknownLoc()) {
  batch = pick(0, 2), head = pick(0, 7);
  auto origin = [&] {
    if (chance(0.6))
      return int64_t(0);
    const int64_t some[] = {1, 17, 500, (int64_t(1) << 15) - 40, (int64_t(1) << 31) - 35, int64_t(1) << 41, -40};
    return some[pick(0, 6)];
  };
  queryOrigin = origin();
  keyOrigin = chance(0.7) ? queryOrigin : origin();
  queryLength = queryOrigin + extent + pick(-20, 20);
  keyLength = keyOrigin + extent + pick(-20, 20);
  auto *block = new Block;
  region.push_back(block);
  for (unsigned i = 0; i < 4; ++i)
    block->addArgument(b.getIndexType(), loc);
  b.setInsertionPointToEnd(block);
  Value holds = condition(pick(0, 3));
  YieldOp::create(b, loc, holds);
}

Value RandomMask::getCondition() { return ::cast<YieldOp>(region.front().back()).getOperand(); }

std::string RandomMask::text() {
  std::string result;
  llvm::raw_string_ostream stream(result);
  stream << "batch " << batch << ", head " << head << ", queries from " << queryOrigin << ", keys from " << keyOrigin
         << ", lengths " << queryLength << " and " << keyLength << "\n";
  for (auto [i, table] : llvm::enumerate(tables)) {
    stream << "capture " << i << ": ";
    if (table)
      llvm::interleaveComma(table->elements, stream);
    else
      stream << scalars[i];
    stream << "\n";
  }
  // Values are printed with names only inside of an op.
  OperationState state(loc, "test.mask");
  state.addRegion();
  Operation *wrapper = Operation::create(state);
  wrapper->getRegion(0).takeBody(region);
  wrapper->print(stream, OpPrintingFlags().printGenericOpForm());
  region.takeBody(wrapper->getRegion(0));
  wrapper->destroy();
  return result;
}

Type RandomMask::anyType() {
  if (chance(0.6))
    return b.getIndexType();
  const unsigned widths[] = {64, 32, 32, 32, 16, 8};
  return b.getIntegerType(widths[pick(0, 5)]);
}

int64_t RandomMask::anyNumber(Type type) {
  unsigned width = typeWidth(type);
  int64_t number = pick(-8, 70);
  if (chance(0.06)) {
    const int64_t some[] = {INT64_MAX, INT64_MIN,        INT64_MAX - 5,    INT32_MAX, INT32_MIN, 1640531535,
                            1 << 20,   int64_t(1) << 40, int64_t(1) << 60, 127,       -128};
    number = some[pick(0, 10)];
  }
  return APInt(64, uint64_t(number)).trunc(width).getSExtValue();
}

Value RandomMask::constant(Type type, int64_t number) {
  return arith::ConstantOp::create(
      b, loc, b.getIntegerAttr(type, APInt(64, uint64_t(number)).trunc(typeWidth(type)).getSExtValue()));
}

/// A constant, or a captured scalar, which is the same for equal numbers.
Value RandomMask::number(Type type, int64_t number) {
  if (!usesScalars || chance(0.3))
    return constant(type, number);
  Value &known = numbers[{type.getAsOpaquePointer(), number}];
  if (!known) {
    tables.push_back(nullptr);
    scalars.push_back(number);
    known = region.front().addArgument(type, loc);
  }
  return known;
}

Value RandomMask::cast(Value value, Type type) {
  Type from = value.getType();
  if (from == type)
    return value;
  bool isUnsigned = chance(0.1);
  if (from.isIndex() || type.isIndex())
    return isUnsigned ? arith::IndexCastUIOp::create(b, loc, type, value).getResult()
                      : arith::IndexCastOp::create(b, loc, type, value).getResult();
  if (typeWidth(from) > typeWidth(type))
    return arith::TruncIOp::create(b, loc, type, value);
  return isUnsigned ? arith::ExtUIOp::create(b, loc, type, value).getResult()
                    : arith::ExtSIOp::create(b, loc, type, value).getResult();
}

Value RandomMask::position(Type type) {
  unsigned which = chance(0.9) ? pick(2, 3) : pick(0, 1);
  return cast(region.getArgument(which), type);
}

Value RandomMask::scalar(Type type) {
  tables.push_back(nullptr);
  scalars.push_back(anyNumber(type));
  return region.front().addArgument(type, loc);
}

/// An element of a new table, with random elements unless they are given.
Value RandomMask::element(Type type, int depth) {
  unsigned rank = chance(0.75) ? 1 : 2;
  SmallVector<int64_t> shape;
  SmallVector<Value> place;
  for (unsigned i = 0; i < rank; ++i) {
    shape.push_back(rank == 1 ? pick(1, extent + 10) : pick(1, 20));
    Value index = integer(b.getIndexType(), chance(0.6) ? 0 : depth - 1);
    if (rank == 2 && chance(0.7))
      index = arith::FloorDivSIOp::create(b, loc, index, constant(index.getType(), pick(2, 20)));
    place.push_back(index);
  }
  return readTable(type, shape, place);
}

/// An element of a new table: sorted, constant in blocks, or arbitrary.
Value RandomMask::readTable(Type type, ArrayRef<int64_t> shape, ValueRange place) {
  auto table = std::make_unique<Table>();
  table->shape.assign(shape.begin(), shape.end());
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  int64_t value = anyNumber(type), step = chance(0.5) ? 1 : pick(-3, 3);
  bool isSorted = chance(0.6);
  for (int64_t i = 0; i < count; ++i) {
    if (type.isInteger(1))
      value = pick(0, 1);
    else if (!isSorted)
      value = anyNumber(type);
    else if (chance(0.15))
      value = APInt(64, uint64_t(value) + step).trunc(typeWidth(type)).getSExtValue();
    table->elements.push_back(value);
  }
  tables.push_back(std::move(table));
  scalars.push_back(0);
  SmallVector<int64_t> dynamic(shape.size(), ShapedType::kDynamic);
  Value argument = region.front().addArgument(RankedTensorType::get(dynamic, type), loc);
  return tensor::ExtractOp::create(b, loc, argument, place);
}

Value RandomMask::leaf(Type type) {
  double draw = std::uniform_real_distribution<>()(random);
  if (draw < 0.6)
    return position(type);
  if (draw < 0.8)
    return constant(type, anyNumber(type));
  if (draw < 0.88)
    return cast(LengthOp::create(b, loc, b.getIndexType(), chance(0.5) ? Role::Query : Role::Key), type);
  return scalar(type);
}

Value RandomMask::integer(Type type, int depth) {
  if (depth <= 0 || chance(0.15))
    return chance(0.12) ? element(type, 0) : leaf(type);
  if (chance(0.12))
    return element(type, depth);
  if (chance(0.1))
    return cast(integer(anyType(), depth - 1), type);
  if (chance(0.03))
    return cast(condition(depth - 1), type);
  Value x = integer(type, depth - 1);
  auto divisor = [&] {
    return chance(0.9) ? number(type, pick(1, 20)) : chance(0.5) ? scalar(type) : integer(type, 0);
  };
  auto small = [&] { return number(type, pick(0, chance(0.9) ? 5 : 70)); };
  switch (pick(0, 21)) {
  case 0:
  case 1:
    return arith::AddIOp::create(b, loc, x, integer(type, depth - 1));
  case 2:
  case 3:
    return arith::SubIOp::create(b, loc, x, integer(type, depth - 1));
  case 4:
    return arith::MulIOp::create(b, loc, x, chance(0.7) ? constant(type, pick(-4, 9)) : integer(type, depth - 1));
  case 5:
  case 6:
    return arith::FloorDivSIOp::create(b, loc, x, divisor());
  case 7:
    return arith::CeilDivSIOp::create(b, loc, x, divisor());
  case 8:
    return arith::DivSIOp::create(b, loc, x, divisor());
  case 9:
    return arith::DivUIOp::create(b, loc, x, divisor());
  case 10:
    return arith::RemSIOp::create(b, loc, x, divisor());
  case 11:
    return arith::RemUIOp::create(b, loc, x, divisor());
  case 12: { // Python's %
    Value by = divisor();
    Value whole = arith::MulIOp::create(b, loc, arith::FloorDivSIOp::create(b, loc, x, by), by);
    return arith::SubIOp::create(b, loc, x, whole);
  }
  case 13:
    return arith::MinSIOp::create(b, loc, x, integer(type, depth - 1));
  case 14:
    return arith::MaxSIOp::create(b, loc, x, integer(type, depth - 1));
  case 15:
    return chance(0.5) ? arith::MinUIOp::create(b, loc, x, integer(type, depth - 1)).getResult()
                       : arith::MaxUIOp::create(b, loc, x, integer(type, depth - 1)).getResult();
  case 16:
    if (chance(0.5))
      return math::AbsIOp::create(b, loc, x);
    return arith::MaxSIOp::create(b, loc, x, arith::SubIOp::create(b, loc, constant(type, 0), x));
  case 17:
    return arith::AndIOp::create(b, loc, x,
                                 chance(0.6) ? constant(type, (1 << pick(0, 6)) - 1) : integer(type, depth - 1));
  case 18:
    return chance(0.5) ? arith::OrIOp::create(b, loc, x, integer(type, depth - 1)).getResult()
                       : arith::XOrIOp::create(b, loc, x, integer(type, depth - 1)).getResult();
  case 19:
    return chance(0.4) ? arith::ShLIOp::create(b, loc, x, small()).getResult()
                       : arith::ShRSIOp::create(b, loc, x, small()).getResult();
  case 20:
    return arith::ShRUIOp::create(b, loc, x, small());
  default:
    return arith::SelectOp::create(b, loc, condition(depth - 1), x, integer(type, depth - 1));
  }
}

/// A term that is common in masks.
Value RandomMask::commonMask() {
  Type type = anyType();
  Value q = cast(region.getArgument(2), type), k = cast(region.getArgument(3), type);
  auto compare = [&](arith::CmpIPredicate predicate, Value x, Value y) -> Value {
    return arith::CmpIOp::create(b, loc, predicate, x, y);
  };
  auto divided = [&](Value x, int64_t by) -> Value { return arith::FloorDivSIOp::create(b, loc, x, number(type, by)); };
  Value distance = arith::SubIOp::create(b, loc, q, k);
  Value limit = chance(0.5) ? constant(type, pick(-10, 40)) : chance(0.5) ? scalar(type) : element(type, 1);
  auto multiple = [&](Value x, int64_t factor) -> Value {
    return arith::MulIOp::create(b, loc, constant(type, factor), x);
  };
  switch (pick(0, 9)) {
  case 8:
  case 9:
    return dense();
  case 0: // a one-sided window
    return compare(chance(0.5) ? arith::CmpIPredicate::sge : arith::CmpIPredicate::slt, distance, limit);
  case 1: { // a two-sided window
    Value far = arith::MaxSIOp::create(b, loc, distance, arith::SubIOp::create(b, loc, constant(type, 0), distance));
    return compare(arith::CmpIPredicate::sle, far, limit);
  }
  case 2: { // dilation
    Value by = number(type, pick(1, 9));
    Value rest = arith::SubIOp::create(
        b, loc, distance, arith::MulIOp::create(b, loc, arith::FloorDivSIOp::create(b, loc, distance, by), by));
    return compare(arith::CmpIPredicate::eq, rest, constant(type, chance(0.8) ? 0 : pick(-1, 9)));
  }
  case 3: { // blocks
    int64_t by = pick(1, 30);
    return compare(chance(0.8) ? arith::CmpIPredicate::eq : arith::CmpIPredicate::ne, divided(q, by), divided(k, by));
  }
  case 4: { // documents
    Value documentId = element(type, 0);
    auto read = documentId.getDefiningOp<tensor::ExtractOp>();
    SmallVector<Value> place(read.getIndices().size(), region.getArgument(3));
    return compare(arith::CmpIPredicate::eq, documentId, tensor::ExtractOp::create(b, loc, read.getTensor(), place));
  }
  case 5: { // a position within a block
    int64_t by = pick(2, 30);
    Value x = chance(0.5) ? q : k;
    Value inside = arith::SubIOp::create(b, loc, x, arith::MulIOp::create(b, loc, number(type, by), divided(x, by)));
    return compare(arith::CmpIPredicate::slt, inside, limit);
  }
  case 6: { // a stride, and twice the position within a block
    int64_t factor = pick(2, 7), by = pick(2, 12);
    Value x = chance(0.4) ? distance : chance(0.5) ? q : k;
    Value sum = arith::AddIOp::create(b, loc, multiple(x, factor), constant(type, pick(-5, 20)));
    Value whole = multiple(divided(sum, by), chance(0.8) ? by : pick(1, 12));
    Value rest = arith::SubIOp::create(b, loc, sum, whole);
    if (chance(0.3)) {
      rest = arith::SubIOp::create(b, loc, multiple(sum, factor), multiple(whole, factor));
      return compare(arith::CmpIPredicate(pick(0, 5)), rest, limit);
    }
    return compare(chance(0.8) ? arith::CmpIPredicate::eq : arith::CmpIPredicate::ne, rest,
                   constant(type, pick(0, by)));
  }
  default: // the first or last keys
    return compare(chance(0.5) ? arith::CmpIPredicate::slt : arith::CmpIPredicate::uge, chance(0.5) ? q : k, limit);
  }
}

/// Patterns of several ranges or of tables, as in `saccade.masks`.
Value RandomMask::dense() {
  Type type = b.getIndexType();
  Value q = region.getArgument(2), k = region.getArgument(3);
  auto compare = [&](arith::CmpIPredicate predicate, Value x, Value y) -> Value {
    return arith::CmpIOp::create(b, loc, predicate, x, y);
  };
  auto isLess = [&](Value x, Value y) { return compare(arith::CmpIPredicate::slt, x, y); };
  auto both = [&](Value x, Value y) -> Value { return arith::AndIOp::create(b, loc, x, y); };
  auto either = [&](Value x, Value y) -> Value { return arith::OrIOp::create(b, loc, x, y); };
  auto add = [&](Value x, Value y) -> Value { return arith::AddIOp::create(b, loc, x, y); };
  auto quotient = [&](Value x, int64_t by) -> Value {
    return arith::FloorDivSIOp::create(b, loc, x, number(type, by));
  };
  auto rest = [&](Value x, int64_t by) -> Value {
    if (chance(0.5))
      return arith::RemSIOp::create(b, loc, x, number(type, by));
    return arith::SubIOp::create(b, loc, x, arith::MulIOp::create(b, loc, quotient(x, by), number(type, by)));
  };
  switch (pick(0, 6)) {
  case 0: { // blocks of a layout
    Value holds = readTable(chance(0.5) ? Type(b.getI1Type()) : anyType(), {pick(1, 12), pick(1, 12)},
                            {quotient(q, pick(2, 30)), quotient(k, pick(2, 30))});
    if (holds.getType().isInteger(1))
      return holds;
    return compare(arith::CmpIPredicate::ne, holds, constant(holds.getType(), 0));
  }
  case 1: { // global tokens and a window
    Value count = chance(0.5) ? constant(type, pick(0, 10)) : scalar(type), reach = constant(type, pick(0, 15));
    Value near = both(isLess(q, add(k, reach)), isLess(k, add(q, reach)));
    return either(near, either(isLess(q, count), isLess(k, count)));
  }
  case 2: { // a prefix per batch
    Value prefix = readTable(type, {pick(1, 4)}, {region.getArgument(0)});
    return either(compare(arith::CmpIPredicate::sle, k, q), isLess(k, prefix));
  }
  case 3: { // shifted windows
    int64_t size = pick(2, 12), whole = size * pick(1, 6), shift = pick(0, size - 1);
    auto moved = [&](Value x) { return rest(add(x, constant(type, whole - shift)), whole); };
    Value x = moved(q), y = moved(k), seam = constant(type, whole - shift);
    return both(compare(arith::CmpIPredicate::eq, quotient(x, size), quotient(y, size)),
                compare(arith::CmpIPredicate::eq, isLess(x, seam), isLess(y, seam)));
  }
  case 4: { // a neighbourhood in two dimensions
    int64_t width = pick(2, 15);
    auto near = [&](Value x, Value y) {
      Value distance = arith::SubIOp::create(b, loc, x, y);
      Value far = arith::MaxSIOp::create(b, loc, distance, arith::SubIOp::create(b, loc, y, x));
      return compare(arith::CmpIPredicate::sle, far, constant(type, pick(0, 4)));
    };
    return both(near(quotient(q, width), quotient(k, width)), near(rest(q, width), rest(k, width)));
  }
  case 5: { // a tree, by entry and exit times
    Value enters = readTable(type, {extent}, q), leaves = readTable(type, {extent}, k);
    Value begins = tensor::ExtractOp::create(b, loc, enters.getDefiningOp<tensor::ExtractOp>().getTensor(), k);
    return both(compare(arith::CmpIPredicate::sle, begins, enters), isLess(enters, leaves));
  }
  default: { // contiguous documents per batch
    Value documentId = readTable(anyType(), {pick(1, 3), extent}, {region.getArgument(0), q});
    Value ids = documentId.getDefiningOp<tensor::ExtractOp>().getTensor();
    Value theirs = tensor::ExtractOp::create(b, loc, ids, {region.getArgument(0), k});
    return compare(arith::CmpIPredicate::eq, documentId, theirs);
  }
  }
}

Value RandomMask::condition(int depth) {
  if (depth > 0 && chance(0.55)) {
    Value x = condition(depth - 1), y = condition(depth - 1);
    switch (pick(0, 6)) {
    case 0:
    case 1:
      return arith::AndIOp::create(b, loc, x, y);
    case 2:
    case 3:
      return arith::OrIOp::create(b, loc, x, y);
    case 4:
      return arith::XOrIOp::create(b, loc, x, chance(0.7) ? constant(b.getI1Type(), 1) : y);
    case 5:
      return arith::CmpIOp::create(b, loc, chance(0.5) ? arith::CmpIPredicate::eq : arith::CmpIPredicate::ne, x, y);
    default:
      return arith::SelectOp::create(b, loc, condition(depth - 1), x, y);
    }
  }
  if (chance(0.5))
    return commonMask();
  if (chance(0.1))
    return chance(0.7) ? element(b.getI1Type(), 1) : scalar(b.getI1Type());
  Type type = anyType();
  Value x = integer(type, pick(0, 3)), y = integer(type, pick(0, 2));
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate(pick(0, 9)), x, y);
}
