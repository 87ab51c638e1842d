//===- AffineMask.cpp - Conjunctions of affine comparisons --------------------===//
#include "AffineMask.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace saccade::attn;

AffineMask::AffineMask(const RegionOps &ops, MLIRContext &context, uint64_t seed)
    : random(seed), b(&context), loc(b.getUnknownLoc()) {
  Block &block = region.emplaceBlock();
  Type index = b.getIndexType();
  block.addArguments({index, index, index, index}, SmallVector<Location>(4, loc));
  for (Type type : ops.types())
    block.addArgument(type, loc);
  for (Type type : {Type(b.getF32Type()), Type(b.getF16Type()), Type(b.getI32Type())})
    block.addArgument(RankedTensorType::get({ShapedType::kDynamic}, type), loc);
  for (BlockArgument argument : block.getArguments()) {
    Type type = getElementTypeOrSelf(argument.getType());
    if (isa<FloatType>(type))
      inputs.push_back({.real = 1.0});
    else if (type.isInteger(1))
      inputs.push_back({.integer = pick(0, 1)});
    else if (bitWidthOf(type) < 64 && chance(0.15))
      inputs.push_back(anyScalar(type, random));
    else
      inputs.push_back({.integer = pick(-30, 30)});
  }
  inputs.push_back({.integer = pick(0, 40)});
  inputs.push_back({.integer = pick(0, 40)});
  b.setInsertionPointToEnd(&block);
  Value all = comparison();
  for (int64_t i = pick(0, 2); i > 0; --i) {
    Value next = comparison();
    all = arith::AndIOp::create(b, loc, all, next);
  }
  YieldOp::create(b, loc, all);
}

Value AffineMask::constant(Type type, int64_t number) {
  return arith::ConstantOp::create(
      b, loc, b.getIntegerAttr(type, APInt(64, uint64_t(number)).trunc(bitWidthOf(type)).getSExtValue()));
}

Value AffineMask::cast(Value value, Type type) {
  Type from = value.getType();
  if (from == type)
    return value;
  if (from.isIndex() || type.isIndex())
    return arith::IndexCastOp::create(b, loc, type, value);
  if (bitWidthOf(from) > bitWidthOf(type))
    return arith::TruncIOp::create(b, loc, type, value);
  return arith::ExtSIOp::create(b, loc, type, value);
}

Value AffineMask::position(unsigned argument, Type type) {
  isNarrow |= bitWidthOf(type) < 64;
  Value value = region.getArgument(argument);
  if (chance(0.3) && !type.isIndex())
    value = cast(value, b.getI64Type());
  return cast(value, type);
}

Value AffineMask::term(Type type) {
  switch (pick(0, 9)) {
  case 0:
  case 1:
    return position(2, type);
  case 2:
    return position(3, type);
  case 3:
  case 4:
  case 5: {
    bool isExtreme = chance(0.05);
    isSimple &= !isExtreme;
    // Sums of 64 bits must not overflow (see KeyBounds.h).
    if (isExtreme && bitWidthOf(type) == 64)
      return constant(type, (chance(0.5) ? 1 : -1) * (int64_t(1) << pick(40, 60)));
    return constant(type, isExtreme ? anyScalar(type, random).integer : pick(-30, 30));
  }
  case 6:
    return cast(LengthOp::create(b, loc, b.getIndexType(), chance(0.5) ? Role::Query : Role::Key), type);
  case 7: {
    Value table = region.getArgument(region.getNumArguments() - 1);
    return cast(tensor::ExtractOp::create(b, loc, table, region.getArgument(pick(0, 1))), type);
  }
  default: { // a captured integer, of this type or another
    SmallVector<Value> scalars;
    for (Value argument : region.getArguments().drop_front(4))
      if (argument.getType().isIntOrIndex() && !argument.getType().isInteger(1))
        scalars.push_back(argument);
    Value scalar = scalars[pick(0, scalars.size() - 1)];
    return cast(scalar, type);
  }
  }
}

