//===- Linalg.cpp - Structured linalg ops and linalg.softmax ----------------------===//
//
// Evaluates linalg ops, named or generic, through LinalgOp: a loop nest, one indexing map per operand and a scalar
// body. Contractions have a fast path with bitwise equal results.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "Kernels.h"
#include "Program.h"
#include "Scoring.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::reference;

namespace {

/// Maps loop indices to an element of an operand: strides · loops + start for a linear map, else by evaluating the map.
struct Access {
  Cells *cells;
  AffineMap map;
  bool isLinear = true;
  int64_t start = 0;
  SmallVector<int64_t> strides;

  Access(Cells *cells, AffineMap map) : cells(cells), map(map), strides(map.getNumDims(), 0) {
    for (auto [expr, stride] : llvm::zip_equal(map.getResults(), cells->getStrides())) {
      SmallVector<int64_t> zeros(map.getNumDims(), 0);
      if (!expr.isPureAffine() || !isSum(expr)) {
        isLinear = false;
        return;
      }
      start += stride * evaluateAffine(expr, zeros);
      for (unsigned loop = 0; loop < map.getNumDims(); ++loop) {
        SmallVector<int64_t> unit(zeros);
        unit[loop] = 1;
        strides[loop] += stride * (evaluateAffine(expr, unit) - evaluateAffine(expr, zeros));
      }
    }
  }

  int64_t position(ArrayRef<int64_t> loops) const {
    if (isLinear)
      return start + linearIndex(loops, strides);
    SmallVector<int64_t> index;
    for (AffineExpr expr : map.getResults())
      index.push_back(evaluateAffine(expr, loops));
    return linearIndex(index, cells->getStrides());
  }

private:
  /// Whether `expr` has no division or remainder, and is therefore linear.
  static bool isSum(AffineExpr expr) {
    auto both = dyn_cast<AffineBinaryOpExpr>(expr);
    if (!both)
      return true;
    return (both.getKind() == AffineExprKind::Add || both.getKind() == AffineExprKind::Mul) && isSum(both.getLHS()) &&
           isSum(both.getRHS());
  }
};

/// Minimum and maximum of `expr` over `loops`; exact for sums of loop indices, else conservative.
std::pair<int64_t, int64_t> rangeOf(AffineExpr expr, const Box &loops) {
  if (auto dim = dyn_cast<AffineDimExpr>(expr)) {
    int64_t first = loops.offsets[dim.getPosition()];
    return {first, first + loops.sizes[dim.getPosition()] - 1};
  }
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return {constant.getValue(), constant.getValue()};
  auto both = cast<AffineBinaryOpExpr>(expr);
  auto [low, high] = rangeOf(both.getLHS(), loops);
  auto [otherLow, otherHigh] = rangeOf(both.getRHS(), loops);
  if (both.getKind() == AffineExprKind::Add)
    return {low + otherLow, high + otherHigh};
  if (both.getKind() == AffineExprKind::Mod)
    return {0, otherHigh - 1};
  // Multiplication and division by a constant are monotone.
  AffineExpr lhs = getAffineDimExpr(0, expr.getContext());
  AffineExpr ofBound = getAffineBinaryOpExpr(both.getKind(), lhs, both.getRHS());
  int64_t a = evaluateAffine(ofBound, {low}), b = evaluateAffine(ofBound, {high});
  return {std::min(a, b), std::max(a, b)};
}

/// One evaluation of a structured op.
class StructuredOp {
public:
  StructuredOp(linalg::LinalgOp op, Frame &frame) : op(op), frame(frame), maps(op.getIndexingMapsArray()) {}

  LogicalResult evaluate(unsigned result, const Box &box);

private:
  LogicalResult findExtents();
  void chooseLoops(unsigned result, const Box &box);
  bool runsReversed(unsigned loop);
  Box imageOf(AffineMap map, ArrayRef<int64_t> shape) const;
  bool readsOut(OpOperand *init);
  LogicalResult checkBounds(OpOperand &operand);
  LogicalResult demandOperands();
  bool isFloatContraction();
  void runContraction();
  LogicalResult runBody();

