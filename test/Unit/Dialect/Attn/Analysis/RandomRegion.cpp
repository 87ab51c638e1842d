//===- RandomRegion.cpp - Regions of all permitted ops ------------------------===//
#include "RandomRegion.h"
#include "lib/Reference/ScalarOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"
#include "gtest/gtest.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

std::string print(Region &region) {
  std::string result;
  llvm::raw_string_ostream stream(result);
  // Values are printed with names only inside of an op.
  OperationState state(UnknownLoc::get(region.front().back().getContext()), "test.region");
  state.addRegion();
  Operation *wrapper = Operation::create(state);
  wrapper->getRegion(0).takeBody(region);
  wrapper->print(stream, OpPrintingFlags().printGenericOpForm());
  region.takeBody(wrapper->getRegion(0));
  wrapper->destroy();
  return result;
}

//===----------------------------------------------------------------------===//
// Evaluation
//===----------------------------------------------------------------------===//

static APInt asAPInt(Type type, Scalar number) { return APInt(64, uint64_t(number.integer)).trunc(bitWidthOf(type)); }

/// Ops with two results.
static bool evaluatePair(Operation *op, ArrayRef<Scalar> operands, Scalar &first, Scalar &second) {
  Type type = op->getOperand(0).getType();
  if (isa<math::SincosOp>(op)) {
    first.real = reference::roundTo(type, std::sin(operands[0].real));
    second.real = reference::roundTo(type, std::cos(operands[0].real));
    return true;
  }
  if (!isa<arith::AddUIExtendedOp, arith::MulSIExtendedOp, arith::MulUIExtendedOp>(op))
    return false;
  unsigned width = bitWidthOf(type);
  APInt x = asAPInt(type, operands[0]), y = asAPInt(type, operands[1]);
  auto wrap = [&](const APInt &number) { return reference::wrapTo(type, number.trunc(width).getSExtValue()); };
  if (isa<arith::AddUIExtendedOp>(op)) {
    first.integer = wrap(x + y);
    second.integer = (x + y).ult(x);
    return true;
  }
  bool isSigned = isa<arith::MulSIExtendedOp>(op);
  auto wide = [&](const APInt &number) { return isSigned ? number.sext(2 * width) : number.zext(2 * width); };
  APInt product = wide(x) * wide(y);
  first.integer = wrap(product);
  second.integer = wrap(product.lshr(width));
  return true;
}

/// Whether the result of an op on defined operands is defined, as a function of the operands; null if it always is. The
/// kind of the op is looked up once, not for each lane.
static std::function<bool(ArrayRef<Scalar>)> definedness(Operation *op) {
  Type type = op->getNumOperands() ? op->getOperand(0).getType() : Type();
  if (isa<arith::DivUIOp, arith::CeilDivUIOp, arith::RemUIOp>(op))
    return [](ArrayRef<Scalar> operands) { return operands[1].integer != 0; };
  if (isa<arith::DivSIOp, arith::FloorDivSIOp, arith::CeilDivSIOp, arith::RemSIOp>(op))
    return [type](ArrayRef<Scalar> operands) {
      APInt x = asAPInt(type, operands[0]), y = asAPInt(type, operands[1]);
      return !y.isZero() && !(x.isMinSignedValue() && y.isAllOnes());
    };
  if (isa<arith::ShLIOp, arith::ShRSIOp, arith::ShRUIOp>(op))
    return [type](ArrayRef<Scalar> operands) { return asAPInt(type, operands[1]).ult(bitWidthOf(type)); };
  if (isa<arith::FPToSIOp, arith::FPToUIOp>(op)) {
    unsigned width = bitWidthOf(op->getResult(0).getType());
    bool isSigned = isa<arith::FPToSIOp>(op);
    double limit = std::ldexp(1.0, isSigned ? width - 1 : width), least = isSigned ? -limit : 0;
    return [=](ArrayRef<Scalar> operands) {
      double whole = std::trunc(operands[0].real);
      return whole < limit && whole >= least;
    };
  }
  return nullptr;
}

