//===- RaiseAttention.cpp - softmax(Q Kᵀ) V becomes attention -------------===//
//
// Finds contractions whose LHS or RHS is a softmax of another contraction, possibly with other ops between them, and
// replaces each by one attn.attention. Runs after the importers, which all produce linalg on tensors, and before all
// passes that transform attention.
//
//===----------------------------------------------------------------------===//
#include "BuildAttention.h"
#include "EmitRegions.h"
#include "FloatFacts.h"
#include "MatchSoftmax.h"
#include "SplitMask.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Transforms/RegionUtils.h"
#include "saccade/Import/Raise/Passes.h"
#include "llvm/Support/Debug.h"
#include <cmath>

namespace saccade {
#define GEN_PASS_DEF_RAISEATTENTION
#include "saccade/Import/Raise/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::raise;

namespace {

/// Why softmaxes were not raised, by the op that computes the sum.
using Reasons = llvm::MapVector<Operation *, std::string>;

/// The operands of an attention: for each, the earliest producer such that all have the same element type.
struct Operands {
  Labelled query, key, value;
  Node scoreFactor = nullptr; ///< constant factor of queries and keys
};

/// A candidate for the Q·Kᵀ matmul.
struct ScoreMatmul {
  Node leaf;           ///< its result element in the score expression
  Node lhs, rhs;       ///< elements of its operands
  int64_t depth;       ///< the extent of its contracting loop
  Node init = nullptr; ///< its initial value unless that is 0
};

/// One attempt at one contraction.
class Raising {
public:
  Raising(linalg::LinalgOp values, bool lints)
      : values(values), lints(lints), graph(values.getContext(), extentsOf(values)), tracer(graph) {}

  /// Raises the contraction if possible; otherwise records the reason if it uses a softmax.
  bool run(Reasons &reasons);

private:
  static SmallVector<int64_t> extentsOf(linalg::LinalgOp op) {
    SmallVector<int64_t> extents = getLoopExtents(op);
    extents.push_back(ShapedType::kDynamic); // the depth (head size) of queries and keys
    return extents;
  }

  bool findLoops(unsigned side);
  SmallVector<ScoreMatmul> findMatmuls(Node score);
  bool chooseOperands(const ScoreMatmul &matmul, Operands &operands);
  bool replace(const SoftmaxMatch &match, Node weight, const MaskedScore &masked);
  Node readScale(Node score, Node matmul, double &scale);
  bool vanishes(Node weight, Node softmax, ArrayRef<Node> conditions);
  void warn(const SoftmaxMatch &match, const MaskedScore &masked);
  std::optional<Location> findTableOfHeadSize(Node condition);
  bool fail(const Twine &why) {
    if (reason.empty())
      reason = why.str();
    return false;
  }

