//===- ApplySchedules.cpp - Tile sizes from a table ---------------------------===//
//
// Sets the schedules that a table has for classes of attention. It runs before attn-assign-schedule, which keeps them.
//
//===----------------------------------------------------------------------===//
#include "mlir/IR/BuiltinOps.h"
#include "saccade/Schedule/Passes.h"
#include "saccade/Support/CPUTarget.h"
#include "saccade/Support/GPUTarget.h"
#include "saccade/Support/Kernels.h"
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
  if (gpu)
    return rows <= threadsPerCTA
               ? std::nullopt
               : std::optional("expected at most " + std::to_string(threadsPerCTA) + ", the threads of a CTA");
  unsigned packingFactor = cpu->packingFactor(element, element);
  if (rows % cpu->groupRows(packingFactor, rows) == 0)
    return std::nullopt;
  return "expected a multiple of " + std::to_string(rowGroup) +
         (cpu->usesTiles(packingFactor) ? " or " + std::to_string(tileRowGroup) : std::string());
}

namespace {

/// The tile sizes of a class of attention.
struct Entry {
  std::string target, element;
  int64_t headSize = 0, valueHeadSize = 0, rows = 0, cols = 0;
};

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
  for (auto [name, size] : {std::pair("rows", entry.rows), std::pair("cols", entry.cols)})
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

struct ApplySchedules : saccade::impl::ApplySchedulesBase<ApplySchedules> {
  using ApplySchedulesBase::ApplySchedulesBase;

  FailureOr<Table> read() {
    auto refuse = [&](const llvm::Twine &reason) {
      getOperation().emitError("cannot read the schedule table '") << table << "': " << reason;
      return failure();
    };
    llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> file = llvm::MemoryBuffer::getFile(table, /*IsText=*/true);
    if (!file)
      return refuse(file.getError().message());
    llvm::Expected<Table> parsed = llvm::json::parse<Table>((*file)->getBuffer(), "table");
    if (!parsed)
      return refuse(llvm::toString(parsed.takeError()));
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
