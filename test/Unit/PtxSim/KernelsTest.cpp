//===- KernelsTest.cpp - Kernels and mutants of them ----------------------===//

#include "Kernels.h"

using namespace saccade::ptxsim;
using namespace saccade::ptxsim::test;

namespace {

using Run = Verdict (*)(const std::string &text, const Launch &how);
Verdict runGemmOnce(const std::string &text, const Launch &how) { return runGemm(text, how); }

struct Kernel {
  const char *file, *entry;
  Run run;
};
const Kernel kernels[] = {{"kernels.ptx", "add", runAdd},
                          {"kernels.ptx", "sum", runSum},
                          {"kernels.ptx", "matmul", runMatmul},
                          {"kernels.ptx", "histogram", runHistogram},
                          {"gemm.ptx", "gemm", runGemmOnce}};

} // namespace

TEST(Kernels, MatchPlainLoops) {
  for (const Kernel &kernel : kernels) {
    std::string text = readInput(kernel.file);
    keepForPtxas(text);
    for (AsyncMode async : {AsyncMode::Early, AsyncMode::Late}) {
      Verdict verdict = kernel.run(text, mode(async));
      EXPECT_TRUE(verdict.report) << kernel.entry << ": " << verdict.report.finding->str();
      EXPECT_TRUE(verdict.rightResult) << kernel.entry;
    }
  }
}

TEST(Kernels, HostThreadsAndMmaModesDoNotChangeResults) {
  std::string text = readInput("gemm.ptx");
  Launch launch;
  for (launch.threads = 1; launch.threads <= 4; ++launch.threads)
    for (MmaMode mma : {MmaMode::Float, MmaMode::Exact, MmaMode::Hardware})
      for (uint32_t m : {1u, 64u, 130u})
        for (uint32_t k : {32u, 64u, 96u}) {
          launch.mma = mma;
          EXPECT_TRUE(runGemm(text, launch, m, 64, k).good()) << m << " " << k;
        }
}

TEST(Kernels, ReportCountsInstructions) {
  Verdict verdict = runGemm(readInput("gemm.ptx"), {}, 64, 64, 64);
  ASSERT_TRUE(verdict.report);
  // 4 warps, 2 steps of 2 mma along k, 8 column tiles.
  EXPECT_EQ(verdict.report.byMnemonic["mma"], 4u * 4 * 8);
  EXPECT_EQ(verdict.report.matrixProducts, 4u * 4 * 8);
  EXPECT_EQ(verdict.report.byMnemonic["ldmatrix"], 4u * 4 * 5);
  EXPECT_EQ(verdict.report.byMnemonic["ret"], 4u);
}

TEST(Mutants, RemovedSynchronisationIsAnError) {
  unsigned count = 0;
  for (const Kernel &kernel : kernels)
    for (std::string what : {"bar", "cp.async.commit_group", "cp.async.wait_group"})
      for (const std::string &mutant : without(readInput(kernel.file), kernel.entry, what))
        for (AsyncMode async : {AsyncMode::Early, AsyncMode::Late}) {
          Verdict verdict = kernel.run(mutant, mode(async));
          ++count;
          ASSERT_TRUE(verdict.report.finding.has_value()) << kernel.entry << " without " << what;
          EXPECT_TRUE(verdict.report.finding->kind == FindingKind::Race ||
                      verdict.report.finding->kind == FindingKind::Uninitialised)
              << verdict.report.finding->str();
          EXPECT_NE(verdict.report.finding->line, 0u);
        }
  // sum 1, matmul 2, histogram 2, gemm 1 + 3 + 1; twice.
  EXPECT_EQ(count, 20u);
}

