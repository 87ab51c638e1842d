//===- Arguments.cpp - Named arguments of a PyTorch op --------------------===//
#include "Complex.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::torch;

/// The argument names of the operands, in order.
static ArrayRef<Attribute> namesOf(const FrontendOp &op) {
  auto names = dyn_cast_or_null<ArrayAttr>(op.attribute("arguments"));
  return names ? names.getValue() : ArrayRef<Attribute>();
}

/// Whether `op` may have tensors of 8-bit floats: it converts or passes them, or has a program of its own.
static bool mayStore(FrontendOp &op) {
  return op.getName().starts_with("saccade.") ||
         llvm::is_contained(
             {"aten._to_copy", "aten.to", "aten.alias", "aten.clone", "aten.contiguous", "aten.copy", "aten.detach"},
             op.getName());
}

LogicalResult Arguments::verify() {
  ArrayRef<Attribute> names = namesOf(op);
  if (names.size() != op.numOperands() || !llvm::all_of(names, llvm::IsaPred<StringAttr>))
    return op.error() << "found " << names.size() << " argument names, expected one for each of " << op.numOperands()
                      << " operands";
  return frontend::verifyTypes(op.getOperation(), mayStore(op));
}

void Arguments::refuse(StringRef name, Attribute found, StringRef expected) const {
  if (refused)
    return;
  refused = true;
  InFlightDiagnostic error = op.error() << "'" << name << "' is ";
  if (found)
    error << found;
  else
    error << "an operand or a list";
  error << ", expected " << expected;
}

LogicalResult Arguments::verifyAllConsumed() {
  if (ignoresRest)
    return success();
  auto verify = [&](StringRef name, bool isOperand) -> LogicalResult {
    const StringSet<> &consumed = isOperand ? consumedOperands : consumedAttributes;
    const StringSet<> &consumedAsOtherKind = isOperand ? consumedAttributes : consumedOperands;
    if (consumed.contains(name))
      return success();
    if (!consumedAsOtherKind.contains(name))
      return op.error() << "the argument '" << name << "' is not supported";
    return op.error() << "the argument '" << name << "' must be " << (isOperand ? "constant" : "a tensor");
  };
  for (Attribute name : namesOf(op))
    if (failed(verify(cast<StringAttr>(name).getValue(), /*isOperand=*/true)))
      return failure();
  for (NamedAttribute attribute : op.getOperation()->getAttrs())
    if (attribute.getName() != "arguments" && attribute.getName() != "extents" &&
        failed(verify(attribute.getName(), /*isOperand=*/false)))
      return failure();
  return success();
}

Attribute Arguments::attribute(StringRef name) const {
  consumedAttributes.insert(name);
  return op.attribute(name);
}

int64_t Arguments::integer(StringRef name, int64_t defaultValue) const {
  Attribute given = attribute(name);
  auto integer = dyn_cast_or_null<IntegerAttr>(given);
  if (!integer && given)
    refuse(name, given, "a constant integer");
  if (!integer || integer.getValue().getSignificantBits() > 64)
    return defaultValue;
  return integer.getType().isInteger(1) ? integer.getValue().getZExtValue() : integer.getValue().getSExtValue();
}

StringRef Arguments::text(StringRef name, StringRef defaultValue) const {
  if (Attribute given = attribute(name); given && !isa<StringAttr>(given))
    refuse(name, given, "a string");
  return op.text(name, defaultValue);
}

SmallVector<Value> Arguments::list(StringRef name) const {
  consumedOperands.insert(name);
  SmallVector<Value> found;
  for (auto [i, each] : llvm::enumerate(namesOf(op)))
    if (cast<StringAttr>(each).getValue() == name)
      found.push_back(op.operand(i));
  return found;
}

Value Arguments::tensor(StringRef name) const {
  SmallVector<Value> found = list(name);
  return found.size() == 1 && !op.attribute(name) ? found.front() : nullptr;
}

FailureOr<Value> Arguments::required(StringRef name) const {
  if (Value found = tensor(name))
    return found;
  return op.error() << "the argument '" << name << "' is missing";
}

FailureOr<std::optional<Extents>> Arguments::sizes(StringRef name) const {
  using Found = std::optional<Extents>;
  Builder b(op.getOperation()->getContext());
  SmallVector<Value> dynamic = list(name);
  Attribute given = attribute(name);
  if (!given && dynamic.empty())
    return Found();
  SmallVector<Attribute> all = {given ? given : Attribute(b.getUnitAttr())};
  if (auto array = dyn_cast_or_null<ArrayAttr>(given))
    all.assign(array.begin(), array.end());
  Extents result;
  auto *next = dynamic.begin();
  for (Attribute each : all) {
    if (auto integer = dyn_cast<IntegerAttr>(each)) {
      bool isFlag = integer.getType().isInteger(1);
      result.push_back(b.getIndexAttr(isFlag ? integer.getValue().getZExtValue() : integer.getValue().getSExtValue()));
      continue;
    }
    if (!isa<UnitAttr>(each) || next == dynamic.end() || !*next)
      return op.error() << "'" << name << "' has " << each << ", expected integers";
    auto elements = frontend::elementsOf(*next++);
    if (!elements || elements->size() != 1 || !isa<IntegerType>(elementOf(*std::prev(next))))
      return op.error() << "'" << name << "' must be constant or computed from shapes, found the run-time value "
                        << (*std::prev(next)).getType();
    result.push_back(frontend::toExtents(op.builder(), *elements).front());
  }
  return Found(std::move(result));
}

