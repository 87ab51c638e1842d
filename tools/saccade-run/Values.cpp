//===- Values.cpp - Statistics of tensors, and where a NaN comes from ----------===//
//
// Implements --stats and --find-nan. The values are those of the compiled kernels: the program that runs returns what
// its ops compute.
//
//===----------------------------------------------------------------------===//
#include "Values.h"
#include "Report.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/RegionUtils.h"
#include "saccade/Dialect/Attn/Analysis/NameValues.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Dialect/Attn/Transforms/Passes.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::run;
using attn::Dim;

LogicalResult run::returnIntermediates(ModuleOp module, bool fused) {
  PassManager passes(module.getContext());
  buildIntermediatesPipeline(passes, fused);
  return passes.run(module);
}

Statistics::Statistics(const HostTensor &tensor, llvm::function_ref<bool(int64_t)> isChosen) {
  int64_t number = -1, finite = 0;
  double squares = 0;
  tensor.forEach([&](char *element) {
    ++number;
    if (isChosen && !isChosen(number))
      return;
    double x = readElement(tensor.type(), element);
    ++size;
    nans += std::isnan(x);
    infinities += std::isinf(x);
    if (!std::isfinite(x)) {
      if (firstBad < 0)
        firstBad = number, bad = x;
      return;
    }
    // Welford's recurrence, which does not cancel.
    double before = x - mean;
    mean += before / double(++finite);
    squares += before * (x - mean);
    min = finite == 1 ? x : std::min(min, x);
    max = finite == 1 ? x : std::max(max, x);
  });
  deviation = finite ? std::sqrt(squares / double(finite)) : 0;
}

static SmallVector<int64_t> positionOf(int64_t number, ArrayRef<int64_t> shape) {
  SmallVector<int64_t> position(shape.size());
  for (size_t i = shape.size(); i-- > 0; number /= shape[i])
    position[i] = number % shape[i];
  return position;
}

static std::string printed(ArrayRef<int64_t> position) {
  return ("[" + llvm::join(llvm::map_range(position, [](int64_t i) { return std::to_string(i); }), ", ") + "]");
}

static std::string printed(double number) {
  if (!std::isfinite(number))
    return std::isnan(number) ? "NaN" : number < 0 ? "-Inf" : "Inf";
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.6g", number);
  return text;
}

/// The name of an op; for a structured op without one the scalar ops of its body.
static std::string nameOfOp(Operation *op) {
  auto generic = dyn_cast<linalg::GenericOp>(op);
  if (!generic)
    return op->getName().getStringRef().str();
  llvm::SetVector<StringRef> inner;
  for (Operation &each : generic.getBody()->without_terminator())
    if (!isa<arith::ConstantOp, linalg::IndexOp>(each))
      inner.insert(each.getName().getStringRef());
  constexpr size_t shown = 4;
  std::string names = llvm::join(inner.getArrayRef().take_front(shown), " + ");
  return inner.empty() ? "linalg.generic" : inner.size() > shown ? names + " + ..." : names;
}

Values::Values(func::FuncOp function, ArrayRef<HostTensor> arguments, ArrayRef<HostTensor> results)
    : function(function) {
  for (auto [value, tensor] : llvm::zip_equal(function.getArguments(), arguments))
    tensors[value] = &tensor;
  for (auto [value, tensor] : llvm::zip_equal(function.front().getTerminator()->getOperands(), results))
    tensors.try_emplace(value, &tensor);
}

std::string Values::nameOf(Value value) const {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return "argument '" + attn::nameValues(function)[argument.getArgNumber()] + "'";
  auto result = cast<OpResult>(value);
  Operation *op = result.getOwner();
  std::string number = op->getNumResults() > 1 ? "#" + std::to_string(result.getResultNumber()) : "";
  return nameOfOp(op) + number + describePlace(op->getLoc());
}

//===----------------------------------------------------------------------===//
// --stats
//===----------------------------------------------------------------------===//

void Values::printStatistics() {
  std::vector<std::array<std::string, 9>> rows = {
      {"value", "type", "mean", "deviation", "min", "max", "NaN", "Inf", "first NaN or Inf"}};
  auto add = [&](Value value) {
    const HostTensor *tensor = lookup(value);
    if (!tensor || !isa<RankedTensorType>(value.getType()) || !isFloat(tensor->type()))
      return;
    Statistics of(*tensor);
    std::string type;
    for (int64_t extent : tensor->shape())
      type += std::to_string(extent) + "x";
    auto number = [&](double x) { return of.hasFinite() ? printed(x) : "-"; };
    rows.push_back({nameOf(value), type + elementTypeName(tensor->type()).str(), number(of.mean), number(of.deviation),
                    number(of.min), number(of.max), std::to_string(of.nans), std::to_string(of.infinities),
                    of.firstBad < 0 ? "-" : printed(positionOf(of.firstBad, tensor->shape()))});
  };
  for (Value argument : function.getArguments())
    add(argument);
  for (Operation &op : function.front().without_terminator())
    for (Value result : op.getResults())
      add(result);
  std::array<size_t, 9> widths = {};
  for (const auto &row : rows)
    for (auto [width, text] : llvm::zip(widths, row))
      width = std::max(width, text.size());
  for (const auto &row : rows) {
    std::string line;
    for (auto [width, text] : llvm::zip(widths, row))
      line += text + std::string(width - text.size() + 2, ' ');
    llvm::outs() << StringRef(line).rtrim() << '\n';
  }
}

