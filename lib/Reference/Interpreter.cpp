//===- Interpreter.cpp - Entry points of the float64 reference --------------------===//
#include "saccade/Reference/Interpreter.h"
#include "Frame.h"
#include "Magnitude.h"
#include "NonFinite.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/SymbolTable.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include <random>

using namespace mlir;
using namespace saccade;
using namespace saccade::reference;

//===----------------------------------------------------------------------===//
// Supported programs
//===----------------------------------------------------------------------===//

namespace {

/// Checks `function` and its callees before evaluation.
class SupportChecker {
public:
  LogicalResult check(func::FuncOp function) {
    if (!checked.insert(function).second)
      return success();
    if (function.isExternal())
      return function.emitOpError() << "has no body, so the reference interpreter cannot evaluate it";
    open.insert(function);
    WalkResult walk = function.getBody().walk<WalkOrder::PreOrder>(
        [&](Operation *op) { return failed(check(op)) ? WalkResult::interrupt() : WalkResult::advance(); });
    open.erase(function);
    if (walk.wasInterrupted())
      return failure();
    if (!function.getBody().hasOneBlock())
      return function.emitOpError() << "has " << function.getBody().getBlocks().size()
                                    << " blocks, but the reference interpreter supports structured control flow only";
    return success();
  }

private:
  LogicalResult check(Operation *op) {
    for (Type type :
         llvm::concat<const Type>(SmallVector<Type>(op->getOperandTypes()), SmallVector<Type>(op->getResultTypes())))
      if (isa<ShapedType>(type) && !isa<RankedTensorType>(type))
        return op->emitOpError() << "has a value of type " << type
                                 << ", but the reference interpreter supports ranked tensors and scalars only";
    if (auto call = dyn_cast<func::CallOp>(op))
      return check(call);
    if (isa<func::ReturnOp, scf::YieldOp, linalg::YieldOp, tensor::YieldOp, attn::YieldOp, linalg::IndexOp,
            attn::LengthOp>(op))
      return success();
    if (!semanticsOf(op))
      return op->emitOpError() << "is not supported by the reference interpreter";
    return success();
  }

  LogicalResult check(func::CallOp call) {
    auto callee = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(call, call.getCalleeAttr());
    if (!callee)
      return call.emitOpError() << "calls '" << call.getCallee() << "', which is not a function";
    if (open.contains(callee))
      return call.emitOpError() << "calls '" << call.getCallee()
                                << "', which is recursive; the reference interpreter does not support recursion";
    return check(callee);
  }

  llvm::SmallPtrSet<Operation *, 4> checked, open;
};

} // namespace

/// Checks that `argument` has type `type`.
static LogicalResult checkArgument(func::FuncOp function, unsigned number, Type type, const Tensor &argument) {
  auto tensorType = dyn_cast<RankedTensorType>(type);
  ArrayRef<int64_t> declared = tensorType ? tensorType.getShape() : ArrayRef<int64_t>();
  bool fits = getElementTypeOrSelf(type) == argument.elementType && declared.size() == argument.shape.size();
  if (fits)
    for (auto [expected, extent] : llvm::zip_equal(declared, argument.shape))
      fits &= ShapedType::isDynamic(expected) || expected == extent;
  assert(argument.size() == Box::whole(argument.shape).size() && "number of values does not match the shape");
  if (fits)
    return success();
  InFlightDiagnostic diagnostic = function.emitOpError() << "argument " << number << " is ";
  for (int64_t extent : argument.shape)
    diagnostic << extent << 'x';
  return diagnostic << argument.elementType << ", expected " << type;
}

//===----------------------------------------------------------------------===//
// Evaluation
//===----------------------------------------------------------------------===//

struct Evaluation::State {
  State(func::FuncOp function, Precision precision) : function(function), frame(function.getBody(), precision) {}

  Value returned(unsigned result) { return function.getBody().front().getTerminator()->getOperand(result); }
  /// The attention op that defines result number `result`, or null.
  attn::AttentionOp attention(unsigned result) { return returned(result).getDefiningOp<attn::AttentionOp>(); }

  func::FuncOp function;
  Frame frame;
};

