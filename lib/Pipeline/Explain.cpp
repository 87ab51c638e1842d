//===- Explain.cpp - Report on a compiled program -----------------------------===//
//
// Runs the stages up to the schedule on a copy, in which attention is not tiled yet, and runs the same analyses as
// later stages. Kernels are matched to their attention by location.
//
//===----------------------------------------------------------------------===//
#include "saccade/Pipeline/Explain.h"
#include "ExplainRecord.h"
#include "GivenSizes.h"
#include "ScriptedTiling.h"
#include "Stages.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "saccade/Bufferize/Bufferize.h"
#include "saccade/Dialect/Attn/Analysis/MaskCount.h"
#include "saccade/Dialect/Attn/Analysis/MaskProof.h"
#include "saccade/Dialect/Attn/Analysis/ProductForm.h"
#include "saccade/Dialect/Attn/Analysis/Stability.h"
#include "saccade/Dialect/Attn/IR/Position.h"
#include "saccade/Import/Raise/Passes.h"
#include "saccade/Pipeline/RunPipeline.h"
#include "saccade/Pipeline/StageMark.h"
#include "saccade/Support/Kernels.h"
#include "saccade/Target/Device.h"
#include "saccade/Tiling/Passes.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

/// The maximum number of boxes that are classified for an attention; this takes about a second.
static constexpr int64_t maxBoxes = 400'000;
/// The maximum size, such that sums and products fit 64 bits.
static constexpr int64_t maxPositions = int64_t(1) << 30;
/// Cells of the picture. Characters are about twice as high as wide.
static constexpr int64_t pictureWidth = 32, pictureHeight = 16;

Explanation::Explanation() = default;
Explanation::~Explanation() = default;

/// "12,345,678"
static std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  for (int64_t i = int64_t(digits.size()) - 3; i > 0; i -= 3)
    digits.insert(i, ",");
  return digits;
}

static std::string formatted(const char *format, double number) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format(format, number);
  return text;
}

static std::string percent(int64_t part, int64_t whole) {
  return formatted("%.1f %%", whole == 0 ? 0.0 : 100.0 * double(part) / double(whole));
}

/// "8.59 GFLOP"
static std::string work(double flops) {
  StringRef units[] = {"", "k", "M", "G", "T", "P", "E"};
  unsigned unit = 0;
  for (; flops >= 1000 && unit + 1 < std::size(units); ++unit)
    flops /= 1000;
  return formatted(unit == 0 ? "%.0f" : "%.2f", flops) + " " + units[unit].str() + "FLOP";
}

namespace {

/// Fills the report on an attention, except for its kernels.
class AttentionReport {
public:
  /// The tiles that kernels of a GPU test follow from their registers during code generation; they are not reported.
  AttentionReport(AttentionOp op, KnownSizes &sizes, const CPUTarget &target, bool isForGPU, bool isTiledByScript,
                  Explanation::Attention &into)
      : op(op), sizes(sizes), target(target), isForGPU(isForGPU), isTiledByScript(isTiledByScript), into(into) {}

  void write();

private:
  void writeInt8Obstacle();
  void writeMask();
  void writeSizes();
  bool resolveInputs(StaticMaskInputs &inputs);
  MaskTiling tilingOf(int64_t queries);
  void writeCounts(StaticMaskInputs &inputs);
  /// `pairs` of all planes that are counted; `each`: the operations of a pair in all their copies.
  void addNumbers(const MaskCount &total, const MaskTiling &tiling, int64_t pairs, double each);
  std::string captureName(unsigned capture);
  bool isRead(Value argument) { return argument && !argument.use_empty(); }
  void addLine(StringRef name, const llvm::Twine &text) { into.lines.push_back({name.str(), text.str()}); }

