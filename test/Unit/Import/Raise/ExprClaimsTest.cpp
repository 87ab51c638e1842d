//===- ExprClaimsTest.cpp - Simplified expressions against evaluation -----===//
//
// The body of a generic op of random scalar ops is read as an expression, simplified, and emitted as a region. The
// region must give the same values. Numbers are powers of 2, on which the rules for floats are exact.
// SACCADE_REGIONS and SACCADE_SEED set the number of bodies and the first seed.
//
//===----------------------------------------------------------------------===//
#include "lib/Import/Raise/EmitRegions.h"
#include "lib/Import/Raise/Trace.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Verifier.h"
#include "saccade/Reference/Interpreter.h"
#include "test/Support/Cases.h"
#include "test/Support/Random.h"
#include "gtest/gtest.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::raise;
using reference::Tensor;
using search::Random;

namespace {

constexpr int64_t extents[] = {2, 3, 5}, tableExtent = 6;

/// A function with a generic op over `extents` and a body of random ops on its arguments and positions.
class RandomBody {
public:
  RandomBody(MLIRContext &context, uint64_t seed) : b(&context), loc(b.getUnknownLoc()), random(seed) {
    types = {b.getI1Type(), b.getI8Type(), b.getI32Type(), b.getI64Type(), b.getIndexType(), b.getF64Type()};
    SmallVector<Type> given = {b.getI1Type(),  b.getI1Type(),  b.getI8Type(),  b.getI32Type(),
                               b.getI64Type(), b.getF64Type(), b.getF64Type(), table()};
    draw(given);
  }

  OwningOpRef<func::FuncOp> function;
  SmallVector<Tensor> arguments;

  linalg::GenericOp getBody() { return *function->getOps<linalg::GenericOp>().begin(); }

private:
  RankedTensorType table() { return RankedTensorType::get(tableExtent, b.getF64Type()); }
  static double anyReal(Random &random) {
    return random.pick(
        {0.0, 0.0, 1.0, 1.0, -1.0, 0.5, 2.0, -2.0, 4.0, double(INFINITY), double(-INFINITY), double(NAN)});
  }
  int64_t anyInteger(Type type) {
    unsigned width = type.isIndex() ? 64 : type.getIntOrFloatBitWidth();
    int64_t last = width < 64 ? (int64_t(1) << (width - 1)) - 1 : 1 << 20;
    int64_t value = random.pick({int64_t(0), int64_t(0), int64_t(1), int64_t(1), int64_t(2), int64_t(3), int64_t(-1),
                                 int64_t(100), last, -last - 1});
    return width == 1 ? value & 1 : std::clamp(value, -last - 1, last);
  }
  Value constant(Type type) {
    if (isa<FloatType>(type))
      return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, anyReal(random)));
    return arith::ConstantOp::create(b, loc, b.getIntegerAttr(type, anyInteger(type)));
  }
  /// A value of `type`, more often one of the last ones. Some bodies have constants for all arguments and positions.
  Value any(Type type, double constants = 0.25) {
    std::vector<Value> &known = values[type];
    if (known.empty() || random.chance(constants))
      return constant(type);
    return known[std::max(random.below(known.size()), random.below(known.size()))];
  }
  Type anyType(llvm::function_ref<bool(Type)> fits) {
    SmallVector<Type> fitting = llvm::filter_to_vector(types, fits);
    return random.pick(ArrayRef<Type>(fitting));
  }
  Type anyIntegerType() {
    return anyType([](Type type) { return !isa<FloatType>(type); });
  }

  Value create(StringRef name, Type type, ValueRange operands) {
    OperationState state(loc, name, operands, type);
    return b.create(state)->getResult(0);
  }
  Value drawOp();
  Value drawCast();
  Value drawTruth();
  Value drawInteger(Type type);
  Value drawNarrow();
  Value drawReal();
  void draw(ArrayRef<Type> argumentTypes);

  OpBuilder b;
  Location loc;
  Random random;
  SmallVector<Type> types;
  llvm::DenseMap<Type, std::vector<Value>> values;
};