  linalg::LinalgOp op;
  Frame &frame;
  SmallVector<AffineMap> maps;
  SmallVector<int64_t> extents;
  Box loops;
  SmallVector<Access> accesses; ///< inputs, then results
};

/// Infers loop extents from the shapes of the operands, which must agree.
LogicalResult StructuredOp::findExtents() {
  extents.assign(op.getNumLoops(), -1);
  for (OpOperand &operand : op->getOpOperands()) {
    FailureOr<Cells *> cells = frame.cells(operand.get());
    if (failed(cells))
      return failure();
    for (auto [expr, extent] : llvm::zip_equal(maps[operand.getOperandNumber()].getResults(), (*cells)->getShape())) {
      auto loop = dyn_cast<AffineDimExpr>(expr);
      if (!loop)
        continue;
      int64_t &known = extents[loop.getPosition()];
      if (known >= 0 && known != extent)
        return op->emitOpError() << "has operands that disagree on loop " << loop.getPosition() << ": " << known
                                 << " and " << extent;
      known = extent;
    }
  }
  for (auto [loop, extent] : llvm::enumerate(extents))
    if (extent < 0)
      return op->emitOpError() << "has loop " << loop << " whose extent no operand determines, which the reference "
                               << "interpreter does not support";
  return success();
}

/// Restricts the parallel loops that index every result to the box; all other loops run in full.
void StructuredOp::chooseLoops(unsigned result, const Box &box) {
  loops = Box::whole(extents);
  SmallVector<utils::IteratorType> kinds = op.getIteratorTypesArray();
  AffineMap expected = op.getIndexingMapMatchingResult(op->getResult(result));
  for (auto [dim, expr] : llvm::enumerate(expected.getResults())) {
    auto loop = dyn_cast<AffineDimExpr>(expr);
    if (!loop || kinds[loop.getPosition()] != utils::IteratorType::parallel)
      continue;
    bool everywhere = llvm::all_of(op->getResults(), [&](OpResult other) {
      AffineMap map = op.getIndexingMapMatchingResult(other);
      return map.isProjectedPermutation() && map.getResultPosition(loop).has_value();
    });
    if (everywhere) {
      loops.offsets[loop.getPosition()] = box.offsets[dim];
      loops.sizes[loop.getPosition()] = box.sizes[dim];
    }
  }
}

/// Only reductions to floats are reversed. The order of others, such as an argmax, can determine the result.
bool StructuredOp::runsReversed(unsigned loop) {
  return frame.isReversed() && op.getIteratorTypesArray()[loop] == utils::IteratorType::reduction &&
         llvm::all_of(op.getDpsInits(), [](Value init) { return isa<FloatType>(getElementTypeOrSelf(init)); });
}

Box StructuredOp::imageOf(AffineMap map, ArrayRef<int64_t> shape) const {
  Box image = Box::whole(shape);
  if (loops.size() == 0)
    return image;
  for (auto [dim, expr] : llvm::enumerate(map.getResults())) {
    auto [low, high] = rangeOf(expr, loops);
    low = std::max<int64_t>(low, 0);
    image.offsets[dim] = low;
    image.sizes[dim] = std::min(high, shape[dim] - 1) - low + 1;
  }
  return image;
}

/// Whether the result can depend on the contents of `init`.
bool StructuredOp::readsOut(OpOperand *init) {
  unsigned number = init->getOperandNumber();
  Block *block = op.getBlock();
  bool isRead = number < block->getNumArguments() && !block->getArgument(number).use_empty();
  return isRead || loops.size() == 0 || !maps[number].isProjectedPermutation();
}

/// Maps such as (i, j) -> (i + j) do not determine an extent, so the latest access, that of `operand`, is checked.
LogicalResult StructuredOp::checkBounds(OpOperand &operand) {
  const Access &access = accesses.back();
  ArrayRef<int64_t> shape = access.cells->getShape();
  std::optional<unsigned> beyond;
  auto check = [&](unsigned dim, int64_t low, int64_t high) {
    if (low < 0 || high >= shape[dim])
      beyond = dim;
  };
  for (auto [dim, expr] : llvm::enumerate(access.map.getResults())) {
    if (loops.size() == 0 || isa<AffineDimExpr>(expr))
      continue;
    auto [low, high] = rangeOf(expr, loops);
    if (access.isLinear)
      check(dim, low, high);
    else if (low < 0 || high >= shape[dim]) // The range may be too large.
      forEachPoint(loops, [&](ArrayRef<int64_t> point) {
        int64_t index = evaluateAffine(expr, point);
        check(dim, index, index);
      });
  }
  if (beyond)
    return op->emitOpError() << "accesses elements beyond dimension " << *beyond << " of operand "
                             << operand.getOperandNumber();
  return success();
}

/// Computes the elements of the operands that the loops access, and initialises the results from the inits.
LogicalResult StructuredOp::demandOperands() {
  for (OpOperand *input : op.getDpsInputOperands()) {
    AffineMap map = maps[input->getOperandNumber()];
    FailureOr<Cells *> cells = frame.cells(input->get());
    if (failed(cells) || (loops.size() && failed(frame.demand(input->get(), imageOf(map, (*cells)->getShape())))))
      return failure();
    accesses.emplace_back(*cells, map);
    if (failed(checkBounds(*input)))
      return failure();
  }
  for (OpOperand &init : op.getDpsInitsMutable()) {
    AffineMap map = maps[init.getOperandNumber()];
    FailureOr<Cells *> result = frame.cells(op.getTiedOpResult(&init));
    if (failed(result))
      return failure();
    accesses.emplace_back(*result, map);
    if (failed(checkBounds(init)))
      return failure();
    Box box = map.isProjectedPermutation() ? imageOf(map, (*result)->getShape()) : Box::whole((*result)->getShape());
    if (readsOut(&init)) {
      FailureOr<Cells *> from = frame.demand(init.get(), box);
      if (failed(from))
        return failure();
      forEachRow(box, (*result)->getStrides(), [&](int64_t first, int64_t length) {
        std::copy_n((*from)->data() + first, length, (*result)->data() + first);
      });
    }
  }
  return success();
}

/// out + a · b on floats, with no other ops than extensions.
bool StructuredOp::isFloatContraction() {
  if (!linalg::isaContractionOpInterface(op))
    return false;
  return llvm::all_of(op.getBlock()->getOperations(), [](Operation &inner) {
    return isa<arith::MulFOp, arith::AddFOp, arith::ExtFOp, linalg::YieldOp>(inner);
  });
}

/// Computes the same sums as the body, in the same order; 16-bit results are accumulated in f32 and rounded once.
void StructuredOp::runContraction() {
  std::vector<ContractionLoop> nest;
  Access &out = accesses[2];
  SmallVector<utils::IteratorType> kinds = op.getIteratorTypesArray();
  SmallVector<int64_t> start(loops.offsets);
  for (int64_t loop = 0; loop < loops.rank(); ++loop) {
    int64_t step = 1;
    if (runsReversed(loop)) {
      step = -1;
      start[loop] += loops.sizes[loop] - 1;
    }
    nest.push_back({loops.sizes[loop], step * accesses[0].strides[loop], step * accesses[1].strides[loop],
                    step * out.strides[loop], kinds[loop] == utils::IteratorType::reduction});
  }
  const double *lhs = accesses[0].cells->reals() + accesses[0].position(start);
  const double *rhs = accesses[1].cells->reals() + accesses[1].position(start);
  double *sums = out.cells->reals() + out.position(loops.offsets);
  Type type = out.cells->getElementType();
  if (!frame.isRounded() || type.isF64())
    return contract<double>(nest, lhs, rhs, sums);
  contract<float>(nest, lhs, rhs, sums);
  if (type.isF32())
    return;
  forEachRow(imageOf(out.map, out.cells->getShape()), out.cells->getStrides(), [&](int64_t first, int64_t length) {
    for (double *sum = out.cells->reals() + first, *end = sum + length; sum != end; ++sum)
      *sum = roundTo(type, *sum);
  });
}

/// Runs the body at every point of the loops.
LogicalResult StructuredOp::runBody() {
  FailureOr<Program *> body = bindProgram(op->getRegion(0), frame);
  if (failed(body))
    return failure();
  unsigned numInputs = op.getNumDpsInputs(), numArguments = op.getBlock()->getNumArguments();
  SmallVector<unsigned> reversed;
  for (unsigned loop = 0; loop < op.getNumLoops(); ++loop)
    if (runsReversed(loop))
      reversed.push_back(loop);
  LogicalResult status = success();
  forEachPoint(loops, [&](ArrayRef<int64_t> index) {
    if (failed(status))
      return;
    SmallVector<int64_t, 8> point(index);
    for (unsigned loop : reversed)
      point[loop] = 2 * loops.offsets[loop] + loops.sizes[loop] - 1 - point[loop];
    SmallVector<Scalar *, 4> elements;
    for (const Access &access : accesses)
      elements.push_back(access.cells->data() + access.position(point));
    for (unsigned argument = 0; argument < numArguments; ++argument)
      (*body)->setArgument(argument, *elements[argument]);
    for (auto [loop, position] : llvm::enumerate(point))
      (*body)->setLoopIndex(loop, position);
    status = (*body)->run();
    for (unsigned out = 0; out < op.getNumDpsInits(); ++out)
      *elements[numInputs + out] = (*body)->yielded(out);
  });
  return status;
}

LogicalResult StructuredOp::evaluate(unsigned result, const Box &box) {
  if (failed(findExtents()))
    return failure();
  chooseLoops(result, box);
  if (failed(demandOperands()))
    return failure();
  if (loops.size()) {
    if (isFloatContraction())
      runContraction();
    else if (failed(runBody()))
      return failure();
  }
  // All results are computed, not only the requested one.
  for (const Access &access : ArrayRef(accesses).drop_front(op.getNumDpsInputs()))
    access.cells->setKnown(access.map.isProjectedPermutation() ? imageOf(access.map, access.cells->getShape())
                                                               : Box::whole(access.cells->getShape()));
  return success();
}

} // namespace

