//===- RaisingSearch.cpp - Whatever is raised equals the plain graph ------===//
//
// raising-search GRAPHS [--seed=N] [--count=N] [--case=N]: reads functions that are all raised to attention, draws near
// misses of them, raises these, and compares every raised one with its plain graph in f64. Prints how many near misses
// of each form were raised and refused, and each failure as IR. raising_near_misses.py writes the graphs.
//
//===----------------------------------------------------------------------===//
#include "Search.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Import/Raise/Passes.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/PrettyStackTrace.h"

using namespace mlir;
using namespace saccade;
using search::Random;

static llvm::cl::opt<std::string> input(llvm::cl::Positional, llvm::cl::Required, llvm::cl::desc("GRAPHS"));
static llvm::cl::opt<uint64_t> seed("seed", llvm::cl::init(0));
static llvm::cl::opt<unsigned> count("count", llvm::cl::init(300), llvm::cl::desc("Near misses of all forms together"));
static llvm::cl::opt<int64_t> only("case", llvm::cl::init(-1), llvm::cl::desc("Only this near miss; prints its IR"));
static llvm::cl::opt<unsigned> maxFailures("max-failures", llvm::cl::init(3));

namespace {

struct Counts {
  unsigned raised = 0, refused = 0, undetermined = 0;
};

class Search {
public:
  Search(MLIRContext &context, ModuleOp module)
      : context(context), raising(&context, func::FuncOp::getOperationName()),
        folding(&context, func::FuncOp::getOperationName()) {
    raising.addPass(createRaiseAttention());
    folding.addPass(createCanonicalizerPass());
    folding.addPass(createCSEPass());
    for (auto function : module.getOps<func::FuncOp>())
      (function.getName().starts_with("miss__") ? misses : forms).push_back(function);
  }

  int run();

private:
  /// The near miss of `form` with the changes of `seeds`. Null if they do not fit together.
  OwningOpRef<func::FuncOp> build(func::FuncOp form, ArrayRef<uint64_t> seeds, SmallVectorImpl<std::string> *what);
  /// Raises a copy of `plain` and compares it.
  std::string check(func::FuncOp plain, uint64_t seed, Counts &counts);
  void report(StringRef title, func::FuncOp plain, StringRef difference, ArrayRef<std::string> what);
  void checkForm(func::FuncOp form, unsigned number);
  void checkNearMiss(func::FuncOp form, unsigned number, Counts &counts);