//===----------------------------------------------------------------------===//
// --find-nan
//===----------------------------------------------------------------------===//

static bool isNaN(double x) { return std::isnan(x); }
static bool isBad(double x) { return !std::isfinite(x); }

static bool constantHas(Attribute constant, bool (*test)(double)) {
  if (auto number = dyn_cast<FloatAttr>(constant))
    return test(number.getValueAsDouble());
  auto elements = dyn_cast<DenseFPElementsAttr>(constant);
  return elements && llvm::any_of(elements, [&](const APFloat &x) {
           return test(x.isNaN() ? NAN : x.isInfinity() ? INFINITY : 0.0);
         });
}

bool Values::has(Value value, Test test) const {
  if (const HostTensor *tensor = lookup(value)) {
    bool found = false;
    if (isFloat(tensor->type()))
      tensor->forEach([&](char *element) { found |= test(readElement(tensor->type(), element)); });
    return found;
  }
  Operation *op = value.getDefiningOp();
  if (auto constant = dyn_cast_or_null<arith::ConstantOp>(op))
    return constantHas(constant.getValue(), test);
  // An op that was not returned repeats elements of its operands.
  return op && llvm::any_of(op->getOperands(), [&](Value operand) { return has(operand, test); });
}

bool Values::operandsHave(Operation &op, Test test) const {
  SetVector<Value> read(op.operand_begin(), op.operand_end());
  getUsedValuesDefinedAbove(op.getRegions(), read);
  bool inBody = op.walk([&](arith::ConstantOp constant) {
                    return constantHas(constant.getValue(), test) ? WalkResult::interrupt() : WalkResult::advance();
                  }).wasInterrupted();
  return inBody || llvm::any_of(read, [&](Value value) { return has(value, test); });
}

std::optional<Values::Bad> Values::madeBy(Operation &op) const {
  for (Value result : op.getResults()) {
    const HostTensor *tensor = lookup(result);
    if (!tensor || !isFloat(tensor->type()))
      continue;
    // A row without keys has this log-sum-exp and maximum.
    auto attention = dyn_cast<attn::AttentionOp>(op);
    bool mayBeInfinite = attention && (result == attention.getLse() || result == attention.getRowMax());
    for (Test test : {isNaN, isBad}) {
      if (!has(result, test) || operandsHave(op, test) || (test == isBad && mayBeInfinite))
        continue;
      int64_t number = -1, first = -1;
      double found = 0;
      tensor->forEach([&](char *element) {
        ++number;
        double x = readElement(tensor->type(), element);
        if (first < 0 && test(x))
          first = number, found = x;
      });
      return Bad{result, positionOf(first, tensor->shape()), found};
    }
  }
  return std::nullopt;
}

/// Follows views, copies and broadcasts of a value that was not returned to what they repeat.
static void followCopies(Value &value, SmallVector<std::optional<int64_t>> &place) {
  Operation *op = value.getDefiningOp();
  if (auto broadcast = dyn_cast_or_null<linalg::BroadcastOp>(op)) {
    for (int64_t dim : llvm::reverse(broadcast.getDimensions()))
      place.erase(place.begin() + dim);
    value = broadcast.getInput();
  } else if (auto transpose = dyn_cast_or_null<linalg::TransposeOp>(op)) {
    auto of = place;
    for (auto [to, from] : llvm::enumerate(transpose.getPermutation()))
      place[from] = of[to];
    value = transpose.getInput();
  } else if (auto fill = dyn_cast_or_null<linalg::FillOp>(op)) {
    value = fill.value(), place.clear();
  } else if (isa_and_nonnull<tensor::CastOp>(op)) {
    value = op->getOperand(0);
  } else if (op && isa<tensor::TensorDialect>(op->getDialect()) && op->getNumOperands() > 0) {
    value = op->getOperand(0);
    auto type = dyn_cast<RankedTensorType>(value.getType());
    place.assign(type ? type.getRank() : 0, std::nullopt);
  }
}

/// The name of an operand with the element at `place`, or numbers about the elements there.
std::string Values::describe(Value operand, Place place) const {
  for (Value before; !lookup(operand) && before != operand;)
    before = operand, followCopies(operand, place);
  const HostTensor *tensor = lookup(operand);
  FloatAttr number;
  if (matchPattern(operand, m_Constant(&number)))
    return "the constant " + printed(number.getValueAsDouble());
  if (!tensor || !isFloat(tensor->type()))
    return nameOf(operand);
  Statistics of(*tensor, [&](int64_t element) {
    return llvm::all_of(llvm::zip(positionOf(element, tensor->shape()), place), [](auto pair) {
      auto [own, index] = pair;
      return !index || *index == own;
    });
  });
  auto names = llvm::map_range(place, [](auto index) { return index ? std::to_string(*index) : std::string(":"); });
  std::string text = nameOf(operand) + " [" + llvm::join(names, ", ") + "]: ";
  if (of.size == 1)
    return text + printed(of.firstBad < 0 ? of.mean : of.bad);
  return text + std::to_string(of.size) + " elements from " + printed(of.min) + " to " + printed(of.max) + ", " +
         std::to_string(of.nans) + " NaN, " + std::to_string(of.infinities) + " Inf";
}

