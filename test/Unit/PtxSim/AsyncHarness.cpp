//===- AsyncHarness.cpp - Tests of asynchronous instructions --------------===//

#include "AsyncHarness.h"

using namespace saccade::ptxsim;
using namespace saccade::ptxsim::test;

AsyncOutcome test::runAsync(const AsyncCase &test) {
  std::string text = header("sm_90a") +
                     ".extern .shared .align 1024 .b8 shared_memory[];\n"
                     ".visible .entry k(.param .u64 in, .param .u64 out, .param .align 64 .b8 map[128])\n" +
                     (test.directives.empty() ? ".reqntid " + std::to_string(test.threads) + "\n" : test.directives) +
                     "{\n.reg .pred %p<4>;\n.reg .b16 %h<2>;\n.reg .b32 %r<10>, %smem, %thread, %lane, %warp;\n"
                     ".reg .b64 %l<10>, %in, %out, %map;\nld.param.u64 %in, [in];\nld.param.u64 %out, [out];\n"
                     "mov.b64 %map, map;\ncvta.param.u64 %map, %map;\nmov.u32 %smem, shared_memory;\n"
                     "mov.u32 %thread, %tid.x;\nand.b32 %lane, %thread, 31;\nshr.u32 %warp, %thread, 5;\n" +
                     test.body + "\nret;\n}\n";
  if (test.forPtxas)
    keepForPtxas(text);
  AsyncOutcome outcome;
  Device device;
  auto loaded = Program::load(text, device);
  if (auto *finding = std::get_if<Finding>(&loaded)) {
    outcome.report.finding = *finding;
    return outcome;
  }
  uint64_t in = device.allocate(test.input, "in"), out = device.allocate(test.outputBytes, "out");
  if (test.clearOutput)
    device.write(out, std::vector<uint8_t>(test.outputBytes));
  TensorMap map;
  if (test.tensor) {
    TiledTensor tensor = *test.tensor;
    tensor.address += test.mapsOutput ? out : in;
    auto encoded = encodeTiled(tensor);
    EXPECT_TRUE(std::holds_alternative<TensorMap>(encoded)) << std::get<std::string>(encoded);
    map = std::get<TensorMap>(encoded);
  }
  Launch launch;
  launch.block = {test.threads, 1, 1};
  launch.parameters = Parameters().add(in).add(out).add(map).bytes;
  launch.dynamicShared = test.sharedBytes;
  launch.async = test.async;
  launch.mma = test.mma;
  outcome.report = std::get<Program>(loaded).run("k", launch);
  outcome.output.resize(test.outputBytes);
  device.read(out, outcome.output);
  return outcome;
}

Finding test::asyncFinding(AsyncCase test) {
  std::optional<Finding> first;
  for (test.async = AsyncMode::Early;; test.async = AsyncMode::Late) {
    Report report = runAsync(test).report;
    if (!report.finding) {
      ADD_FAILURE() << "no finding in: " << test.body;
      return {FindingKind::Syntax, 0, "", ""};
    }
    if (test.async == AsyncMode::Late) {
      EXPECT_EQ(report.finding->kind, first->kind) << report.finding->str() << first->str();
      return *report.finding;
    }
    first = report.finding;
  }
}

std::vector<uint8_t> test::asyncOutput(AsyncCase test) {
  test.async = AsyncMode::Early;
  AsyncOutcome early = runAsync(test);
  test.async = AsyncMode::Late;
  AsyncOutcome late = runAsync(test);
  EXPECT_TRUE(early.report) << early.report.finding->str();
  EXPECT_TRUE(late.report) << late.report.finding->str();
  EXPECT_EQ(early.output, late.output);
  return early.output;
}

std::string test::initialised(unsigned count, unsigned offset) {
  return "setp.eq.u32 %p0, %thread, 0;\n@%p0 mbarrier.init.shared::cta.b64 [%smem+" + std::to_string(offset) + "], " +
         std::to_string(count) + ";\n@%p0 fence.mbarrier_init.release.cluster;\nbar.sync 0;\n";
}

std::string test::waited(unsigned parity, unsigned offset) {
  static unsigned number = 0;
  std::string label = "wait" + std::to_string(number++);
  return label + ":\nmbarrier.try_wait.parity.shared::cta.b64 %p3, [%smem+" + std::to_string(offset) + "], " +
         std::to_string(parity) + ";\n@!%p3 bra " + label + ";\n";
}

std::string test::copiedOut(uint32_t bytes, uint32_t offset, unsigned threads) {
  return "shl.b32 %r8, %thread, 2;\ncopy_out:\nadd.u32 %r9, %smem, %r8;\nld.shared.b32 %r9, [%r9+" +
         std::to_string(offset) +
         "];\ncvt.u64.u32 %l9, %r8;\nadd.s64 %l9, %l9, %out;\nst.global.b32 [%l9], %r9;\nadd.u32 %r8, %r8, " +
         std::to_string(4 * threads) + ";\nsetp.lt.u32 %p3, %r8, " + std::to_string(bytes) + ";\n@%p3 bra copy_out;\n";
}
