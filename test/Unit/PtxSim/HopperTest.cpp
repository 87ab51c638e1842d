//===- HopperTest.cpp - An attention kernel for sm_90a and mutants of it --===//

#include "Kernels.h"

using namespace saccade::ptxsim;
using namespace saccade::ptxsim::test;

TEST(Hopper, AttentionMatchesPlainLoops) {
  std::string text = readInput("hopper_attention.ptx");
  keepForPtxas(text);
  for (AsyncMode async : {AsyncMode::Early, AsyncMode::Late})
    for (MmaMode mma : {MmaMode::Float, MmaMode::Exact, MmaMode::Hardware}) {
      Launch launch = mode(async);
      launch.mma = mma;
      Verdict verdict = runHopperAttention(text, launch);
      EXPECT_TRUE(verdict.report) << verdict.report.finding->str();
      EXPECT_TRUE(verdict.rightResult);
    }
}

TEST(Hopper, AttentionHasOtherLengths) {
  std::string text = readInput("hopper_attention.ptx");
  for (auto [queries, keys] : {std::pair(1u, 1u), {128u, 64u}, {129u, 65u}, {64u, 191u}}) {
    Verdict verdict = runHopperAttention(text, mode(AsyncMode::Late), queries, keys);
    EXPECT_TRUE(verdict.report) << verdict.report.finding->str();
    EXPECT_TRUE(verdict.rightResult) << queries << " " << keys;
  }
}

TEST(HopperMutants, RemovedSynchronisationIsAnError) {
  const std::string text = readInput("hopper_attention.ptx");
  unsigned count = 0;
  for (std::string what : {"mbarrier.init", "fence.mbarrier_init", "bar.sync", "mbarrier.arrive.expect_tx",
                           "mbarrier.try_wait", "cp.async.bulk.tensor.2d.shared", "@!%done bra", "wgmma.fence",
                           "wgmma.commit_group", "wgmma.wait_group", "@%leader mbarrier.arrive", "fence.proxy.async",
                           "cp.async.bulk.commit_group", "cp.async.bulk.wait_group", "setmaxnreg.dec", "elect.sync"})
    for (const std::string &mutant : without(text, "attention", what))
      for (AsyncMode async : {AsyncMode::Early, AsyncMode::Late}) {
        Verdict verdict = runHopperAttention(mutant, mode(async));
        ++count;
        ASSERT_TRUE(verdict.report.finding.has_value()) << "without " << what;
        EXPECT_NE(verdict.report.finding->line, 0u);
      }
  EXPECT_EQ(count, 2 * 46u);
}

namespace {

/// A mutant: the `which`-th occurrence of `from` becomes `to`.
struct Change {
  std::string from, to;
  bool isError; ///< requires a finding, not just a wrong result
  unsigned which = 0;
};

std::string changed(const std::string &text, const Change &change) {
  size_t at = text.find(change.from);
  for (unsigned skipped = 0; skipped < change.which && at != std::string::npos; ++skipped)
    at = text.find(change.from, at + 1);
  EXPECT_NE(at, std::string::npos) << change.from;
  return at == std::string::npos ? text : std::string(text).replace(at, change.from.size(), change.to);
}

} // namespace

TEST(HopperMutants, MovedSynchronisationIsAnError) {
  const std::string text = readInput("hopper_attention.ptx");
  const std::string wait = "wgmma.wait_group.sync.aligned 0;\n\t",
                    keys = "@%leader mbarrier.arrive.shared::cta.b64 _, [%slot+98328];\n\t",
                    values = "@%leader mbarrier.arrive.shared::cta.b64 _, [%slot+98360];\n\t",
                    first = "mov.u32 %step, 0;\nconsume:\n\t", commit = "wgmma.commit_group.sync.aligned;\n\t",
                    init = "fence.mbarrier_init.release.cluster;\n", store = "cp.async.bulk.commit_group;\n\t";
  const std::string lastInit = "mbarrier.init.shared::cta.b64 [%smem+98368], 8;\n\t";
  const Change changes[] = {
      {wait + keys, keys + wait, true},        // keys are released before they are read
      {wait + values, values + wait, true},    // and values
      {commit + wait, wait + commit, true, 0}, // a wait before the commit
      {commit + wait, wait + commit, true, 1},
      {lastInit + init, init + "\t" + lastInit, true}, // a fence before the last initialisation
      {store + "cp.async.bulk.wait_group 0;\n", "cp.async.bulk.wait_group 0;\n\t" + store, true},
      {first, "consume:\n\tmov.u32 %step, 0;\n\t", true}, // always the first stage
  };
  for (const Change &change : changes)
    for (AsyncMode async : {AsyncMode::Early, AsyncMode::Late}) {
      Verdict verdict = runHopperAttention(changed(text, change), mode(async));
      EXPECT_TRUE(verdict.report.finding.has_value()) << change.to;
    }
}