/// The elements of an operand of a structured op that an element of its result depends on.
static SmallVector<std::optional<int64_t>> placeIn(linalg::LinalgOp op, OpOperand &operand, const OpResult &result,
                                                   ArrayRef<int64_t> position) {
  SmallVector<std::optional<int64_t>> ofLoops(op.getNumLoops()), place;
  AffineMap written = op.getMatchingIndexingMap(op.getDpsInitOperand(result.getResultNumber()));
  for (auto [expression, index] : llvm::zip_equal(written.getResults(), position))
    if (auto loop = dyn_cast<AffineDimExpr>(expression))
      ofLoops[loop.getPosition()] = index;
  for (AffineExpr expression : op.getMatchingIndexingMap(&operand).getResults()) {
    auto loop = dyn_cast<AffineDimExpr>(expression);
    place.push_back(loop ? ofLoops[loop.getPosition()] : std::nullopt);
  }
  return place;
}

/// The same for an operand of attention with dimensions `dims`: the row of the query, and all keys of its head.
static SmallVector<std::optional<int64_t>> placeIn(attn::AttentionOp op, Value result, ArrayRef<int64_t> position,
                                                   attn::DimsAttr dims, bool isQuery) {
  SmallVector<std::optional<int64_t>> place;
  for (Dim dim : dims.getDims()) {
    SmallVector<Dim> ofResult = op.getResultDims(result);
    const auto *at = llvm::find(ofResult, dim);
    bool isKnown = at != ofResult.end() && dim != Dim::Depth && (isQuery || dim == Dim::Batch);
    place.push_back(isKnown ? std::optional<int64_t>(position[at - ofResult.begin()]) : std::nullopt);
  }
  return place;
}

void Values::printOperands(Operation &op, const Bad &bad) const {
  auto all = [](Value value) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    return Place(type ? type.getRank() : 0);
  };
  llvm::SetVector<Value> others;
  getUsedValuesDefinedAbove(op.getRegions(), others);
  SmallVector<std::string> lines;
  if (auto structured = dyn_cast<linalg::LinalgOp>(op)) {
    for (OpOperand &operand : op.getOpOperands())
      if (structured.payloadUsesValueFromOperand(&operand))
        lines.push_back(describe(operand.get(), placeIn(structured, operand, cast<OpResult>(bad.value), bad.position)));
  } else if (auto attention = dyn_cast<attn::AttentionOp>(op)) {
    for (auto [operand, dims] : {std::pair(attention.getQuery(), attention.getQueryDims()),
                                 std::pair(attention.getKey(), attention.getKeyDims()),
                                 std::pair(attention.getValue(), attention.getValueDims())})
      lines.push_back(describe(operand, placeIn(attention, bad.value, bad.position, dims, lines.empty())));
    others.insert(op.operand_begin() + 3, op.operand_end());
  } else {
    others.insert(op.operand_begin(), op.operand_end());
  }
  for (Value operand : others)
    if (isa<RankedTensorType, FloatType>(operand.getType()))
      lines.push_back(describe(operand, all(operand)));
  lines.erase(llvm::unique(lines), lines.end());
  for (const std::string &line : lines)
    llvm::outs() << "  read " << line << '\n';
}

ExitCode Values::findNonFinite() {
  for (BlockArgument argument : function.getArguments())
    if (const HostTensor *tensor = lookup(argument); has(argument, isBad)) {
      Statistics of(*tensor);
      llvm::outs() << nameOf(argument) << " has a NaN or infinity, first in element "
                   << printed(positionOf(of.firstBad, tensor->shape())) << ": " << of.nans << " NaN and "
                   << of.infinities << " Inf of " << of.size << " elements\n";
    }
  int64_t computed = 0;
  for (Operation &op : function.front().without_terminator()) {
    computed += llvm::count_if(op.getResults(), [&](Value result) { return lookup(result) != nullptr; });
    std::optional<Bad> bad = madeBy(op);
    if (!bad)
      continue;
    Statistics of(*lookup(bad->value));
    llvm::outs() << "the first " << (isNaN(bad->number) ? "NaN" : "infinity") << " is made by " << nameOf(bad->value)
                 << ", in element " << printed(bad->position) << ": " << of.nans << " NaN and " << of.infinities
                 << " Inf of " << of.size << " elements\n";
    printOperands(op, *bad);
    return ExitNonFinite;
  }
  bool isGiven = llvm::any_of(function.getArguments(), [&](Value argument) { return has(argument, isBad); });
  if (!isGiven)
    llvm::outs() << "no NaN or infinity is made, in " << computed << " tensors of @" << function.getName() << '\n';
  return isGiven ? ExitNonFinite : ExitSuccess;
}
