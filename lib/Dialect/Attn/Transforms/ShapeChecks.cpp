//===- ShapeChecks.cpp - Run-time comparisons of extents ----------------------===//
//
// The same checks as in the verifiers, for extents that are dynamic.
//
//===----------------------------------------------------------------------===//
#include "ShapeChecks.h"
#include "ScalarRegionEmitter.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace saccade::attn;

ShapeChecks::ShapeChecks(OpBuilder &builder, Location loc, bool mayReadElements, int64_t maxKeys)
    : builder(builder), loc(loc), mayReadElements(mayReadElements), maxKeys(maxKeys) {
  zero = number = found = expected = place = arith::ConstantIndexOp::create(builder, loc, 0);
}

Value ShapeChecks::materialize(OpFoldResult value) { return getValueOrCreateConstantIndexOp(builder, loc, value); }

OpFoldResult ShapeChecks::extent(Value tensor, int64_t dim) { return tensor::getMixedSize(builder, loc, tensor, dim); }

void ShapeChecks::require(Value holds, Value foundExtent, Value expectedExtent, const Twine &message,
                          StringRef relation, Place at) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (current) {
    if (auto place = current->getLoc()->findInstanceOf<FileLineColLoc>())
      os << place.getFilename().getValue() << ':' << place.getLine() << ':' << place.getColumn() << ": ";
    // Imported models have named nodes.
    if (auto node = current->getLoc()->findInstanceOf<NameLoc>())
      os << "node '" << node.getName().getValue() << "': ";
    os << '\'' << current->getName() << "' op ";
  }
  os << message << '\0' << relation << '\0' << at.what;
  messages.push_back(text);
  Value isFirst = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, number, zero);
  Value isTrue = arith::ConstantOp::create(builder, loc, builder.getBoolAttr(true));
  Value isBad = arith::XOrIOp::create(builder, loc, holds, isTrue);
  Value applies = arith::AndIOp::create(builder, loc, isFirst, isBad);
  Value messageNumber = arith::ConstantIndexOp::create(builder, loc, messages.size());
  number = arith::SelectOp::create(builder, loc, applies, messageNumber, number);
  found = arith::SelectOp::create(builder, loc, applies, foundExtent, found);
  expected = arith::SelectOp::create(builder, loc, applies, expectedExtent, expected);
  if (at.number)
    place = arith::SelectOp::create(builder, loc, applies, at.number, place);
}

void ShapeChecks::requireSame(OpFoldResult foundExtent, OpFoldResult expectedExtent, const Twine &message) {
  if (isEqualConstantIntOrValue(foundExtent, expectedExtent))
    return;
  Value lhs = materialize(foundExtent), rhs = materialize(expectedExtent);
  Value holds = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, lhs, rhs);
  require(holds, lhs, rhs, message);
}

void ShapeChecks::addForArguments(func::FuncOp function, ArrayRef<std::string> names) {
  current = nullptr;
  argumentNames.assign(names.begin(), names.end());
  llvm::StringMap<std::pair<BlockArgument, int64_t>> firstOfName;
  for (BlockArgument argument : function.getArguments()) {
    unsigned number = argument.getArgNumber();
    auto extents = function.getArgAttrOfType<ArrayAttr>(number, dimNamesAttr);
    auto type = dyn_cast<RankedTensorType>(argument.getType());
    if (!extents || !type)
      continue;
    for (int64_t dim = 0, e = std::min<int64_t>(type.getRank(), extents.size()); dim < e; ++dim) {
      auto name = dyn_cast<StringAttr>(extents[dim]);
      if (!name || name.empty() || !type.isDynamicDim(dim))
        continue;
      auto [first, isNew] = firstOfName.try_emplace(name, argument, dim);
      if (isNew)
        continue;
      auto [other, otherDim] = first->second;
      requireSame(extent(argument, dim), extent(other, otherDim),
                  "argument '" + names[number] + "' has another extent in dimension " + Twine(dim) +
                      " than argument '" + names[other.getArgNumber()] + "' in dimension " + Twine(otherDim));
    }
  }
}

