//===- Compare.cpp - Does a raised graph compute the same? ----------------===//
#include "Search.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::search;
using reference::Tensor;

/// Guards that add up to 1e-6 to a sum are dropped.
static constexpr double tolerance = 1e-5;

SmallVector<Tensor> search::drawArguments(func::FuncOp function, unsigned set, uint64_t seed) {
  Random random(seed * numSets + set);
  SmallVector<Tensor> arguments;
  double spread = set == 2 ? 3 : 1;
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    auto type = dyn_cast<RankedTensorType>(function.getArgument(i).getType());
    Type element = getElementTypeOrSelf(function.getArgument(i).getType());
    SmallVector<int64_t> shape(type ? type.getShape() : ArrayRef<int64_t>());
    if (auto given = function.getArgAttrOfType<DenseI64ArrayAttr>(i, "test.shape"))
      shape.assign(given.asArrayRef().begin(), given.asArrayRef().end());
    auto kindAttr = function.getArgAttrOfType<StringAttr>(i, "test.values");
    StringRef kind = kindAttr ? kindAttr.getValue() : "normal";
    Tensor tensor(element, shape);
    for (auto [position, value] : llvm::enumerate(tensor.values)) {
      // Flags: 1 is visible. Only the later sets have rows without keys.
      bool isFirst = set == 0 && (shape.empty() || position % shape.back() == 0);
      bool flag = random.chance(set == 2 ? 0.3 : 0.6) || isFirst;
      double real = random.normal() * spread;
      bool isLow = random.chance(0.2) && set != 0;
      if (isa<FloatType>(element))
        value.real = kind == "flags"           ? (flag ? 1 : 0)
                     : kind == "lows" && isLow ? -INFINITY
                                               : reference::roundTo(element, real);
      else
        value.integer = kind == "flags" || element.isInteger(1) ? flag
                        : kind == "hidden"                      ? !flag
                                                                : int64_t(random.below(5)) - 1;
    }
    arguments.push_back(std::move(tensor));
  }
  return arguments;
}

/// The number that a constant or all its elements are; 0 if it is none.
static double numberOf(arith::ConstantOp op) {
  FloatAttr number = dyn_cast<FloatAttr>(op.getValue());
  if (auto splat = dyn_cast<SplatElementsAttr>(op.getValue()))
    number = dyn_cast<FloatAttr>(splat.getSplatValue<Attribute>());
  return number ? number.getValueAsDouble() : 0;
}

/// The finite numbers of `function` that hide keys, and those that are as large.
static SmallVector<arith::ConstantOp> findHidingNumbers(func::FuncOp function) {
  SmallVector<arith::ConstantOp> found;
  function.walk([&](arith::ConstantOp op) {
    if (double number = numberOf(op); std::abs(number) >= 9999 && std::isfinite(number))
      found.push_back(op);
  });
  return found;
}

/// A copy of `function` with other numbers that hide keys; `choose` takes which it is of how many and gives its size.
static OwningOpRef<func::FuncOp> withHidingNumbers(func::FuncOp function,
                                                   llvm::function_ref<std::optional<double>(size_t, size_t)> choose) {
  OwningOpRef<func::FuncOp> copy = function.clone();
  SmallVector<arith::ConstantOp> found = findHidingNumbers(*copy);
  for (auto [which, op] : llvm::enumerate(found)) {
    std::optional<double> number = choose(which, found.size());
    if (!number)
      continue;
    Attribute old = op.getValue();
    if (auto splat = dyn_cast<SplatElementsAttr>(old))
      old = splat.getSplatValue<Attribute>();
    double sign = cast<FloatAttr>(old).getValueAsDouble() > 0 ? 1 : -1;
    TypedAttr value = FloatAttr::get(getElementTypeOrSelf(op.getType()), sign * *number);
    if (auto shaped = dyn_cast<ShapedType>(op.getType()))
      value = DenseElementsAttr::get(shaped, Attribute(value));
    op.setValueAttr(value);
  }
  return copy;
}

static bool isNear(double a, double b, double size) {
  return a == b || (std::isfinite(b) && std::abs(a - b) <= tolerance * std::abs(b) + tolerance * 0.1 * size);
}

