//===- KeyBoundsTest.cpp - Bounds against the masks they stand for ------------===//
//
// Evaluates masks, and the ops that `computeRange` emits, for every pair of small boxes. Bounds must include all
// visible keys, and exact bounds no others.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Analysis/KeyBounds.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Parser/Parser.h"
#include "saccade/Pipeline/Pipeline.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

namespace {

/// The value of a captured scalar, or of all elements of a captured tensor.
struct Capture {
  std::string type;
  int64_t value;
};

struct Case {
  std::string name;
  std::string mask;              ///< clauses of attn.attention
  std::vector<Capture> captures; ///< all are read as %c0, %c1 ...
  int64_t queryLength = 7, keyLength = 5;
};

/// A number, truncated to its width.
int64_t wrap(Type type, int64_t value) {
  unsigned width = type.isIndex() ? 64 : type.getIntOrFloatBitWidth();
  return APInt(64, uint64_t(value)).trunc(width).sext(64).getSExtValue();
}

/// Interprets integer ops with wrapping arithmetic. A tensor is represented by its only element.
class Interpreter {
public:
  Interpreter(int64_t queryLength, int64_t keyLength) : queryLength(queryLength), keyLength(keyLength) {}

  void bind(Value value, int64_t number) { numbers[value] = number; }

  int64_t operator()(Value value) {
    if (auto known = numbers.find(value); known != numbers.end())
      return known->second;
    Operation *op = value.getDefiningOp();
    EXPECT_NE(op, nullptr) << "an argument that is not bound";
    if (!op)
      return 0;
    return numbers[value] = wrap(value.getType(), evaluate(op));
  }

private:
  int64_t evaluate(Operation *op) {
    APInt constant;
    if (matchPattern(op->getResult(0), m_ConstantInt(&constant)))
      return constant.getSExtValue();
    if (auto length = dyn_cast<LengthOp>(op))
      return length.getRole() == Role::Query ? queryLength : keyLength;
    if (isa<tensor::ExtractOp>(op))
      return (*this)(op->getOperand(0));
    if (isa<tensor::DimOp>(op))
      return 1;
    if (auto select = dyn_cast<arith::SelectOp>(op))
      return (*this)((*this)(select.getCondition()) != 0 ? select.getTrueValue() : select.getFalseValue());
    unsigned width = widthOf(op->getOperand(0));
    APInt left(64, uint64_t((*this)(op->getOperand(0))));
    left = left.trunc(width);
    if (isa<arith::IndexCastOp, arith::ExtSIOp, arith::TruncIOp>(op))
      return left.getSExtValue();
    if (isa<arith::IndexCastUIOp, arith::ExtUIOp>(op))
      return int64_t(left.getZExtValue());
    APInt right(64, uint64_t((*this)(op->getOperand(1))));
    right = right.trunc(width);
    if (auto compare = dyn_cast<arith::CmpIOp>(op))
      return arith::applyCmpPredicate(compare.getPredicate(), left, right);
    return binary(op, left, right).getSExtValue();
  }

  static unsigned widthOf(Value value) {
    return value.getType().isIndex() ? 64 : value.getType().getIntOrFloatBitWidth();
  }

  static APInt binary(Operation *op, const APInt &left, const APInt &right) {
    if (isa<arith::AddIOp>(op))
      return left + right;
    if (isa<arith::SubIOp>(op))
      return left - right;
    if (isa<arith::MulIOp>(op))
      return left * right;
    if (isa<arith::AndIOp>(op))
      return left & right;
    if (isa<arith::OrIOp>(op))
      return left | right;
    if (isa<arith::XOrIOp>(op))
      return left ^ right;
    if (isa<arith::RemSIOp>(op))
      return left.srem(right);
    if (isa<arith::MinSIOp>(op))
      return left.slt(right) ? left : right;
    if (isa<arith::MaxSIOp>(op))
      return left.sgt(right) ? left : right;
    if (isa<arith::FloorDivSIOp>(op))
      return llvm::APIntOps::RoundingSDiv(left, right, APInt::Rounding::DOWN);
    if (isa<arith::CeilDivSIOp>(op))
      return llvm::APIntOps::RoundingSDiv(left, right, APInt::Rounding::UP);
    if (isa<arith::DivSIOp>(op))
      return left.sdiv(right);
    if (isa<arith::ShLIOp>(op))
      return left.shl(right);
    if (isa<arith::ShRSIOp>(op))
      return left.ashr(right);
    ADD_FAILURE() << "an op that the test cannot evaluate: " << op->getName().getStringRef().str();
    return left;
  }