void ShapeChecks::addForUpdatedArguments(func::FuncOp function, ArrayRef<std::string> names) {
  current = nullptr;
  for (auto [argument, result] : llvm::zip_equal(function.getArguments(), getUpdatingResults(function))) {
    if (!result)
      continue;
    Value returned = function.front().getTerminator()->getOperand(*result);
    for (int64_t dim = 0, e = cast<RankedTensorType>(argument.getType()).getRank(); dim < e; ++dim)
      requireSame(extent(returned, dim), extent(argument, dim),
                  "result " + Twine(*result) + " has another extent in dimension " + Twine(dim) + " than argument '" +
                      names[argument.getArgNumber()] + "', which it updates in place");
  }
}

void ShapeChecks::addFor(Operation *op) {
  current = op;
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](AttentionOp attention) { addForAttention(attention); })
      .Case([&](GradientOp gradient) { addForGradient(gradient); })
      .Case([&](JvpOp jvp) { addForJvp(jvp); })
      .Case([&](WeightsOp weights) { addForWeights(weights); })
      .Case([&](LinearOp linear) { addForLinear(linear); })
      .Case([&](LinearGradientOp linear) { addForLinearGradient(linear); })
      .Case([&](PagedOp paged) { addForPages(paged); })
      .Case([&](AppendOp append) { addForAppend(append); })
      .Case([&](linalg::LinalgOp structured) { addForStructured(structured); })
      .Case([&](tensor::CastOp cast) { addForCast(cast); })
      .Case([&](tensor::ExpandShapeOp expand) { addForExpand(expand); })
      .Case([&](tensor::ExtractSliceOp slice) {
        addForSlice(cast<OffsetSizeAndStrideOpInterface>(op), slice.getSource());
      })
      .Case(
          [&](tensor::InsertSliceOp slice) { addForSlice(cast<OffsetSizeAndStrideOpInterface>(op), slice.getDest()); });
}

void ShapeChecks::addForScoring(ScoringOpInterface op) {
  auto size = [&](Value value, DimsAttr dims, Dim dim) { return getDimSize(builder, loc, value, dims, dim); };
  auto query = [&](Dim dim) { return size(op.getQuery(), op.getQueryDims(), dim); };
  auto key = [&](Dim dim) { return size(op.getKey(), op.getKeyDims(), dim); };
  auto value = [&](Dim dim) { return size(op.getValue(), op.getValueDims(), dim); };
  for (Role role : {Role::Query, Role::Key})
    if (op.getCuSeqlens(role))
      addForCuSeqlens(op, role);
  OpFoldResult batches = getBatches(builder, op, Role::Query);
  requireSame(getBatches(builder, op, Role::Key), batches, "key has another batch size than query");
  if (!op.getCuSeqlensK())
    requireSame(value(Dim::Batch), batches, "value has another batch size than query");
  requireSame(value(Dim::Head), key(Dim::Head), "value has another head count than key");
  requireSame(value(Dim::Seq), key(Dim::Seq), "value has another length than key");
  requireSame(key(Dim::Depth), query(Dim::Depth), "key has another head size than query");

  if (maxKeys != 0 && getConstantIntValue(key(Dim::Seq)).value_or(maxKeys + 1) > maxKeys) {
    Value keys = materialize(key(Dim::Seq)), limit = arith::ConstantIndexOp::create(builder, loc, maxKeys);
    Value holds = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::sle, keys, limit);
    require(holds, keys, limit, "key has more rows than GPU kernels support", "at most ");
  }
  requireGroups(query(Dim::Head), key(Dim::Head));
  for (auto [role, length] : {std::pair("q_len", op.getQLen()), std::pair("kv_len", op.getKvLen())})
    if (length && isa<RankedTensorType>(length.getType()))
      requireSame(extent(length, 0), batches, Twine(role) + " has another batch size than query");
  addForLength(op, Role::Query);
  addForLength(op, Role::Key);
  for (const NamedRegion &named : getNamedRegions(op))
    named.region->walk([&](tensor::ExtractOp read) {
      addForCapture(op, read, named);
      addForComputedRead(op, read, named);
    });
}