/// `first` and further terms, each with a factor.
Value AffineMask::sum(Value first, Type type) {
  auto scaled = [&](Value value) -> Value {
    bool isConstant = value.getDefiningOp<arith::ConstantOp>() != nullptr;
    if (chance(0.6) || (isConstant && bitWidthOf(type) == 64))
      return value;
    bool isPosition = value == region.getArgument(2) || value == region.getArgument(3);
    // Products of 64 bits must not overflow (see KeyBounds.h).
    int64_t factor = bitWidthOf(type) == 64 || chance(0.95) ? pick(-5, 7) : anyScalar(type, random).integer;
    isSimple &= factor != 0 && std::abs(factor) < 8 && (isPosition || isConstant);
    Value by = constant(type, factor);
    return chance(0.5) ? arith::MulIOp::create(b, loc, value, by) : arith::MulIOp::create(b, loc, by, value);
  };
  Value result = scaled(first);
  SmallVector<Value> used = {first};
  for (int64_t i = pick(0, 2); i > 0; --i) {
    Value next = term(type);
    // The same value twice may cancel or get a factor of 2.
    isSimple &= !llvm::is_contained(used, next);
    used.push_back(next);
    next = scaled(next);
    result = chance(0.5) ? arith::AddIOp::create(b, loc, result, next).getResult()
                         : arith::SubIOp::create(b, loc, result, next).getResult();
  }
  return result;
}

Value AffineMask::comparison() {
  const Type types[] = {b.getIndexType(), b.getIndexType(), b.getIndexType(),     b.getI64Type(),
                        b.getI32Type(),   b.getI32Type(),   b.getIntegerType(16), b.getIntegerType(8)};
  Type type = types[pick(0, 7)];
  auto predicate = arith::CmpIPredicate(chance(0.9) ? pick(2, 5) : pick(0, 9));
  if (chance(0.1))
    predicate = arith::CmpIPredicate::eq;
  bool isSigned = predicate != arith::CmpIPredicate::ne && predicate <= arith::CmpIPredicate::sge;
  isSimple &= type.isIndex() && isSigned;
  if (chance(0.04)) {
    isSimple = false;
    Value rest = arith::RemSIOp::create(b, loc, position(3, type), constant(type, pick(2, 9)));
    return arith::CmpIOp::create(b, loc, predicate, rest, constant(type, pick(0, 8)));
  }
  Value lhs = sum(position(3, type), type), rhs = sum(term(type), type);
  // What occurs on both sides may cancel or get a factor of 2.
  isSimple &= rhs == region.getArgument(2) || isa_and_nonnull<arith::ConstantOp, LengthOp>(rhs.getDefiningOp());
  if (chance(0.5))
    std::swap(lhs, rhs);
  return arith::CmpIOp::create(b, loc, predicate, lhs, rhs);
}

Environment AffineMask::environment(size_t lanes) const {
  Environment result;
  for (Scalar input : inputs)
    result.emplace_back(lanes, input);
  return result;
}

SmallVector<Value> AffineMask::conjuncts() {
  SmallVector<Value> open = {::cast<YieldOp>(region.front().back()).getOperand()}, leaves;
  while (!open.empty()) {
    Value next = open.pop_back_val();
    if (auto both = next.getDefiningOp<arith::AndIOp>())
      open.append({both.getLhs(), both.getRhs()});
    else
      leaves.push_back(next);
  }
  return leaves;
}

std::string AffineMask::text() {
  std::string result = print(region);
  llvm::raw_string_ostream stream(result);
  for (BlockArgument argument : region.getArguments())
    if (argument.getArgNumber() >= 4 && !argument.use_empty())
      stream << "\nargument " << argument.getArgNumber() << " = " << inputs[argument.getArgNumber()].integer;
  stream << "\nlengths " << inputs[region.getNumArguments()].integer << " and "
         << inputs[region.getNumArguments() + 1].integer;
  return result;
}
