//===- Scatters.cpp - PyTorch scatter operators ---------------------------===//
#include "Torch.h"
#include "saccade/Import/Common/Scatter.h"
#include "saccade/Import/Common/Views.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::torch;
using frontend::ScatterRule;

/// The rule that the operator's name or its argument `reduce` gives.
static FailureOr<ScatterRule> ruleOf(Arguments &a) {
  using Kind = ScatterRule::Kind;
  if (a.op.getName() == "aten.scatter_add")
    return ScatterRule{Kind::Sum};
  StringRef name = a.text("reduce", "");
  std::optional<Kind> kind = llvm::StringSwitch<std::optional<Kind>>(name)
                                 .Case("", Kind::Last)
                                 .Cases({"add", "sum"}, Kind::Sum)
                                 .Cases({"multiply", "prod"}, Kind::Product)
                                 .Case("mean", Kind::Mean)
                                 .Case("amax", Kind::Highest)
                                 .Case("amin", Kind::Lowest)
                                 .Default(std::nullopt);
  if (!kind)
    return a.op.error() << "the reduction '" << name << "' is not supported";
  return ScatterRule{*kind, a.integer("include_self", 1) != 0};
}

/// The part of `source` that has the extents of `index`. Emits an error if it is larger.
static FailureOr<Value> firstOf(Arguments &a, Value source, Value index) {
  ImplicitLocOpBuilder &b = a.op.builder();
  Extents sizes = frontend::extentsOf(b, index), own = frontend::extentsOf(b, source);
  bool fits = sizes.size() == own.size();
  for (size_t i = 0; fits && i < sizes.size(); ++i) {
    std::optional<int64_t> found = getConstantIntValue(own[i]), needed = getConstantIntValue(sizes[i]);
    fits = !found || !needed || *found >= *needed;
  }
  if (!fits)
    return a.op.error() << "'src' is " << source.getType() << ", expected extents of at least those of the index, "
                        << index.getType();
  return frontend::firstOf(b, source, sizes);
}

/// Writes `src`, or the number `value`, to the positions along `dim` that `index` has. One number counts as a row.
static LogicalResult translateScatter(Arguments &a, Values &results) {
  FailureOr<Value> self = a.required("self"), index = a.required("index");
  if (failed(self) || failed(index))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  auto row = [&](Value x) { return rankOf(x) == 0 ? frontend::unsqueeze(b, x, {0}) : x; };
  Value tensor = row(*self), positions = row(*index);
  FailureOr<int64_t> dim = a.axis("dim", 0, rankOf(tensor));
  FailureOr<ScatterRule> rule = ruleOf(a);
  if (failed(dim) || failed(rule))
    return failure();
  Value updates = a.tensor("src");
  TensorOrScalar number = updates ? TensorOrScalar() : tensorOrScalar(a, "value");
  if (llvm::is_contained(cast<RankedTensorType>(positions.getType()).getShape(), 0)) {
    results.push_back(*self);
    return success();
  }
  if (updates) {
    FailureOr<Value> part = firstOf(a, row(updates), positions);
    if (failed(part))
      return failure();
    updates = *part;
  } else if (isa_and_present<Attribute>(number)) {
    updates =
        frontend::filled(b, frontend::extentsOf(b, positions), elementAttr(cast<Attribute>(number), elementOf(tensor)));
  } else {
    return a.op.error() << "the argument 'src' is missing, or 'value' is not a constant number";
  }
  FailureOr<Value> made = frontend::scatterElements(a.op, tensor, positions, updates, *dim, *rule);
  if (failed(made))
    return failure();
  results.push_back(rankOf(*self) == 0 ? frontend::squeeze(b, *made, {0}) : *made);
  return success();
}

void torch::addScatters(frontend::Frontend &frontend) {
  for (StringRef name : {"aten.scatter", "aten.scatter_add", "aten.scatter_reduce"})
    add(frontend, name, translateScatter);
}
