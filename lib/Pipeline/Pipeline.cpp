//===- Pipeline.cpp - Stages and inserted passes in one pipeline --------------===//
//
// Adds the passes of stages, the user's passes at their points, and the passes that keep derived facts true.
//
//===----------------------------------------------------------------------===//
#include "saccade/Pipeline/Pipeline.h"
#include "Stages.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassRegistry.h"
#include "saccade/Pipeline/Passes.h"
#include "saccade/Pipeline/Plugins.h"
#include "saccade/Script/Script.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace saccade;
using llvm::StringRef;
using llvm::Twine;

llvm::SmallVector<StringRef> saccade::stageNames() {
  return llvm::map_to_vector(getStages(), [](const Stage &stage) { return stage.name; });
}

llvm::SmallVector<std::string> saccade::insertionPoints() {
  llvm::SmallVector<std::string> points;
  for (const Stage &stage : getStages()) {
    points.push_back(stage.name.str());
    for (StringRef step : stage.steps)
      points.push_back((stage.name + "." + step).str());
  }
  return points;
}

/// Splits a textual pipeline at its outermost commas.
static llvm::SmallVector<StringRef> splitPasses(StringRef passes) {
  llvm::SmallVector<StringRef> elements;
  size_t begin = 0;
  int depth = 0;
  for (auto [i, c] : llvm::enumerate(passes)) {
    depth += StringRef("({[").contains(c) - StringRef(")}]").contains(c);
    if (c == ',' && depth == 0) {
      elements.push_back(passes.slice(begin, i));
      begin = i + 1;
    }
  }
  elements.push_back(passes.drop_front(begin));
  return elements;
}

/// The op that a pass runs on if it is another one than the module; empty otherwise.
static std::string anchorOf(StringRef pass) {
  OpPassManager any;
  if (failed(parsePassPipeline(pass, any, llvm::nulls())) || any.size() != 1)
    return "";
  std::optional<StringRef> anchor = any.begin()->getOpName();
  return anchor && *anchor != ModuleOp::getOperationName() ? anchor->str() : "";
}

LogicalResult saccade::parsePasses(StringRef passes, OpPassManager &pm, std::string &message) {
  std::lock_guard guard(passRegistryLock());
  llvm::raw_string_ostream stream(message);
  for (StringRef pass : splitPasses(passes)) {
    std::string anchor = anchorOf(pass);
    std::string nested = anchor.empty() ? pass.str() : anchor + "(" + pass.str() + ")";
    if (failed(parsePassPipeline(nested, pm, stream))) {
      message = StringRef(message).rtrim().str();
      return failure();
    }
  }
  return success();
}

LogicalResult saccade::addInsertion(const Insertion &insertion, StringRef target, OpPassManager &pm,
                                    std::string &message) {
  if (insertion.script.empty())
    return parsePasses(insertion.passes, pm, message);
  bool isBetweenStages = insertion.isBefore && findStage(insertion.point) < getStages().size();
  pm.addPass(createApplyScript({insertion.script, /*text=*/"", target.str(), isBetweenStages ? insertion.point : ""}));
  return success();
}

std::optional<std::string> saccade::findMistake(const Insertion &insertion) {
  llvm::SmallVector<std::string> points = insertionPoints();
  if (!llvm::is_contained(points, insertion.point))
    return "unknown stage or step '" + insertion.point + "', expected one of " + llvm::join(points, ", ");
  if (!insertion.script.empty()) {
    auto file = llvm::MemoryBuffer::getFile(insertion.script);
    if (file)
      return std::nullopt;
    std::string mistake = "cannot read the script '" + insertion.script + "': " + file.getError().message();
    // parseScript takes a text without a known point as the name of a file.
    if (auto [point, path] = StringRef(insertion.script).split(':'); !path.empty())
      mistake += ("; if '" + point + "' is where the script runs, expected one of ").str() + llvm::join(points, ", ");
    return mistake;
  }
  std::string message;
  OpPassManager pm(ModuleOp::getOperationName());
  if (succeeded(parsePasses(insertion.passes, pm, message)))
    return std::nullopt;
  return "cannot parse the pass pipeline '" + insertion.passes + "': " + message;
}

//===----------------------------------------------------------------------===//
// PipelineBuilder
//===----------------------------------------------------------------------===//

namespace {

class PipelineBuilder {
public:
  PipelineBuilder(OpPassManager &pm, const CompileOptions &options, size_t first, size_t last)
      : pm(pm), options(options), first(first), last(last), isUsed(options.insertions.size(), false) {}

  /// Calls `onStageEnd` when the passes of a stage are complete.
  void build(llvm::function_ref<void(StringRef)> onStageEnd);

  /// The first insertion whose point is not in the pipeline, or null.
  const Insertion *firstUnused() const {
    for (auto [insertion, isUsed] : llvm::zip_equal(options.insertions, isUsed))
      if (!isUsed)
        return &insertion;
    return nullptr;
  }

private:
  bool insert(const Twine &point, bool isBefore);
  void build(const Stage &stage);
  void verify();
  std::string dumped(const Twine &name) const;
  void write(size_t number);