template <typename OpTy> void ShapeChecks::addForLse(OpTy op) {
  if (Value lse = op.getLse())
    addForRows(op, op.getRowDims(), "log-sum-exp", lse);
  if (Value low = op.getLseLow())
    addForRows(op, op.getRowDims(), "low part of the log-sum-exp", low);
}

void ShapeChecks::addForAttention(AttentionOp op) {
  addForScoring(op);
  if (op.getSink() && isa<RankedTensorType>(op.getSink().getType()))
    requireSame(extent(op.getSink(), 0), getDimSize(builder, loc, op.getQuery(), op.getQueryDims(), Dim::Head),
                "sink has another head count than query");
}

void ShapeChecks::addForGradient(GradientOp op) {
  addForScoring(op);
  auto query = [&](Dim dim) { return getDimSize(builder, loc, op.getQuery(), op.getQueryDims(), dim); };
  for (auto [dim, what] :
       {std::pair(Dim::Batch, "batch size"), std::pair(Dim::Head, "head count"), std::pair(Dim::Seq, "length")})
    requireSame(getDimSize(builder, loc, op.getOutputGradient(), op.getOutputDims(), dim), query(dim),
                Twine("output gradient has another ") + what + " than query");
  requireSame(getDimSize(builder, loc, op.getOutputGradient(), op.getOutputDims(), Dim::Depth),
              getDimSize(builder, loc, op.getValue(), op.getValueDims(), Dim::Depth),
              "output gradient has another head size than value");
  addForLse(op);
  if (Value delta = op.getDelta())
    addForRows(op, op.getRowDims(), "delta", delta);
}

void ShapeChecks::addForRows(ScoringOpInterface op, ArrayRef<Dim> dims, StringRef role, Value rows) {
  for (auto [i, dim] : llvm::enumerate(dims))
    requireSame(extent(rows, i), getDimSize(builder, loc, op.getQuery(), op.getQueryDims(), dim),
                Twine(role) + " has another extent of '" + stringifyDim(dim) + "' than query");
}

void ShapeChecks::addForJvp(JvpOp op) {
  addForScoring(op);
  for (auto [role, tangent, of] :
       {std::tuple("query", op.getQueryTangent(), op.getQuery()), std::tuple("key", op.getKeyTangent(), op.getKey()),
        std::tuple("value", op.getValueTangent(), op.getValue())})
    if (tangent)
      for (int64_t i = 0; i < cast<RankedTensorType>(of.getType()).getRank(); ++i)
        requireSame(extent(tangent, i), extent(of, i),
                    Twine("tangent of ") + role + " has another extent in dimension " + Twine(i) + " than " + role);
  addForLse(op);
}

void ShapeChecks::addForWeights(WeightsOp op) {
  addForScoring(op);
  addForLse(op);
}

void ShapeChecks::requireGroups(OpFoldResult grouped, OpFoldResult shared, StringRef message) {
  if (getConstantIntValue(grouped) && getConstantIntValue(shared))
    return;
  // Without KV heads there must be no query heads; the remainder by 0 is undefined.
  Value heads = materialize(grouped), groups = materialize(shared);
  Value one = arith::ConstantIndexOp::create(builder, loc, 1);
  Value divisor = arith::MaxSIOp::create(builder, loc, groups, one);
  Value rest = arith::RemSIOp::create(builder, loc, heads, divisor);
  Value isEmpty = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, groups, zero);
  Value mustBeZero = arith::SelectOp::create(builder, loc, isEmpty, heads, rest);
  Value holds = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, mustBeZero, zero);
  require(holds, heads, groups, message, "a multiple of ");
}

Value ShapeChecks::cuSeqlensArgument(ScoringOpInterface op, Role role) {
  Value offsets = op.getCuSeqlens(role);
  return offsets && isReadableBeforeCall(offsets) ? withoutCasts(offsets) : Value();
}