/// The largest of the finite elements, at most 100.
static double sizeOf(const Tensor &tensor) {
  double size = 1e-30;
  for (reference::Scalar each : tensor.values)
    if (std::isfinite(each.real))
      size = std::max(size, std::abs(each.real));
  return std::min(size, 100.0);
}

static bool isLow(double number, double limit) { return std::isfinite(number) && number < limit; }

/// Whether the largest element of a row along `dim` hides a key.
static bool hasLowRow(const Tensor &tensor, unsigned dim) {
  int64_t extent = tensor.shape[dim], stride = 1;
  for (int64_t inner : ArrayRef(tensor.shape).drop_front(dim + 1))
    stride *= inner;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (i / stride % extent != 0)
      continue;
    double largest = -INFINITY;
    for (int64_t k = 0; k < extent; ++k)
      largest = std::max(largest, tensor.values[i + k * stride].real);
    if (isLow(largest, -450))
      return true;
  }
  return false;
}

/// The tensors of floats that ops of `function` compute.
static SmallVector<Value> getTensors(func::FuncOp function) {
  SmallVector<Value> tensors;
  for (Operation &op : function.getBody().front().without_terminator())
    for (Value value : op.getResults())
      if (isa<RankedTensorType>(value.getType()) && isa<FloatType>(getElementTypeOrSelf(value)) &&
          !isa<tensor::EmptyOp>(op))
        tensors.push_back(value);
  return tensors;
}

/// Whether the body of a generic op that reads `tensor` has one of the ops.
template <typename... Ops> static bool isUsedBy(Value tensor) {
  return llvm::any_of(tensor.getUsers(), [](Operation *user) {
    auto generic = dyn_cast<linalg::GenericOp>(user);
    return generic && llvm::any_of(*generic.getBlock(), [](Operation &op) { return isa<Ops...>(op); });
  });
}

/// A copy of `function` that returns these tensors, too.
static OwningOpRef<func::FuncOp> withAllResults(func::FuncOp function) {
  OwningOpRef<func::FuncOp> copy = function.clone();
  Operation *end = copy->getBody().front().getTerminator();
  end->insertOperands(end->getNumOperands(), getTensors(*copy));
  copy->setType(FunctionType::get(copy->getContext(), copy->getArgumentTypes(), end->getOperandTypes()));
  return copy;
}

namespace {

/// What a plain graph computes, also with other numbers in place of those that hide keys.
class Expected {
public:
  explicit Expected(func::FuncOp plain) : plain(withAllResults(plain)), numResults(plain.getNumResults()) {
    using Choice = std::optional<double>;
    size_t count = findHidingNumbers(plain).size();
    for (arith::ConstantOp op : findHidingNumbers(plain))
      areSmall &= std::abs(numberOf(op)) <= 1e5;
    if (count == 0)
      return;
    // Scales do not change which of two numbers is larger.
    others.push_back(withHidingNumbers(plain, [](size_t i, size_t n) { return Choice(std::ldexp(1e5, 4 * i)); }));
    others.push_back(
        withHidingNumbers(plain, [](size_t i, size_t n) { return Choice(std::ldexp(1e5, 4 * (n - 1 - i))); }));
    others.push_back(withHidingNumbers(plain, [](size_t, size_t) { return Choice(0); }));
    for (size_t which = 0; which < count && count > 1; ++which)
      others.push_back(withHidingNumbers(
          plain, [&](size_t i, size_t) { return i == which ? Choice(0) : Choice(1e5 * double(1 + i)); }));
  }

