//===- Frontend.cpp - Translation of unregistered ops by name -------------===//
#include "saccade/Import/Common/Frontend.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Import/Common/Extents.h"

using namespace mlir;
using namespace saccade::frontend;

std::optional<StringRef> Frontend::nameOf(Operation *op) const {
  if (op->isRegistered())
    return std::nullopt;
  StringRef name = op->getName().getStringRef();
  if (name.consume_front(prefix) || llvm::any_of(others, [&](StringRef each) { return name.consume_front(each); }))
    return name;
  return std::nullopt;
}

FrontendOp::FrontendOp(Operation *op, const Frontend &frontend)
    : op(op), frontend(frontend), name(frontend.nameOf(op).value_or(StringRef())), b(op->getLoc(), OpBuilder(op)) {}

Value FrontendOp::operand(unsigned i) const {
  if (i >= op->getNumOperands() || isa<NoneType>(op->getOperand(i).getType()))
    return nullptr;
  return op->getOperand(i);
}

SmallVector<Value> FrontendOp::operands() const {
  SmallVector<Value> values;
  for (unsigned i = 0; i < op->getNumOperands(); ++i)
    values.push_back(operand(i));
  while (!values.empty() && !values.back())
    values.pop_back();
  return values;
}

int64_t FrontendOp::integer(StringRef attribute, int64_t defaultValue) const {
  auto value = op->getAttrOfType<IntegerAttr>(attribute);
  return value ? value.getValue().getSExtValue() : defaultValue;
}

double FrontendOp::number(StringRef attribute, double defaultValue) const {
  auto value = op->getAttrOfType<FloatAttr>(attribute);
  return value ? value.getValueAsDouble() : defaultValue;
}

StringRef FrontendOp::text(StringRef attribute, StringRef defaultValue) const {
  auto value = op->getAttrOfType<StringAttr>(attribute);
  return value ? value.getValue() : defaultValue;
}

std::optional<SmallVector<int64_t>> FrontendOp::integers(StringRef attribute) const {
  if (auto array = op->getAttrOfType<DenseI64ArrayAttr>(attribute))
    return llvm::to_vector(array.asArrayRef());
  if (auto constant = op->getAttrOfType<DenseIntElementsAttr>(attribute))
    return llvm::map_to_vector(constant.getValues<APInt>(), [](const APInt &value) { return value.getSExtValue(); });
  auto array = op->getAttrOfType<ArrayAttr>(attribute);
  if (!array || !llvm::all_of(array, llvm::IsaPred<IntegerAttr>))
    return std::nullopt;
  return llvm::map_to_vector(array, [](Attribute value) { return cast<IntegerAttr>(value).getInt(); });
}

InFlightDiagnostic FrontendOp::error() {
  InFlightDiagnostic diagnostic = op->emitError();
  diagnostic << op->getName();
  if (auto node = op->getLoc()->findInstanceOf<NameLoc>())
    diagnostic << " '" << node.getName().getValue() << "'";
  diagnostic << ": ";
  return diagnostic;
}

LogicalResult FrontendOp::requireRankedTensors() {
  for (auto [i, value] : llvm::enumerate(op->getOperands()))
    if (!isa<RankedTensorType, NoneType>(value.getType()))
      return error() << "operand " << i << " is " << value.getType() << ", expected a ranked tensor";
  return success();
}

bool saccade::frontend::isElementType(Type type) {
  return type.isF16() || type.isBF16() || type.isF32() || type.isF64() ||
         llvm::any_of(ArrayRef<unsigned>{1, 8, 16, 32, 64},
                      [&](unsigned width) { return type.isSignlessInteger(width); });
}

bool saccade::frontend::isStoredFloat(Type type) { return isa<Float8E4M3FNType, Float8E5M2Type>(type); }

LogicalResult saccade::frontend::verifyTypes(Operation *op, bool mayStore) {
  auto isKnown = [&](Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor)
      return isa<NoneType>(type) || !isa<ShapedType>(type);
    return isElementType(tensor.getElementType()) || (mayStore && isStoredFloat(tensor.getElementType()));
  };
  for (Type type :
       llvm::concat<const Type>(SmallVector<Type>(op->getOperandTypes()), SmallVector<Type>(op->getResultTypes())))
    if (!isKnown(type))
      return op->emitError() << op->getName() << ": the type " << type << " is not supported";
  return success();
}

/// Whether a tensor with these static extents exceeds `maxTensorElements`.
static bool isTooLarge(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  int64_t count = 1;
  return tensor && llvm::any_of(tensor.getShape(), [&](int64_t extent) {
           return !ShapedType::isDynamic(extent) && extent != 0 &&
                  (llvm::MulOverflow(count, extent, count) || count > maxTensorElements || count < 0);
         });
}