llvm::DenseMap<Value, ScalarLanes> evaluate(Block &block, const Environment &inputs) {
  llvm::DenseMap<Value, ScalarLanes> known;
  size_t count = inputs.front().size();
  for (BlockArgument argument : block.getArguments())
    known[argument] = {inputs[argument.getArgNumber()], std::vector<bool>(count, true)};
  for (Operation &op : block) {
    if (op.hasTrait<OpTrait::IsTerminator>())
      break;
    std::vector<ScalarLanes> results(op.getNumResults(), {std::vector<Scalar>(count), std::vector<bool>(count, true)});
    if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
      results[0].values.assign(count, *reference::scalarOf(constant.getValue()));
    } else if (auto read = dyn_cast<tensor::ExtractOp>(op)) {
      results[0].values = known[read.getTensor()].values;
    } else if (isa<tensor::DimOp>(op)) {
      results[0].values.assign(count, Scalar{.integer = 1});
    } else if (auto length = dyn_cast<LengthOp>(op)) {
      results[0].values = inputs[block.getNumArguments() + (length.getRole() == Role::Key)];
    } else {
      auto function = op.getNumResults() == 1 ? reference::scalarFunction(&op) : reference::ScalarFunction();
      SmallVector<const ScalarLanes *, 3> operands;
      for (Value operand : op.getOperands())
        operands.push_back(&known.find(operand)->second);
      bool isSelect = isa<arith::SelectOp>(op);
      auto isDefinedFor = definedness(&op);
      auto rounded = dyn_cast<FloatType>(op.getResult(0).getType());
      for (size_t lane = 0; lane < count; ++lane) {
        SmallVector<Scalar, 3> numbers;
        bool isDefined = true;
        for (const ScalarLanes *operand : operands) {
          bool isUsed = !isSelect || numbers.empty() || (numbers.size() == 1) == (numbers[0].integer != 0);
          isDefined &= !isUsed || operand->isDefined[lane];
          numbers.push_back(operand->values[lane]);
        }
        isDefined = isDefined && (!isDefinedFor || isDefinedFor(numbers));
        Scalar second{};
        if (isDefined && function) {
          if (reference::Problem problem = function(numbers.data(), results[0].values[lane]))
            ADD_FAILURE() << op.getName().getStringRef().str() << ": " << problem;
        } else if (isDefined) {
          EXPECT_TRUE(evaluatePair(&op, numbers, results[0].values[lane], second))
              << op.getName().getStringRef().str() << " cannot be evaluated";
        }
        if (results.size() > 1)
          results[1].values[lane] = second;
        for (ScalarLanes &result : results)
          result.isDefined[lane] = isDefined;
        if (isDefined && rounded)
          results[0].values[lane].real = reference::roundTo(rounded, results[0].values[lane].real);
      }
    }
    for (auto [value, lanes] : llvm::zip_equal(op.getResults(), results))
      known[value] = std::move(lanes);
  }
  return known;
}

//===----------------------------------------------------------------------===//
// Drawing
//===----------------------------------------------------------------------===//

static double largestOf(FloatType type) {
  bool lost;
  APFloat largest = APFloat::getLargest(type.getFloatSemantics());
  largest.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &lost);
  return largest.convertToDouble();
}

static double smallestOf(FloatType type, bool isNormal) {
  bool lost;
  APFloat smallest = isNormal ? APFloat::getSmallestNormalized(type.getFloatSemantics())
                              : APFloat::getSmallest(type.getFloatSemantics());
  smallest.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &lost);
  return smallest.convertToDouble();
}