FailureOr<Extents> Arguments::requiredSizes(StringRef name) const {
  FailureOr<std::optional<Extents>> found = sizes(name);
  if (failed(found))
    return failure();
  if (!*found)
    return op.error() << "the argument '" << name << "' is missing";
  return **found;
}

FailureOr<Extents> Arguments::shape(const Extents &sizes) const {
  int64_t count = 1;
  for (auto [i, extent] : llvm::enumerate(sizes)) {
    int64_t size = getConstantIntValue(extent).value_or(1);
    if (size < 0)
      return op.error() << "extent " << i << " of the shape is " << size;
    if (size != 0 && (llvm::MulOverflow(count, size, count) || count > frontend::maxTensorElements))
      return op.error() << "the shape has too many elements";
  }
  return sizes;
}

FailureOr<OpFoldResult> Arguments::size(StringRef name, int64_t defaultValue) const {
  FailureOr<std::optional<Extents>> found = sizes(name);
  if (failed(found))
    return failure();
  if (*found && (*found)->size() != 1)
    return op.error() << "'" << name << "' has " << (*found)->size() << " elements, expected 1";
  return *found ? (*found)->front() : OpFoldResult(op.builder().getIndexAttr(defaultValue));
}

std::optional<SmallVector<int64_t>> Arguments::integers(StringRef name) const {
  if (auto one = dyn_cast_or_null<IntegerAttr>(attribute(name)))
    return SmallVector<int64_t>{one.getValue().getSExtValue()};
  return op.integers(name);
}

double Arguments::number(StringRef name, double defaultValue) const {
  if (auto integer = dyn_cast_or_null<IntegerAttr>(attribute(name)))
    return this->integer(name, 0);
  Attribute given = attribute(name);
  if (given && !isa<FloatAttr>(given))
    refuse(name, given, "a constant number");
  return op.number(name, defaultValue);
}

Type Arguments::type(StringRef name, Type defaultValue) const {
  auto type = dyn_cast_or_null<TypeAttr>(attribute(name));
  if (!type)
    return defaultValue;
  if (!frontend::isElementType(type.getValue()) && !(mayStore(op) && frontend::isStoredFloat(type.getValue()))) {
    refuse(name, type, "an element type");
    return defaultValue ? defaultValue : Float32Type::get(type.getContext());
  }
  return type.getValue();
}

FailureOr<int64_t> Arguments::axis(StringRef name, int64_t defaultValue, int64_t rank) const {
  return frontend::resolveAxis(op, integer(name, defaultValue), rank);
}

FailureOr<TensorDim> Arguments::tensorAndDim() const {
  FailureOr<Value> tensor = required("self");
  if (failed(tensor))
    return failure();
  FailureOr<int64_t> dim = axis("dim", 0, rankOf(*tensor));
  if (failed(dim))
    return failure();
  return TensorDim{*tensor, *dim};
}

FailureOr<SmallVector<int64_t>> Arguments::axes(StringRef name, int64_t rank) const {
  std::optional<SmallVector<int64_t>> given = integers(name);
  if (!given && (attribute(name) || !list(name).empty()))
    return op.error() << "'" << name << "' must be constant dimensions";
  if (!given || given->empty())
    return llvm::to_vector(llvm::seq<int64_t>(0, rank));
  if (rank == 0 && llvm::all_of(*given, [](int64_t axis) { return axis == 0 || axis == -1; }))
    return SmallVector<int64_t>();
  return frontend::resolveAxes(op, *given, rank);
}

void torch::add(frontend::Frontend &frontend, StringRef name, ArgumentTranslator translate) {
  frontend::Translator ofReals = [translate](FrontendOp &op, Values &results) -> LogicalResult {
    Arguments arguments(op);
    if (failed(arguments.verify()))
      return failure();
    if (failed(translate(arguments, results)))
      return failure();
    if (arguments.isRefused())
      return failure();
    // Arguments may be unused if the result is empty.
    bool isEmpty = !results.empty() && results[0] &&
                   cast<RankedTensorType>(results[0].getType()).getNumDynamicDims() == 0 &&
                   cast<RankedTensorType>(results[0].getType()).getNumElements() == 0;
    return isEmpty ? success() : arguments.verifyAllConsumed();
  };
  frontend.translators[name] = [ofReals](FrontendOp &op, Values &results) -> LogicalResult {
    return isOnComplex(op) ? translateComplex(op, ofReals, results) : ofReals(op, results);
  };
}
