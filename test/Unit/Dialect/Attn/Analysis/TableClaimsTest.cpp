//===- TableClaimsTest.cpp - Attention with and without distance tables -------===//
//
// The reference interpreter evaluates an attention before and after `attn-tabulate-relative-positions`. The results
// must be equal bit by bit: every element of a table is that of its relative position, and no read is out of bounds.
//
//===----------------------------------------------------------------------===//
#include "RandomRegion.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "saccade/Dialect/Attn/Analysis/RelativePositionTerms.h"
#include "saccade/Reference/Interpreter.h"
#include "saccade/Tiling/Passes.h"
#include "test/Support/Cases.h"
#include "gtest/gtest.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

namespace {

/// Yields the sum of the score and a value that costs more than a load, clamped to [−9, 9]; false if there is none.
bool yieldTerm(Region &region, std::mt19937_64 &random) {
  Block &block = region.front();
  OpBuilder b(&block.back());
  Location loc = b.getUnknownLoc();
  Value score = block.getArgument(0);
  // A length is known inside of the region only.
  if (random() % 2) {
    Value length = LengthOp::create(b, loc, b.getIndexType(), Role::Key);
    Value position = arith::SubIOp::create(b, loc, block.getArgument(4), block.getArgument(3));
    Value narrow = arith::IndexCastOp::create(b, loc, b.getI32Type(), arith::AddIOp::create(b, loc, position, length));
    math::TanhOp::create(b, loc, arith::SIToFPOp::create(b, loc, score.getType(), narrow));
  }
  // A term is reported if it has a use that is no term.
  SmallVector<Value> numbers;
  for (Operation &op : block.without_terminator())
    if (op.getNumResults() == 1 && op.getResult(0).getType() == score.getType())
      numbers.push_back(op.getResult(0));
  for (Value number : numbers)
    arith::AddFOp::create(b, loc, number, score);
  SmallVector<RelativePositionTerm> terms;
  for (const RelativePositionTerm &term : findRelativePositionTerms(region))
    if (term.cost > 8 && term.root.getType() == score.getType())
      terms.push_back(term);
  if (terms.empty())
    return false;
  Value root = terms[random() % terms.size()].root;
  FloatType type = cast<FloatType>(root.getType());
  auto limit = [&](double value) { return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, value)); };
  Value clamped = arith::MinNumFOp::create(b, loc, arith::MaxNumFOp::create(b, loc, root, limit(-9)), limit(9));
  Value bounded = arith::MinNumFOp::create(b, loc, arith::MaxNumFOp::create(b, loc, score, limit(-9)), limit(9));
  block.back().setOperand(0, arith::AddFOp::create(b, loc, clamped, bounded));
  return true;
}

TEST(TableClaims, TabulatedScoresAreEqual) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  context.allowUnregisteredDialects();
  context.loadDialect<AttnDialect, arith::ArithDialect, func::FuncDialect, linalg::LinalgDialect, math::MathDialect,
                      scf::SCFDialect, tensor::TensorDialect>();
  RegionOps ops(context);
  Cases cases(500);
  int64_t tabulated = 0, compared = 0;
  for (int64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
    std::mt19937_64 random(seed);
    auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
    RandomRegion drawn(ops, context, seed, /*size=*/12, /*lanes=*/1);
    if (!drawn.region.getArgument(0).getType().isF32() || !yieldTerm(drawn.region, random))
      continue;
    std::string clauses = pick(0, 2) ? "" : "q_len(%n : index) kv_len(%m : index) ";
    if (pick(0, 2) == 0)
      clauses += "at(%b0, %h0, %i0, %j0) ";
    OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(skeleton(ops, clauses), &context);
    ASSERT_TRUE(module) << skeleton(ops, clauses);
    AttentionOp attention;
    module->walk([&](AttentionOp op) { attention = op; });
    std::string text = print(drawn.region);
    attention.getScore().takeBody(drawn.region);

    int64_t heads = pick(1, 2), queries = pick(1, 5), keys = pick(1, 5);
    auto function = *module->getOps<func::FuncOp>().begin();
    SmallVector<reference::Tensor> arguments;
    for (Type type : function.getArgumentTypes()) {
      unsigned number = arguments.size();
      auto shaped = dyn_cast<RankedTensorType>(type);
      SmallVector<int64_t> shape;
      if (shaped)
        shape = number < 2 ? SmallVector<int64_t>{2, heads, number ? keys : queries, 4} : SmallVector<int64_t>{40};
      reference::Tensor &made = arguments.emplace_back(getElementTypeOrSelf(type), shape);
      for (reference::Scalar &element : made.values)
        if (number < 2)
          element.real = std::normal_distribution<double>()(random);
        else if (number >= function.getNumArguments() - 6)
          element.integer = pick(0, 3); // lengths and origins
        else
          element = anyScalar(made.elementType, random);
    }
    std::string message;
    ScopedDiagnosticHandler quiet(&context, [&](Diagnostic &diagnostic) {
      message += diagnostic.str() + "\n";
      return success();
    });
    auto expected = reference::interpret(function, arguments);
    if (failed(expected))
      continue; // a division by 0 or a read out of bounds
    PassManager passes(&context);
    passes.addNestedPass<func::FuncOp>(createTabulateRelativePositions());
    ASSERT_TRUE(succeeded(passes.run(*module))) << message << text;
    bool isTabulated = false;
    function.walk([&](linalg::GenericOp) { isTabulated = true; });
    tabulated += isTabulated, ++compared;
    message.clear();
    auto found = reference::interpret(function, arguments);
    // A table has elements for positions that no pair has. The code generator clamps their reads and divides by 1.
    bool isUndefined = StringRef(message).contains("reads index") || StringRef(message).contains("division by zero");
    ASSERT_TRUE(succeeded(found) || isUndefined) << "SACCADE_SEED=" << seed << ": " << message << text;
    if (failed(found))
      continue;
    for (auto [before, after] : llvm::zip_equal((*expected)[0].values, (*found)[0].values))
      ASSERT_TRUE(before.integer == after.integer || (std::isnan(before.real) && std::isnan(after.real)))
          << "SACCADE_SEED=" << seed << " SACCADE_REGIONS=1: " << before.real << " became " << after.real << "\n"
          << clauses << "\n"
          << text;
  }
  std::printf("%lld regions: %lld compared, %lld of them with a table\n", (long long)cases.count, (long long)compared,
              (long long)tabulated);
  if (cases.count >= 100) {
    EXPECT_GT(tabulated * 20, cases.count);
  }
}

} // namespace