/// Checks that cu_seqlens starts with 0, does not descend and is within the operand. Applies to arguments only;
/// computed lengths are not known before the call, and generated code clamps them. If the host cannot read elements,
/// only the number of offsets is checked.
void ShapeChecks::addForCuSeqlens(ScoringOpInterface op, Role role) {
  bool isQuery = role == Role::Query;
  addForOffsets(isQuery ? "cu_seqlens_q" : "cu_seqlens_k", isQuery ? "query" : "key", op.getCuSeqlens(role),
                getDimSize(builder, loc, isQuery ? op.getQuery() : op.getKey(),
                           isQuery ? op.getQueryDims() : op.getKeyDims(), Dim::Seq));
}

void ShapeChecks::addForOffsets(StringRef clause, StringRef rows, Value offsets, OpFoldResult extentOfRows) {
  if (!isReadableBeforeCall(offsets))
    return;
  offsets = withoutCasts(offsets);
  auto index = [&](int64_t value) -> Value { return arith::ConstantIndexOp::create(builder, loc, value); };
  auto compare = [&](arith::CmpIPredicate predicate, Value lhs, Value rhs) -> Value {
    return arith::CmpIOp::create(builder, loc, predicate, lhs, rhs);
  };
  Value size = materialize(extent(offsets, 0)), one = index(1);
  require(compare(arith::CmpIPredicate::sge, size, one), size, one, clause + " has no element", "at least ");
  if (!mayReadElements)
    return;
  Value total = materialize(extentOfRows);
  // The loop carries the first invalid element: its problem, its value, the expected value; and the previous element.
  enum Problem : int64_t { None, Begins, Descends, Leaves };
  Value state[] = {zero, zero, zero, zero};
  auto loop =
      scf::ForOp::create(builder, loc, zero, size, one, state, [&](OpBuilder &, Location, Value i, ValueRange carried) {
        OpBuilder::InsertionGuard guard(builder);
        builder.setInsertionPointToEnd(i.getParentBlock());
        Value offset = numberOf(offsets, i);
        Value problem = carried[0], found = carried[1], expected = carried[2], before = carried[3];
        auto refuse = [&](Value isWrong, Problem what, Value expectedExtent) {
          Value isFirst = compare(arith::CmpIPredicate::eq, problem, zero);
          Value applies = arith::AndIOp::create(builder, loc, isFirst, isWrong);
          problem = arith::SelectOp::create(builder, loc, applies, index(what), problem);
          found = arith::SelectOp::create(builder, loc, applies, offset, found);
          expected = arith::SelectOp::create(builder, loc, applies, expectedExtent, expected);
        };
        Value isAhead = compare(arith::CmpIPredicate::ne, offset, zero);
        Value isFirst = compare(arith::CmpIPredicate::eq, i, zero);
        refuse(arith::AndIOp::create(builder, loc, isFirst, isAhead), Begins, zero);
        refuse(compare(arith::CmpIPredicate::slt, offset, before), Descends, before);
        refuse(compare(arith::CmpIPredicate::sgt, offset, total), Leaves, total);
        scf::YieldOp::create(builder, loc, ValueRange{problem, found, expected, offset});
      });
  auto isNot = [&](Problem problem) { return compare(arith::CmpIPredicate::ne, loop.getResult(0), index(problem)); };
  require(isNot(Begins), loop.getResult(1), loop.getResult(2), clause + " has another first element");
  require(isNot(Descends), loop.getResult(1), loop.getResult(2), clause + " has an element below the one before it",
          "at least ");
  require(isNot(Leaves), loop.getResult(1), loop.getResult(2), clause + " exceeds the rows of " + rows, "at most ");
}