Scalar anyScalar(Type type, std::mt19937_64 &random) {
  auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  Scalar result{};
  if (auto real = dyn_cast<FloatType>(type)) {
    double sign = pick(0, 1) ? 1 : -1;
    switch (pick(0, 15)) {
    case 0:
      return {.real = 0 * sign};
    case 1:
      return {.real = NAN};
    case 2:
      return {.real = sign * INFINITY};
    case 3:
      return {.real = sign * largestOf(real)};
    case 4:
      return {.real = sign * smallestOf(real, pick(0, 1))};
    case 5:
      return {.real = sign * reference::roundTo(type, std::ldexp(1 + pick(0, 7) / 8.0, pick(-150, 127)))};
    case 6:
    case 7:
      return {.real = sign * double(pick(0, 4))};
    case 8:
      return {.real = sign * double(pick(80, 130))}; // near the overflow of exp
    case 9:
      return {.real = reference::roundTo(type, sign * (1 + std::ldexp(pick(-4, 4), -10)))};
    default:
      return {.real = reference::roundTo(type, std::normal_distribution<double>(0, 20)(random))};
    }
  }
  unsigned width = bitWidthOf(type);
  APInt number(width, 0);
  switch (pick(0, 9)) {
  case 0:
    number = APInt::getSignedMaxValue(width);
    break;
  case 1:
    number = APInt::getSignedMinValue(width);
    break;
  case 2:
    number = APInt(64, random()).trunc(width);
    break;
  case 3:
    number = APInt(64, uint64_t(1) << pick(0, 63)).trunc(width);
    break;
  default:
    number = APInt(64, uint64_t(pick(-4, 40))).trunc(width);
    break;
  }
  result.integer = reference::wrapTo(type, number.getSExtValue());
  return result;
}

static TypedAttr attributeOf(OpBuilder &b, Type type, Scalar number) {
  if (auto real = dyn_cast<FloatType>(type)) {
    APFloat value(number.real);
    bool lost;
    value.convert(real.getFloatSemantics(), APFloat::rmNearestTiesToEven, &lost);
    return b.getFloatAttr(type, value);
  }
  return b.getIntegerAttr(type, asAPInt(type, number));
}

RandomRegion::RandomRegion(const RegionOps &ops, MLIRContext &context, uint64_t seed, unsigned size, unsigned lanes,
                           bool isMask)
    : ops(ops), random(seed), b(&context), loc(b.getUnknownLoc()) {
  Block &block = region.emplaceBlock();
  Type score = chance(0.85) ? Type(b.getF32Type()) : b.getF64Type(), index = b.getIndexType();
  if (!isMask)
    block.addArgument(score, loc);
  block.addArguments({index, index, index, index}, SmallVector<Location>(4, loc));
  for (Type type : ops.types())
    block.addArgument(type, loc);
  for (Type type : {Type(b.getF32Type()), Type(b.getF16Type()), Type(b.getI32Type())})
    block.addArgument(RankedTensorType::get({ShapedType::kDynamic}, type), loc);
  for (BlockArgument argument : block.getArguments()) {
    Type type = getElementTypeOrSelf(argument.getType());
    if (type == argument.getType())
      values[type].push_back(argument);
    std::vector<Scalar> &input = inputs.emplace_back();
    for (unsigned lane = 0; lane < lanes; ++lane)
      input.push_back(anyScalar(type, random));
  }
  for (int64_t i = 0; i < 2; ++i)
    inputs.emplace_back(lanes, Scalar{.integer = pick(0, 100)});
  usual = {score, b.getI1Type()};
  Type narrow[] = {b.getF16Type(), b.getBF16Type(), b.getF64Type()};
  if (chance(0.3))
    usual.push_back(narrow[pick(0, 2)]);
  usual.push_back(ops.types()[pick(4, ops.types().size() - 1)]);
  b.setInsertionPointToEnd(&block);
  if (chance(0.4)) {
    // Functions of the relative position are common.
    Value query = block.getArgument(isMask ? 2 : 3), key = block.getArgument(isMask ? 3 : 4);
    Value position = arith::SubIOp::create(b, loc, key, query);
    values[index].push_back(position);
    values[score].push_back(
        arith::SIToFPOp::create(b, loc, score, arith::IndexCastOp::create(b, loc, b.getI32Type(), position)));
    for (unsigned width : {8, 16, 32, 64})
      values[b.getIntegerType(width)].push_back(arith::IndexCastOp::create(b, loc, b.getIntegerType(width), position));
  }
  for (unsigned i = 0; i < size; ++i)
    draw();
  Type result = isMask ? Type(b.getI1Type()) : score;
  YieldOp::create(b, loc, values[result].back());
}