Evaluation::Evaluation(std::unique_ptr<State> state) : state(std::move(state)) {}
Evaluation::Evaluation(Evaluation &&) noexcept = default;
Evaluation &Evaluation::operator=(Evaluation &&) noexcept = default;
Evaluation::~Evaluation() = default;

FailureOr<Evaluation> Evaluation::begin(func::FuncOp function, ArrayRef<Tensor> arguments, Precision precision) {
  if (failed(SupportChecker().check(function)))
    return failure();
  if (arguments.size() != function.getNumArguments())
    return function.emitOpError() << "found " << arguments.size() << " arguments, expected "
                                  << function.getNumArguments();
  auto state = std::make_unique<State>(function, precision);
  for (auto [argument, tensor] : llvm::zip_equal(function.getArguments(), arguments)) {
    if (failed(checkArgument(function, argument.getArgNumber(), argument.getType(), tensor)))
      return failure();
    state->frame.bind(argument, Cells::ofTensor(tensor));
  }
  return Evaluation(std::move(state));
}

unsigned Evaluation::numResults() const { return state->function.getNumResults(); }

FailureOr<SmallVector<int64_t>> Evaluation::shape(unsigned result) {
  FailureOr<Cells *> cells = state->frame.cells(state->returned(result));
  if (failed(cells))
    return failure();
  return SmallVector<int64_t>((*cells)->getShape());
}

FailureOr<Tensor> Evaluation::evaluate(unsigned result) {
  FailureOr<Cells *> cells = state->frame.demandAll(state->returned(result));
  if (failed(cells))
    return failure();
  Tensor tensor((*cells)->getElementType(), (*cells)->getShape());
  std::copy_n((*cells)->data(), tensor.size(), tensor.values.begin());
  return tensor;
}

FailureOr<Tensor> Evaluation::evaluate(unsigned result, ArrayRef<Box> boxes) {
  FailureOr<Cells *> cells = state->frame.cells(state->returned(result));
  if (failed(cells))
    return failure();
  Tensor gathered((*cells)->getElementType(), {0});
  for (const Box &box : boxes) {
    if (failed(state->frame.demand(state->returned(result), box)))
      return failure();
    forEachRow(box, (*cells)->getStrides(), [&](int64_t first, int64_t length) {
      const Scalar *row = (*cells)->data() + first;
      gathered.values.insert(gathered.values.end(), row, row + length);
    });
  }
  gathered.shape[0] = gathered.values.size();
  return gathered;
}

/// Up to `count` of `total` rows in four clusters: at the start, at the end, and two at random.
static SmallVector<int64_t> chooseRows(int64_t total, int64_t count, uint64_t seed) {
  SmallVector<int64_t> rows;
  if (total <= count) {
    rows.resize(total);
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
  }
  std::mt19937_64 random(seed);
  constexpr int64_t clusters = 4;
  int64_t each = std::max<int64_t>(count / clusters, 1);
  SmallVector<int64_t> starts{0, total - each};
  while (starts.size() < clusters)
    starts.push_back(random() % (total - each + 1));
  for (int64_t start : starts)
    for (int64_t row = start; row < start + each; ++row)
      rows.push_back(row);
  llvm::sort(rows);
  rows.erase(llvm::unique(rows), rows.end());
  rows.truncate(std::min<int64_t>(rows.size(), count));
  return rows;
}

/// The dimension along which a row lies, or -1 if every element is a row.
int64_t Evaluation::rowDimension(unsigned result, int64_t rank) {
  attn::AttentionOp attention = state->attention(result);
  if (!attention)
    return rank - 1;
  return state->returned(result) == attention.getOutput()
             ? int64_t(*attention.getOutputDims().position(attn::Dim::Depth))
             : -1;
}

FailureOr<std::vector<int64_t>> Evaluation::rowNumbers(unsigned result, ArrayRef<Box> boxes) {
  FailureOr<SmallVector<int64_t>> extents = shape(result);
  if (failed(extents))
    return failure();
  SmallVector<int64_t> strides = rowMajorStrides(*extents);
  if (int64_t rowDim = rowDimension(result, strides.size()); rowDim >= 0)
    strides[rowDim] = 0;
  std::vector<int64_t> rows;
  for (const Box &box : boxes)
    for (int64_t i = 0, size = box.size(); i < size; ++i)
      rows.push_back(linearIndex(positionInTensor({box}, i), strides));
  return rows;
}

