//===- Programs.cpp - The operators saccade::attention ----------------------===//
//
// A graph that was traced with `saccade.attention` contains the operator with its program as text. The body of the
// program's function, an attn.attention with its regions, takes the place of the op.
//
//===----------------------------------------------------------------------===//
#include "Torch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Parser/Parser.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::torch;

namespace {

/// The arguments of the operator that the function of the program has not taken yet.
struct Given {
  ArrayRef<Value> tensors;
  ArrayRef<OpFoldResult> integers;
  ArrayRef<Attribute> floats;
};

} // namespace

/// The next value of `given` for an argument of the function; null if there is none of this type.
static Value takeArgument(ImplicitLocOpBuilder &b, Given &given, Type type) {
  if (isa<RankedTensorType>(type)) {
    if (given.tensors.empty() || !tensor::CastOp::areCastCompatible(given.tensors.front().getType(), type))
      return nullptr;
    Value tensor = given.tensors.consume_front();
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
  SmallVector<Value> tensors = a.list("tensors");
  FailureOr<std::optional<Extents>> integers = a.sizes("integers");
  auto floats = dyn_cast_or_null<ArrayAttr>(a.attribute("floats"));
  StringRef layout = a.text("layout", "bhsd");
  (void)a.text("target", "host"); // the whole graph has one
  if (failed(integers))
    return failure();
  std::string program = a.text("program", "").str(); // the parser reads a terminating 0
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(program, b.getContext());
  auto function = module ? module->lookupSymbol<func::FuncOp>("attention") : func::FuncOp();
  if (!function || !function.getBody().hasOneBlock() || tensors.empty() || llvm::is_contained(tensors, Value()))
    return a.op.error() << "the program has no function @attention, or the op no tensors";
  function.walk([&](Operation *each) { each->setLoc(b.getLoc()); });
  Given given{tensors, *integers ? ArrayRef<OpFoldResult>(**integers) : ArrayRef<OpFoldResult>(),
              floats ? floats.getValue() : ArrayRef<Attribute>()};
  SmallVector<Value> arguments;
  for (Type type : function.getArgumentTypes())
    if (arguments.push_back(takeArgument(b, given, type)); !arguments.back())
      return a.op.error() << "argument " << arguments.size() - 1 << " of the program, " << type
                          << ", is missing or has another type";
  if (!given.tensors.empty() || !given.integers.empty() || !given.floats.empty())
    return a.op.error() << "found more arguments than those of the program, " << function.getNumArguments();
  SmallVector<Value> found;
  if (failed(a.op.inlineRegion(function.getBody(), arguments, found)))
    return failure();
  for (auto [i, result] : llvm::enumerate(found))
    results.push_back(refine(b, result, i == 0, cast<RankedTensorType>(tensors.front().getType()), layout));
  return success();
}

void torch::addPrograms(frontend::Frontend &frontend) {
  add(frontend, "saccade.attention", translateProgram);
  add(frontend, "saccade.attention_forward", translateProgram);
}
