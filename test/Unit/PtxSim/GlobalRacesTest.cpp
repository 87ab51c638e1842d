//===- GlobalRacesTest.cpp - Races between blocks in global memory --------===//

#include "Kernels.h"

using namespace saccade::ptxsim;
using namespace saccade::ptxsim::test;

/// Runs two blocks of one thread; %block is the number of the block, %own an address of its own.
static Report run(const std::string &body, bool checks = true) {
  std::string text = header() +
                     ".visible .entry k(.param .u64 buffer)\n{\n.reg .pred %p;\n.reg .b16 %h;\n.reg .b32 %block, %r0;\n"
                     ".reg .b64 %at, %own;\nmov.u32 %block, %ctaid.x;\nld.param.u64 %at, [buffer];\n"
                     "mad.wide.u32 %own, %block, 4, %at;\n" +
                     body + "ret;\n}\n";
  keepForPtxas(text);
  Device device;
  auto loaded = Program::load(text, device);
  if (auto *finding = std::get_if<Finding>(&loaded)) {
    ADD_FAILURE() << finding->str();
    return {};
  }
  Launch launch;
  launch.grid = {2, 1, 1};
  launch.threads = 2;
  launch.checkGlobalRaces = checks;
  launch.parameters = Parameters().add(device.allocate(std::vector<uint8_t>(64), "buffer")).bytes;
  return std::get<Program>(loaded).run("k", launch);
}

TEST(GlobalRaces, ConflictsOfBlocksAreReported) {
  const std::string write = "st.global.b32 [%at], %block;\n", read = "ld.global.b32 %r0, [%at];\n",
                    first = "setp.eq.u32 %p, %block, 0;\n@%p ", second = "setp.eq.u32 %p, %block, 1;\n@%p ";
  for (const std::string &body : {write, first + write + second + read, first + read + second + write}) {
    Report report = run(body);
    ASSERT_TRUE(report.finding.has_value()) << body;
    EXPECT_EQ(report.finding->kind, FindingKind::Race);
    EXPECT_NE(report.finding->message.find("block 0"), std::string::npos) << report.finding->message;
    EXPECT_TRUE(run(body, /*checks=*/false));
  }
  // The last read is that of the block that writes.
  EXPECT_EQ(run(read + second + write).finding->kind, FindingKind::Race);
  EXPECT_TRUE(run(read));
  EXPECT_TRUE(run("st.global.b32 [%own], %block;\nld.global.b32 %r0, [%own];\n"));
}

TEST(GlobalRaces, BytesAreDistinguished) {
  std::string bytes = "cvt.u64.u32 %own, %block;\nadd.s64 %own, %own, %at;\nst.global.b8 [%own], %block;\n";
  EXPECT_TRUE(run(bytes));
  EXPECT_EQ(run(bytes + "ld.global.b16 %h, [%at];\n").finding->kind, FindingKind::Race);
}

TEST(GlobalRaces, AtomicsDoNotRaceAndOrderBlocks) {
  const std::string count = "atom.global.add.u32 %r0, [%at+32], 1;\n";
  EXPECT_TRUE(run(count));
  EXPECT_EQ(run(count + "ld.global.b32 %r0, [%at+32];\n").finding->kind, FindingKind::Race);
  // An atomic operation and a write that is none.
  for (std::string access : {"st.global.b32 [%at+32], %block;\n", "ld.global.b32 %r0, [%at+32];\n"})
    EXPECT_EQ(run("setp.eq.u32 %p, %block, 0;\n@%p " + access + "@!%p " + count).finding->kind, FindingKind::Race);
  // The last block reads what the others have written before they counted.
  std::string last = "setp.eq.u32 %p, %r0, 1;\n@%p ld.global.b32 %r0, [%at];\n";
  EXPECT_TRUE(run("st.global.b32 [%own], %block;\nmembar.gl;\n" + count + last));
  EXPECT_TRUE(run("st.global.b32 [%own], %block;\nfence.acq_rel.gpu;\n" + count + last));
  EXPECT_TRUE(run("st.global.b32 [%own], %block;\natom.release.gpu.global.add.u32 %r0, [%at+32], 1;\n" + last));
  // A counter of work items orders nothing.
  for (const std::string fence : {"", "membar.cta;\n", "fence.acq_rel.cta;\n"}) {
    Report report = run("st.global.b32 [%own], %block;\n" + fence + count + last);
    ASSERT_TRUE(report.finding.has_value()) << fence;
    EXPECT_EQ(report.finding->kind, FindingKind::Race);
  }
  EXPECT_EQ(run("st.global.b32 [%own], %block;\nsetp.eq.u32 %p, %block, 1;\n@%p ld.global.b32 %r0, [%at];\n" + count)
                .finding->kind,
            FindingKind::Race);
}

TEST(GlobalRaces, BulkStoresAreChecked) {
  std::string text = readInput("hopper_attention.ptx"), from = "shl.b32 %row, %row, 7;";
  Launch launch;
  launch.checkGlobalRaces = true;
  EXPECT_TRUE(runHopperAttention(text, launch).good());
  Verdict verdict = runHopperAttention(text.replace(text.find(from), from.size(), "shl.b32 %row, %row, 6;"), launch);
  ASSERT_TRUE(verdict.report.finding.has_value());
  EXPECT_EQ(verdict.report.finding->kind, FindingKind::Race);
}