TEST(HopperMutants, ChangedConstantsAreDetected) {
  const std::string text = readInput("hopper_attention.ptx");
  const std::string q = "[%smem+98304]", descriptor = "4611686293305360384", last = "mov.u32 %step, 0";
  const Change changes[] = {
      // Counts and bytes of barriers.
      {q + ", 1;", q + ", 2;", true},
      {q + ", 32768;", q + ", 32752;", true},
      {q + ", 32768;", q + ", 32784;", true},
      {"_, [%barrier], 16384", "_, [%barrier], 8192", true, 0},
      {"_, [%barrier], 16384", "_, [%barrier], 16400", true, 0},
      {"_, [%barrier], 16384", "_, [%barrier], 8192", true, 1},
      {"_, [%barrier], 16384", "_, [%barrier], 32768", true, 1},
      {"[%smem+98328], 8", "[%smem+98328], 4", true},
      {"[%smem+98328], 8", "[%smem+98328], 9", true},
      {"[%smem+98328], 8", "[%smem+98328], 1", true},
      {"[%smem+98360], 8", "[%smem+98360], 7", true},
      // Phases.
      {"xor.b32 %other, %phase, 1", "xor.b32 %other, %phase, 0", true},
      {"shr.u32 %phase, %step, 1", "shr.u32 %phase, %step, 0", true, 0},
      {"shr.u32 %phase, %step, 1", "shr.u32 %phase, %step, 2", true, 0},
      {"shr.u32 %phase, %step, 1", "shr.u32 %phase, %step, 0", true, 1},
      {"shr.u32 %phase, %step, 1", "shr.u32 %phase, %step, 2", true, 1},
      {"[%barrier], 0;", "[%barrier], 1;", true},
      {"[%barrier], %phase;", "[%barrier], %other;", true, 0},
      {"and.b32 %stage, %step, 1", "and.b32 %stage, %step, 0", true, 0},
      {"and.b32 %stage, %step, 1", "and.b32 %stage, %step, 0", true, 1},
      // Places.
      {"shl.b32 %tile, %stage, 14", "shl.b32 %tile, %stage, 13", true, 0},
      {"shl.b32 %tile, %stage, 14", "shl.b32 %tile, %stage, 13", true, 1},
      {"add.u32 %to, %at, 8192", "add.u32 %to, %at, 8128", true, 0},
      {"add.u32 %to, %at, 8192", "add.u32 %to, %at, 4096", true, 0},
      {"add.u32 %to, %at, 8192", "add.u32 %to, %at, 0", true, 2},
      {"{64, %key}", "{0, %key}", false, 0},
      {"{64, %key}", "{64, %step}", false, 0},
      {"{0, %key}", "{0, 0}", false, 1},
      {"{0, %row}", "{16, %row}", false},
      {"%to+2064]", "%to+2080]", false},
      // Descriptors: the swizzle, the stride between groups of rows, the leading offset of values.
      {descriptor, std::to_string(std::stoull("4611686293305360384") + (1ull << 62)), false, 0},
      {descriptor, std::to_string(std::stoull("4611686293305360384") - (32ull << 32)), false, 0},
      {descriptor, std::to_string(std::stoull("4611686293305360384") - (32ull << 32)), false, 1},
      {descriptor, std::to_string(std::stoull("4611686293305360384") + (64ull << 32)), true, 1},
      {"%a_desc, %q_desc, 2;", "%a_desc, %q_desc, 4;", false},
      {"%a_desc, %q_desc, 2;", "%a_desc, %q_desc, 8;", true},
      {"%b_desc, %k_desc, 512;", "%b_desc, %k_desc, 6;", false},
      {"%b_desc, %v_desc, 128;", "%b_desc, %v_desc, 64;", false},
      {"%a_desc, %b_desc, 0, 1, 1, 0, 0", "%a_desc, %b_desc, 1, 1, 1, 0, 0", true},
      {"%a_desc, %b_desc, 1, 1, 1, 0, 0", "%a_desc, %b_desc, 0, 1, 1, 0, 0", false},
      {"%a_desc, %b_desc, 1, 1, 1, 0, 0", "%a_desc, %b_desc, 1, -1, 1, 0, 0", false},
      {"%a_desc, %b_desc, 1, 1, 1, 0, 0", "%a_desc, %b_desc, 1, 1, 1, 0, 1", false},
      {"%b_desc, 1, 1, 1, 1;", "%b_desc, 1, 1, 1, 0;", false},
      {"{%p0, %p1, %p2, %p3}", "{%p0, %p2, %p1, %p3}", false},
      // Waits, fences and barriers.
      {"wgmma.wait_group.sync.aligned 0", "wgmma.wait_group.sync.aligned 1", true, 0},
      {"wgmma.wait_group.sync.aligned 0", "wgmma.wait_group.sync.aligned 1", true, 1},
      {"cp.async.bulk.wait_group 0", "cp.async.bulk.wait_group 1", true},
      {"fence.proxy.async.shared::cta", "fence.proxy.async.global", true},
      {"bar.sync %group, 128", "bar.sync %group, 96", true},
      {"bar.sync %group, 128", "bar.sync %group, 160", true},
      {"bar.sync %group, 128", "bar.sync 1, 128", true},
      {"inc.sync.aligned.u32 240", "inc.sync.aligned.u32 248", true},
      {"inc.sync.aligned.u32 240", "inc.sync.aligned.u32 160", true},
      {"dec.sync.aligned.u32 24", "dec.sync.aligned.u32 32", true},
      {"_|%leader, -1", "_|%leader, 1", true},
      // The softmax.
      {"setp.ge.u32 %masked, %tmp, %keys", "setp.lt.u32 %masked, %tmp, %keys", false, 20},
      {"shfl.sync.bfly.b32 %tmp, %tmp, 2, 31, -1", "shfl.sync.bfly.b32 %tmp, %tmp, 1, 31, -1", false, 2},
  };
  for (const Change &change : changes) {
    std::string mutant = changed(text, change);
    for (AsyncMode async : {AsyncMode::Early, AsyncMode::Late}) {
      Verdict verdict = runHopperAttention(mutant, mode(async));
      EXPECT_FALSE(verdict.good()) << change.from << " -> " << change.to << " (" << change.which << ")";
      if (change.isError)
        EXPECT_TRUE(verdict.report.finding.has_value())
            << change.from << " -> " << change.to << " (" << change.which << ")";
    }
  }
}
