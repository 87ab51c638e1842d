//===- MaskProof.cpp - Properties of a mask for all inputs --------------------===//
//
// Runs the mask analysis on block arguments and discards the emitted code.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Analysis/MaskProof.h"
#include "saccade/Dialect/Attn/Analysis/KeyBounds.h"
#include "saccade/Dialect/Attn/Analysis/MaskBox.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace saccade::attn;

namespace {

/// Inputs and positions of a region as unknown values of bounded magnitude.
class UnknownInputs : public MaskInputs {
public:
  explicit UnknownInputs(ScoringOpInterface op) : op(op) {}

  /// An unknown value of magnitude at most 2^bits.
  StagedInt unknown(unsigned bits) {
    return StagedInt(block.addArgument(IndexType::get(op->getContext()), op->getLoc()), bits);
  }

  StagedInt length(StagedIntBuilder &, Role role) override {
    std::optional<StagedInt> &known = lengths[unsigned(role)];
    if (!known)
      known = unknown(48);
    return *known;
  }
  StagedInt scalar(StagedIntBuilder &, unsigned capture) override { return numberOf({capture, -1}, 63); }
  StagedInt extent(StagedIntBuilder &, unsigned capture, unsigned dim) override {
    auto type = cast<ShapedType>(op.getCaptures()[capture].getType());
    return type.isDynamicDim(dim) ? numberOf({capture, int(dim)}, 48) : StagedInt(type.getDimSize(dim));
  }
  std::optional<Interval> elements(StagedIntBuilder &, unsigned capture, ArrayRef<Interval>) override {
    tables.insert(capture);
    return Interval(unknown(63), unknown(63));
  }

  Block block;
  llvm::SmallSetVector<unsigned, 4> tables;

private:
  StagedInt numberOf(std::pair<unsigned, int> key, unsigned bits) {
    auto known = numbers.find(key);
    return known != numbers.end() ? known->second : numbers.emplace(key, unknown(bits)).first->second;
  }

  ScoringOpInterface op;
  std::optional<StagedInt> lengths[2];
  std::map<std::pair<unsigned, int>, StagedInt> numbers;
};

} // namespace

MaskProof saccade::attn::proveMask(ScoringOpInterface op) {
  MaskProof proof;
  KeyBounds bounds(op);
  proof.isExact = bounds.isExact();
  proof.hasBounds = !bounds.getConstraints().empty();
  if (op.getMask().empty()) {
    proof.seesFirstKey = proof.seesPositionZero = true;
    return proof;
  }
  UnknownInputs inputs(op);
  OpBuilder b(op->getContext());
  b.setInsertionPointToEnd(&inputs.block);
  auto analyze = [&](Interval query, Interval key) {
    StagedIntBuilder numbers(b, op->getLoc());
    MaskBox box{inputs.unknown(48), inputs.unknown(48), query, key};
    return analyzeMask(op.getMask(), box, inputs, numbers);
  };
  Coverage any = analyze({inputs.unknown(48), inputs.unknown(48)}, {inputs.unknown(48), inputs.unknown(48)});
  proof.canBeEmpty = !any.mayHold.isConstant(1);
  proof.canBeFull = !any.mayFail.isConstant(1);
  proof.tables = llvm::to_vector(inputs.tables);
  // There are fewer than 2^40 queries.
  proof.seesPositionZero = analyze({0, inputs.unknown(40)}, StagedInt(0)).mayFail.isConstant(0);
  // With `at` the first key and query are not at position 0.
  proof.seesFirstKey = proof.seesPositionZero && op.getAt().empty();
  return proof;
}