  int64_t queryLength, keyLength;
  llvm::DenseMap<Value, int64_t> numbers;
};

class KeyBoundsTest : public testing::TestWithParam<Case> {
protected:
  KeyBoundsTest() : context(makeRegistry(), MLIRContext::Threading::DISABLED) { context.loadAllAvailableDialects(); }

  static DialectRegistry makeRegistry() {
    DialectRegistry registry;
    registerDialects(registry);
    return registry;
  }

  AttentionOp parse(const Case &given) {
    std::string parameters, names, types;
    for (auto [i, capture] : llvm::enumerate(given.captures)) {
      std::string name = "%x" + std::to_string(i);
      parameters += ", " + name + ": " + capture.type;
      names += (i ? ", " : "") + name;
      types += (i ? ", " : "") + capture.type;
    }
    std::string clause = names.empty() ? "" : "captures(" + names + " : " + types + ")";
    std::string text = "func.func @f(%q: tensor<?x8xf32>, %n: index" + parameters +
                       ") -> tensor<?x8xf32> {\n"
                       "%o = attn.attention %q[s,d], %q[s,d], %q[s,d] " +
                       clause + " q_len(%n : index) kv_len(%n : index)\n" + given.mask +
                       "\n: (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>\n"
                       "return %o : tensor<?x8xf32>\n}";
    module = parseSourceString<ModuleOp>(text, &context);
    AttentionOp found;
    if (module)
      module->walk([&](AttentionOp op) { found = op; });
    EXPECT_TRUE(found) << text;
    return found;
  }

  bool isVisible(AttentionOp op, const Case &given, int64_t query, int64_t key) {
    Interpreter interpreter(given.queryLength, given.keyLength);
    RegionArguments arguments = getRegionArguments(op.getMask(), /*numbers=*/0);
    interpreter.bind(arguments.batch, 0);
    interpreter.bind(arguments.head, 0);
    interpreter.bind(arguments.query, query);
    interpreter.bind(arguments.key, key);
    for (auto [argument, capture] : llvm::zip_equal(arguments.captures, given.captures))
      interpreter.bind(argument, capture.value);
    return interpreter(cast<YieldOp>(op.getMask().front().getTerminator()).getOperand()) != 0;
  }