/// The shape of a result is that of its init.
static LogicalResult shapeOfInit(Operation *op, Frame &frame, unsigned result, Shape &shape) {
  FailureOr<Cells *> init = frame.cells(cast<DestinationStyleOpInterface>(op).getDpsInitOperand(result)->get());
  if (failed(init))
    return failure();
  shape.assign((*init)->getShape().begin(), (*init)->getShape().end());
  return success();
}

const Semantics &saccade::reference::linalgSemantics() {
  static const Semantics semantics = {shapeOfInit, [](Operation *op, Frame &frame, unsigned result, const Box &box) {
                                        return StructuredOp(cast<linalg::LinalgOp>(op), frame).evaluate(result, box);
                                      }};
  return semantics;
}

//===----------------------------------------------------------------------===//
// linalg.softmax
//===----------------------------------------------------------------------===//

static LogicalResult evaluateSoftmax(linalg::SoftmaxOp op, Frame &frame, unsigned, const Box &box) {
  FailureOr<Cells *> to = frame.cells(op->getResult(0));
  if (failed(to))
    return failure();
  int64_t dim = op.getDimension(), count = (*to)->getShape()[dim], stride = (*to)->getStrides()[dim];
  Box lines = box;
  lines.offsets[dim] = 0;
  lines.sizes[dim] = count;
  FailureOr<Cells *> from = frame.demand(op.getInput(), lines);
  if (failed(from))
    return failure();
  if ((*from)->getShape() != (*to)->getShape())
    return op.emitOpError() << "has input and output of different shapes";
  Type type = (*to)->getElementType();
  Type sumType = attn::getScoreType(type);
  Box starts = lines;
  starts.sizes[dim] = 1;
  forEachRow(starts, (*to)->getStrides(), [&](int64_t first, int64_t length) {
    for (int64_t start = first; start < first + length; ++start) {
      const double *in = (*from)->reals() + start;
      double *out = (*to)->reals() + start;
      double max = -INFINITY, sum = 0;
      for (int64_t i = 0; i < count; ++i)
        max = maxOrNaN(max, in[i * stride]);
      for (int64_t i = 0; i < count; ++i) {
        double difference = frame.rounded(sumType, in[i * stride] - max);
        out[i * stride] = frame.rounded(sumType, std::exp(difference));
      }
      for (int64_t i = 0; i < count; ++i)
        sum = frame.rounded(sumType, sum + out[frame.term(i, count) * stride]);
      for (int64_t i = 0; i < count; ++i)
        out[i * stride] = frame.rounded(type, out[i * stride] / sum);
    }
  });
  (*to)->setKnown(lines);
  return success();
}

void saccade::reference::addSoftmaxSemantics(SemanticsTable &table) {
  table.add<linalg::SoftmaxOp>([](linalg::SoftmaxOp op, Frame &frame, unsigned result,
                                  Shape &shape) { return shapeOfInit(op, frame, result, shape); },
                               evaluateSoftmax);
}