  /// Returns false if the graph cannot be evaluated or overflows or loses all digits, which attention does not.
  bool evaluate(ArrayRef<Tensor> arguments) {
    results.clear();
    FailureOr<SmallVector<Tensor>> exact = reference::interpret(*plain, arguments);
    if (failed(exact))
      return false;
    ArrayRef<Tensor> tensors = ArrayRef(*exact).drop_front(numResults);
    for (auto [value, tensor] : llvm::zip_equal(getTensors(*plain), tensors)) {
      bool isShifted = isUsedBy<arith::SubFOp>(value) || isUsedBy<math::ExpOp, math::Exp2Op>(value) ||
                       llvm::any_of(value.getUsers(), [](Operation *user) { return isa<linalg::SoftmaxOp>(user); });
      double limit = isShifted ? 1e5 : 1e300;
      if (llvm::any_of(tensor.values, [&](reference::Scalar each) {
            return each.real > limit ||
                   (each.real != 0 && std::abs(each.real) < 1e-280 && !isUsedBy<arith::AddFOp>(value));
          }))
        return false;
    }
    findHiddenRows(tensors);
    exact->resize(numResults);
    results.push_back(std::move(*exact));
    for (OwningOpRef<func::FuncOp> &other : others) {
      exact = reference::interpret(*other, arguments);
      if (failed(exact))
        return false;
      for (auto [tensor, first] : llvm::zip_equal(*exact, results[0]))
        if (tensor.shape != first.shape)
          return false;
      results.push_back(std::move(*exact));
    }
    return true;
  }

  ArrayRef<Tensor> get() const { return results[0]; }
  bool hides() const { return !others.empty(); }

  /// Whether element `i` of result `r` must be equal after raising to `have`.
  bool determines(size_t r, int64_t i, double have, double size) const {
    auto element = [&](size_t which) { return results[which][r].values[i].real; };
    if (std::isnan(element(0)))
      return false;
    // Attention gives 0 for a row that is hidden, and a guard where all exponentials underflow.
    if (hasHiddenRow && have == 0 && element(0) != 0)
      return false;
    if (hasEmptyRow && have != 0 && element(0) == 0)
      return false;
    if (results.size() == 1)
      return true;
    // Rows without visible keys depend on the numbers, or are a mean as without them; raised, they are 0. Small numbers
    // may be too small to hide a key.
    if (!isNear(element(2), element(1), size) || !isNear(element(0), element(1), size))
      return areSmall && !hasHiddenRow;
    // Where a number lets exponentials overflow or underflow, a guard gives 0.
    for (size_t which = 3; which < results.size(); ++which)
      if (have == 0 ? isNear(element(which), element(1), size) : element(0) == 0 && isNear(element(which), have, size))
        return false;
    return true;
  }

private:
  /// Notes whether the scores of a row are all finite and so small that their exponentials are 0: what hides them are
  /// numbers, which may differ, so that the plain graph gives some mean; and whether the exponentials of finite scores
  /// are all 0. `tensors` are those of `withAllResults`.
  void findHiddenRows(ArrayRef<Tensor> tensors) {
    bool underflows = false, hasEmptySum = false;
    hasHiddenRow = false;
    for (auto [value, tensor] : llvm::zip_equal(getTensors(*plain), tensors)) {
      auto op = value.getDefiningOp<linalg::LinalgOp>();
      Operation *last = op ? op.getBlock()->getTerminator()->getOperand(0).getDefiningOp() : nullptr;
      auto any = [&](auto predicate) {
        return llvm::any_of(tensor.values, [&](reference::Scalar each) { return predicate(each.real); });
      };
      bool isReduction = op && op.getNumReductionLoops() == 1;
      if (isReduction && isa_and_nonnull<arith::MaximumFOp, arith::MaxNumFOp>(last))
        hasHiddenRow |= any([&](double each) { return isLow(each, -450); });
      if (isReduction && isa_and_nonnull<arith::AddFOp>(last))
        hasEmptySum |= any([&](double each) { return each == 0; });
      underflows |= isUsedBy<math::ExpOp, math::Exp2Op>(value) && any([&](double each) { return isLow(each, -700); });
      for (Operation *user : value.getUsers())
        if (auto softmax = dyn_cast<linalg::SoftmaxOp>(user); softmax && value == softmax.getInput())
          hasHiddenRow |= hasLowRow(tensor, softmax.getDimension());
    }
    hasEmptyRow = underflows && hasEmptySum;
    hasHiddenRow |= hasEmptyRow;
  }

  OwningOpRef<func::FuncOp> plain;
  bool hasHiddenRow = false, hasEmptyRow = false;
  bool areSmall = true; ///< whether the numbers that hide keys absorb nothing
  size_t numResults;
  SmallVector<OwningOpRef<func::FuncOp>> others;
  SmallVector<SmallVector<Tensor>> results;
};

} // namespace