  /// The positions of `role` in [begin, end) that are visible to positions first to last of the other role.
  std::pair<int64_t, int64_t> reach(AttentionOp op, const KeyBounds &bounds, const Case &given, Role role,
                                    int64_t first, int64_t last, int64_t begin, int64_t end) {
    Block block;
    OpBuilder b(&context);
    b.setInsertionPointToStart(&block);
    Location loc = op.getLoc();
    RegionArguments arguments = getRegionArguments(op.getMask(), /*numbers=*/0);
    Interpreter interpreter(given.queryLength, given.keyLength);
    auto argument = [&](Type type, int64_t value) {
      Value made = block.addArgument(type, loc);
      interpreter.bind(made, value);
      return made;
    };
    Type index = b.getIndexType();
    IRMapping mapping;
    mapping.map(arguments.batch, argument(index, 0));
    mapping.map(arguments.head, argument(index, 0));
    for (auto [from, capture] : llvm::zip_equal(arguments.captures, given.captures))
      mapping.map(from, argument(from.getType(), capture.value));
    Value queryLength = argument(index, given.queryLength), keyLength = argument(index, given.keyLength);
    Value firstOther = argument(index, first), lastOther = argument(index, last);
    KeyRange range{argument(index, begin), argument(index, end)};
    range = bounds.computeRange(b, loc, role, mapping, queryLength, keyLength, firstOther, lastOther, range);
    return {interpreter(range.begin), interpreter(range.end)};
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};

TEST_P(KeyBoundsTest, EveryVisiblePairIsReached) {
  const Case &given = GetParam();
  AttentionOp op = parse(given);
  ASSERT_TRUE(op);
  KeyBounds bounds(cast<ScoringOpInterface>(op.getOperation()));
  constexpr int64_t queries = 24, keys = 40;
  std::vector<std::vector<bool>> visible(queries, std::vector<bool>(keys));
  for (int64_t query = 0; query < queries; ++query)
    for (int64_t key = 0; key < keys; ++key)
      visible[query][key] = isVisible(op, given, query, key);

  struct Box {
    int64_t first, last, begin, end;
  };
  std::vector<Box> boxes = {{0, queries - 1, 0, keys}, {3, 9, 5, 30}, {16, 23, 0, 8}};
  for (int64_t query = 0; query < queries; ++query)
    boxes.push_back({query, query, 0, keys});
  for (const Box &box : boxes) {
    auto [begin, end] = reach(op, bounds, given, Role::Key, box.first, box.last, box.begin, box.end);
    bool isRow = box.first == box.last && bounds.isExact();
    for (int64_t key = box.begin; key < box.end; ++key) {
      bool isReached = begin <= key && key < end, isNeeded = false;
      for (int64_t query = box.first; query <= box.last; ++query)
        isNeeded |= visible[query][key];
      if (isReached == isNeeded || (isReached && !isRow))
        continue;
      FAIL() << "queries " << box.first << " to " << box.last << ", key " << key << (isReached ? " is" : " is not")
             << " in [" << begin << ", " << end << "), but the mask says " << (isNeeded ? "visible" : "hidden");
    }
  }
}

TEST_P(KeyBoundsTest, EveryQueryOfAVisiblePairIsReached) {
  const Case &given = GetParam();
  AttentionOp op = parse(given);
  ASSERT_TRUE(op);
  KeyBounds bounds(cast<ScoringOpInterface>(op.getOperation()));
  constexpr int64_t queries = 40, keys = 24;
  bool hasQuery = llvm::any_of(bounds.getConstraints(), [](auto &constraint) { return constraint.query != 0; });
  for (int64_t firstKey = 0; firstKey < keys; firstKey += 3)
    for (int64_t lastKey : {firstKey, keys - 1}) {
      auto [begin, end] = reach(op, bounds, given, Role::Query, firstKey, lastKey, 0, queries);
      for (int64_t query = 0; query < queries; ++query) {
        bool isReached = begin <= query && query < end, isNeeded = false;
        for (int64_t key = firstKey; key <= lastKey; ++key)
          isNeeded |= isVisible(op, given, query, key);
        // A bound of one constraint that depends on the query is tight for one key.
        bool isTight = bounds.getConstraints().size() == 1 && bounds.isExact() && hasQuery && firstKey == lastKey;
        EXPECT_FALSE(isNeeded && !isReached) << "query " << query << " is not in [" << begin << ", " << end
                                             << "), but attends to a key of " << firstKey << " to " << lastKey;
        EXPECT_FALSE(isTight && isReached && !isNeeded)
            << "query " << query << " is in [" << begin << ", " << end << "), but does not attend to key " << firstKey;
      }
    }
}

/// A mask region that yields %r.
std::string region(const std::string &body, const std::string &captures = "") {
  return "mask(%b, %h, %i, %j" + captures + ") {\n" + body + "\nattn.yield %r : i1 }";
}

const std::string narrow = "%q = arith.index_cast %i : index to i32\n%k = arith.index_cast %j : index to i32\n";

// Casts after attn-split-index-casts.
const std::string narrowInSteps = "%q64 = arith.index_cast %i : index to i64\n%q = arith.trunci %q64 : i64 to i32\n"
                                  "%k64 = arith.index_cast %j : index to i64\n%k = arith.trunci %k64 : i64 to i32\n";

const Case cases[] = {
    {"causal", "mask causal<top_left>", {}},
    {"causalWithOffset", "mask causal<-5>", {}},
    {"causalBottomRight", "mask causal<bottom_right>", {}},
    {"window", "mask window<3, 1>", {}},
    {"windowAndCausal", "mask window<6, *> mask causal<top_left>", {}},
    {"i32Casts", region(narrow + "%r = arith.cmpi sle, %k, %q : i32"), {}},
    {"i32CastsInSteps", region(narrowInSteps + "%r = arith.cmpi sle, %k, %q : i32"), {}},
    {"i32WindowInSteps",
     region(narrowInSteps + "%w = arith.constant 3 : i32\n%s = arith.addi %k, %w : i32\n"
                            "%r = arith.cmpi sge, %s, %q : i32"),
     {}},
    {"emptyWindow", "mask window<*, *>", {}},
    {"capturedLength",
     region("%k = arith.index_cast %j : index to i32\n%r = arith.cmpi slt, %k, %c0 : i32", ", %c0"),
     {{"i32", 9}}},
    {"capturedNegativeLength",
     region("%k = arith.index_cast %j : index to i32\n%r = arith.cmpi slt, %k, %c0 : i32", ", %c0"),
     {{"i32", -4}}},
    {"capturedTable",
     region("%n = tensor.extract %c0[%b] : tensor<?xi64>\n%m = arith.index_cast %n : i64 to index\n"
            "%r = arith.cmpi slt, %j, %m : index",
            ", %c0"),
     {{"tensor<?xi64>", 11}}},
    {"noLimit",
     region("%k = arith.index_cast %j : index to i64\n%r = arith.cmpi sle, %k, %c0 : i64", ", %c0"),
     {{"i64", std::numeric_limits<int64_t>::max()}}},
    {"noLowerLimit",
     region("%k = arith.index_cast %j : index to i64\n%r = arith.cmpi sge, %k, %c0 : i64", ", %c0"),
     {{"i64", std::numeric_limits<int64_t>::min()}}},
    {"strictlyAboveTheMaximum",
     region("%k = arith.index_cast %j : index to i64\n%r = arith.cmpi sgt, %k, %c0 : i64", ", %c0"),
     {{"i64", std::numeric_limits<int64_t>::max()}}},
    {"diagonal", region("%r = arith.cmpi eq, %i, %j : index"), {}},
    {"notTheDiagonal", region("%r = arith.cmpi ne, %i, %j : index"), {}},
    {"halfSlope",
     region("%two = arith.constant 2 : index\n%three = arith.constant 3 : index\n%l = arith.muli %two, %j : index\n"
            "%m = arith.addi %i, %three : index\n%r = arith.cmpi sle, %l, %m : index"),
     {}},
    {"negativeSlope",
     region("%n = arith.constant 17 : index\n%s = arith.addi %i, %j : index\n%r = arith.cmpi sle, %s, %n : index"),
     {}},
    {"thirdSlopeFromBelow",
     region(
         "%three = arith.constant 3 : index\n%l = arith.muli %j, %three : index\n%r = arith.cmpi sgt, %l, %i : index"),
     {}},
    {"remainder",
     region("%two = arith.constant 2 : index\n%zero = arith.constant 0 : index\n%l = arith.remsi %j, %two : index\n"
            "%r = arith.cmpi eq, %l, %zero : index"),
     {}},
    {"either",
     region("%four = arith.constant 4 : index\n%l = arith.cmpi slt, %j, %four : index\n"
            "%m = arith.cmpi sge, %j, %i : index\n%r = arith.ori %l, %m : i1"),
     {}},
    {"notCausal",
     region("%true = arith.constant true\n%l = arith.cmpi sle, %j, %i : index\n%r = arith.xori %l, %true : i1"),
     {}},
    {"sharedSubexpressions",
     region("%one = arith.constant 1 : index\n%d = arith.subi %i, %j : index\n%e = arith.addi %d, %one : index\n"
            "%l = arith.cmpi sgt, %e, %d : index\n%zero = arith.constant 0 : index\n"
            "%m = arith.cmpi sge, %d, %zero : index\n%n = arith.andi %l, %m : i1\n%r = arith.andi %n, %m : i1"),
     {}},
    {"rowsOnly", region("%n = arith.constant 9 : index\n%r = arith.cmpi slt, %i, %n : index"), {}},
    {"unsignedComparison",
     region("%d = arith.subi %i, %j : index\n%n = arith.constant 6 : index\n"
            "%r = arith.cmpi ult, %d, %n : index"),
     {}},
    {"lengths",
     region("%y = attn.length key\n%x = attn.length query\n%d = arith.subi %y, %x : index\n"
            "%l = arith.addi %i, %d : index\n%r = arith.cmpi sle, %j, %l : index"),
     {}},
    {"nothing", region("%r = arith.constant false"), {}},
    {"everything", region("%r = arith.constant true"), {}},
    // Narrow integers wrap, so their sums are not sums of positions.
    {"hash",
     region("%k = arith.index_cast %j : index to i32\n%f = arith.constant 1640531535 : i32\n"
            "%z = arith.constant 0 : i32\n%m = arith.muli %k, %f : i32\n%r = arith.cmpi sgt, %m, %z : i32"),
     {}},
    {"i8Positions",
     region("%k = arith.index_cast %j : index to i8\n%f = arith.constant 5 : i8\n%z = arith.constant 0 : i8\n"
            "%m = arith.muli %k, %f : i8\n%r = arith.cmpi sge, %m, %z : i8"),
     {}},
    {"i4Positions",
     region("%k = arith.index_cast %j : index to i4\n%z = arith.constant 0 : i4\n%r = arith.cmpi sge, %k, %z : i4"),
     {}},
    {"sumOverI32",
     region(narrow + "%x = arith.constant 2147483647 : i32\n%l = arith.addi %q, %x : i32\n"
                     "%r = arith.cmpi sle, %k, %l : i32"),
     {}},
    {"sumOverI64",
     region("%x = arith.constant 9223372036854775807 : index\n%l = arith.addi %i, %x : index\n"
            "%r = arith.cmpi sle, %j, %l : index"),
     {}},
    {"capturedSumOverI32",
     region(narrow + "%l = arith.addi %q, %c0 : i32\n%r = arith.cmpi sle, %k, %l : i32", ", %c0"),
     {{"i32", std::numeric_limits<int32_t>::max()}}},
    {"truncatedTerm",
     region("%t = arith.trunci %c0 : i64 to i32\n" + narrow +
                "%l = arith.addi %q, %t : i32\n"
                "%r = arith.cmpi sle, %k, %l : i32",
            ", %c0"),
     {{"i64", (int64_t(5) << 32) + 2}}},
    {"truncatedSum",
     region("%k = arith.index_cast %j : index to i64\n%s = arith.addi %k, %c0 : i64\n"
            "%t = arith.trunci %s : i64 to i32\n%z = arith.constant 30 : i32\n%r = arith.cmpi sle, %t, %z : i32",
            ", %c0"),
     {{"i64", (int64_t(5) << 32) + 2}}},
    {"truncated",
     region("%k = arith.index_cast %j : index to i64\n%t = arith.trunci %k : i64 to i4\n"
            "%z = arith.constant 3 : i4\n%r = arith.cmpi sle, %t, %z : i4"),
     {}},
    {"shifted",
     region("%one = arith.constant 1 : index\n%l = arith.shli %j, %one : index\n"
            "%r = arith.cmpi sle, %l, %i : index"),
     {}},
};

INSTANTIATE_TEST_SUITE_P(Masks, KeyBoundsTest, testing::ValuesIn(cases),
                         [](const testing::TestParamInfo<Case> &info) { return info.param.name; });

// Precondition of the tests above: simple masks are read exactly.
class ExactKeyBoundsTest : public KeyBoundsTest {};

TEST_P(ExactKeyBoundsTest, IsExact) {
  AttentionOp op = parse(GetParam());
  ASSERT_TRUE(op);
  EXPECT_TRUE(KeyBounds(cast<ScoringOpInterface>(op.getOperation())).isExact());
}

INSTANTIATE_TEST_SUITE_P(Masks, ExactKeyBoundsTest, testing::ValuesIn(llvm::ArrayRef(cases).take_front(8).vec()),
                         [](const testing::TestParamInfo<Case> &info) { return info.param.name; });

} // namespace
