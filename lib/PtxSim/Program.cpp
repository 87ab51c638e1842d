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

std::variant<Program, Finding> Program::load(StringRef text, Device &device) {
  Finding finding{FindingKind::Syntax, 0, "", ""};
  auto module = parse(text, finding);
  if (!module)
    return finding;
  auto code = std::make_unique<Code>();
  code->module = std::move(*module);
  code->device = &device;
  StringRef architecture = StringRef(code->module.target).split(',').first;
  architecture.consume_front("sm_");
  architecture.take_while([](char c) { return llvm::isDigit(c); }).getAsInteger(10, code->architecture);
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

/// Maximum shared memory per block of sm_`architecture`, in bytes.
static uint32_t maxShared(unsigned architecture) {
  switch (architecture) {
  case 80:
  case 87:
    return 163 << 10;
  case 86:
  case 89:
  case 120:
    return 99 << 10;
  default:
    return architecture >= 90 ? 227 << 10 : 96 << 10;
  }
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
  if (shared > maxShared(code.architecture))
    return "found " + std::to_string(shared) + " bytes of shared memory, expected at most the " +
           std::to_string(maxShared(code.architecture)) + " of sm_" + std::to_string(maxShared(code.architecture));
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
  auto work = [&] {
    Block block(*code, kernel, launch);
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
  for (uint64_t thread = 1; thread < std::min<uint64_t>(launch.threads, blocks); ++thread)
    helpers.emplace_back(work);
  work();
  for (std::thread &helper : helpers)
    helper.join();
  code->device->endLaunch();
  for (size_t op = 0; op < counts.size(); ++op) {
    report.instructions += counts[op];
    if (counts[op])
      report.byMnemonic[kernel.mnemonics[kernel.ops[op].mnemonic]] += counts[op];
  }
  return report;
}