  AttentionOp op;
  KnownSizes &sizes;
  const CPUTarget &target;
  bool isForGPU, isTiledByScript;
  MaskProof proof;
  Explanation::Attention &into;
  int64_t firstQuery = 0, firstKey = 0, queries = 0, keys = 0;
  bool isSplitKV = false;
};

std::string AttentionReport::captureName(unsigned capture) {
  std::string name = sizes.nameOf(op.getCaptures()[capture]);
  return name.empty() ? "capture #" + std::to_string(capture) : "'" + name + "'";
}

/// Says why an attention with `qk_type(i8)` has no int8 scores, if so; its kernels say where they are used.
void AttentionReport::writeInt8Obstacle() {
  Type element = getElementTypeOrSelf(op.getQuery());
  if (isForGPU)
    addLine("int8 scores", "not used, kernels of GPUs have none");
  else if (target.int8Dot == Int8Dot::None)
    addLine("int8 scores", "not used, target '" + target.name + "' has no instruction for products of int8");
  else if (chooseAttentionProduct(target, element).inTiles)
    addLine("int8 scores", "not used, tile registers multiply " + llvm::formatv("{0}", element).str() + " faster");
}

void AttentionReport::writeMask() {
  if (op.getMask().empty())
    return addLine("mask", "none, every tile of keys is full");
  if (proof.isExact)
    return addLine("mask", "closed form, equivalent to bounds of the key loop");
  std::string text;
  if (proof.hasBounds)
    text += "bounds of the key loop in closed form, and ";
  if (!proof.canBeEmpty && !proof.canBeFull)
    return addLine("mask", text + "evaluated for every pair, no tile can be proved empty or full");
  text += "each tile of keys is tested";
  text += proof.canBeEmpty && proof.canBeFull ? " for being empty or full"
          : proof.canBeEmpty                  ? " for being empty"
                                              : " for being full";
  if (!proof.tables.empty()) {
    text += ", by tables of minima and maxima of ";
    llvm::interleave(proof.tables, [&](unsigned capture) { text += captureName(capture); }, [&] { text += ", "; });
    text += ": the result depends on data";
  }
  addLine("mask", text);
}

/// Sets the inputs of the mask; false if some are not known.
bool AttentionReport::resolveInputs(StaticMaskInputs &inputs) {
  for (auto [i, capture] : llvm::enumerate(op.getCaptures())) {
    if (auto type = dyn_cast<RankedTensorType>(capture.getType())) {
      for (unsigned dim = 0; dim < type.getRank(); ++dim)
        if (std::optional<int64_t> extent = sizes.extentOf(capture, dim))
          inputs.extents[{unsigned(i), dim}] = *extent;
    } else if (capture.getType().isIntOrIndex()) {
      if (std::optional<int64_t> number = sizes.valueOf(capture))
        inputs.scalars[i] = *number;
    }
  }
  (void)classifyMask(op.getMask(), {0, 0, firstQuery, queries, firstKey, keys}, inputs);
  for (unsigned capture : inputs.missing) {
    std::string name = sizes.nameOf(op.getCaptures()[capture]);
    bool isScalar = op.getCaptures()[capture].getType().isIntOrIndex();
    addLine("counts", "not known, the mask reads " + llvm::Twine(isScalar ? "the scalar " : "extents of ") +
                          captureName(capture) +
                          (isScalar && !name.empty() ? "; give --explain-size=" + name + "=NUMBER" : std::string()));
  }
  return inputs.missing.empty();
}

MaskTiling AttentionReport::tilingOf(int64_t queries) {
  FloatType type = cast<ScoringOpInterface>(op.getOperation()).getScoreType();
  int64_t panel = 2 * target.lanes(type.getWidth()), taskRows = op.getScheduleAttr().getRows();
  Type element = getElementTypeOrSelf(op.getQuery());
  int64_t group = chooseAttentionProduct(target, element, taskRows).groupRows();
  int64_t block = isSplitKV ? std::min(queries, op.getSplitKvAttr().getQueries()) : 0;
  if (isSplitKV)
    return {block,
            op.getSplitKvAttr().getCols(),
            block,
            proof.isExact ? 4 : panel,
            proof.isExact ? 4 : panel,
            /*hasHoles=*/false};
  return {queriesPerTask(op.getContext(), queries, op.getScheduleAttr()), op.getScheduleAttr().getCols(), group, panel,
          proof.isExact ? panel / 2 : panel};
}

void AttentionReport::writeSizes() {
  if (op.isRagged())
    return addLine("sizes", "those of ragged sequences, known at run time only");
  std::string missing;
  for (auto [name, size] : {std::pair("b", sizes.batches), std::pair("h", sizes.heads), std::pair("q", sizes.queries),
                            std::pair("k", sizes.keys)})
    if (!size)
      missing += (missing.empty() ? "" : ",") + std::string(name) + "=...";
  if (!missing.empty())
    return addLine("sizes", "known at run time only; for counts and a picture give --explain-size=" + missing);
  std::string text = "b=" + grouped(*sizes.batches) + " h=" + grouped(*sizes.heads) + " q=" + grouped(*sizes.queries) +
                     " k=" + grouped(*sizes.keys);
  queries = *sizes.queries, keys = *sizes.keys;
  if (!op.getAt().empty()) {
    auto at = attn::Position::of(op.getAt());
    std::optional<int64_t> query = sizes.valueOf(at.query), key = sizes.valueOf(at.key);
    for (auto [role, position, known] : {std::tuple("query", at.query, query), std::tuple("key", at.key, key)})
      if (!known) {
        std::string name = sizes.nameOf(position);
        addLine("sizes", text);
        return addLine("counts", "not known, the position of the first " + llvm::Twine(role) + " is given at run time" +
                                     (name.empty() ? "" : "; give --explain-size=" + name + "=NUMBER"));
      }
    firstQuery = *query, firstKey = *key;
    text += " at q=" + grouped(firstQuery) + ", k=" + grouped(firstKey);
  }
  StaticMaskInputs inputs;
  inputs.queryLength = firstQuery + queries, inputs.keyLength = firstKey + keys;
  for (auto [name, length, end, count, first] :
       {std::tuple("q_len", op.getQLen(), &inputs.queryLength, &queries, firstQuery),
        std::tuple("kv_len", op.getKvLen(), &inputs.keyLength, &keys, firstKey)}) {
    if (!length)
      continue;
    std::optional<int64_t> known = isa<RankedTensorType>(length.getType()) ? std::nullopt : sizes.valueOf(length);
    if (!known) {
      text += std::string(" (") + name + " taken as " + grouped(*end) + ")";
      continue;
    }
    *end = *known;
    *count = std::clamp<int64_t>(*known - first, 0, *count);
    text += std::string(" ") + name + "=" + grouped(*known);
  }
  addLine("sizes", text);
  into.numbers["sizes"] =
      llvm::json::Object{{"b", *sizes.batches}, {"h", *sizes.heads}, {"q", *sizes.queries}, {"k", *sizes.keys}};
  if (queries <= 0 || keys <= 0 || *sizes.batches == 0 || *sizes.heads == 0)
    return addLine("counts", "no pairs");
  for (int64_t size : {*sizes.batches, *sizes.heads, queries, keys, std::abs(firstQuery), std::abs(firstKey)})
    if (size > maxPositions)
      return addLine("counts", "sizes beyond " + grouped(maxPositions) + " are not counted");
  // The run-time test compares the extent, not the length.
  isSplitKV =
      op.getSplitKvAttr() && (op.getSplitKvAttr().getAll() || *sizes.queries <= op.getSplitKvAttr().getQueries());
  if (resolveInputs(inputs))
    writeCounts(inputs);
}

void AttentionReport::writeCounts(StaticMaskInputs &inputs) {
  // A mask that does not read batch or head is the same for all.
  int64_t batches = *sizes.batches, heads = *sizes.heads;
  bool hasBatches = false, hasHeads = false;
  if (!op.getMask().empty()) {
    RegionArguments arguments = getRegionArguments(op.getMask(), /*numbers=*/0);
    hasBatches = isRead(arguments.batch), hasHeads = isRead(arguments.head);
  }
  MaskTiling tiling = tilingOf(queries);
  MaskPlane plane{0, 0, firstQuery, queries, firstKey, keys};
  MaskCount total;
  int64_t budget = maxBoxes;
  for (int64_t batch = 0; batch < (hasBatches ? batches : std::min<int64_t>(batches, 1)); ++batch)
    for (int64_t head = 0; head < (hasHeads ? heads : std::min<int64_t>(heads, 1)); ++head) {
      plane.batch = batch, plane.head = head;
      std::optional<MaskCount> counted = countMask(op.getMask(), plane, tiling, inputs, budget);
      if (!counted)
        return addLine("counts", "there are too many tiles to count");
      total += *counted;
    }
  std::string where = hasBatches && hasHeads ? "all batches and heads"
                      : hasBatches           ? "all batches, a head"
                      : hasHeads             ? "all heads, a batch"
                                             : "a batch and head";
  if (!isForGPU)
    addLine("tiles",
            grouped(total.tiles()) + " of " + grouped(tiling.rows) + " queries x " + grouped(tiling.cols) +
                " keys in " + where + ": " + grouped(total.empty) + " empty, " + grouped(total.full) + " full, " +
                grouped(total.partial) + " partial" +
                (total.dataDependent ? ", " + grouped(total.dataDependent) + " decided by data at run time" : ""));
  int64_t planes = (hasBatches ? batches : 1) * (hasHeads ? heads : 1),
          copies = batches * heads / std::max<int64_t>(planes, 1);
  int64_t pairs = queries * keys * planes;
  std::string computed;
  if (!isForGPU)
    computed = std::string(", ") + (total.dataDependent ? "at most " : "") + grouped(total.computed) + " computed (" +
               percent(total.computed, pairs) + ")";
  addLine("pairs", grouped(pairs) + ", " + (total.isExact ? "" : "at most ") + grouped(total.visible) + " visible (" +
                       percent(total.visible, pairs) + ")" + computed);
  double each = 2.0 *
                double(getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Depth) +
                       getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Depth)) *
                double(copies);
  addLine("work", (isForGPU ? std::string() : work(each * double(total.computed)) + " of ") +
                      work(each * double(pairs)) + " dense, " + (total.isExact ? "" : "at most ") +
                      work(each * double(total.visible)) + " needed");
  addNumbers(total, tiling, pairs, each);
  if (op.getMask().empty())
    return;
  plane.batch = plane.head = 0;
  SmallVector<std::string> picture = drawMask(op.getMask(), plane, pictureWidth, pictureHeight, inputs);
  std::string of = hasBatches || hasHeads ? " of the first batch and head" : "";
  addLine("picture" + of, llvm::Twine("queries down, keys to the right; # full, + partial, . empty") +
                              (total.dataDependent ? ", ? decided by data" : ""));
  into.picture.assign(picture.begin(), picture.end());
}