  linalg::LinalgOp values;
  bool lints;
  Graph graph;
  Tracer tracer;
  unsigned weightSide = 0;
  Loops loops;
  Naming naming;
  int64_t headSize = ShapedType::kDynamic;
  std::string reason;
};

/// Classifies the loops of the contraction, with its operand `side` as the softmax weights.
bool Raising::findLoops(unsigned side) {
  AffineMap weights = values.getMatchingIndexingMap(values.getDpsInputOperand(side));
  AffineMap valueMap = values.getMatchingIndexingMap(values.getDpsInputOperand(1 - side));
  AffineMap output = values.getMatchingIndexingMap(values.getDpsInitOperand(0));
  SmallVector<unsigned> keys, depths;
  loops.rows.clear();
  for (unsigned loop = 0; loop < values.getNumLoops(); ++loop) {
    bool inWeights = weights.isFunctionOfDim(loop), inValues = valueMap.isFunctionOfDim(loop);
    if (!output.isFunctionOfDim(loop))
      (inWeights && inValues ? keys : depths).push_back(loop);
    else if (!inWeights)
      depths.push_back(loop);
  }
  for (AffineExpr expr : weights.getResults())
    if (auto dim = dyn_cast<AffineDimExpr>(expr); dim && !llvm::is_contained(keys, dim.getPosition()))
      loops.rows.push_back(dim.getPosition());
  if (keys.size() != 1 || depths.size() != 1 || !output.isFunctionOfDim(depths[0]))
    return false;
  weightSide = side;
  loops.key = keys[0];
  loops.valueDepth = depths[0];
  loops.depth = values.getNumLoops();
  return true;
}

bool Raising::run(Reasons &reasons) {
  if (values.getNumLoops() > 60 || !values.getMatchingIndexingMap(values.getDpsInitOperand(0)).isProjectedPermutation())
    return false;
  for (unsigned side : {0u, 1u}) {
    if (!findLoops(side))
      continue;
    OpOperand *operand = values.getDpsInputOperand(side);
    Node weight = tracer.element(operand->get(), values.getMatchingIndexingMap(operand).getResults());
    std::optional<SoftmaxMatch> match = findSoftmax(graph, tracer, weight, loops.key);
    if (!match)
      continue;
    weight = dropGuards(graph, tracer, weight, *match, loops.key);
    MaskedScore masked = splitMask(graph, match->score, loops.key);
    // Such a score makes all weights of its row NaN, also if its key is hidden.
    if (masked.mayBeNaN && match->replacesNaN) {
      reasons[match->anchor] = "its scores may be NaN, which a guard replaces";
      return false;
    }
    if (replace(*match, weight, masked)) {
      if (lints)
        warn(*match, masked);
      return true;
    }
    reasons[match->anchor] = reason;
    return false;
  }
  return false;
}

/// The matmuls in `score`, sorted by the number of loops they depend on.
SmallVector<ScoreMatmul> Raising::findMatmuls(Node score) {
  SmallVector<ScoreMatmul> matmuls;
  forEachNode(score, [&](Node node) {
    if (node->kind != Expr::Element || !node->dependsOn(loops.key))
      return;
    auto op = node->access.tensor.getDefiningOp<linalg::LinalgOp>();
    if (!op || !isContraction(op) || op.getNumReductionLoops() != 1)
      return;
    AffineMap map = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
    if (!map.isProjectedPermutation())
      return;
    SmallVector<AffineExpr> index(op.getNumLoops(), getAffineDimExpr(loops.depth, op.getContext()));
    for (auto [expr, position] : llvm::zip_equal(map.getResults(), node->access.index))
      index[cast<AffineDimExpr>(expr).getPosition()] = position;
    auto side = [&](unsigned i) {
      OpOperand *operand = op.getDpsInputOperand(i);
      return tracer.element(operand->get(), llvm::map_to_vector(op.getMatchingIndexingMap(operand).getResults(),
                                                                [&](AffineExpr e) { return e.replaceDims(index); }));
    };
    SmallVector<unsigned> contracting;
    op.getReductionDims(contracting);
    ScoreMatmul matmul{node, side(0), side(1), getLoopExtents(op)[contracting[0]]};
    if (matmul.lhs->dependsOn(loops.key))
      std::swap(matmul.lhs, matmul.rhs);
    Value init = op.getDpsInits()[0];
    if (!isZero(init))
      matmul.init = tracer.element(init, node->access.index);
    if (!matmul.lhs->dependsOn(loops.key) && matmul.rhs->dependsOn(loops.key))
      matmuls.push_back(matmul);
  });
  llvm::sort(matmuls, [](const ScoreMatmul &a, const ScoreMatmul &b) {
    auto rank = [](Node leaf) { return std::pair(-llvm::popcount(leaf->loops), leaf->id); };
    return rank(a.leaf) < rank(b.leaf);
  });
  return matmuls;
}

/// Removes factors that are the same for all elements from `node` and multiplies them into `factor`, as long as a
/// tensor has its elements: what was multiplied before heads were split is no tensor with a dimension of heads.
static Node hoistScaleFactors(Graph &graph, Node node, Node &factor, ArrayRef<int64_t> extents) {
  Node last = node, factorOfLast = factor;
  while (true) {
    if (!findLabelled(node, extents).empty())
      last = node, factorOfLast = factor;
    Node taken = nullptr;
    if (node->is("arith.mulf"))
      for (unsigned i : {0u, 1u})
        if ((*node)[i]->loops == 0 && (*node)[1 - i]->loops != 0)
          taken = (*node)[i];
    if (taken) {
      node = (*node)[(*node)[0] == taken ? 1 : 0];
    } else if (node->is("arith.divf") && (*node)[1]->loops == 0) {
      taken = graph.apply("arith.divf", graph.real(), {graph.number(1), (*node)[1]});
      node = (*node)[0];
    } else {
      factor = factorOfLast;
      return last;
    }
    factor = graph.product(factor, taken);
  }
}

/// The extent of the dimension of `operand` that `loop` indexes.
static int64_t extentAlong(const Labelled &operand, unsigned loop) {
  for (auto [label, extent] :
       llvm::zip_equal(operand.labels, cast<RankedTensorType>(operand.tensor.getType()).getShape()))
    if (label.loop == loop)
      return extent;
  return 1;
}

bool Raising::chooseOperands(const ScoreMatmul &matmul, Operands &operands) {
  operands.scoreFactor = graph.number(1);
  SmallVector<int64_t> extents(graph.getExtents());
  extents[loops.depth] = matmul.depth;
  Node query = hoistScaleFactors(graph, matmul.lhs, operands.scoreFactor, extents);
  Node key = hoistScaleFactors(graph, matmul.rhs, operands.scoreFactor, extents);
  OpOperand *valueOperand = values.getDpsInputOperand(1 - weightSide);
  Node value = tracer.element(valueOperand->get(), values.getMatchingIndexingMap(valueOperand).getResults());
  SmallVector<Labelled> queries = findLabelled(query, extents), keys = findLabelled(key, extents),
                        valuesFound = findLabelled(value, extents);
  if (queries.empty() || keys.empty() || valuesFound.empty())
    return fail(Twine(queries.empty() ? "queries"
                      : keys.empty()  ? "keys"
                                      : "values") +
                " are indexed by more than batch, head, position and depth");
  // Prefer the narrowest type: keys before they were repeated, queries before they were widened.
  for (SmallVector<Labelled> *candidates : {&queries, &keys, &valuesFound}) {
    SmallVector<Labelled> sorted;
    for (unsigned width : {16, 32, 64})
      llvm::copy_if(*candidates, std::back_inserter(sorted), [&](const Labelled &each) {
        return getElementTypeOrSelf(each.tensor).getIntOrFloatBitWidth() == width;
      });
    *candidates = std::move(sorted);
  }
  std::string obstacle;
  for (const Labelled &q : queries)
    for (const Labelled &k : keys)
      for (const Labelled &v : valuesFound) {
        Type element = getElementTypeOrSelf(q.tensor);
        if (getElementTypeOrSelf(k.tensor) != element || getElementTypeOrSelf(v.tensor) != element ||
            !isa<Float16Type, BFloat16Type, Float32Type, Float64Type>(element))
          continue;
        naming = nameLoops(graph, loops, q, k, v);
        if (naming.reason)
          continue;
        int64_t sizes[] = {extentAlong(k, loops.depth), extentAlong(v, loops.valueDepth)};
        if (llvm::is_contained(sizes, ShapedType::kDynamic)) {
          obstacle = "its head size is known only at run time";
        } else if (*llvm::max_element(sizes) > attn::maxHeadSize) {
          obstacle = ("its head size is more than " + Twine(attn::maxHeadSize)).str();
        } else {
          operands.query = q, operands.key = k, operands.value = v;
          return true;
        }
      }
  if (!obstacle.empty())
    return fail(obstacle);
  return fail(naming.reason ? naming.reason : "queries, keys and values have different element types");
}

/// If the only use of `matmul` is a multiplication by a constant, moves that factor into `scale`. Further factors were
/// joined with it, unless their product is too large for f32.
Node Raising::readScale(Node score, Node matmul, double &scale) {
  SmallVector<Node> users;
  forEachNode(score, [&](Node node) {
    if (llvm::is_contained(node->operands, matmul))
      users.push_back(node);
  });
  if (users.size() != 1 || !users[0]->is("arith.mulf") || (*users[0])[1]->kind != Expr::Number)
    return score;
  double factor = (*users[0])[1]->number;
  // The scale of an attention is finite.
  if (!std::isfinite(factor))
    return score;
  scale = factor;
  return graph.replace(score, users[0], matmul);
}

/// Whether `node` may add −∞ to a score.
static bool mayBeInfinite(Node node) {
  if (!node->isReal())
    return false;
  if (node->kind == Expr::Apply)
    return node->name == "tensor.extract" || floatFacts(node->name).hasPole;
  return node->kind == Expr::Number ? std::isinf(node->number) : true;
}

/// Whether `weight` is 0 wherever the softmax is 0 or, with `conditions`, where one of them does not hold. Factors are
/// taken to be finite.
bool Raising::vanishes(Node weight, Node softmax, ArrayRef<Node> conditions) {
  DenseMap<Node, bool> zero;
  auto isZero = [&](Node operand) { return zero.lookup(operand); };
  // Another softmax under the same mask.
  auto isHidden = [&](Node score) {
    MaskedScore other = splitMask(graph, score, loops.key);
    return !conditions.empty() &&
           llvm::all_of(conditions, [&](Node each) { return llvm::is_contained(other.conditions, each); });
  };
  forEachNode(weight, [&](Node node) {
    bool result = node == softmax || node->isNumber(0);
    if (node->is("arith.mulf"))
      result |= llvm::any_of(node->operands, isZero);
    else if (node->is("arith.divf"))
      result |= isZero((*node)[0]);
    else if (node->is("arith.select"))
      result |= isZero((*node)[1]) && isZero((*node)[2]);
    else if (node->is("math.powf"))
      result |= isZero((*node)[0]) && (*node)[1]->kind == Expr::Number && (*node)[1]->number > 0;
    else if (node->kind == Expr::Softmax || node->is("math.exp"))
      result |= isHidden((*node)[0]);
    else if (node->kind == Expr::Apply && floatFacts(node->name).keepsZero)
      result |= llvm::all_of(node->operands, isZero);
    zero[node] = result;
  });
  return zero.lookup(weight);
}

bool Raising::replace(const SoftmaxMatch &match, Node weight, const MaskedScore &masked) {
  if (!isZero(values.getDpsInits()[0]))
    return fail("the P·V matmul starts from a tensor that is not 0");
  SmallVector<ScoreMatmul> matmuls = findMatmuls(masked.score);
  if (matmuls.empty())
    return fail("its scores contain no Q·Kᵀ matmul");
  Operands operands;
  auto matmul = llvm::find_if(matmuls, [&](const ScoreMatmul &each) { return chooseOperands(each, operands); });
  if (matmul == matmuls.end())
    return false;
  if (matmul->depth == 0 || graph.getExtents()[loops.valueDepth] == 0)
    return fail("its head size is 0");

  // Attention passes over masked keys and scores of −∞, also where the weight of such a key is not 0.
  bool isInfinite = false;
  forEachNode(masked.score, [&](Node node) { isInfinite |= node != matmul->leaf && mayBeInfinite(node); });
  if ((isInfinite || !masked.conditions.empty()) &&
      !vanishes(weight, match.weight, isInfinite ? ArrayRef<Node>() : masked.conditions))
    return fail("its weights are not 0 for masked keys");

  // A variable stands for the raw matmul result; operand factors and the initial value become part of the score.
  Node variable = graph.scalar(values.getDpsInits()[0]);
  Node score = graph.product(variable, operands.scoreFactor);
  if (matmul->init)
    score = graph.sum(score, matmul->init);
  auto inScores = [&](Node node) { return graph.replace(node, matmul->leaf, score); };
  double scale = 1;
  SmallVector<Node> conditions = llvm::map_to_vector(masked.conditions, inScores);
  Node whole = readScale(inScores(masked.score), variable, scale);
  Node condition = graph.truth(true);
  for (Node each : conditions)
    condition = graph.both(condition, each);
  bool dependsOnScores = false;
  forEachNode(condition, [&](Node node) { dependsOnScores |= node == variable; });
  if (dependsOnScores)
    return fail("the mask depends on the scores");

  Type scoreType = attn::getScoreType(getElementTypeOrSelf(operands.query.tensor));
  RegionEmitter emitter(graph, naming.names, scoreType, match.anchor->getLoc());
  AttentionParts parts;
  parts.query = operands.query, parts.key = operands.key, parts.value = operands.value;
  bool isNeeded[3] = {whole != variable, condition != graph.truth(true), weight != match.weight};
  Node roots[3] = {whole, condition, weight}, variables[3] = {variable, nullptr, match.weight};
  std::unique_ptr<Block> *regions[3] = {&parts.score, &parts.mask, &parts.weight};
  for (unsigned i = 0; i < 3; ++i) {
    if (isNeeded[i]) {
      *regions[i] = emitter.emit(roots[i], variables[i]);
      if (!*regions[i])
        return fail(emitter.getReason());
    }
  }
  parts.captures = emitter.getCaptures();
  parts.scale = scale;
  attn::AttentionOp op = replaceByAttention(values, graph, loops, naming.names, parts);
  if (!op)
    return fail("batch and head dimensions are not adjacent in the result");
  headSize = attn::getStaticDimSize(op.getQuery(), op.getQueryDims(), attn::Dim::Depth);
  return true;
}

/// Reports likely mistakes of the original graph, which are no longer visible after raising.
void Raising::warn(const SoftmaxMatch &match, const MaskedScore &masked) {
  for (Node condition : masked.conditions)
    if (std::optional<Location> table = findTableOfHeadSize(condition)) {
      emitWarning(*table) << "mask covers " << headSize << " × " << headSize
                          << " positions, which is the head size; expected the sequence lengths";
      break;
    }
  if (!match.isStable)
    emitWarning(match.anchor->getLoc())
        << "softmax does not subtract the row maximum: scores above 88 overflow in f32; attention subtracts it";
  bool readsTensors = llvm::any_of(masked.conditions, [](Node condition) { return condition->readsTensors; });
  if (masked.isInfinite && readsTensors && !match.isGuarded)
    emitWarning(match.anchor->getLoc()) << "softmax of a fully masked row is NaN; attention gives 0";
}

/// Finds tables such as `tril(head_size)`: a table of positions with the size of the head although no sequence length
/// is known to be equal.
std::optional<Location> Raising::findTableOfHeadSize(Node condition) {
  std::optional<Location> found;
  ArrayRef<unsigned> query = naming.names.query;
  if (query.size() != 1 || ShapedType::isDynamic(headSize) || graph.getExtent(query[0]) == headSize ||
      graph.getExtent(loops.key) == headSize)
    return found;
  forEachNode(condition, [&](Node node) {
    // The lint pass on attention checks captured tables.
    if (node->kind == Expr::Element)
      return;
    for (const Access &origin : node->origins) {
      ArrayRef<int64_t> shape = cast<RankedTensorType>(origin.tensor.getType()).getShape();
      auto isHeadSize = [&](unsigned loop) {
        auto *index = llvm::find(origin.index, getAffineDimExpr(loop, graph.getContext()));
        return index != origin.index.end() && shape[index - origin.index.begin()] == headSize;
      };
      if (!found && isHeadSize(query[0]) && isHeadSize(loops.key))
        found = origin.tensor.getLoc();
    }
  });
  return found;
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

/// The softmaxes of `function`, each by the op that remarks are attached to.
SmallVector<Operation *> findSoftmaxes(func::FuncOp function) {
  SmallVector<Operation *> found;
  function.walk([&](linalg::LinalgOp op) {
    if (sumsExponentials(op))
      found.push_back(op);
  });
  function.walk([&](linalg::SoftmaxOp op) { found.push_back(op); });
  return found;
}

void explain(Operation *softmax, const Reasons &reasons) {
  InFlightDiagnostic remark = softmax->emitRemark() << notRaised;
  if (auto known = reasons.find(softmax); known != reasons.end() && !known->second.empty())
    remark << known->second;
  else if (softmax->use_empty())
    remark << "nothing uses its weights";
  else if (auto matmul = dyn_cast<linalg::LinalgOp>(*softmax->getUsers().begin()); matmul && isContraction(matmul))
    remark << "the matmul with its weights contracts another dimension than the softmax";
  else
    remark << "its weights are not used by a P·V matmul, but by '" << softmax->getUsers().begin()->getName() << "'";
}

struct RaiseAttention : saccade::impl::RaiseAttentionBase<RaiseAttention> {
  using RaiseAttentionBase::RaiseAttentionBase;

  void runOnOperation() override {
    bool hasExponential = false;
    getOperation().walk(
        [&](Operation *op) { hasExponential |= isa<math::ExpOp, math::Exp2Op, linalg::SoftmaxOp>(op); });
    if (!hasExponential)
      return markAllAnalysesPreserved();
    SmallVector<linalg::LinalgOp> contractions;
    getOperation().walk([&](linalg::LinalgOp op) {
      if (isContraction(op))
        contractions.push_back(op);
    });
    Reasons reasons;
    unsigned count = 0;
    for (linalg::LinalgOp op : contractions)
      count += Raising(op, lint).run(reasons);
    DEBUG_WITH_TYPE("attn-raise-attention", llvm::dbgs() << "raised " << count << " of " << contractions.size()
                                                         << " contractions to attention\n");
    if (count != 0) {
      // Remove the dead ops that computed the weights. (The result of DCE is whether it removed any.)
      IRRewriter rewriter(&getContext());
      (void)runRegionDCE(rewriter, getOperation()->getRegions());
    }
    if (remarks)
      for (Operation *softmax : findSoftmaxes(getOperation()))
        explain(softmax, reasons);
  }
};

} // namespace