/// Translates one op of the frontend and replaces its results.
static LogicalResult translateOp(Operation *op, const Frontend &frontend, SmallVectorImpl<Value> &results) {
  FrontendOp view(op, frontend);
  auto translator = frontend.translators.find(view.getName());
  if (translator == frontend.translators.end())
    return view.error() << "this op is not supported";
  if (failed(view.requireRankedTensors()) || failed(translator->second(view, results)))
    return failure();
  for (Value result : results)
    if (result && isTooLarge(result.getType()))
      return view.error() << "result type " << result.getType() << " is too large";
  if (results.size() > op->getNumResults())
    results.truncate(op->getNumResults());
  results.resize(op->getNumResults());
  for (auto [i, value] : llvm::enumerate(results))
    if (value)
      value = declareExtents(view, i, value);
  for (auto [old, value] : llvm::zip(op->getResults(), results)) {
    if (value)
      old.replaceAllUsesWith(value);
    else if (!old.use_empty())
      return view.error() << "result " << old.getResultNumber() << " is not supported";
  }
  return success();
}

static bool belongsTo(Operation *op, const Frontend &frontend) { return frontend.nameOf(op).has_value(); }

/// Whether `op` is a placeholder for a missing operand.
static bool isNoValue(Operation *op, const Frontend &frontend) { return frontend.nameOf(op) == StringRef("NoValue"); }

LogicalResult FrontendOp::inlineRegion(Region &region, ValueRange arguments, SmallVectorImpl<Value> &results) {
  if (!region.hasOneBlock() || region.front().empty() || region.getNumArguments() != arguments.size())
    return error() << "a subgraph takes " << region.getNumArguments() << " inputs, expected " << arguments.size();
  IRMapping mapping;
  mapping.map(region.getArguments(), arguments);
  Block &body = region.front();
  for (Operation &each : llvm::make_range(body.begin(), std::prev(body.end()))) {
    Operation *clone = b.clone(each, mapping);
    if (!belongsTo(clone, frontend) || isNoValue(clone, frontend))
      continue;
    SmallVector<Value> values;
    LogicalResult done = translateOp(clone, frontend, values);
    if (succeeded(done))
      for (auto [old, value] : llvm::zip(each.getResults(), values))
        if (value)
          mapping.map(old, value);
    clone->dropAllUses();
    clone->erase();
    if (failed(done))
      return failure();
  }
  for (Value value : body.back().getOperands())
    results.push_back(mapping.lookupOrDefault(value));
  return success();
}

/// Reports all ops without a translator at once: the first one of each name, with their number.
static LogicalResult requireTranslators(func::FuncOp function, const Frontend &frontend) {
  llvm::MapVector<StringRef, SmallVector<Operation *>> unknown;
  for (Operation &op : function.getBody().getOps())
    if (std::optional<StringRef> name = frontend.nameOf(&op))
      if (!isNoValue(&op, frontend) && !frontend.translators.contains(*name))
        unknown[*name].push_back(&op);
  for (auto &[name, ops] : unknown) {
    InFlightDiagnostic error = FrontendOp(ops.front(), frontend).error() << "this op is not supported";
    if (ops.size() > 1)
      error << " (" << ops.size() << " such ops)";
  }
  return success(unknown.empty());
}

LogicalResult saccade::frontend::translate(func::FuncOp function, const Frontend &frontend) {
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes()))
    if (isTooLarge(type))
      return function.emitError() << "argument " << i << " is " << type << ", which is too large";
  if (failed(requireTranslators(function, frontend)))
    return failure();
  SmallVector<Operation *> missing;
  for (Block &block : function.getBody())
    for (Operation &op : llvm::make_early_inc_range(block)) {
      if (!belongsTo(&op, frontend))
        continue;
      if (isNoValue(&op, frontend)) {
        missing.push_back(&op);
        continue;
      }
      SmallVector<Value> results;
      if (failed(translateOp(&op, frontend, results)))
        return failure();
      op.erase();
    }
  for (Operation *op : missing)
    if (op->use_empty())
      op->erase();
  finishExtents(function);
  // A result declared with an unregistered type takes the type of the returned value.
  if (!function.isExternal() && function.getBody().hasOneBlock()) {
    SmallVector<Type> types(function.getResultTypes());
    ValueRange returned = function.getBody().front().getTerminator()->getOperands();
    for (auto [type, value] : llvm::zip(types, returned))
      if (isa<OpaqueType>(type))
        type = value.getType();
    function.setType(FunctionType::get(function.getContext(), function.getArgumentTypes(), types));
  }
  // Returned values may have more or fewer static extents than declared.
  WalkResult walk = function.walk([&](func::ReturnOp op) {
    for (auto [operand, type] : llvm::zip(op->getOpOperands(), function.getResultTypes())) {
      if (operand.get().getType() == type)
        continue;
      if (!tensor::CastOp::areCastCompatible(operand.get().getType(), type)) {
        op.emitError() << "result " << operand.getOperandNumber() << " is " << operand.get().getType()
                       << ", declared is " << type;
        return WalkResult::interrupt();
      }
      OpBuilder b(op);
      operand.set(tensor::CastOp::create(b, op.getLoc(), type, operand.get()));
    }
    return WalkResult::advance();
  });
  return failure(walk.wasInterrupted());
}
