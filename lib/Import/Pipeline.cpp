//===- Pipeline.cpp - The import stage ------------------------------------===//
//
// Frontends are a list that only grows, so that it is read without a lock.
//
//===----------------------------------------------------------------------===//
#include "saccade/Import/Import.h"
#include "saccade/Import/Passes.h"
#include <atomic>

using namespace mlir;
using namespace saccade;

namespace {
struct Node {
  Frontend frontend;
  const Node *before;
};
} // namespace

static std::atomic<const Node *> newest = nullptr;

/// The frontends of Saccade.
static ArrayRef<Frontend> ownFrontends() {
  static const Frontend own[] = {
      {"onnx", false, [](OpPassManager &pm) { pm.addPass(createImportOnnx()); }},
      {"stablehlo", false, [](OpPassManager &pm) { pm.addPass(createImportStablehlo()); }},
      {"chlo", false, [](OpPassManager &) {}}, // translated with stablehlo
      {"torch", false, [](OpPassManager &pm) { pm.addPass(createImportTorch()); }},
      {"tosa", true, [](OpPassManager &pm) { pm.addPass(createImportTosa()); }},
  };
  return own;
}

/// All frontends, in the order in which they were registered.
static SmallVector<const Frontend *> frontends() {
  SmallVector<const Frontend *> all;
  for (const Node *node = newest.load(); node; node = node->before)
    all.push_back(&node->frontend);
  for (const Frontend &frontend : llvm::reverse(ownFrontends()))
    all.push_back(&frontend);
  std::reverse(all.begin(), all.end());
  return all;
}

void saccade::registerFrontend(Frontend frontend) {
  if (llvm::any_of(frontends(), [&](const Frontend *known) { return known->dialect == frontend.dialect; }))
    return;
  // In use until the process ends.
  auto *node = new Node{std::move(frontend), newest.load()};
  while (!newest.compare_exchange_weak(node->before, node)) {
  }
}

SmallVector<std::string> saccade::frontendPrefixes() {
  SmallVector<std::string> prefixes;
  for (const Frontend *frontend : frontends())
    if (!frontend->isRegistered)
      prefixes.push_back(frontend->dialect + ".");
  return prefixes;
}

bool saccade::mayHaveFrontendOps(MLIRContext *context) {
  return context->allowsUnregisteredDialects() || llvm::any_of(frontends(), [&](const Frontend *frontend) {
           return frontend->isRegistered && context->getLoadedDialect(frontend->dialect);
         });
}

void saccade::buildImportPipeline(OpPassManager &pm) {
  for (const Frontend *frontend : frontends())
    frontend->addPasses(pm);
}