/// Checks that a captured tensor that is read at a batch, head, query or key position covers all positions.
void ShapeChecks::addForCapture(ScoringOpInterface op, tensor::ExtractOp read, const NamedRegion &region) {
  RegionArguments arguments = region.arguments();
  auto capture = dyn_cast<BlockArgument>(read.getTensor());
  if (!capture || !llvm::is_contained(arguments.captures, capture))
    return;
  unsigned position = capture.getArgNumber() - arguments.captures.front().getArgNumber();
  Value tensor = op.getCaptures()[position];
  // With lengths the tensor may end before the operand does. For reads in score regions the mask may exclude positions,
  // but the mask itself is evaluated for every pair.
  bool isBounded = op.getQLen() || op.getKvLen() || (!region.isMask() && !op.getMask().empty());
  for (auto [dim, index] : llvm::enumerate(read.getIndices())) {
    struct Role {
      Value argument;
      StringRef name;
      Value operand;
      DimsAttr dims;
      Dim dim;
    };
    const Role roles[] = {{arguments.batch, "batch size", op.getQuery(), op.getQueryDims(), Dim::Batch},
                          {arguments.head, "head count", op.getQuery(), op.getQueryDims(), Dim::Head},
                          {arguments.query, "query length", op.getQuery(), op.getQueryDims(), Dim::Seq},
                          {arguments.key, "key length", op.getKey(), op.getKeyDims(), Dim::Seq}};
    for (auto [i, role] : llvm::enumerate(roles)) {
      bool isRagged = (i == 2 && op.getCuSeqlensQ()) || (i == 3 && op.getCuSeqlensK());
      if (index != role.argument || (i >= 2 && isBounded) || isRagged)
        continue;
      Value needed = materialize(role.dim == Dim::Batch ? getBatches(builder, op, saccade::attn::Role::Query)
                                                        : getDimSize(builder, loc, role.operand, role.dims, role.dim));
      if (!op.getAt().empty()) {
        Value start = op.getAt()[i];
        needed = arith::AddIOp::create(builder, loc, needed, start);
        Value begins = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::sge, start, zero);
        require(begins, start, zero,
                "capture #" + Twine(position) + " is read by " + role.name + " and 'at' begins before it");
      }
      Value there = materialize(extent(tensor, dim));
      Value holds = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::sge, there, needed);
      require(holds, there, needed,
              "capture #" + Twine(position) + " is read by " + role.name + " and is too small for it", "at least ");
    }
  }
}

/// Checks that the dimensions of operands that share a loop have the same extent.
std::string ShapeChecks::nameExtent(OpOperand &operand, int64_t dim) const {
  Value value = operand.get();
  int64_t valueDim = dim;
  while (Operation *op = value.getDefiningOp()) {
    auto empty = dyn_cast<tensor::EmptyOp>(op);
    auto size = empty && empty.getType().isDynamicDim(valueDim)
                    ? empty.getDynamicSize(valueDim).getDefiningOp<tensor::DimOp>()
                    : tensor::DimOp();
    if (auto written = dyn_cast<DestinationStyleOpInterface>(op)) {
      value = written.getTiedOpOperand(cast<OpResult>(value))->get();
    } else if (size && size.getConstantIndex()) {
      valueDim = *size.getConstantIndex();
      value = size.getSource();
    } else {
      break;
    }
  }
  auto argument = dyn_cast<BlockArgument>(value);
  if (argument && argument.getArgNumber() < argumentNames.size())
    return ("dimension " + Twine(valueDim) + " of argument '" + argumentNames[argument.getArgNumber()] + "'").str();
  return ("dimension " + Twine(dim) + " of operand #" + Twine(operand.getOperandNumber())).str();
}

void ShapeChecks::addForStructured(linalg::LinalgOp op) {
  struct Place {
    OpOperand *operand;
    int64_t dim;
  };
  SmallVector<std::optional<Place>> first(op.getNumLoops());
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isa<RankedTensorType>(operand.get().getType()))
      continue;
    AffineMap map = op.getMatchingIndexingMap(&operand);
    for (auto [dim, expression] : llvm::enumerate(map.getResults())) {
      auto loop = dyn_cast<AffineDimExpr>(expression);
      if (!loop)
        continue;
      std::optional<Place> &place = first[loop.getPosition()];
      if (!place) {
        place = Place{&operand, int64_t(dim)};
        continue;
      }
      requireSame(extent(operand.get(), dim), extent(place->operand->get(), place->dim),
                  nameExtent(operand, dim) + " differs from " + nameExtent(*place->operand, place->dim));
    }
  }
  addForGathers(op);
}

