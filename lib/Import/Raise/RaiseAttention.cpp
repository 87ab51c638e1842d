//===- RaiseAttention.cpp - softmax(Q Kᵀ) V becomes attention -------------------===//
//
// Finds contractions whose left or right side is a softmax of another contraction, whatever stands between, and
// replaces each by one attn.attention. It stands behind the frontends, which all end in linalg on tensors, and in front of
// everything that looks at attention.
//
//===----------------------------------------------------------------------===//
#include "BuildAttention.h"
#include "EmitRegions.h"
#include "MatchSoftmax.h"
#include "SplitMask.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Transforms/RegionUtils.h"
#include "saccade/Import/Raise/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_RAISEATTENTION
#include "saccade/Import/Raise/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::raise;

namespace {

/// Why softmaxes were not raised, by the op that is their sum.
using Reasons = llvm::MapVector<Operation *, std::string>;

/// The operands of an attention, each in the most original form that all share the type of.
struct Operands {
  Labelled query, key, value;
  Node scoreFactor = nullptr; ///< what queries and keys were multiplied by
};

/// A product that scores may be made of.
struct Product {
  Node leaf;           ///< its element among the scores
  Node left, right;    ///< elements of its sides
  Node init = nullptr; ///< what it is added to, if anything
};

/// One attempt at one contraction.
class Raising {
public:
  Raising(linalg::LinalgOp values, bool lints)
      : values(values), lints(lints), graph(values.getContext(), extentsOf(values)), tracer(graph) {}

  /// Replaces the contraction, if it can; else says why where there is a softmax.
  bool run(Reasons &reasons);

private:
  static SmallVector<int64_t> extentsOf(linalg::LinalgOp op) {
    SmallVector<int64_t> extents = op.getStaticLoopRanges();
    extents.push_back(ShapedType::kDynamic); // the depth of queries and keys
    return extents;
  }

  bool findLoops(unsigned side);
  SmallVector<Product> findMatmuls(Node score);
  bool chooseOperands(const Product &product, Operands &operands);
  bool replace(const SoftmaxMatch &match, Node weight, const MaskedScore &masked);
  Node readScale(Node score, Node product, double &scale);
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

/// Divides the loops of the contraction, if its operand `side` were weights.
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
    MaskedScore masked = splitMask(graph, match->score);
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

/// The contractions in `score`, those with most loops of the weights first.
SmallVector<Product> Raising::findMatmuls(Node score) {
  SmallVector<Product> products;
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
    Product product{node, side(0), side(1)};
    if (product.left->dependsOn(loops.key))
      std::swap(product.left, product.right);
    Value init = op.getDpsInits()[0];
    if (!isZero(init))
      product.init = tracer.element(init, node->access.index);
    if (!product.left->dependsOn(loops.key) && product.right->dependsOn(loops.key))
      products.push_back(product);
  });
  llvm::sort(products, [](const Product &a, const Product &b) {
    auto rank = [](Node leaf) { return std::pair(-llvm::popcount(leaf->loops), leaf->id); };
    return rank(a.leaf) < rank(b.leaf);
  });
  return products;
}

/// Takes factors that are the same for all elements out of `node`.
static Node hoistScaleFactors(Graph &graph, Node node, Node &factor) {
  while (true) {
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
      return node;
    }
    factor = graph.product(factor, taken);
  }
}

bool Raising::chooseOperands(const Product &product, Operands &operands) {
  operands.scoreFactor = graph.number(1);
  Node query = hoistScaleFactors(graph, product.left, operands.scoreFactor);
  Node key = hoistScaleFactors(graph, product.right, operands.scoreFactor);
  OpOperand *valueOperand = values.getDpsInputOperand(1 - weightSide);
  Node value = tracer.element(valueOperand->get(), values.getMatchingIndexingMap(valueOperand).getResults());
  SmallVector<Labelled> queries = findLabelled(query, graph), keys = findLabelled(key, graph),
                        valuesFound = findLabelled(value, graph);
  if (queries.empty() || keys.empty() || valuesFound.empty())
    return fail(Twine(queries.empty() ? "queries"
                      : keys.empty()  ? "keys"
                                      : "values") +
                " are indexed by more than batch, head, position and depth");
  // The most original form wins: keys before they were repeated, queries before they were widened.
  for (SmallVector<Labelled> *candidates : {&queries, &keys, &valuesFound}) {
    SmallVector<Labelled> sorted;
    for (unsigned width : {16, 32, 64})
      llvm::copy_if(*candidates, std::back_inserter(sorted), [&](const Labelled &each) {
        return getElementTypeOrSelf(each.tensor).getIntOrFloatBitWidth() == width;
      });
    *candidates = std::move(sorted);
  }
  for (const Labelled &q : queries)
    for (const Labelled &k : keys)
      for (const Labelled &v : valuesFound) {
        Type element = getElementTypeOrSelf(q.tensor);
        if (getElementTypeOrSelf(k.tensor) != element || getElementTypeOrSelf(v.tensor) != element ||
            !isa<Float16Type, BFloat16Type, Float32Type, Float64Type>(element))
          continue;
        naming = nameLoops(graph, loops, q, k, v);
        if (!naming.reason) {
          operands.query = q, operands.key = k, operands.value = v;
          return true;
        }
      }
  return fail(naming.reason ? naming.reason : "queries, keys and values have different element types");
}