void AttentionReport::addNumbers(const MaskCount &total, const MaskTiling &tiling, int64_t pairs, double each) {
  using llvm::json::Object;
  Object ofPairs{{"all", pairs}, {"visible", total.visible}, {"visible_is_exact", total.isExact}};
  Object flops{{"dense", each * double(pairs)}, {"needed", each * double(total.visible)}};
  if (!isForGPU) {
    ofPairs["computed"] = total.computed;
    flops["computed"] = each * double(total.computed);
    into.numbers["tiles"] = Object{{"queries", tiling.rows},        {"keys", tiling.cols}, {"all", total.tiles()},
                                   {"empty", total.empty},          {"full", total.full},  {"partial", total.partial},
                                   {"by_data", total.dataDependent}};
  }
  into.numbers["pairs"] = std::move(ofPairs);
  into.numbers["flops"] = std::move(flops);
}

void AttentionReport::write() {
  proof = proveMask(cast<ScoringOpInterface>(op.getOperation()));
  ScheduleAttr schedule = op.getScheduleAttr();
  std::string text = "tasks of at most " + grouped(schedule.getRows()) + " queries" +
                     (isForGPU ? "" : ", steps of " + grouped(schedule.getCols()) + " keys");
  if (SplitKVAttr splitKV = op.getSplitKvAttr(); splitKV && splitKV.getAll())
    text = "all queries in blocks of " + grouped(splitKV.getQueries()) + ": tasks of " + grouped(splitKV.getCols()) +
           " keys, unpacked; the bits of a query do not depend on other queries";
  else if (splitKV)
    text += "; up to " + grouped(splitKV.getQueries()) + " queries: tasks of " + grouped(splitKV.getCols()) + " keys" +
            (isForGPU ? "" : ", unpacked");
  if (isTiledByScript)
    text += "; tiled by a script, counts suppose tasks of equal sizes";
  addLine("schedule", text);
  if (op.getStickBreaking())
    addLine("normalizer", "stick_breaking, each key takes a part of what later keys leave");
  if (op.getQkTypeAttr())
    writeInt8Obstacle();
  writeMask();
  Stability stability = analyzeStability(op);
  addLine("stability",
          llvm::Twine(stability.finiteMax == FiniteMax::Never ? "guarded, " : "proved, ") + stability.reason);
  writeSizes();
}

} // namespace