static std::optional<SmallVector<Tensor>> interpretWithSmallerNumbers(func::FuncOp raised, ArrayRef<Tensor> arguments) {
  auto copy = withHidingNumbers(raised, [](size_t i, size_t) { return std::optional(1e5 * double(1 + i)); });
  FailureOr<SmallVector<Tensor>> results = reference::interpret(*copy, arguments);
  return succeeded(results) ? std::optional(std::move(*results)) : std::nullopt;
}

static Outcome compareWritten(func::FuncOp plain, func::FuncOp raised, uint64_t seed) {
  Outcome outcome;
  Expected expected(plain);
  for (unsigned set = 0; set < numSets; ++set) {
    SmallVector<Tensor> arguments = drawArguments(plain, set, seed);
    if (!expected.evaluate(arguments))
      continue;
    FailureOr<SmallVector<Tensor>> actual = reference::interpret(raised, arguments);
    std::optional<SmallVector<Tensor>> smaller;
    llvm::raw_string_ostream os(outcome.difference);
    if (failed(actual)) {
      os << "the raised graph cannot be evaluated on arguments " << set;
      return outcome;
    }
    for (auto [r, exact, got] : llvm::enumerate(expected.get(), *actual)) {
      if (exact.shape != got.shape) {
        os << "result " << r << " has another shape";
        return outcome;
      }
      double size = exact.isReal() ? sizeOf(exact) : 0;
      for (int64_t i = 0; i < exact.size(); ++i) {
        double want = exact.values[i].real, have = got.values[i].real;
        if (exact.isReal() && !expected.determines(r, i, have, size))
          continue;
        ++outcome.compared;
        if (exact.isReal() ? isNear(have, want, size) : exact.values[i].integer == got.values[i].integer)
          continue;
        // Numbers that hide keys absorb scores where they cancel, in the order of the ops; smaller ones do not.
        if (expected.hides() && !smaller)
          smaller = interpretWithSmallerNumbers(raised, arguments);
        if (smaller && isNear((*smaller)[r].values[i].real, want, size))
          continue;
        os << "element " << i << " of result " << r << " is " << have << ", expected " << want << ", on arguments "
           << set;
        return outcome;
      }
    }
  }
  return outcome;
}

/// A copy of `function` in which elements that no op writes are `number`.
static OwningOpRef<func::FuncOp> withUnwritten(func::FuncOp function, int number) {
  OwningOpRef<func::FuncOp> copy = function.clone();
  copy->walk([&](tensor::EmptyOp op) {
    OpBuilder b(op->getContext());
    b.setInsertionPointAfter(op);
    Type type = op.getType().getElementType();
    TypedAttr value = isa<FloatType>(type) ? TypedAttr(b.getFloatAttr(type, number)) : b.getIntegerAttr(type, number);
    auto fill = linalg::FillOp::create(b, op.getLoc(), arith::ConstantOp::create(b, op.getLoc(), value).getResult(),
                                       op.getResult());
    op.getResult().replaceAllUsesExcept(fill.getResult(0), fill);
  });
  return copy;
}

/// Whether a result of `plain` depends on elements that no op writes, as with a map that is no permutation.
static bool readsUnwritten(func::FuncOp plain, ArrayRef<Tensor> arguments) {
  auto zeros = reference::interpret(*withUnwritten(plain, 0), arguments);
  auto ones = reference::interpret(*withUnwritten(plain, 1), arguments);
  if (failed(zeros) || failed(ones))
    return true;
  for (auto [zero, one] : llvm::zip_equal(*zeros, *ones))
    for (auto [a, b] : llvm::zip_equal(zero.values, one.values))
      if (zero.isReal() ? !(a.real == b.real || (std::isnan(a.real) && std::isnan(b.real))) : a.integer != b.integer)
        return true;
  return false;
}

/// Compares the graphs where no element is read that no op writes.
Outcome search::compare(func::FuncOp plain, func::FuncOp raised, uint64_t seed) {
  Outcome outcome = compareWritten(plain, raised, seed);
  for (unsigned set = 0; set < numSets && !outcome.difference.empty(); ++set)
    if (readsUnwritten(plain, drawArguments(plain, set, seed)))
      return {};
  return outcome;
}
