//===- ApplySchedules.cpp - Tile sizes from a table ---------------------------===//
//
// Sets the schedules that a table has for classes of attention. It runs before attn-assign-schedule, which keeps them.
//
//===----------------------------------------------------------------------===//
#include "mlir/IR/BuiltinOps.h"
#include "saccade/Dialect/Attn/Analysis/ProductForm.h"
#include "saccade/Schedule/Passes.h"
#include "saccade/Support/CPUTarget.h"
#include "saccade/Support/GPUTarget.h"
#include "saccade/Support/Kernels.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

namespace saccade {
#define GEN_PASS_DEF_APPLYSCHEDULES
#include "saccade/Schedule/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

std::optional<std::string> saccade::findMistakeInRows(int64_t rows, Type element, const CPUTarget *cpu,
                                                      const GPUTarget *gpu) {
  if (gpu) {
    bool hasWarpgroups = gpu->hasBulkCopy && (element.isF16() || element.isBF16());
    int64_t most = hasWarpgroups ? maxWarpgroupRows : threadsPerCTA;
    if (rows <= most)
      return std::nullopt;
    return "expected at most " + std::to_string(most) +
           (hasWarpgroups ? ", the rows of three warpgroups" : ", the threads of a CTA");
  }
  if (rows % chooseAttentionProduct(*cpu, element, rows).groupRows() == 0)
    return std::nullopt;
  return "expected a multiple of " + std::to_string(rowGroup) +
         (chooseAttentionProduct(*cpu, element).inTiles ? " or " + std::to_string(tileRowGroup) : std::string());
}

namespace {

/// The tile sizes of a class of attention.
struct Entry {
  std::string target, element;
  int64_t headSize = 0, valueHeadSize = 0, rows = 0, cols = 0;

  auto key() const { return std::tie(target, element, headSize, valueHeadSize); }
};

/// The maximum nesting of a table, of which the objects in `entries` are the third level.
constexpr unsigned maxDepth = 64;

struct Table {
  int64_t version = 0;
  std::vector<Entry> entries;
};

bool fromJSON(const llvm::json::Value &value, Entry &entry, llvm::json::Path path) {
  llvm::json::ObjectMapper map(value, path);
  if (!map || !map.map("target", entry.target) || !map.map("element", entry.element) ||
      !map.map("head_size", entry.headSize) || !map.map("value_head_size", entry.valueHeadSize) ||
      !map.map("rows", entry.rows) || !map.map("cols", entry.cols))
    return false;
  for (auto [name, size] : {std::pair("head_size", entry.headSize), std::pair("value_head_size", entry.valueHeadSize),
                            std::pair("rows", entry.rows), std::pair("cols", entry.cols)})
    if (size < 1 || size > 1 << 20) {
      path.field(name).report("expected a number from 1 to 1048576");
      return false;
    }
  return true;
}

bool fromJSON(const llvm::json::Value &value, Table &table, llvm::json::Path path) {
  llvm::json::ObjectMapper map(value, path);
  if (!map || !map.map("version", table.version))
    return false;
  if (table.version != 1) {
    path.field("version").report("expected version 1");
    return false;
  }
  return map.map("entries", table.entries);
}

/// Where the entries of a table are. JSON that is parsed has no places.
struct Places {
  std::vector<unsigned> lines; ///< of the objects in an array of the outermost object
  unsigned depth = 0;          ///< the maximum nesting

  explicit Places(StringRef text) {
    unsigned line = 1, level = 0;
    bool isString = false;
    for (size_t i = 0; i < text.size(); ++i) {
      line += text[i] == '\n';
      if (isString && text[i] == '\\')
        ++i;
      else if (text[i] == '"')
        isString = !isString;
      else if (!isString && StringRef("{[").contains(text[i])) {
        depth = std::max(depth, ++level);
        if (level == 3 && text[i] == '{')
          lines.push_back(line);
      } else if (!isString && StringRef("}]").contains(text[i]) && level > 0) {
        --level;
      }
    }
  }