TEST(Mutants, ChangedGemmConstantsAreDetected) {
  const std::string text = readInput("gemm.ptx");
  struct Change {
    std::string from, to;
    bool isError; ///< requires a finding, not just a wrong result
  };
  const Change changes[] = {
      {"cp.async.wait_group \t1", "cp.async.wait_group \t2", true},
      {"mov.u32 \t%fill, 16384", "mov.u32 \t%fill, 8192", true},
      {"setp.eq.u32 \t%p3, %stage, 24576", "setp.eq.u32 \t%p3, %stage, 16384", true},
      {"setp.eq.u32 \t%p3, %fill, 24576", "setp.eq.u32 \t%p3, %fill, 32768", true},
      {"add.u32 \t%next, %step, 2", "add.u32 \t%next, %step, 1", true},
      {"add.u32 \t%next, %step, 2", "add.u32 \t%next, %step, 3", false},
      {"setp.lt.u32 \t%p6, %row, %m", "setp.le.u32 \t%p6, %row, %m", true},
      {"setp.lt.u32 \t%p0, %tmp3, %m", "setp.le.u32 \t%p0, %tmp3, %m", true},
      {"add.u32 \t%row, %row, 8", "add.u32 \t%row, %row, 4", true},
      {"tiles[24576]", "tiles[24560]", true},
      {"16, %size0", "8, %size0", true},
      {"shl.b32 \t%dst0, %row, 6", "shl.b32 \t%dst0, %row, 5", true},
      {"add.s64 \t%from_b1, %from_b1, 64", "add.s64 \t%from_b1, %from_b1, 72", true},
      {"shr.u32 \t%steps, %k, 5", "shr.u32 \t%steps, %k, 4", true},
      {"mad.lo.u32 \t%arow, %warp, 16", "mad.lo.u32 \t%arow, %warp, 48", true},
      {"mad.lo.u32 \t%a_at, %swz, 16", "mad.lo.u32 \t%a_at, %swz, 8", true},
      {"shl.b64 \t%wide0, %wide0, 2", "shl.b64 \t%wide0, %wide0, 3", true},
      {"shr.u32 \t%steps, %k, 5", "shr.u32 \t%steps, %k, 6", false},
      {"mad.lo.u32 \t%arow, %warp, 16", "mad.lo.u32 \t%arow, %warp, 8", false},
      {"and.b32 \t%swz, %swz, 3", "and.b32 \t%swz, %swz, 1", false},
      {"shr.u32 \t%swz, %arow, 1", "shr.u32 \t%swz, %arow, 2", false},
      {"shr.u32 \t%swz, %brow, 1", "shr.u32 \t%swz, %brow, 0", false},
      {"and.b32 \t%tmp0, %lane, 15", "and.b32 \t%tmp0, %lane, 7", false},
      {"mad.lo.u32 \t%brow, %tmp2, 8", "mad.lo.u32 \t%brow, %tmp2, 4", false},
      {"[%b_at+5120]", "[%b_at+6144]", false},
      {"add.s64 \t%from_a0, %from_a0, 64", "add.s64 \t%from_a0, %from_a0, 32", false},
      {"{%b2, %b3}", "{%b3, %b2}", false},
      {"add.u32 \t%chunk, %chunk, 2", "add.u32 \t%chunk, %chunk, 1", false},
      {"mov.b32 \t%acc7, 0f00000000", "mov.b32 \t%acc7, 0f3F800000", false},
      {"mul.wide.u32 \t%wide2, %n, 32", "mul.wide.u32 \t%wide2, %n, 16", false},
  };
  for (const Change &change : changes) {
    size_t at = text.find(change.from);
    ASSERT_NE(at, std::string::npos) << change.from;
    std::string mutant = text;
    mutant.replace(at, change.from.size(), change.to);
    for (AsyncMode async : {AsyncMode::Early, AsyncMode::Late}) {
      Verdict verdict = runGemmOnce(mutant, mode(async));
      EXPECT_FALSE(verdict.good()) << change.to;
      if (change.isError)
        EXPECT_TRUE(verdict.report.finding.has_value()) << change.to;
    }
  }
}
