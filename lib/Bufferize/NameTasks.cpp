//===- NameTasks.cpp - Names of tasks after their ops -------------------------===//
//
// Profilers, kernels of GPUs and the report of --explain show these names. They state what a task computes, not the
// place of an op in the program: tasks with equal ops are merged, and one task then serves several places.
//
//===----------------------------------------------------------------------===//
#include "NameTasks.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/SymbolTable.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace saccade;

/// The characters of a name without its number, and of the ops in it if the name of the function is long.
static constexpr size_t maxName = 56, minOps = 28;
/// The most words of an elementwise op.
static constexpr size_t maxWords = 4;

/// The word for a scalar op of a structured op; empty for casts, comparisons and computations of indices.
static StringRef wordOf(Operation &op) {
  Type type = op.getNumResults() == 1 ? op.getResult(0).getType() : Type();
  if (!type || type.isIndex() || type.isInteger(1))
    return "";
  StringRef name = op.getName().stripDialect();
  if (isa<math::MathDialect>(op.getDialect()))
    return name == "absf" || name == "absi" ? "abs" : name;
  return llvm::StringSwitch<StringRef>(name)
      .Cases({"addf", "addi"}, "add")
      .Cases({"subf", "subi"}, "sub")
      .Cases({"mulf", "muli"}, "mul")
      .Cases({"divf", "divsi", "divui"}, "div")
      .Cases({"remf", "remsi", "remui"}, "rem")
      .Cases({"maximumf", "maxnumf", "maxsi", "maxui"}, "max")
      .Cases({"minimumf", "minnumf", "minsi", "minui"}, "min")
      .Case("negf", "neg")
      .Case("select", "select")
      .Default("");
}

namespace {

using Words = llvm::SetVector<StringRef>;

/// Describes the ops of one loop.
class TaskDescription {
public:
  explicit TaskDescription(scf::ForallOp loop) {
    loop.getBody()->walk<WalkOrder::PreOrder>([&](Operation *op) { return add(op); });
  }

  std::string str() const;

private:
  WalkResult add(Operation *op);
  void addMatmul(bool hasBias);
  void addStructured(linalg::LinalgOp op);
  void addElementwise(linalg::LinalgOp op, const Words &scalar);
  bool addsVector(linalg::LinalgOp op) const;

  /// Of ops that are named by themselves.
  bool isAttention = false, isSplitKV = false, merges = false, finalizes = false, hasMatmul = false;
  Words words;                                     ///< in the order of the program
  llvm::SmallDenseSet<StringRef> reductions, used; ///< combiners of reductions; all scalar ops
  Words others;                                    ///< "copy", "fill": the name of a task with nothing else
};

} // namespace

WalkResult TaskDescription::add(Operation *op) {
  if (auto step = dyn_cast<attn::AccumulateOp>(op)) {
    isAttention = true, isSplitKV |= step.getUnpacked();
  } else if (isa<attn::MergeOp>(op)) {
    merges = true;
  } else if (isa<attn::FinalizeOp>(op)) {
    finalizes = true;
  } else if (isa<attn::PackOp>(op)) {
    words.insert("pack");
  } else if (auto product = dyn_cast<attn::PackedMatmulOp>(op)) {
    addMatmul(bool(product.getBias()));
  } else if (isa<attn::LoadDequantizedOp>(op)) {
    words.insert("dequantize");
  } else if (isa<attn::LoadPagesOp>(op)) {
    others.insert("load_pages");
  } else if (auto structured = dyn_cast<linalg::LinalgOp>(op)) {
    addStructured(structured);
  } else if (isa<memref::CopyOp>(op)) {
    others.insert("copy");
  } else {
    return WalkResult::advance();
  }
  return WalkResult::skip();
}

void TaskDescription::addMatmul(bool hasBias) {
  hasMatmul = true;
  words.insert("matmul");
  if (hasBias)
    words.insert("bias");
}

void TaskDescription::addStructured(linalg::LinalgOp op) {
  if (isMatmul(op))
    return addMatmul(others.contains("broadcast"));
  if (isa<linalg::CopyOp, linalg::FillOp, linalg::BroadcastOp, linalg::TransposeOp>(op.getOperation())) {
    others.insert(op->getName().stripDialect());
    return;
  }
  Words scalar;
  for (Operation &each : op.getBlock()->without_terminator())
    if (StringRef word = wordOf(each); !word.empty())
      scalar.insert(word);
  used.insert_range(scalar);
  if (op.getNumReductionLoops() == 0)
    return addElementwise(op, scalar);
  // The last op combines an element with the result so far.
  StringRef combiner = scalar.empty() ? "" : scalar.back();
  for (OpOperand &yielded : op.getBlock()->getTerminator()->getOpOperands())
    if (Operation *last = yielded.get().getDefiningOp())
      if (StringRef word = wordOf(*last); !word.empty())
        combiner = word;
  reductions.insert(combiner);
  for (StringRef word : scalar)
    if (word != combiner)
      words.insert(word);
  words.insert(combiner == "add" ? "sum" : combiner.empty() ? "reduce" : combiner);
}