/// "program.mlir:4:8", or empty if the location is not known.
static std::string placeOf(Location loc) {
  std::string text;
  if (auto place = loc->findInstanceOf<FileLineColLoc>())
    llvm::raw_string_ostream(text) << place.getFilename().getValue() << ':' << place.getLine() << ':'
                                   << place.getColumn();
  return text;
}

/// A name as that of a kernel of a GPU, which has no points.
static std::string symbolOf(StringRef name) {
  std::string symbol = name.str();
  llvm::replace(symbol, '.', '_');
  return symbol;
}

std::unique_ptr<Explanation> Explanation::create(ModuleOp program, const CompileOptions &options,
                                                 std::vector<GivenSize> sizes) {
  size_t last = findStage("schedule"), passed = findStage(getStageOf(program));
  if (passed > last && passed < getStages().size()) {
    emitError(program.getLoc()) << "the report needs the attention of the program, which is tiled after '"
                                << getStages()[last].name << "'; the program has passed '" << getStages()[passed].name
                                << "'";
    return nullptr;
  }
  CompileOptions upToSchedule = options;
  upToSchedule.stopAfter = "schedule";
  llvm::erase_if(upToSchedule.insertions, [&](const Insertion &insertion) {
    return findStage(StringRef(insertion.point).split('.').first) > last;
  });
  upToSchedule.dumpStages.clear();
  upToSchedule.lint = false;
  upToSchedule.remarks = true;
  OwningOpRef<ModuleOp> copy = program.clone();
  std::unique_ptr<Explanation> report(new Explanation);
  if (auto place = program.getLoc()->findInstanceOf<FileLineColLoc>())
    report->program = place.getFilename().str();
  report->target = targetName(options);
  {
    // Remarks of attn-raise-attention become lines of the report; other diagnostics are passed on.
    ScopedDiagnosticHandler remarks(program.getContext(), [&](Diagnostic &diagnostic) {
      std::string text = diagnostic.str();
      if (!StringRef(text).starts_with(notRaised))
        return failure();
      report->softmaxes.push_back({placeOf(diagnostic.getLocation()), text});
      return success();
    });
    if (passed != last && failed(runPipeline(*copy, upToSchedule)))
      return nullptr;
  }
  FailureOr<ScriptedTiling> scripted = ScriptedTiling::run(*copy, options);
  if (failed(scripted))
    return nullptr;
  report->sizes = std::move(sizes);
  report->isUsed.resize(report->sizes.size());
  for (auto function : copy->getOps<func::FuncOp>()) {
    auto entry = function->getAttrOfType<DictionaryAttr>("attn.entry");
    if (!entry)
      continue;
    StringRef name = entry.getAs<StringAttr>("name").getValue();
    SmallVector<StringRef> names = llvm::map_to_vector(entry.getAs<ArrayAttr>("names").getAsValueRange<StringAttr>(),
                                                       [](StringRef each) { return each; });
    names.truncate(function.getNumArguments());
    function.walk([&](AttentionOp op) {
      bool isTiled = scripted->apply(op);
      KnownSizes known(op, name, names, report->sizes, report->isUsed);
      bool hasTangents = function
                             .walk([&](JvpOp jvp) {
                               return jvp.getLoc() == op.getLoc() ? WalkResult::interrupt() : WalkResult::advance();
                             })
                             .wasInterrupted();
      report->attentions.push_back({.function = name.str(),
                                    .place = placeOf(op.getLoc()),
                                    .hasTangents = hasTangents,
                                    .loc = op.getLoc(),
                                    .prefix = symbolOf(name.str() + "."),
                                    .kernels = {},
                                    .lines = {},
                                    .picture = {},
                                    .numbers = {}});
      AttentionReport(op, known, *options.target, options.device, isTiled, report->attentions.back()).write();
    });
  }
  return report;
}