/// Checks reads of tensors in the body of a structured op, unless its iteration space is empty. For a loop index the
/// tensor covers the loop. Computed indices are clamped, so the tensor must not be empty. Reads in branches are not
/// checked.
void ShapeChecks::addForGathers(linalg::LinalgOp op) {
  llvm::SmallDenseSet<std::tuple<Value, int64_t, int64_t>> seen;
  SmallVector<Range> loops;
  for (auto read : op.getBlock()->getOps<tensor::ExtractOp>())
    for (auto [dim, index] : llvm::enumerate(read.getIndices())) {
      auto position = index.getDefiningOp<linalg::IndexOp>();
      int64_t loop = position ? position.getDim() : -1;
      if (!seen.insert({read.getTensor(), dim, loop}).second)
        continue;
      if (loops.empty())
        loops = op.createLoopRanges(builder, loc);
      OpFoldResult there = extent(read.getTensor(), dim), needed = builder.getIndexAttr(1);
      if (position)
        needed = loops[loop].size;
      std::optional<int64_t> known = getConstantIntValue(there), minimum = getConstantIntValue(needed);
      if (isEqualConstantIntOrValue(there, needed) || (known && minimum && *minimum <= *known))
        continue;
      Value isFine =
          arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::sge, materialize(there), materialize(needed));
      for (const Range &each : loops) {
        Value isEmpty = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, materialize(each.size), zero);
        isFine = builder.createOrFold<arith::OrIOp>(loc, isFine, isEmpty);
      }
      require(isFine, materialize(there), materialize(needed),
              "reads elements of a tensor that is too small in dimension " + Twine(dim), "at least ");
    }
}

void ShapeChecks::addForCast(tensor::CastOp op) {
  auto type = dyn_cast<RankedTensorType>(op.getType());
  if (!type || !isa<RankedTensorType>(op.getSource().getType()))
    return;
  for (auto [dim, size] : llvm::enumerate(type.getShape()))
    if (!ShapedType::isDynamic(size))
      requireSame(extent(op.getSource(), dim), builder.getIndexAttr(size),
                  "source does not fit in dimension " + Twine(dim));
}

void ShapeChecks::addForExpand(tensor::ExpandShapeOp op) {
  SmallVector<OpFoldResult> shape = op.getMixedOutputShape();
  for (auto [dim, group] : llvm::enumerate(op.getReassociationIndices())) {
    if (group.size() == 1 && isEqualConstantIntOrValue(shape[group[0]], extent(op.getSrc(), dim)))
      continue;
    auto parts = llvm::map_to_vector(group, [&](int64_t i) { return shape[i]; });
    // The same affine form as the extents of collapse_shape, so that the usual case folds.
    AffineExpr factors = builder.getAffineConstantExpr(1);
    for (unsigned i = 0; i < parts.size(); ++i)
      factors = factors * builder.getAffineSymbolExpr(i);
    OpFoldResult product = affine::makeComposedFoldedAffineApply(builder, loc, factors, parts);
    requireSame(extent(op.getSrc(), dim), product, "source cannot be expanded in dimension " + Twine(dim));
  }
}

void ShapeChecks::addForSlice(OffsetSizeAndStrideOpInterface op, Value whole) {
  for (auto [dim, offset, size, stride] :
       llvm::enumerate(op.getMixedOffsets(), op.getMixedSizes(), op.getMixedStrides())) {
    OpFoldResult limit = extent(whole, dim);
    if (isEqualConstantIntOrValue(size, limit) && isZeroInteger(offset) && isOneInteger(stride))
      continue;
    Value one = arith::ConstantIndexOp::create(builder, loc, 1);
    Value steps = arith::SubIOp::create(builder, loc, materialize(size), one);
    Value span = arith::MulIOp::create(builder, loc, steps, materialize(stride));
    Value last = arith::AddIOp::create(builder, loc, materialize(offset), span);
    Value end = arith::AddIOp::create(builder, loc, last, one);
    Value bound = materialize(limit);
    Value inside = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::sle, end, bound);
    Value starts = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::sge, materialize(offset), zero);
    Value holds = arith::AndIOp::create(builder, loc, inside, starts);
    require(holds, end, bound, "slice leaves its tensor in dimension " + Twine(dim));
  }
}