/// Where the product is used in one place, multiplied by a constant, that is the scale.
Node Raising::readScale(Node score, Node product, double &scale) {
  while (true) {
    SmallVector<Node> users;
    forEachNode(score, [&](Node node) {
      if (llvm::is_contained(node->operands, product))
        users.push_back(node);
    });
    if (users.size() != 1 || !users[0]->is("arith.mulf") || (*users[0])[1]->kind != Expr::Number)
      return score;
    scale *= (*users[0])[1]->number;
    score = graph.replace(score, users[0], product);
  }
}

bool Raising::replace(const SoftmaxMatch &match, Node weight, const MaskedScore &masked) {
  if (!isZero(values.getDpsInits()[0]))
    return fail("the product with values starts from a tensor that is not 0");
  SmallVector<Product> products = findMatmuls(masked.score);
  if (products.empty())
    return fail("its scores are made from no product of queries and keys");
  Operands operands;
  auto product = llvm::find_if(products, [&](const Product &each) { return chooseOperands(each, operands); });
  if (product == products.end())
    return false;

  // The product without what operands were multiplied by and what it was added to stands for the score.
  Node variable = graph.scalar(values.getDpsInits()[0]);
  Node score = graph.product(variable, operands.scoreFactor);
  if (product->init)
    score = graph.sum(score, product->init);
  auto inScores = [&](Node node) { return graph.replace(node, product->leaf, score); };
  double scale = 1;
  SmallVector<Node> conditions = llvm::map_to_vector(masked.conditions, inScores);
  Node whole = readScale(inScores(masked.score), variable, scale);
  Node condition = graph.truth(true);
  for (Node each : conditions)
    condition = graph.both(condition, each);
  bool dependsOnScores = false;
  forEachNode(condition, [&](Node node) { dependsOnScores |= node == variable; });
  if (dependsOnScores)
    return fail("which keys are seen depends on their scores");

  Type scoreType = attn::getScoreType(getElementTypeOrSelf(operands.query.tensor));
  RegionEmitter emitter(graph, naming.names, scoreType, match.anchor->getLoc());
  AttentionParts parts;
  parts.query = operands.query, parts.key = operands.key, parts.value = operands.value;
  bool isWanted[3] = {whole != variable, condition != graph.truth(true), weight != match.weight};
  Node roots[3] = {whole, condition, weight}, variables[3] = {variable, nullptr, match.weight};
  std::unique_ptr<Block> *regions[3] = {&parts.score, &parts.mask, &parts.weight};
  for (unsigned i = 0; i < 3; ++i)
    if (isWanted[i] && !(*regions[i] = emitter.emit(roots[i], variables[i])))
      return fail(emitter.getReason());
  parts.captures = emitter.getCaptures();
  parts.scale = scale;
  attn::AttentionOp op = replaceByAttention(values, graph, loops, naming.names, parts);
  if (!op)
    return fail("batches and heads do not lie behind each other in the result");
  headSize = attn::getStaticDimSize(op.getQuery(), op.getQueryDims(), attn::Dim::Depth);
  return true;
}

/// Mistakes of whole graphs that nothing is left of once they are raised.
void Raising::warn(const SoftmaxMatch &match, const MaskedScore &masked) {
  for (Node condition : masked.conditions)
    if (std::optional<Location> table = findTableOfHeadSize(condition)) {
      emitWarning(*table) << "mask covers " << headSize << " × " << headSize
                          << " positions, which is the head size; expected the sequence lengths";
      break;
    }
  if (!match.isStable)
    emitWarning(match.anchor->getLoc())
        << "softmax takes exponentials without subtracting the largest score first: scores above 88 overflow in f32; "
           "attention subtracts it";
  bool readsTensors = llvm::any_of(masked.conditions, [](Node condition) { return condition->readsTensors; });
  if (masked.isInfinite && readsTensors && !match.isGuarded)
    emitWarning(match.anchor->getLoc())
        << "softmax of a row whose keys are all masked is NaN here, and nothing guards against it; attention gives 0";
}

/// `tril(head_size)`: a table of positions that is as large as the head where the lengths are not known to be.
std::optional<Location> Raising::findTableOfHeadSize(Node condition) {
  std::optional<Location> found;
  ArrayRef<unsigned> query = naming.names.query;
  if (query.size() != 1 || ShapedType::isDynamic(headSize) || graph.getExtent(query[0]) == headSize ||
      graph.getExtent(loops.key) == headSize)
    return found;
  forEachNode(condition, [&](Node node) {
    // Captured tables are seen by the lint of attention.
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

/// The softmaxes of `function`, each by the op that remarks stand at.
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
  else if (auto product = dyn_cast<linalg::LinalgOp>(*softmax->getUsers().begin()); product && isContraction(product))
    remark << "the product with its weights sums over another dimension than it does";
  else
    remark << "its weights reach no product with values, but '" << softmax->getUsers().begin()->getName() << "'";
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
    bool isChanged = false;
    for (linalg::LinalgOp op : contractions)
      isChanged |= Raising(op, lint).run(reasons);
    if (isChanged) {
      // What computed the weights is dead now. (Whether something was is all that the result says.)
      IRRewriter rewriter(&getContext());
      (void)runRegionDCE(rewriter, getOperation()->getRegions());
    }
    if (remarks)
      for (Operation *softmax : findSoftmaxes(getOperation()))
        explain(softmax, reasons);
  }
};

} // namespace
