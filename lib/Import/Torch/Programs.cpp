//===- Programs.cpp - The operators saccade::attention ----------------------===//
//
// A graph that was traced with `saccade.attention`, or with the functions of `saccade.torch` for caches, contains the
// operator with its program as text. The body of the program's function, an attn.attention with its regions, takes the
// place of the op. Caches that the operator updates are further results.
//
//===----------------------------------------------------------------------===//
#include "Torch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Parser/Parser.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::torch;

namespace {

/// The arguments of the operator that the function of the program has not taken yet.
struct Given {
  ArrayRef<Value> tensors, caches;
  ArrayRef<OpFoldResult> integers;
  ArrayRef<Attribute> floats;
};

} // namespace

/// The next value of `given` for an argument of the function; null if there is none of this type.
static Value takeArgument(ImplicitLocOpBuilder &b, Given &given, Type type, bool isUpdated) {
  if (isa<RankedTensorType>(type)) {
    ArrayRef<Value> &list = isUpdated ? given.caches : given.tensors;
    if (list.empty() || !tensor::CastOp::areCastCompatible(list.front().getType(), type))
      return nullptr;
    Value tensor = list.consume_front();
    return tensor.getType() == type ? tensor : tensor::CastOp::create(b, type, tensor);
  }
  if (auto real = dyn_cast<FloatType>(type)) {
    auto number = given.floats.empty() ? nullptr : dyn_cast<FloatAttr>(given.floats.consume_front());
    return number ? arith::ConstantOp::create(b, b.getFloatAttr(real, number.getValueAsDouble())) : Value();
  }
  if (given.integers.empty() || !type.isIntOrIndex())
    return nullptr;
  Value number = getValueOrCreateConstantIndexOp(b, b.getLoc(), given.integers.consume_front());
  return type.isIndex() ? number : arith::IndexCastOp::create(b, type, number);
}

/// The result with the extents that the types of the query and the result show.
static Value refine(ImplicitLocOpBuilder &b, Value result, bool isOutput, RankedTensorType query, StringRef layout) {
  auto type = cast<RankedTensorType>(result.getType());
  SmallVector<int64_t> shape;
  if (isOutput)
    shape.assign(query.getShape().begin(), query.getShape().end());
  else
    for (char dim : StringRef("bhs"))
      if (size_t axis = layout.find(dim); axis != StringRef::npos && axis < static_cast<size_t>(query.getRank()))
        shape.push_back(query.getDimSize(axis));
  if (shape.size() != static_cast<size_t>(type.getRank()))
    return result;
  for (auto [extent, known] : llvm::zip_equal(shape, type.getShape()))
    if (!ShapedType::isDynamic(known))
      extent = known;
  auto refined = type.clone(shape);
  return refined == type ? result : tensor::CastOp::create(b, refined, result);
}

static LogicalResult translateProgram(Arguments &a, Values &results) {
  ImplicitLocOpBuilder &b = a.op.builder();
  SmallVector<Value> tensors = a.list("tensors"), caches = a.list("caches");
  FailureOr<std::optional<Extents>> integers = a.sizes("integers");
  auto floats = dyn_cast_or_null<ArrayAttr>(a.attribute("floats"));
  StringRef layout = a.text("layout", "bhsd");
  (void)a.text("target", "host"); // the whole graph has one
  if (failed(integers))
    return failure();
  std::string program = a.text("program", "").str(); // the parser reads a terminating 0
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(program, b.getContext());
  auto functions = module ? llvm::to_vector(module->getOps<func::FuncOp>()) : SmallVector<func::FuncOp>();
  if (functions.size() != 1 || !functions[0].getBody().hasOneBlock() || tensors.empty() ||
      llvm::is_contained(tensors, Value()) || llvm::is_contained(caches, Value()))
    return a.op.error() << "the program has " << functions.size() << " functions, expected 1, or the op no tensors";
  func::FuncOp function = functions[0];
  function.walk([&](Operation *each) { each->setLoc(b.getLoc()); });
  Given given{tensors, caches, *integers ? ArrayRef<OpFoldResult>(**integers) : ArrayRef<OpFoldResult>(),
              floats ? floats.getValue() : ArrayRef<Attribute>()};
  SmallVector<Value> arguments;
  if (function.getNumResults() < caches.size())
    return a.op.error() << "found " << caches.size() << " caches, more than results of the program";
  unsigned numResults = function.getNumResults() - caches.size(); // others update a cache
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes())) {
    bool isUpdated = function.getArgAttr(i, attn::updatedByAttr) != nullptr;
    if (arguments.push_back(takeArgument(b, given, type, isUpdated)); !arguments.back())
      return a.op.error() << "argument " << i << " of the program, " << type << ", is missing or has another type";
  }
  if (!given.tensors.empty() || !given.caches.empty() || !given.integers.empty() || !given.floats.empty())
    return a.op.error() << "found more arguments than those of the program, " << function.getNumArguments();
  SmallVector<Value> found;
  if (failed(a.op.inlineRegion(function.getBody(), arguments, found)))
    return failure();
  for (auto [i, result] : llvm::enumerate(found)) {
    if (i < numResults)
      results.push_back(refine(b, result, i == 0, cast<RankedTensorType>(tensors.front().getType()), layout));
    else if (Type type = caches[i - numResults].getType(); type != result.getType())
      results.push_back(tensor::CastOp::create(b, type, result));
    else
      results.push_back(result);
  }
  return success();
}

void torch::addPrograms(frontend::Frontend &frontend) {
  add(frontend, "saccade.attention", translateProgram);
  add(frontend, "saccade.attention_forward", translateProgram);
  add(frontend, "saccade.attention_update", translateProgram);
  add(frontend, "saccade.append", translateProgram);
}