/// Ops that bound floats, and the ops in between, are drawn more often than others.
static unsigned weightOf(StringRef name) {
  return llvm::StringSwitch<unsigned>(name)
      .Cases({"math.tanh", "arith.mulf", "arith.addf", "arith.subf", "arith.divf", "arith.select"}, 6)
      .Cases({"arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf", "math.clampf", "math.absf"}, 4)
      .Cases({"arith.truncf", "arith.extf", "arith.sitofp", "arith.uitofp", "arith.negf", "math.exp"}, 3)
      .Cases({"math.exp2", "math.log", "math.sqrt", "math.erf", "math.atan", "math.sin", "math.cos"}, 3)
      .Cases({"math.fma", "arith.cmpi", "arith.cmpf"}, 3)
      .Default(1);
}

const Signature &RandomRegion::anySignature() {
  unsigned sum = 0;
  for (const std::string &name : ops.names())
    sum += weightOf(name);
  int64_t place = pick(0, sum - 1);
  const std::string *chosen = nullptr;
  for (const std::string &name : ops.names()) {
    place -= weightOf(name);
    if (place < 0) {
      chosen = &name;
      break;
    }
  }
  const std::vector<Signature> &all = ops.all().at(*chosen);
  std::vector<const Signature *> common;
  if (chance(0.85))
    for (const Signature &each : all)
      if (llvm::all_of(each.operands, [&](Type type) { return llvm::is_contained(usual, type); }) &&
          llvm::any_of(each.results, [&](Type type) { return llvm::is_contained(usual, type); }))
        common.push_back(&each);
  return common.empty() ? all[pick(0, all.size() - 1)] : *common[pick(0, common.size() - 1)];
}

Value RandomRegion::constant(Type type) {
  Value made = arith::ConstantOp::create(b, loc, attributeOf(b, type, anyScalar(type, random)));
  values[type].push_back(made);
  return made;
}

/// A value of `type`, a later one with higher probability, so that chains are long.
Value RandomRegion::operand(Type type) {
  if (chance(0.2))
    return constant(type);
  const std::vector<Value> &from = values[type];
  return from[std::max(pick(0, from.size() - 1), pick(0, from.size() - 1))];
}

void RandomRegion::draw() {
  if (chance(0.02)) {
    values[b.getIndexType()].push_back(LengthOp::create(b, loc, b.getIndexType(), Role(pick(0, 1))));
    return;
  }
  if (chance(0.02)) {
    Value table = region.getArgument(region.getNumArguments() - pick(1, 3));
    Value element = tensor::ExtractOp::create(b, loc, table, operand(b.getIndexType()));
    values[element.getType()].push_back(element);
    return;
  }
  const Signature &signature = anySignature();
  SmallVector<Value, 3> operands;
  for (Type type : signature.operands)
    operands.push_back(!operands.empty() && type == operands.back().getType() && chance(0.1) ? operands.back()
                                                                                             : operand(type));
  int64_t predicates = signature.operands.front().isIntOrIndex() ? 10 : 16;
  Operation *op = RegionOps::create(b, loc, signature, operands, pick(0, predicates - 1));
  for (Value result : op->getResults())
    values[result.getType()].push_back(result);
}

std::string RandomRegion::text() {
  std::string result = print(region);
  llvm::raw_string_ostream stream(result);
  for (BlockArgument argument : region.getArguments()) {
    if (argument.use_empty() || inputs.front().size() > 1)
      continue;
    Scalar number = inputs[argument.getArgNumber()].front();
    stream << "\nargument " << argument.getArgNumber() << " = ";
    if (isa<FloatType>(getElementTypeOrSelf(argument.getType())))
      stream << llvm::format("%.17g", number.real);
    else
      stream << number.integer;
  }
  return result;
}

