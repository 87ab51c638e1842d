//===- Harness.cpp - Tests of single instructions -------------------------===//

#include "Harness.h"
#include <cstdlib>
#include <fstream>
#include <functional>

using namespace saccade::ptxsim;
using namespace saccade::ptxsim::test;

std::string test::header(const std::string &target) {
  return ".version 8.4\n.target " + target + "\n.address_size 64\n";
}

void test::keepForPtxas(const std::string &text) {
  const char *folder = std::getenv("SACCADE_KEEP_PTX");
  if (!folder)
    return;
  // Equal texts share a file, so ptxas assembles each text once.
  std::ofstream(std::string(folder) + "/" + std::to_string(std::hash<std::string>()(text)) + ".ptx") << text;
}

std::string test::kernelAround(const std::string &body, unsigned results, unsigned resultBytes,
                               const std::vector<Row> &inputs, const std::string &target) {
  auto typed = [](unsigned bytes) { return ".b" + std::to_string(8 * bytes); };
  const char *names[] = {"%a", "%b", "%c", "%e"}, *resultNames[] = {"%d", "%f"};
  std::string text = header(target) + ".visible .entry k(.param .u64 out";
  for (size_t input = 0; input < inputs.size(); ++input)
    text += ", .param .u64 in" + std::to_string(input);
  text += ")\n{\n.reg .pred %p, %q;\n.reg .b16 %hx, %hy;\n.reg .b32 %x, %y, %lane;\n.reg .b64 %lx, %ly, %at, %base;\n"
          ".shared .align 16 .b8 s[4096];\n";
  for (size_t input = 0; input < inputs.size(); ++input)
    text += std::string(".reg ") + typed(inputs[input].bytes) + " " + names[input] + ";\n";
  for (unsigned result = 0; result < results; ++result)
    text += std::string(".reg ") + typed(resultBytes) + " " + resultNames[result] + ";\n";
  text += "mov.u32 %lane, %tid.x;\n";
  for (size_t input = 0; input < inputs.size(); ++input)
    text += "ld.param.u64 %base, [in" + std::to_string(input) + "];\nmad.wide.u32 %at, %lane, " +
            std::to_string(inputs[input].bytes) + ", %base;\nld.global" + typed(inputs[input].bytes) + " " +
            names[input] + ", [%at];\n";
  text += body + "\n";
  text += "ld.param.u64 %base, [out];\nmad.wide.u32 %at, %lane, " + std::to_string(resultBytes) + ", %base;\n";
  for (unsigned result = 0; result < results; ++result)
    text += "st.global" + typed(resultBytes) + " [%at+" + std::to_string(32 * resultBytes * result) + "], " +
            resultNames[result] + ";\n";
  return text + "ret;\n}\n";
}

Outcome test::runWarp(const std::string &body, unsigned resultBytes, const std::vector<Row> &inputs,
                      const Options &options) {
  std::string text = kernelAround(body, options.results, resultBytes, inputs, options.target);
  if (options.forPtxas)
    keepForPtxas(text);
  Outcome outcome;
  Device device;
  auto loaded = Program::load(text, device);
  if (auto *finding = std::get_if<Finding>(&loaded)) {
    outcome.report.finding = *finding;
    return outcome;
  }
  Parameters parameters;
  uint64_t out = device.allocate(32 * resultBytes * options.results, "out");
  parameters.add(out);
  for (const Row &input : inputs) {
    std::vector<uint8_t> bytes;
    for (unsigned lane = 0; lane < 32; ++lane)
      for (unsigned byte = 0; byte < input.bytes; ++byte)
        bytes.push_back(uint8_t(input.values[input.values.size() == 1 ? 0 : lane] >> (8 * byte)));
    parameters.add(device.allocate(bytes, "input"));
  }
  Launch launch;
  launch.block = {options.threads, 1, 1};
  launch.parameters = parameters.bytes;
  launch.mma = options.mma;
  launch.async = options.async;
  launch.approximations = options.approximations;
  outcome.report = std::get<Program>(loaded).run("k", launch);
  for (unsigned result = 0; result < options.results; ++result) {
    auto &values = outcome.results.emplace_back();
    for (unsigned lane = 0; lane < 32; ++lane) {
      uint8_t bytes[8] = {};
      device.read(out + (32 * result + lane) * resultBytes, llvm::MutableArrayRef(bytes, resultBytes));
      values.push_back(llvm::bit_cast<uint64_t>(bytes));
    }
  }
  return outcome;
}

uint64_t test::evaluate(const std::string &body, unsigned resultBytes, const std::vector<Row> &inputs,
                        const Options &options) {
  Outcome outcome = runWarp(body, resultBytes, inputs, options);
  if (outcome.report.finding) {
    ADD_FAILURE() << body << "\n" << outcome.report.finding->str();
    return ~uint64_t(0);
  }
  return outcome.results[0][0];
}

Finding test::findingOf(const std::string &body, const std::vector<Row> &inputs, const Options &options) {
  Outcome outcome = runWarp(body, 4, inputs, options);
  if (outcome.report.finding)
    return *outcome.report.finding;
  ADD_FAILURE() << "no finding in: " << body;
  return {FindingKind::Syntax, 0, "", ""};
}

Finding test::loadFinding(const std::string &text) {
  Device device;
  auto loaded = Program::load(text, device);
  if (auto *finding = std::get_if<Finding>(&loaded))
    return *finding;
  ADD_FAILURE() << "no finding in: " << text;
  return {FindingKind::Syntax, 0, "", ""};
}
