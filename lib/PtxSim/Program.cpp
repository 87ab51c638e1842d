//===- Program.cpp - Loads modules and executes launches ------------------===//

#include "Block.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <algorithm>
#include <atomic>
#include <thread>

using namespace saccade::ptxsim;
using llvm::StringRef;

const char *saccade::ptxsim::name(FindingKind kind) {
  constexpr const char *names[] = {"syntax",      "unsupported", "bad launch",       "out of bounds",
                                   "misaligned",  "read-only",   "uninitialised",    "race",
                                   "divergence",  "deadlock",    "unwaited copy",    "arithmetic",
                                   "bad operand", "trap",        "instruction limit"};
  return names[unsigned(kind)];
}

std::string Finding::str() const {
  std::string where = line ? "line " + std::to_string(line) + ": " : std::string();
  std::string text = where + name(kind) + ": " + message;
  return source.empty() ? text : text + "\n    " + std::to_string(line) + " | " + source;
}

Program::Program(std::unique_ptr<Code> code) : code(std::move(code)) {}
Program::Program(Program &&) noexcept = default;
Program &Program::operator=(Program &&) noexcept = default;
Program::~Program() = default;

namespace {
struct Architecture {
  unsigned number;    ///< of sm_80
  uint32_t maxShared; ///< shared memory of a block, in bytes
};
} // namespace

// The table of compute capabilities in NVIDIA's CUDA C++ Programming Guide.
static constexpr Architecture architectures[] = {{70, 96 << 10},   {72, 96 << 10},   {75, 64 << 10},   {80, 163 << 10},
                                                 {86, 99 << 10},   {87, 163 << 10},  {89, 99 << 10},   {90, 227 << 10},
                                                 {100, 227 << 10}, {103, 227 << 10}, {110, 227 << 10}, {120, 99 << 10},
                                                 {121, 99 << 10}};

/// The architecture of a name such as "sm_80" or "sm_90a", or null.
static const Architecture *findArchitecture(StringRef name) {
  unsigned number = 0;
  if (!name.consume_front("sm_") || name.consumeInteger(10, number) || name.size() > 1)
    return nullptr;
  const auto *found = llvm::find_if(architectures, [&](const Architecture &each) { return each.number == number; });
  return found == std::end(architectures) ? nullptr : found;
}

/// Bytes of parameters that an entry may have (PTX ISA, ".param").
static uint32_t parameterLimit(const Code &code) {
  return code.architecture >= 70 && code.module.version >= std::pair(8u, 1u) ? 32764 : 4352;
}

std::variant<Program, Finding> Program::load(StringRef text, Device &device) {
  Finding finding{FindingKind::Syntax, 0, "", ""};
  auto module = parse(text, finding);
  if (!module)
    return finding;
  auto code = std::make_unique<Code>();
  code->module = std::move(*module);
  code->device = &device;
  StringRef target = StringRef(code->module.target).split(',').first;
  if (!target.empty() && !findArchitecture(target)) {
    auto names =
        llvm::map_range(architectures, [](const Architecture &each) { return "sm_" + llvm::utostr(each.number); });
    auto line = llvm::find_if(code->module.lines, [](StringRef each) { return each.trim().starts_with(".target"); });
    return Finding{FindingKind::Unsupported, unsigned(line - code->module.lines.begin()) + 1, *line,
                   "found target " + target.str() + ", expected one of " + llvm::join(names, ", ")};
  }
  if (const Architecture *found = findArchitecture(target))
    code->architecture = found->number;
  for (const Variable &variable : code->module.variables) {
    if (variable.space == Space::Shared)
      continue;
    if (variable.isExtern)
      return Finding{FindingKind::Unsupported, variable.line, code->module.lines[variable.line - 1],
                     "'" + variable.name + "' is defined in another module"};
    // Uninitialised module variables are zero.
    std::vector<uint8_t> content = variable.content;
    content.resize(variable.size);
    uint64_t address = device.allocate(content, variable.name, std::max<uint64_t>(variable.alignment, 16));
    if (variable.space == Space::Const && variable.size)
      device.setReadOnly(address);
    code->globals[&variable] = address;
  }
  // Functions that no entry calls are decoded too, so that unsupported instructions are always reported.
  for (const Function &function : code->module.functions) {
    if (!function.isDefined || function.name.empty())
      continue;
    auto kernel = decodeKernel(*code, function, finding);
    if (!kernel)
      return finding;
    if (uint32_t limit = parameterLimit(*code); function.isEntry && kernel->parameterBytes > limit)
      return Finding{FindingKind::Unsupported, function.line, code->module.lines[function.line - 1],
                     "found " + std::to_string(kernel->parameterBytes) + " bytes of parameters, expected at most " +
                         std::to_string(limit)};
    if (function.isEntry)
      code->kernels.emplace(function.name, std::move(*kernel));
  }
  return Program(std::move(code));
}