std::string skeleton(const RegionOps &ops, StringRef clauses) {
  std::string parameters, names, list, tensor = "tensor<?x?x?x4xf32>";
  llvm::raw_string_ostream types(list);
  for (Type type : ops.types())
    types << (list.empty() ? "" : ", ") << type;
  types << ", tensor<?xf32>, tensor<?xf16>, tensor<?xi32>";
  SmallVector<StringRef> each;
  StringRef(list).split(each, ", ");
  for (auto [i, type] : llvm::enumerate(each)) {
    parameters += (", %c" + Twine(i) + ": " + type).str();
    names += ((i ? ", %c" : "%c") + Twine(i)).str();
  }
  parameters += ", %n: index, %m: index, %b0: index, %h0: index, %i0: index, %j0: index";
  return ("func.func @f(%q: " + tensor + ", %k: " + tensor + parameters + ") -> " + tensor +
          " {\n%o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %k[b,h,s,d] captures(" + names + " : " + list + ") " +
          clauses.str() + " : (" + tensor + ", " + tensor + ", " + tensor + ") -> " + tensor +
          "\nreturn %o : " + tensor + "\n}");
}

//===----------------------------------------------------------------------===//
// Reduction
//===----------------------------------------------------------------------===//

/// Applies `change`, and undoes it if the region then no longer fails.
static bool attempt(Region &region, llvm::function_ref<bool()> fails, llvm::function_ref<void()> change) {
  Region backup;
  IRMapping mapping;
  region.cloneInto(&backup, mapping);
  change();
  if (fails())
    return true;
  region.takeBody(backup);
  return false;
}

/// Tries to replace the results of op `number` of the region, or to drop it.
static bool reduceOp(Region &region, unsigned number, llvm::function_ref<bool()> fails) {
  auto op = [&] { return &*std::next(region.front().begin(), number); };
  if (op()->use_empty())
    return attempt(region, fails, [&] { op()->erase(); });
  // The replacements are found anew each time, because an attempt that is undone clones the region.
  auto replacements = [&](Value result) {
    SmallVector<Value> found;
    for (Value operand : op()->getOperands())
      if (operand.getType() == result.getType())
        found.push_back(operand);
    if (isa<arith::ConstantOp>(op()))
      return found;
    for (Value argument : region.getArguments())
      if (argument.getType() == result.getType())
        found.push_back(argument);
    return found;
  };
  for (unsigned i = 0, e = op()->getNumResults(); i < e; ++i)
    for (unsigned j = 0; j < replacements(op()->getResult(i)).size(); ++j) {
      Value result = op()->getResult(i);
      if (!result.use_empty() && attempt(region, fails, [&] { result.replaceAllUsesWith(replacements(result)[j]); }))
        return true;
    }
  Type type = op()->getResult(0).getType();
  auto constant = dyn_cast<arith::ConstantOp>(op());
  for (int64_t simple : {0, 1}) {
    OpBuilder b(op());
    Scalar value{};
    if (isa<FloatType>(type))
      value.real = simple;
    else
      value.integer = simple;
    TypedAttr attribute = attributeOf(b, type, value);
    if (constant && constant.getValue() == attribute)
      break;
    if (attempt(region, fails, [&] {
          OpBuilder here(op());
          op()->getResult(0).replaceAllUsesWith(arith::ConstantOp::create(here, op()->getLoc(), attribute));
        }))
      return true;
    constant = dyn_cast<arith::ConstantOp>(op());
  }
  return false;
}

void reduce(Region &region, llvm::function_ref<bool()> fails) {
  for (bool changed = true; changed;) {
    changed = false;
    for (unsigned i = region.front().getOperations().size() - 1; i-- > 0;)
      if (i < region.front().getOperations().size() - 1)
        changed |= reduceOp(region, i, fails);
  }
}

void reduce(Environment &inputs, Block &block, llvm::function_ref<bool()> fails) {
  const Environment all = inputs;
  for (size_t lane = 0; lane < all.front().size(); ++lane) {
    for (auto [kept, input] : llvm::zip_equal(inputs, all))
      kept = {input[lane]};
    if (fails())
      break;
    inputs = all;
  }
  if (inputs.front().size() > 1)
    return;
  for (BlockArgument argument : block.getArguments()) {
    Scalar &number = inputs[argument.getArgNumber()].front(), before = number;
    bool isFloat = isa<FloatType>(getElementTypeOrSelf(argument.getType()));
    for (int64_t simple : {0, 1}) {
      number = isFloat ? Scalar{.real = double(simple)} : Scalar{.integer = simple};
      if (fails())
        break;
      number = before;
    }
  }
}