/// One cast, or several one after the other: an integer may be cut off and extended again.
Value RandomBody::drawCast() {
  Value x = any(anyIntegerType(), 0.1);
  do {
    Type from = x.getType(), to = anyType([&](Type type) { return type != from; });
    if (isa<FloatType>(to) && from.isIndex())
      continue;
    if (isa<FloatType>(to))
      return create(random.pick({"arith.sitofp", "arith.uitofp"}), to, x);
    bool widens = !to.isIndex() && !from.isIndex() && from.getIntOrFloatBitWidth() < to.getIntOrFloatBitWidth();
    x = from.isIndex() || to.isIndex()
            ? create(random.pick({"arith.index_cast", "arith.index_cast", "arith.index_castui"}), to, x)
        : widens ? create(random.pick({"arith.extsi", "arith.extui"}), to, x)
                 : create("arith.trunci", to, x);
  } while (random.chance(0.5));
  return x;
}

/// A truth value as a number, compared with 0, 1 or another number.
Value RandomBody::drawTruth() {
  Value truth = any(b.getI1Type(), 0.15);
  Type wide = random.pick({b.getI1Type(), b.getI8Type(), b.getI32Type()});
  if (wide != truth.getType())
    truth = create(random.pick({"arith.extsi", "arith.extui"}), wide, truth);
  Value pair[] = {truth, Value()};
  if (random.chance(0.5)) {
    bool isTruth = wide.isInteger(1);
    pair[1] = arith::ConstantOp::create(
        b, loc, b.getIntegerAttr(wide, isTruth ? random.pick({0, 1}) : random.pick({0, 1, -1})));
  } else {
    pair[0] = create(random.pick({"arith.sitofp", "arith.uitofp"}), b.getF64Type(), truth);
    pair[1] = arith::ConstantOp::create(b, loc, b.getF64FloatAttr(random.pick({0.0, 1.0, 0.0, 1.0, -1.0, 0.5})));
  }
  bool isReal = isa<FloatType>(pair[1].getType()), areSwapped = random.chance(0.3);
  Value lhs = pair[areSwapped], rhs = pair[!areSwapped];
  if (isReal)
    return arith::CmpFOp::create(
        b, loc, arith::CmpFPredicate(random.chance(0.6) ? 1 + random.below(6) : random.below(16)), lhs, rhs);
  auto predicate = arith::CmpIPredicate(random.chance(0.6) ? random.below(2) : random.below(10));
  return arith::CmpIOp::create(b, loc, predicate, lhs, rhs);
}

Value RandomBody::drawInteger(Type type) {
  static const char *const logic[] = {"arith.andi", "arith.ori", "arith.xori"};
  static const char *const others[] = {"arith.addi",  "arith.subi",  "arith.muli", "arith.maxsi", "arith.minsi",
                                       "arith.maxui", "arith.minui", "arith.andi", "arith.ori",   "arith.xori",
                                       "arith.addi",  "arith.subi",  "arith.muli"};
  static const char *const quotients[] = {"arith.divsi", "arith.remsi",      "arith.divui",
                                          "arith.remui", "arith.floordivsi", "arith.ceildivsi"};
  if (type.isInteger(1))
    return create(random.pick(ArrayRef<const char *>(logic)), type, {any(type), any(type)});
  if (random.chance(0.2)) {
    auto divisor = b.getIntegerAttr(type, random.pick({2, 3, 7}));
    return create(random.pick(ArrayRef<const char *>(quotients)), type,
                  {any(type, 0.1), arith::ConstantOp::create(b, loc, divisor)});
  }
  return create(random.pick(ArrayRef<const char *>(others)), type, {any(type), any(type)});
}