void Explanation::addKernels(ModuleOp compiled) {
  compiled.walk([&](Operation *op) {
    if (auto amount = op->getAttrOfType<StringAttr>(prepacksAttr))
      if (auto name = op->getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName());
          name && !name.getValue().starts_with("_mlir_ciface_"))
        prepacked.push_back({name.getValue().rsplit('.').first.str(), amount.getValue().str()});
    auto family = op->getAttrOfType<StringAttr>(familyAttr);
    auto name = op->getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName());
    if (!family || !name)
      return;
    StringRef schedule = op->hasAttr(itemCounterAttr) ? ", work items from a counter" : "";
    Kernel kernel{name.str(), family.str(), schedule.str() + describeNotes(op)};
    // Functions that are derived from one have attentions at the same place. Kernels of a gradient function, which has
    // none of its own, belong to the function before it: 'f' for 'f_gradient'.
    std::string symbol = symbolOf(name.getValue());
    auto matched = [&](const Attention &each) {
      return StringRef(symbol).starts_with(each.prefix) ? each.prefix.size() : 0;
    };
    size_t longest = 0;
    for (const Attention &each : attentions)
      if (each.loc == op->getLoc())
        longest = std::max(longest, matched(each));
    SmallVector<Attention *> found;
    for (Attention &each : attentions)
      if (each.loc == op->getLoc() && matched(each) == longest)
        found.push_back(&each);
    for (Attention *attention : found)
      attention->kernels.push_back(kernel);
    if (found.empty())
      otherKernels.push_back(kernel);
  });
}

std::vector<std::string> Explanation::unusedSizes() const {
  std::vector<std::string> unused;
  for (auto [size, isUsed] : llvm::zip_equal(sizes, isUsed))
    if (!isUsed)
      unused.push_back((size.function.empty() ? "" : size.function + ":") + size.name);
  return unused;
}

void Explanation::addResources(llvm::ArrayRef<KernelReport> kernels) {
  for (const KernelReport &kernel : kernels)
    resources.push_back({kernel.name, kernel.registers, kernel.stack, kernel.spillStores + kernel.spillLoads});
}