std::vector<std::string> Program::entries() const {
  std::vector<std::string> names;
  for (auto &[name, kernel] : code->kernels)
    names.push_back(name);
  return names;
}

std::optional<uint32_t> Program::parameterBytes(StringRef entry) const {
  auto found = code->kernels.find(entry.str());
  if (found == code->kernels.end())
    return std::nullopt;
  return found->second.parameterBytes;
}

std::optional<uint64_t> Program::variable(StringRef name) const {
  for (auto &[variable, address] : code->globals)
    if (variable->name == name)
      return address;
  return std::nullopt;
}

/// Describes the error in a launch, or returns "".
static std::string checkLaunch(const Code &code, const Kernel &kernel, const Launch &launch) {
  auto text = [](const std::array<uint32_t, 3> &size) {
    return std::to_string(size[0]) + " x " + std::to_string(size[1]) + " x " + std::to_string(size[2]);
  };
  const Function &entry = *kernel.entry;
  uint64_t threads = uint64_t(launch.block[0]) * launch.block[1] * launch.block[2];
  if (threads == 0 || threads > entry.maxThreads || threads > 1024)
    return "found blocks of " + text(launch.block) + " threads, expected 1 to " +
           std::to_string(std::min(entry.maxThreads, uint32_t(1024)));
  if (entry.requiredThreads && *entry.requiredThreads != launch.block)
    return "found blocks of " + text(launch.block) + " threads, expected " + text(*entry.requiredThreads);
  if (llvm::is_contained(launch.grid, 0u) || launch.grid[1] > 65535 || launch.grid[2] > 65535)
    return "found a grid of " + text(launch.grid) + " blocks, expected positive extents, y and z at most 65535";
  if (launch.parameters.size() != kernel.parameterBytes)
    return "found " + std::to_string(launch.parameters.size()) + " bytes of parameters, expected " +
           std::to_string(kernel.parameterBytes);
  uint64_t shared = uint64_t(kernel.staticShared) + launch.dynamicShared;
  std::string name = "sm_" + std::to_string(code.architecture);
  uint32_t maxShared = findArchitecture(name)->maxShared;
  if (shared > maxShared)
    return "found " + std::to_string(shared) + " bytes of shared memory, expected at most the " +
           std::to_string(maxShared) + " of " + name;
  return "";
}

Report Program::run(StringRef entry, const Launch &launch) const {
  Report report;
  auto found = code->kernels.find(entry.str());
  std::string wrong = found == code->kernels.end() ? "the module has no entry '" + entry.str() + "'"
                                                   : checkLaunch(*code, found->second, launch);
  if (!wrong.empty()) {
    report.finding = Finding{FindingKind::BadLaunch, 0, "", std::move(wrong)};
    return report;
  }
  const Kernel &kernel = found->second;
  uint64_t blocks = uint64_t(launch.grid[0]) * launch.grid[1] * launch.grid[2];
  std::atomic<uint64_t> next = 0, failed = blocks;
  std::mutex lock;
  std::vector<uint64_t> counts(kernel.ops.size());
  std::optional<GlobalShadow> globalShadow;
  if (launch.checkGlobalRaces)
    globalShadow.emplace();
  auto work = [&] {
    Block block(*code, kernel, launch, globalShadow ? &*globalShadow : nullptr);
    // Blocks start in order, and no later block starts after a finding, so the reported finding is deterministic.
    for (uint64_t index; (index = next++) < failed;) {
      block.run({uint32_t(index % launch.grid[0]), uint32_t(index / launch.grid[0] % launch.grid[1]),
                 uint32_t(index / launch.grid[0] / launch.grid[1])});
      if (!block.finding)
        continue;
      std::lock_guard guard(lock);
      if (index < failed) {
        failed = index;
        report.finding = block.finding;
      }
    }
    std::lock_guard guard(lock);
    for (size_t op = 0; op < counts.size(); ++op)
      counts[op] += block.counts[op];
  };
  std::vector<std::thread> helpers;
  for (uint64_t thread = 1; thread < std::min<uint64_t>(globalShadow ? 1 : launch.threads, blocks); ++thread)
    helpers.emplace_back(work);
  work();
  for (std::thread &helper : helpers)
    helper.join();
  code->device->endLaunch();
  for (size_t op = 0; op < counts.size(); ++op) {
    report.instructions += counts[op];
    report.matrixProducts += kernel.ops[op].isMatrixProduct ? counts[op] : 0;
    if (counts[op])
      report.byMnemonic[kernel.mnemonics[kernel.ops[op].mnemonic]] += counts[op];
  }
  return report;
}