/// Reads the result of an op on narrow integers that may overflow: numbers, and positions that were cut off.
Value RandomBody::drawNarrow() {
  Type type = random.pick({b.getI8Type(), b.getI32Type()});
  auto draw = [&](double constants) -> Value {
    Value x = any(b.getIndexType(), 0);
    return random.chance(constants) ? constant(type) : create("arith.index_cast", type, x);
  };
  static const char *const sums[] = {"arith.addi", "arith.subi", "arith.muli"};
  static const char *const others[] = {"arith.divsi", "arith.remsi", "arith.floordivsi", "arith.ceildivsi",
                                       "arith.divui", "arith.remui", "arith.maxsi",      "arith.minsi",
                                       "arith.maxui", "arith.minui"};
  double constants = random.pick({0.2, 1.0});
  Value lhs = draw(constants);
  bool isSum = constants == 1 || random.chance(0.3);
  Value rhs =
      isSum ? draw(constants) : arith::ConstantOp::create(b, loc, b.getIntegerAttr(type, random.pick({2, 3, 7})));
  Value result =
      create(random.pick(isSum ? ArrayRef<const char *>(sums) : ArrayRef<const char *>(others)), type, {lhs, rhs});
  if (random.chance(0.2))
    result = create("arith.index_cast", type, any(b.getIndexType(), 0));
  switch (random.below(4)) {
  case 0:
    return create(random.pick({"arith.sitofp", "arith.uitofp"}), b.getF64Type(), result);
  case 1:
    return create(random.pick({"arith.extsi", "arith.extui"}), b.getI64Type(), result);
  case 2:
    return create(random.pick({"arith.index_cast", "arith.index_castui"}), b.getIndexType(), result);
  default:
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate(random.below(10)), result, constant(type));
  }
}

Value RandomBody::drawReal() {
  Type type = b.getF64Type();
  static const char *const unary[] = {"arith.negf", "arith.negf", "math.absf", "math.exp", "math.tanh", "math.sqrt"};
  static const char *const binary[] = {"arith.addf",     "arith.addf",    "arith.subf",   "arith.subf",
                                       "arith.mulf",     "arith.mulf",    "arith.mulf",   "arith.maximumf",
                                       "arith.minimumf", "arith.maxnumf", "arith.minnumf"};
  if (random.chance(0.2))
    return create(random.pick(ArrayRef<const char *>(unary)), type, any(type, 0.1));
  // The sign of a zero matters to quotients alone, and rules do not keep it: divisors are not 0.
  Value nonzero = function->getArgument(6);
  if (random.chance(0.1))
    return create("math.rsqrt", type, create("math.absf", type, nonzero));
  if (random.chance(0.2)) {
    Value number = arith::ConstantOp::create(b, loc, b.getFloatAttr(type, random.pick({1.0, 0.5, 4.0, -2.0})));
    Value divisor = random.chance(0.5) ? number : nonzero;
    return create("arith.divf", type, {random.chance(0.3) ? constant(type) : any(type), divisor});
  }
  return create(random.pick(ArrayRef<const char *>(binary)), type, {any(type), any(type)});
}

Value RandomBody::drawOp() {
  switch (random.below(12)) {
  case 0:
  case 1:
    return drawCast();
  case 2: {
    Type type = anyIntegerType();
    auto predicate = arith::CmpIPredicate(random.chance(0.5) ? random.below(2) : random.below(10));
    return arith::CmpIOp::create(b, loc, predicate, any(type), any(type));
  }
  case 3: {
    auto predicate = arith::CmpFPredicate(random.below(16));
    return arith::CmpFOp::create(b, loc, predicate, any(b.getF64Type()), any(b.getF64Type()));
  }
  case 4: {
    Type type = random.pick(ArrayRef<Type>(types));
    return arith::SelectOp::create(b, loc, any(b.getI1Type(), 0.1), any(type, 0.4), any(type, 0.4));
  }
  case 5: {
    // An element at a position that is in bounds for all positions, or that is computed.
    Value position = any(b.getIndexType(), 0.1);
    Value last = arith::ConstantIndexOp::create(b, loc, tableExtent - 1);
    Value clamped = arith::MinUIOp::create(b, loc, position, last);
    bool isPosition = position.getDefiningOp<linalg::IndexOp>() != nullptr;
    return tensor::ExtractOp::create(b, loc, function->getArgument(7), ValueRange(isPosition ? position : clamped));
  }
  case 6:
    return drawReal();
  case 7:
  case 9:
    return drawTruth();
  case 8:
    return drawNarrow();
  default:
    return drawInteger(anyIntegerType());
  }
}