  MLIRContext &context;
  PassManager raising, folding;
  SmallVector<func::FuncOp> forms, misses; ///< raised; near misses that are given
  unsigned failures = 0;
  unsigned hiddenForms = 0; ///< forms without an element that can be compared, because masks hide all rows
  std::string message;      ///< the last diagnostic
};

OwningOpRef<func::FuncOp> Search::build(func::FuncOp form, ArrayRef<uint64_t> seeds,
                                        SmallVectorImpl<std::string> *what) {
  OwningOpRef<func::FuncOp> function = form.clone();
  for (uint64_t each : seeds) {
    Random random(each);
    std::string change = search::mutate(*function, random);
    if (change.empty() || failed(verify(*function)))
      return {};
    if (what)
      what->push_back(change);
  }
  return function;
}

std::string Search::check(func::FuncOp plain, uint64_t argumentSeed, Counts &counts) {
  OwningOpRef<func::FuncOp> raised = plain.clone();
  message.clear();
  if (failed(raising.run(*raised))) {
    // Extents that do not fit together are an error, but not one of raising.
    std::string error = message;
    if (succeeded(reference::interpret(plain, search::drawArguments(plain, 0, argumentSeed))))
      return "the pass fails, or leaves an invalid function: " + error;
    ++counts.refused;
    return "";
  }
  message.clear();
  bool isRaised = false;
  raised->walk([&](attn::AttentionOp) { isRaised = true; });
  if (!isRaised) {
    ++counts.refused;
    return "";
  }
  search::Outcome outcome = search::compare(plain, *raised, argumentSeed);
  if (!outcome.difference.empty()) {
    std::string text;
    llvm::raw_string_ostream os(text);
    raised->print(os);
    return outcome.difference + (message.empty() ? "" : " (" + message + ")") + "; raised to\n" + text;
  }
  ++(outcome.compared ? counts.raised : counts.undetermined);
  return "";
}

void Search::report(StringRef title, func::FuncOp plain, StringRef difference, ArrayRef<std::string> what) {
  ++failures;
  llvm::outs() << "FAILED: " << title << '\n';
  for (const std::string &each : what)
    llvm::outs() << "  " << each << '\n';
  plain.print(llvm::outs());
  llvm::outs() << '\n' << difference << "\n\n";
}

/// The form itself and a rewritten one are raised and agree.
void Search::checkForm(func::FuncOp form, unsigned number) {
  Random random(seed * 7919 + number);
  for (bool isRewritten : {false, true}) {
    OwningOpRef<func::FuncOp> function = form.clone();
    if (isRewritten)
      search::commute(*function, random);
    Counts counts;
    std::string difference = check(*function, seed, counts);
    if (difference.empty() && counts.refused)
      difference = "is not raised";
    hiddenForms += counts.undetermined;
    if (!difference.empty())
      report(form.getName().str() + (isRewritten ? ", rewritten" : ""), *function, difference, {});
  }
}

void Search::checkNearMiss(func::FuncOp form, unsigned number, Counts &counts) {
  Random random((seed * 1000003 + number) * 2654435761u + 1);
  OwningOpRef<func::FuncOp> function;
  SmallVector<uint64_t> seeds;
  for (unsigned attempt = 0; attempt < 200 && !function; ++attempt) {
    seeds.clear();
    for (size_t left = random.chance(0.75) ? 1 : 1 + random.below(3); left > 0; --left)
      seeds.push_back(random.bits());
    function = build(form, seeds, nullptr);
  }
  if (!function)
    return;
  std::string difference = check(*function, number, counts);
  if (difference.empty()) {
    if (only >= 0)
      function->print(llvm::outs());
    return;
  }
  // Reduce: fewer changes, then simpler ops.
  Counts ignored;
  for (size_t i = 0; i < seeds.size() && seeds.size() > 1;) {
    SmallVector<uint64_t> fewer(seeds);
    fewer.erase(fewer.begin() + i);
    OwningOpRef<func::FuncOp> smaller = build(form, fewer, nullptr);
    std::string still = smaller ? check(*smaller, number, ignored) : "";
    if (still.empty()) {
      ++i;
      continue;
    }
    seeds = fewer;
    function = std::move(smaller);
    difference = still;
  }
  SmallVector<std::string> what;
  (void)build(form, seeds, &what);
  OwningOpRef<func::FuncOp> folded = function->clone();
  if (succeeded(folding.run(*folded)))
    if (std::string still = check(*folded, number, ignored); !still.empty()) {
      function = std::move(folded);
      difference = still;
    }
  report(form.getName().str() + ", --seed=" + std::to_string(seed) + " --case=" + std::to_string(number), *function,
         difference, what);
}

int Search::run() {
  ScopedDiagnosticHandler quiet(&context, [&](Diagnostic &diagnostic) {
    message = diagnostic.str();
    return success();
  });
  llvm::MapVector<StringRef, Counts> table, missed;
  if (only < 0)
    for (auto [number, form] : llvm::enumerate(forms))
      if (failures < maxFailures)
        checkForm(form, number);
  for (auto [number, miss] : llvm::enumerate(misses))
    if (StringRef kind = miss.getName().drop_front(6).split("__").first; only < 0 && failures < maxFailures)
      if (std::string difference = check(miss, seed + number, missed[kind]); !difference.empty())
        report(miss.getName(), miss, difference, {});
  for (unsigned number = 0; number < count && failures < maxFailures; ++number) {
    func::FuncOp form = forms[number % forms.size()];
    if (only >= 0 && number != only)
      continue;
    llvm::PrettyStackTraceFormat trace("near miss of %s, --seed=%llu --case=%u", form.getName().str().c_str(),
                                       (unsigned long long)seed, number);
    StringRef group = form.getName().split("__").first;
    checkNearMiss(form, number, table[group]);
  }
  llvm::outs() << llvm::formatv("forms: {0} and as many rewritten, of which {1} cannot be compared\n", forms.size(),
                                hiddenForms);
  failures += hiddenForms * 10 > forms.size();
  auto print = [](StringRef name, const Counts &counts) {
    llvm::outs() << llvm::formatv("{0,-40} raised {1,4}  refused {2,4}  undetermined {3,4}\n", name, counts.raised,
                                  counts.refused, counts.undetermined);
  };
  for (auto &[name, counts] : missed)
    print(("given: " + name).str(), counts);
  Counts all;
  for (auto &[name, counts] : table) {
    print(name, counts);
    all.raised += counts.raised, all.refused += counts.refused, all.undetermined += counts.undetermined;
  }
  llvm::outs() << llvm::formatv("all: raised {0} refused {1} undetermined {2} failed {3}\n", all.raised, all.refused,
                                all.undetermined, failures);
  return failures ? 1 : 0;
}

} // namespace

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  llvm::cl::ParseCommandLineOptions(argc, argv);
  MLIRContext context(MLIRContext::Threading::DISABLED);
  context.allowUnregisteredDialects();
  context.loadDialect<attn::AttnDialect, affine::AffineDialect, arith::ArithDialect, func::FuncDialect,
                      linalg::LinalgDialect, math::MathDialect, scf::SCFDialect, tensor::TensorDialect>();
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(input, &context);
  if (!module)
    return 2;
  return Search(context, *module).run();
}