  OpPassManager &pm;
  const CompileOptions &options;
  const size_t first, last; ///< stages
  std::vector<bool> isUsed; ///< for each insertion
};

} // namespace

/// Adds the user's passes at a point; returns whether there are any.
bool PipelineBuilder::insert(const Twine &point, bool isBefore) {
  std::string name = point.str();
  bool isAny = false;
  for (auto [i, insertion] : llvm::enumerate(options.insertions)) {
    if (insertion.point != name || insertion.isBefore != isBefore)
      continue;
    std::string message;
    [[maybe_unused]] LogicalResult parsed = addInsertion(insertion, targetName(options), pm, message);
    assert(succeeded(parsed) && "insertions are checked before");
    isUsed[i] = isAny = true;
  }
  if (!isAny)
    return false;
  // Analyses take valid IR only.
  if (!options.verifyEach)
    pm.addPass(createVerifyIR());
  pm.addPass(createUpdateFacts());
  return true;
}

/// Adds the passes of a stage with those that the user inserts at its steps and at its end.
void PipelineBuilder::build(const Stage &stage) {
  StringRef step;
  auto endStep = [&] { return !step.empty() && insert(stage.name + "." + step, /*isBefore=*/false); };
  stage.build(pm, options, [&](StringRef next) {
    endStep();
    step = next;
    insert(stage.name + "." + step, /*isBefore=*/true);
  });
  bool isChanged = endStep();
  isChanged |= insert(stage.name, /*isBefore=*/false);
  if (isChanged && stage.restore)
    stage.restore(pm, options);
}

void PipelineBuilder::verify() {
  if (!options.verifyEach)
    pm.addPass(createVerifyIR());
  pm.addPass(createVerifyFacts());
}

/// A file of the folder `options.dumpStages`.
std::string PipelineBuilder::dumped(const Twine &name) const {
  llvm::SmallString<128> path(options.dumpStages);
  llvm::sys::path::append(path, name);
  return path.str().str();
}

/// Writes the module after a stage to its file: 1-import.mlir and so on.
void PipelineBuilder::write(size_t number) {
  auto file = [&](size_t i) { return dumped(Twine(i + 1) + "-" + getStages()[i].name + ".mlir"); };
  WriteModuleOptions write{file(number), getStages()[number].name.str(), targetName(options), "", {}};
  if (options.dumpPage) {
    // Written after each stage, so that it is there if a later one fails.
    write.page = dumped("stages.html");
    write.files = llvm::map_to_vector(llvm::seq(first, number), file);
  }
  pm.addPass(createWriteModule(write));
}

void PipelineBuilder::build(llvm::function_ref<void(StringRef)> onStageEnd) {
  llvm::ArrayRef<Stage> stages = getStages();
  pm.addPass(createEnterStage({stages[first].name.str(), targetName(options)}));
  if (first > 0)
    verify();
  for (size_t i = first; i < last; ++i) {
    const Stage &stage = stages[i];
    if (insert(stage.name, /*isBefore=*/true) && i > 0) {
      if (stages[i - 1].restore)
        stages[i - 1].restore(pm, options);
      verify();
    }
    build(stage);
    verify();
    onStageEnd(stage.name);
    if (!options.dumpStages.empty())
      write(i);
  }
  if (!options.stopAfter.empty())
    pm.addPass(createMarkStage({options.stopAfter, targetName(options)}));
}

LogicalResult saccade::buildCompilePipeline(OpPassManager &pm, const CompileOptions &options,
                                            llvm::function_ref<void(const Twine &)> emitError,
                                            llvm::function_ref<void(StringRef)> onStageEnd) {
  size_t count = getStages().size();
  for (StringRef name : {options.start, options.stopAfter})
    if (!name.empty() && findStage(name) == count) {
      emitError("unknown stage '" + name + "', expected one of " + llvm::join(stageNames(), ", "));
      return failure();
    }
  size_t first = options.start.empty() ? 0 : findStage(options.start);
  size_t last = options.stopAfter.empty() ? count : findStage(options.stopAfter) + 1;
  if (first >= last) {
    emitError("the stage '" + options.stopAfter + "' is before '" + options.start + "', where the pipeline starts");
    return failure();
  }
  for (const Insertion &insertion : options.insertions)
    if (std::optional<std::string> mistake = findMistake(insertion)) {
      emitError(*mistake);
      return failure();
    }
  if (!options.dumpStages.empty())
    if (std::error_code error = llvm::sys::fs::create_directories(options.dumpStages)) {
      emitError("cannot create the directory '" + options.dumpStages + "': " + error.message());
      return failure();
    }
  PipelineBuilder builder(pm, options, first, last);
  builder.build(onStageEnd);
  if (const Insertion *unused = builder.firstUnused()) {
    bool isScript = !unused->script.empty();
    emitError((isScript ? "the script '" + unused->script + "' is inserted "
                        : "the passes '" + unused->passes + "' are inserted ") +
              (unused->isBefore ? "before '" : "after '") + unused->point + "', which is not in the pipeline for " +
              targetName(options) + " from '" + getStages()[first].name + "' to '" + getStages()[last - 1].name + "'");
    return failure();
  }
  return success();
}