void RandomBody::draw(ArrayRef<Type> argumentTypes) {
  // The type of the result is that of the last value.
  function = func::FuncOp::create(loc, "drawn", b.getFunctionType(argumentTypes, {}));
  Block *entry = function->addEntryBlock();
  for (Type type : argumentTypes) {
    auto shaped = dyn_cast<RankedTensorType>(type);
    Tensor tensor(shaped ? shaped.getElementType() : type, shaped ? shaped.getShape() : ArrayRef<int64_t>());
    for (reference::Scalar &value : tensor.values)
      if (tensor.isReal())
        value.real = anyReal(random);
      else
        value.integer = anyInteger(type);
    arguments.push_back(std::move(tensor));
  }
  arguments[6].values[0].real = random.pick({1.0, -1.0, 0.5, 2.0, double(INFINITY), double(NAN)});
  auto makeBody = [&](Type type, llvm::function_ref<Value()> make) {
    b.setInsertionPointToEnd(entry);
    Value empty = tensor::EmptyOp::create(b, loc, extents, type);
    AffineMap maps[] = {b.getMultiDimIdentityMap(3)};
    SmallVector<utils::IteratorType> kinds(3, utils::IteratorType::parallel);
    auto op = linalg::GenericOp::create(b, loc, empty.getType(), ValueRange(), empty, maps, kinds,
                                        [&](OpBuilder &nested, Location, ValueRange) {
                                          OpBuilder::InsertionGuard guard(b);
                                          b.setInsertionPoint(nested.getInsertionBlock(), nested.getInsertionPoint());
                                          linalg::YieldOp::create(b, loc, make());
                                        });
    func::ReturnOp::create(b, loc, op.getResult(0));
    function->setType(b.getFunctionType(argumentTypes, op.getResultTypes()));
  };
  uint64_t state = random.below(uint64_t(1) << 40);
  size_t size = 2 + random.below(9);
  auto make = [&]() -> Value {
    random = Random(state);
    values.clear();
    // Bodies of constants are folded as a whole; positions may be larger than narrow integers.
    bool isConstant = random.chance(0.3);
    for (unsigned i = 0; i < 7 && !isConstant; ++i)
      values[argumentTypes[i]].push_back(function->getArgument(i));
    for (unsigned loop = 0; loop < 3 && !isConstant; ++loop) {
      Value position = linalg::IndexOp::create(b, loc, loop);
      values[b.getIndexType()].push_back(position);
      if (!random.chance(0.4))
        continue;
      Value factor = arith::ConstantIndexOp::create(b, loc, random.pick({50, 100, 1 << 29}));
      Value first = arith::ConstantIndexOp::create(b, loc, random.pick({0, -100, 127, INT32_MAX}));
      values[b.getIndexType()].push_back(
          arith::AddIOp::create(b, loc, arith::MulIOp::create(b, loc, position, factor), first));
    }
    Value last;
    for (size_t made = 0; made < size; ++made) {
      last = drawOp();
      values[last.getType()].push_back(last);
    }
    return last;
  };
  // Once to learn the type, once with it.
  Type type;
  makeBody(b.getF64Type(), [&] {
    type = make().getType();
    return constant(b.getF64Type());
  });
  entry->clear();
  makeBody(type, make);
}

/// Emits `node` in the place of the body of `op`.
bool replaceBody(linalg::GenericOp op, ArrayRef<Value> captures, Block &emitted, const NamedLoops &names) {
  OpBuilder b(op->getContext());
  Location loc = op.getLoc();
  Block &body = *op.getBlock();
  body.clear();
  b.setInsertionPointToStart(&body);
  IRMapping mapping;
  ArrayRef<unsigned> groups[] = {names.batch, names.head, names.query, names.key};
  for (auto [argument, loops] : llvm::zip(emitted.getArguments(), groups)) {
    Value position = arith::ConstantIndexOp::create(b, loc, 0);
    for (unsigned loop : loops) {
      Value extent = arith::ConstantIndexOp::create(b, loc, extents[loop]);
      position = arith::MulIOp::create(b, loc, position, extent);
      position = arith::AddIOp::create(b, loc, position, linalg::IndexOp::create(b, loc, loop));
    }
    mapping.map(argument, position);
  }
  for (auto [argument, capture] : llvm::zip_equal(emitted.getArguments().drop_front(4), captures))
    mapping.map(argument, capture);
  for (Operation &each : emitted.without_terminator())
    b.clone(each, mapping);
  linalg::YieldOp::create(b, loc, mapping.lookupOrDefault(emitted.getTerminator()->getOperand(0)));
  return succeeded(verify(op));
}