/// Whether an elementwise op adds an operand that has fewer dimensions than the result, such as a bias.
bool TaskDescription::addsVector(linalg::LinalgOp op) const {
  for (OpOperand *input : op.getDpsInputOperands()) {
    if (op.getMatchingIndexingMap(input).getNumResults() == op.getNumLoops())
      continue;
    Value element = op.getMatchingBlockArgument(input);
    while (element.hasOneUse() && isa<CastOpInterface>(*element.user_begin()))
      element = element.user_begin()->getResult(0);
    if (llvm::any_of(element.getUsers(), llvm::IsaPred<arith::AddFOp>))
      return true;
  }
  return false;
}

/// Whether one side of the maxima in the body is the constant 0.
static bool isRelu(linalg::LinalgOp op) {
  return llvm::any_of(op.getBlock()->without_terminator(), [](Operation &each) {
    return isa<arith::MaximumFOp, arith::MaxNumFOp>(each) &&
           llvm::any_of(each.getOperands(), [](Value operand) { return matchPattern(operand, m_AnyZeroFloat()); });
  });
}

void TaskDescription::addElementwise(linalg::LinalgOp op, const Words &scalar) {
  auto has = [&](StringRef word) { return scalar.contains(word); };
  if (scalar.empty()) {
    bool converts = llvm::any_of(*op.getBlock(), [](Operation &each) {
      return isa<CastOpInterface>(each) && !isa<arith::IndexCastOp, arith::IndexCastUIOp>(each);
    });
    others.insert(converts ? "convert" : "copy");
    return;
  }
  // The sum with a bias has that name.
  bool hasBias = hasMatmul && addsVector(op);
  bool isBiasOnly =
      hasBias && llvm::count_if(*op.getBlock(), [](Operation &each) { return isa<arith::AddFOp>(each); }) == 1;
  if (hasBias)
    words.insert("bias");
  // Activation functions have names of their own.
  int64_t products = llvm::count_if(*op.getBlock(), [](Operation &each) { return isa<arith::MulFOp>(each); });
  StringRef activation = has("erf") || (has("tanh") && products >= 3)             ? "gelu"
                         : has("exp") && has("neg") && has("div") && products > 0 ? "silu"
                         : has("exp") && has("neg") && has("div")                 ? "sigmoid"
                         : has("max") && isRelu(op) && !has("sub") && !has("mul") ? "relu"
                                                                                  : "";
  size_t count = 0;
  for (StringRef word : scalar) {
    bool isPart = !activation.empty() && word != "select";
    if (isPart || (word == "add" && isBiasOnly) || ++count > maxWords)
      continue;
    words.insert(word);
  }
  if (!activation.empty())
    words.insert(activation);
}

std::string TaskDescription::str() const {
  if (isAttention)
    return isSplitKV ? "attention.split_kv" : "attention";
  if (merges || finalizes)
    return merges ? "attention.merge" : "attention.finalize";
  if (!hasMatmul && reductions.contains("add")) {
    if (used.contains("rsqrt") || used.contains("sqrt"))
      return used.contains("sub") ? "layer_norm" : "rms_norm";
    if (reductions.contains("max") && (used.contains("exp") || used.contains("exp2")))
      return "softmax";
  }
  const Words &shown = words.empty() ? others : words;
  return shown.empty() ? "loop" : llvm::join(shown, "_");
}

std::string saccade::describeTask(scf::ForallOp loop) {
  if (auto from = loop->getAttrOfType<StringAttr>(attn::tiledFromAttr))
    return from.str();
  return TaskDescription(loop).str();
}

/// The name of a task as that of a kernel.
static std::string kernelNameOf(StringRef name) {
  std::string kernel = name.str();
  for (char &c : kernel)
    if (!llvm::isAlnum(c))
      c = '_';
  return kernel;
}

TaskNames::TaskNames(ModuleOp module) {
  for (auto symbol : module.getOps<SymbolOpInterface>())
    taken.insert(kernelNameOf(symbol.getName()));
}

std::string TaskNames::take(StringRef function, scf::ForallOp loop) {
  function.consume_back(".body");
  std::string ops = describeTask(loop);
  size_t limit = std::max(minOps, maxName - std::min(maxName, function.size() + 1));
  while (ops.size() > limit && ops.find_last_of("_.") != std::string::npos)
    ops.resize(ops.find_last_of("_."));
  std::string first = (function + "." + ops).str(), name = first;
  for (unsigned number = 2; !taken.insert(kernelNameOf(name)).second; ++number)
    name = first + "_" + std::to_string(number);
  return name;
}