FailureOr<SmallVector<Box>> Evaluation::sampleRows(unsigned result, int64_t rows, uint64_t seed) {
  FailureOr<SmallVector<int64_t>> extents = shape(result);
  if (failed(extents))
    return failure();
  int64_t rank = extents->size(), rowDim = rowDimension(result, rank);
  // Rows are numbered over the other dimensions, in row-major order.
  SmallVector<int64_t> counted(*extents);
  if (rowDim >= 0)
    counted[rowDim] = 1;
  Box all = Box::whole(counted);
  SmallVector<Box> boxes;
  for (int64_t row : chooseRows(all.size(), rows, seed)) {
    Box box{positionInTensor({all}, row), SmallVector<int64_t>(rank, 1)};
    if (rowDim >= 0)
      box.sizes[rowDim] = (*extents)[rowDim];
    boxes.push_back(box);
  }
  return boxes;
}

FailureOr<std::optional<Magnitude>> Evaluation::magnitude(unsigned result, ArrayRef<Box> boxes) {
  assert(!state->frame.isRounded() && "magnitudes require Precision::Exact");
  attn::AttentionOp attention = state->attention(result);
  if (!attention || state->returned(result) != attention.getOutput())
    return std::optional<Magnitude>();
  FailureOr<Magnitude> magnitude = magnitudeOf(attention, state->frame, boxes);
  if (failed(magnitude))
    return failure();
  return std::optional<Magnitude>(std::move(*magnitude));
}

FailureOr<std::optional<Tensor>> Evaluation::scoreRounding(unsigned result, ArrayRef<Box> boxes) {
  assert(!state->frame.isRounded() && "magnitudes require Precision::Exact");
  attn::AttentionOp attention = state->attention(result);
  if (!attention)
    return std::optional<Tensor>();
  return scoreRoundingOf(attention, state->returned(result), state->frame, boxes);
}

FailureOr<std::optional<Tensor>> Evaluation::scoreOverflow(unsigned result, ArrayRef<Box> boxes) {
  assert(!state->frame.isRounded() && "scores require Precision::Exact");
  attn::AttentionOp attention = state->attention(result);
  if (!attention)
    return std::optional<Tensor>();
  return scoreOverflowOf(attention, state->returned(result), state->frame, boxes);
}

std::optional<Origin> Evaluation::firstNonFinite(bool isNaN) {
  if (std::optional<Origin> origin = originOf(state->frame, isNaN))
    return origin;
  for (BlockArgument argument : state->function.getArguments())
    if (hasNonFinite(state->frame.computed(argument), isNaN))
      return Origin{argument.getLoc(), "argument #" + std::to_string(argument.getArgNumber()), true};
  return std::nullopt;
}

FailureOr<std::optional<Tensor>> Evaluation::gradientTerms(unsigned result, ArrayRef<Box> boxes) {
  assert(!state->frame.isRounded() && "magnitudes require Precision::Exact");
  Value returned = state->returned(result);
  auto gradient = returned.getDefiningOp<attn::GradientOp>();
  if (!gradient || (returned != gradient.getQueryGradient() && returned != gradient.getKeyGradient()))
    return std::optional<Tensor>();
  FailureOr<Tensor> terms = gradientTermsOf(gradient, returned, state->frame);
  if (failed(terms))
    return failure();
  return std::optional<Tensor>(gather(*terms, boxes));
}

FailureOr<SmallVector<Tensor>> saccade::reference::interpret(func::FuncOp function, ArrayRef<Tensor> arguments,
                                                             Precision precision) {
  FailureOr<Evaluation> evaluation = Evaluation::begin(function, arguments, precision);
  if (failed(evaluation))
    return failure();
  SmallVector<Tensor> results;
  for (unsigned result = 0; result < evaluation->numResults(); ++result) {
    FailureOr<Tensor> tensor = evaluation->evaluate(result);
    if (failed(tensor))
      return failure();
    results.push_back(std::move(*tensor));
  }
  return results;
}
