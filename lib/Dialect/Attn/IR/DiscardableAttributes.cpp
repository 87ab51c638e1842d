//===- DiscardableAttributes.cpp - Attributes attn.* of other dialects' ops ---===//
//
// Verifies attributes with the prefix of the dialect: those that programs may write on functions, arguments and
// results, and those that passes add. An unknown name is an error, since a misspelt attribute would have no effect.
//
//===----------------------------------------------------------------------===//
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace saccade::attn;

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

/// The attributes of programs, by what has them.
static constexpr StringLiteral ofFunctions[] = {"attn.gradient", "attn.jvp"};
static constexpr StringLiteral ofArguments[] = {"attn.constant", "attn.dim_names", "attn.no_gradient",
                                                "attn.updated_by"};
static constexpr StringLiteral ofResults[] = {"attn.name"};

/// Those of them without a value.
static constexpr StringLiteral units[] = {"attn.constant", "attn.gradient", "attn.jvp", "attn.no_gradient"};

/// The attributes that passes add to functions, arguments and other ops.
static constexpr StringLiteral ofPasses[] = {"attn.entries",        "attn.entry",
                                             "attn.family",         "attn.finite_max",
                                             "attn.in_bounds",      "attn.bulk_kernel",
                                             "attn.few_items",      "attn.parts",
                                             "attn.bulk_obstacle",  "attn.bulk_condition",
                                             "attn.equal_extents",  "attn.item_counter",
                                             "attn.tensor_maps",    "attn.mapped_constants",
                                             "attn.threads",        "attn.kernel",
                                             "attn.messages",       "attn.own",
                                             "attn.mask_tables",    "attn.per_call",
                                             "attn.prepacks",       "attn.shapes_of",
                                             "attn.stability",      "attn.per_thread_store",
                                             "attn.gradient_pairs", "attn.register_obstacle",
                                             "attn.shared_bytes",   "attn.stage",
                                             "attn.target",         "attn.task",
                                             "attn.tile_matmul",    "attn.tiled_from"};

/// Verifies the name and the kind of an attribute. `what` has it; `expected` are the names that programs may write
/// there.
static LogicalResult verifyName(Operation *op, const Twine &what, NamedAttribute attribute,
                                ArrayRef<StringLiteral> expected) {
  StringRef name = attribute.getName();
  if (llvm::is_contained(ofPasses, name))
    return success();
  if (llvm::is_contained(expected, name)) {
    if (llvm::is_contained(units, name) && !isa<UnitAttr>(attribute.getValue()))
      return op->emitError() << what << " has '" << name << "' with the value " << attribute.getValue()
                             << ", expected no value";
    return success();
  }
  for (auto [names, owner] : {std::pair(ArrayRef(ofFunctions), "a function"),
                              {ArrayRef(ofArguments), "an argument"},
                              {ArrayRef(ofResults), "a result"}})
    if (llvm::is_contained(names, name))
      return op->emitError() << what << " has the attribute '" << name << "', which is one of " << owner;
  InFlightDiagnostic error = op->emitError() << what << " has the unknown attribute '" << name << "'";
  const auto *nearest = llvm::min_element(
      expected, [&](StringRef a, StringRef b) { return name.edit_distance(a) < name.edit_distance(b); });
  if (nearest != expected.end() && name.edit_distance(*nearest) <= 3)
    return error << ", did you mean '" << *nearest << "'?";
  if (!expected.empty())
    error << ", expected " << (expected.size() > 1 ? "one of " : "");
  llvm::interleaveComma(expected, error, [&](StringRef each) { error << "'" << each << "'"; });
  return error;
}

LogicalResult AttnDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  if (auto function = dyn_cast<FunctionOpInterface>(op))
    return verifyName(op, "'" + function.getName() + "'", attribute, ofFunctions);
  return verifyName(op, "the op", attribute, {});
}

//===----------------------------------------------------------------------===//
// Arguments that are updated in place
//===----------------------------------------------------------------------===//

SmallVector<std::optional<unsigned>> saccade::attn::getUpdatingResults(FunctionOpInterface function) {
  SmallVector<std::optional<unsigned>> results(function.getNumArguments());
  for (auto [i, result] : llvm::enumerate(results))
    if (auto number = function.getArgAttrOfType<IntegerAttr>(i, updatedByAttr))
      result = number.getInt();
  return results;
}

static LogicalResult verifyUpdatedBy(FunctionOpInterface op, unsigned argument, NamedAttribute attribute) {
  auto emitError = [&] {
    return op->emitError() << "argument " << argument << " of '" << op.getName() << "' has '" << updatedByAttr << "' ";
  };
  auto number = dyn_cast<IntegerAttr>(attribute.getValue());
  if (!number || number.getValue().isNegative() || number.getValue().uge(op.getNumResults()))
    return emitError() << "of " << attribute.getValue() << ", expected the number of a result, less than "
                       << op.getNumResults();
  Type type = op.getArgumentTypes()[argument], result = op.getResultTypes()[number.getInt()];
  if (!isa<RankedTensorType>(type) || type != result)
    return emitError() << "and type " << type << ", expected a tensor of the type of result " << number.getInt() << ", "
                       << result;
  if (op.getArgAttr(argument, "attn.constant"))
    return emitError() << "and 'attn.constant', expected one of them";
  for (auto [other, same] : llvm::enumerate(getUpdatingResults(op)))
    if (other < argument && same == number.getInt())
      return emitError() << "of " << number.getInt() << ", as argument " << other
                         << " has, expected another result: a result updates one argument";
  return success();
}

//===----------------------------------------------------------------------===//
// Arguments and results
//===----------------------------------------------------------------------===//

LogicalResult AttnDialect::verifyRegionArgAttribute(Operation *op, unsigned, unsigned argument,
                                                    NamedAttribute attribute) {
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (!function)
    return success();
  std::string what = ("argument " + Twine(argument) + " of '" + function.getName() + "'").str();
  if (failed(verifyName(op, what, attribute, ofArguments)))
    return failure();
  return attribute.getName() == updatedByAttr ? verifyUpdatedBy(function, argument, attribute) : success();
}

LogicalResult AttnDialect::verifyRegionResultAttribute(Operation *op, unsigned, unsigned result,
                                                       NamedAttribute attribute) {
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (!function)
    return success();
  std::string what = ("result " + Twine(result) + " of '" + function.getName() + "'").str();
  return verifyName(op, what, attribute, ofResults);
}
