//===- Control.cpp - ONNX control flow ------------------------------------===//
//
// Programs have no data-dependent control flow. If takes the branch of its constant condition; Scan and Loop with a
// small constant trip count are unrolled.
//
//===----------------------------------------------------------------------===//
#include "Onnx.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using frontend::Extents;

/// Limit on unrolling that bounds compile time.
static constexpr int64_t maxTripCount = 64;

static LogicalResult translateIf(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 1)))
    return failure();
  std::optional<SmallVector<int64_t>> condition = frontend::constantIntegers(op.operand(0));
  if (!condition || condition->size() != 1)
    return op.error() << "the condition must be constant: data-dependent branches are not supported";
  StringRef branchName = condition->front() ? "then_branch" : "else_branch";
  auto names = op.getOperation()->getAttrOfType<ArrayAttr>("regions");
  for (auto [i, region] : llvm::enumerate(op.getOperation()->getRegions()))
    if (names && i < names.size() && names[i] == StringAttr::get(names.getContext(), branchName))
      return op.inlineRegion(region, {}, results);
  return op.error() << "missing " << branchName;
}

/// Inputs: states, then tensors that are sliced along an axis, one slice per iteration. Results: states, then
/// per-iteration results concatenated.
static LogicalResult translateScan(FrontendOp &op, Values &results) {
  ImplicitLocOpBuilder &b = op.builder();
  int64_t scanned = op.integer("num_scan_inputs", 0), inputs = op.numOperands(), states = inputs - scanned;
  if (op.getOperation()->getNumRegions() != 1 || scanned < 1 || states < 0 ||
      llvm::is_contained(op.operands(), Value()) || static_cast<int64_t>(op.operands().size()) != inputs)
    return op.error() << "found " << scanned << " scanned of " << inputs << " inputs and "
                      << op.getOperation()->getNumRegions() << " subgraphs";
  auto directions = [&](StringRef name, size_t count) {
    SmallVector<int64_t> given = op.integers(name).value_or(SmallVector<int64_t>());
    given.resize(count, 0);
    return given;
  };
  SmallVector<int64_t> axes = directions("scan_input_axes", scanned),
                       backwards = directions("scan_input_directions", scanned);
  int64_t steps = -1;
  for (int64_t i = 0; i < scanned; ++i) {
    auto type = cast<RankedTensorType>(op.operand(states + i).getType());
    FailureOr<int64_t> axis = resolveAxis(op, axes[i], type.getRank());
    if (failed(axis))
      return failure();
    axes[i] = *axis;
    int64_t extent = type.getDimSize(*axis);
    if (ShapedType::isDynamic(extent) || extent < 1 || extent > maxTripCount || (steps >= 0 && extent != steps))
      return op.error() << "dimension " << *axis << " of " << type << " is scanned, expected one static extent of 1 to "
                        << maxTripCount;
    steps = extent;
  }

  SmallVector<Value> state(op.operands());
  state.truncate(states);
  SmallVector<SmallVector<Value>> made(std::max<int64_t>(0, op.getOperation()->getNumResults() - states));
  for (int64_t step = 0; step < steps; ++step) {
    SmallVector<Value> arguments = state, given;
    for (int64_t i = 0; i < scanned; ++i)
      arguments.push_back(
          frontend::selectIndex(b, op.operand(states + i), axes[i], backwards[i] ? steps - 1 - step : step));
    if (failed(op.inlineRegion(op.getOperation()->getRegion(0), arguments, given)))
      return failure();
    if (given.size() != states + made.size() ||
        !llvm::all_of(given, [](Value each) { return isa<RankedTensorType>(each.getType()); }))
      return op.error() << "the subgraph has " << given.size() << " results, expected " << states + made.size();
    state.assign(given.begin(), given.begin() + states);
    for (auto [all, each] : llvm::zip(made, ArrayRef(given).drop_front(states)))
      all.push_back(each);
  }
  llvm::append_range(results, state);
  SmallVector<int64_t> outputAxes = directions("scan_output_axes", made.size());
  SmallVector<int64_t> reversed = directions("scan_output_directions", made.size());
  for (auto [all, given, isReversed] : llvm::zip(made, outputAxes, reversed)) {
    FailureOr<int64_t> axis = resolveAxis(op, given, rankOf(all.front()) + 1);
    if (failed(axis))
      return failure();
    SmallVector<Value> parts;
    for (Value each : all)
      parts.push_back(frontend::unsqueeze(b, each, {*axis}));
    if (isReversed)
      std::reverse(parts.begin(), parts.end());
    results.push_back(frontend::concat(b, parts, *axis));
  }
  return success();
}