class ExprClaims : public testing::Test {
protected:
  ExprClaims() : context(MLIRContext::Threading::DISABLED) {
    context.loadDialect<attn::AttnDialect, arith::ArithDialect, func::FuncDialect, linalg::LinalgDialect,
                        math::MathDialect, tensor::TensorDialect>();
  }
  MLIRContext context;
};

TEST_F(ExprClaims, EmittedExpressionsKeepTheirValues) {
  std::string message;
  ScopedDiagnosticHandler quiet(&context, [&](Diagnostic &diagnostic) {
    message = diagnostic.str();
    return success();
  });
  Cases cases(3000);
  int64_t compared = 0;
  for (int64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
    RandomBody drawn(context, seed);
    FailureOr<SmallVector<Tensor>> expected = reference::interpret(*drawn.function, drawn.arguments);
    ASSERT_TRUE(succeeded(expected)) << "SACCADE_SEED=" << seed << ": " << message;
    Random random(seed + 1);
    // Loops of one name are adjacent; unknown extents of inner loops keep a position from being computed.
    const NamedLoops choices[] = {{{0}, {1}, {}, 2}, {{}, {0}, {1}, 2}, {{0, 1}, {}, {}, 2}, {{}, {0, 1}, {}, 2}};
    NamedLoops names = random.pick(ArrayRef<NamedLoops>(choices));
    SmallVector<int64_t> known(extents, extents + 3);
    for (int64_t &extent : known)
      extent = random.chance(0.15) ? ShapedType::kDynamic : extent;
    linalg::GenericOp op = drawn.getBody();
    Graph graph(&context, known);
    Tracer tracer(graph);
    Node node = tracer.element(op.getResult(0), op.getMatchingIndexingMap(op.getDpsInitOperand(0)).getResults());
    std::string text;
    llvm::raw_string_ostream os(text);
    drawn.function->print(os);
    // The computed tensors themselves must not be read.
    bool isTraced = node->kind != Expr::Element || node->access.tensor != op.getResult(0);
    forEachNode(node, [](Node each) {
      llvm::erase_if(each->origins, [](const Access &access) { return !isa<BlockArgument>(access.tensor); });
    });
    RegionEmitter emitter(graph, names, Float64Type::get(&context), op.getLoc());
    std::unique_ptr<Block> emitted = isTraced ? emitter.emit(node, nullptr) : nullptr;
    if (!emitted)
      continue;
    bool isValid = replaceBody(op, emitter.getCaptures(), *emitted, names);
    os << "became\n";
    drawn.function->print(os);
    ASSERT_TRUE(isValid) << "SACCADE_SEED=" << seed << " SACCADE_REGIONS=1: " << message << "\n" << text;
    FailureOr<SmallVector<Tensor>> actual = reference::interpret(*drawn.function, drawn.arguments);
    ASSERT_TRUE(succeeded(actual)) << "SACCADE_SEED=" << seed << " SACCADE_REGIONS=1: " << message << "\n" << text;
    ++compared;
    for (auto [i, want, have] : llvm::enumerate((*expected)[0].values, (*actual)[0].values)) {
      bool isEqual = !(*expected)[0].isReal() ? want.integer == have.integer
                     : std::isnan(want.real)
                         ? std::isnan(have.real)
                         : want.real == have.real || std::abs(want.real - have.real) <= 1e-12 * std::abs(want.real);
      ASSERT_TRUE(isEqual) << "SACCADE_SEED=" << seed << " SACCADE_REGIONS=1: element " << i << " is "
                           << ((*expected)[0].isReal() ? have.real : double(have.integer)) << ", expected "
                           << ((*expected)[0].isReal() ? want.real : double(want.integer)) << "\n"
                           << text;
    }
  }
  EXPECT_GE(compared * 3, cases.count * 2) << "few expressions can be emitted";
}

} // namespace
