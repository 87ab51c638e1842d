//===- Interpreter.cpp - Frontends without code generation, for tests --------===//
//
// Imports a program and evaluates its only public function with the reference interpreter. Elements are passed as f64
// or i64. One program runs at a time and leaves nothing behind.
//
//===----------------------------------------------------------------------===//
#include "saccade/Reference/Interpreter.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Func/Extensions/InlinerExtension.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/AllInterfaces.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/TensorInferTypeOpInterfaceImpl.h"
#include "mlir/Dialect/Tosa/IR/TosaOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Import/Import.h"

using namespace mlir;
using namespace saccade;

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

/// A tensor argument. The elements are double for float types and int64_t otherwise, in row-major order.
struct Argument {
  int64_t rank;
  const int64_t *extents;
  const reference::Scalar *elements;
};

/// What became of a program: its results, or the diagnostics that refused it.
struct Outcome {
  std::string message;
  std::vector<reference::Tensor> results;
  std::vector<std::string> types;
};

} // namespace

static void evaluateFunction(func::FuncOp function, ArrayRef<Argument> arguments, Outcome &outcome) {
  if (function.getNumArguments() != arguments.size()) {
    outcome.message = "found " + std::to_string(arguments.size()) + " arguments for " +
                      std::to_string(function.getNumArguments()) + " of the program";
    return;
  }
  SmallVector<reference::Tensor> values;
  for (auto [type, argument] : llvm::zip_equal(function.getArgumentTypes(), arguments)) {
    reference::Tensor tensor(getElementTypeOrSelf(type), ArrayRef(argument.extents, argument.rank));
    std::copy_n(argument.elements, tensor.values.size(), tensor.values.begin());
    values.push_back(std::move(tensor));
  }
  auto results = reference::interpret(function, values, reference::Precision::Rounded);
  if (failed(results))
    return;
  outcome.results.assign(results->begin(), results->end());
  for (reference::Tensor &each : outcome.results) {
    std::string name;
    llvm::raw_string_ostream(name) << each.elementType;
    outcome.types.push_back(name);
  }
}

namespace {

/// A context and the passes of import. They are made once: for a program of one op they would take most of the time.
struct Importer {
  MLIRContext context;
  PassManager passes;

  Importer() : context(dialects(), MLIRContext::Threading::DISABLED), passes(&context) {
    context.allowUnregisteredDialects();
    context.printOpOnDiagnostic(false);
    buildImportPipeline(passes);
  }

  static DialectRegistry dialects() {
    DialectRegistry registry;
    registry
        .insert<affine::AffineDialect, arith::ArithDialect, attn::AttnDialect, func::FuncDialect, linalg::LinalgDialect,
                math::MathDialect, scf::SCFDialect, tensor::TensorDialect, tosa::TosaDialect>();
    func::registerInlinerExtension(registry);
    linalg::registerAllDialectInterfaceImplementations(registry);
    tensor::registerInferTypeOpInterfaceExternalModels(registry);
    return registry;
  }
};

} // namespace

/// Imports and evaluates a program. Free the outcome with `saccade_outcome_free`.
EXPORTED Outcome *saccade_interpret(const char *text, size_t size, const Argument *arguments, size_t count) {
  static Importer importer;
  auto *outcome = new Outcome;
  ScopedDiagnosticHandler handler(&importer.context, [&](Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error)
      outcome->message += diagnostic.str() + "\n";
    return success();
  });
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(StringRef(text, size), &importer.context);
  if (module && succeeded(importer.passes.run(*module)))
    for (auto function : module->getOps<func::FuncOp>())
      if (function.isPublic())
        evaluateFunction(function, ArrayRef(arguments, count), *outcome);
  if (outcome->results.empty() && outcome->message.empty())
    outcome->message = "the program has no result";
  return outcome;
}

EXPORTED void saccade_outcome_free(Outcome *outcome) { delete outcome; }
/// The errors; empty if there are results.
EXPORTED const char *saccade_outcome_message(Outcome *outcome) { return outcome->message.c_str(); }
EXPORTED size_t saccade_outcome_size(Outcome *outcome) { return outcome->results.size(); }
/// The element type of a result, as MLIR prints it.
EXPORTED const char *saccade_outcome_type(Outcome *outcome, size_t i) { return outcome->types[i].c_str(); }
EXPORTED int64_t saccade_outcome_rank(Outcome *outcome, size_t i) { return outcome->results[i].shape.size(); }
EXPORTED const int64_t *saccade_outcome_extents(Outcome *outcome, size_t i) { return outcome->results[i].shape.data(); }
EXPORTED const void *saccade_outcome_elements(Outcome *outcome, size_t i) { return outcome->results[i].values.data(); }