/// The constant flag in a one-element tensor.
static std::optional<bool> knownFlag(Value tensor) {
  std::optional<SmallVector<int64_t>> known = frontend::constantIntegers(tensor);
  if (!known || known->size() != 1)
    return std::nullopt;
  return known->front() != 0;
}

/// Loop with a constant trip count and constant continue conditions. Results: states, then per-iteration results
/// stacked.
static LogicalResult translateLoop(FrontendOp &op, Values &results) {
  ImplicitLocOpBuilder &b = op.builder();
  std::optional<SmallVector<int64_t>> tripCount = frontend::constantIntegers(op.operand(0));
  std::optional<bool> continues = op.operand(1) ? knownFlag(op.operand(1)) : true;
  if (op.getOperation()->getNumRegions() != 1 || !tripCount || tripCount->size() != 1 || tripCount->front() < 0 ||
      tripCount->front() > maxTripCount || !continues)
    return op.error() << "expected a constant trip count of 0 to " << maxTripCount
                      << " and a missing or constant condition";
  SmallVector<Value> state;
  for (unsigned i = 2; i < op.numOperands(); ++i)
    state.push_back(op.operand(i));
  if (llvm::is_contained(state, Value()))
    return op.error() << "an input is missing";
  size_t states = state.size();
  SmallVector<SmallVector<Value>> made(std::max<int64_t>(0, op.getOperation()->getNumResults() - states));
  for (int64_t step = 0; step < tripCount->front() && *continues; ++step) {
    auto scalar = [&](Type type, int64_t value) {
      return frontend::fromElements(b, RankedTensorType::get({}, type), {b.getIntegerAttr(type, value)});
    };
    SmallVector<Value> arguments = {scalar(b.getI64Type(), step), scalar(b.getI1Type(), 1)}, given;
    llvm::append_range(arguments, state);
    if (failed(op.inlineRegion(op.getOperation()->getRegion(0), arguments, given)))
      return failure();
    if (given.size() != 1 + states + made.size() ||
        !llvm::all_of(given, [](Value each) { return isa<RankedTensorType>(each.getType()); }))
      return op.error() << "the subgraph has " << given.size() << " results, expected " << 1 + states + made.size();
    continues = knownFlag(given.front());
    if (!continues)
      return op.error() << "the loop condition must be constant: data-dependent loops are not supported";
    state.assign(given.begin() + 1, given.begin() + 1 + states);
    for (auto [all, each] : llvm::zip(made, ArrayRef(given).drop_front(1 + states)))
      all.push_back(each);
  }
  llvm::append_range(results, state);
  for (ArrayRef<Value> all : made) {
    SmallVector<Value> rows;
    for (Value each : all)
      rows.push_back(frontend::unsqueeze(b, each, {0}));
    bool isOne = llvm::all_of(rows, [&](Value row) { return row.getType() == rows.front().getType(); });
    if (rows.empty() || !isOne)
      return op.error() << "found no rows or rows of different types, expected at least one row of one type";
    results.push_back(frontend::concat(b, rows, 0));
  }
  return success();
}

void onnx::addControl(frontend::Frontend &frontend) {
  frontend.translators["If"] = translateIf;
  frontend.translators["Loop"] = translateLoop;
  frontend.translators["Scan"] = translateScan;
}