  unsigned lineOf(size_t entry) const { return entry < lines.size() ? lines[entry] : 1; }
};

/// The element types of attention that have classes.
Type parseElement(StringRef name, MLIRContext *context) {
  return llvm::StringSwitch<Type>(name)
      .Case("f64", Float64Type::get(context))
      .Case("f32", Float32Type::get(context))
      .Case("f16", Float16Type::get(context))
      .Case("bf16", BFloat16Type::get(context))
      .Default({});
}

/// Why an entry cannot be applied; nullopt if it can.
std::optional<std::string> findMistake(const Entry &entry, MLIRContext *context) {
  const CPUTarget *cpu = lookupCPUTarget(entry.target);
  const GPUTarget *gpu = lookupGPUTarget(entry.target);
  if (!cpu && !gpu)
    return ("target '" + entry.target + "' is not supported, expected one of " + cpuTargetNames() + ", " +
            gpuTargetNames())
        .str();
  Type element = parseElement(entry.element, context);
  if (!element)
    return "element '" + entry.element + "' is not supported, expected f64, f32, f16 or bf16";
  if (std::optional<std::string> mistake = findMistakeInRows(entry.rows, element, cpu, gpu))
    return "rows are " + std::to_string(entry.rows) + ", " + *mistake;
  return std::nullopt;
}

struct ApplySchedules : saccade::impl::ApplySchedulesBase<ApplySchedules> {
  using ApplySchedulesBase::ApplySchedulesBase;

  LogicalResult initialize(MLIRContext *) override {
    // `read` reports a file that cannot be read.
    if (text.empty())
      if (llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> file = llvm::MemoryBuffer::getFile(table, /*IsText=*/true))
        text = " " + (*file)->getBuffer().str(); // options lose braces around the whole value
    return success();
  }

  FailureOr<Table> read() {
    auto refuse = [&](const llvm::Twine &reason) {
      getOperation().emitError("cannot read the schedule table '") << table << "': " << reason;
      return failure();
    };
    if (text.empty())
      if (std::error_code error = llvm::MemoryBuffer::getFile(table).getError())
        return refuse(error.message());
    Places places(text);
    // The parser of LLVM recurses.
    if (places.depth > maxDepth)
      return refuse("it is nested more than " + llvm::Twine(maxDepth) + " levels deep");
    llvm::Expected<Table> parsed = llvm::json::parse<Table>(text, "table");
    if (!parsed)
      return refuse(llvm::toString(parsed.takeError()));
    auto locate = [&](size_t entry) {
      return FileLineColLoc::get(&getContext(), table, places.lineOf(entry), /*column=*/1);
    };
    for (auto [i, entry] : llvm::enumerate(parsed->entries)) {
      if (std::optional<std::string> mistake = findMistake(entry, &getContext()))
        return emitError(locate(i)) << "entry " << i << " of the schedule table: " << *mistake;
      for (size_t other = 0; other < i; ++other)
        if (parsed->entries[other].key() == entry.key())
          return emitError(locate(i)) << "entry " << i << " of the schedule table is for the class of entry " << other;
    }
    return *parsed;
  }

  void runOnOperation() override {
    FailureOr<Table> known = read();
    if (failed(known))
      return signalPassFailure();
    // "host" is the target of this machine.
    const CPUTarget *cpu = lookupCPUTarget(target);
    if (!cpu && !requireGPUTarget(getOperation(), target))
      return signalPassFailure();
    StringRef name = cpu ? cpu->name : StringRef(target);
    getOperation().walk([&](attn::AttentionOp op) {
      if (op.getScheduleAttr())
        return;
      std::string element;
      llvm::raw_string_ostream(element) << getElementTypeOrSelf(op.getQuery());
      auto headSize = [](Value operand, attn::DimsAttr dims) {
        return attn::getStaticDimSize(operand, dims, attn::Dim::Depth);
      };
      int64_t depth = headSize(op.getKey(), op.getKeyDims()), valueDepth = headSize(op.getValue(), op.getValueDims());
      for (const Entry &entry : known->entries)
        if (entry.target == name && entry.element == element && entry.headSize == depth &&
            entry.valueHeadSize == valueDepth) {
          // The tile sizes of split-KV do not depend on the entry. On GPUs attn-assign-gpu-schedule adds them.
          if (cpu)
            assignSchedule(op, *cpu);
          op.setScheduleAttr(attn::ScheduleAttr::get(&getContext(), entry.rows, entry.cols, /*depth=*/0));
        }
    });
  }
};

} // namespace
