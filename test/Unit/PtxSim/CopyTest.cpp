//===- CopyTest.cpp - cp.async: groups, zero filling, visibility ----------===//

#include "Harness.h"

using namespace saccade::ptxsim;
using namespace saccade::ptxsim::test;

/// Every lane copies its own 16 bytes of %a's memory to shared memory.
static const std::string place = "mov.u32 %x, s;\nmad.lo.u32 %x, %lane, 16, %x;\nld.param.u64 %lx, [in0];\n"
                                 "and.b32 %y, %lane, 7;\nmad.wide.u32 %lx, %y, 16, %lx;\n";
static const std::string copy = place + "cp.async.ca.shared.global [%x], [%lx], 16;\n";
static const Row words = lanes(4, [](unsigned lane) { return 1000 + lane; });

static Report run(const std::string &body, AsyncMode mode, std::vector<uint64_t> *results = nullptr) {
  Options options;
  options.async = mode;
  Outcome outcome = runWarp(body, 4, {words}, options);
  if (results)
    *results = outcome.results[0];
  return outcome.report;
}

TEST(Copy, CompletesAtTheWait) {
  for (AsyncMode mode : {AsyncMode::Early, AsyncMode::Late})
    for (std::string wait : {"cp.async.commit_group;\ncp.async.wait_group 0;", "cp.async.wait_all;",
                             "cp.async.commit_group;\ncp.async.commit_group;\ncp.async.wait_group 1;"}) {
      std::vector<uint64_t> results;
      Report report = run(copy + wait + "\nld.shared.b32 %d, [%x+4];", mode, &results);
      ASSERT_TRUE(report) << report.finding->str();
      EXPECT_EQ(results[2], 1009u);
      EXPECT_EQ(results[10], 1009u);
    }
}

TEST(Copy, ReadingTooEarlyIsARace) {
  for (AsyncMode mode : {AsyncMode::Early, AsyncMode::Late})
    // Not committed; one group too many left; no wait at all.
    for (std::string wait : {"cp.async.wait_group 0;", "cp.async.commit_group;\ncp.async.wait_group 1;", ""}) {
      Report report = run(copy + wait + "\nld.shared.b32 %d, [%x+4];\ncp.async.wait_all;", mode);
      ASSERT_TRUE(report.finding.has_value());
      EXPECT_EQ(report.finding->kind, FindingKind::Race);
      EXPECT_NE(report.finding->message.find("pending cp.async"), std::string::npos) << report.finding->message;
    }
}

TEST(Copy, WaitCoversOnlyTheThreadsOwnCopies) {
  // The neighbour's bytes need bar.warp.sync as well.
  std::string read = "xor.b32 %y, %lane, 1;\nmov.u32 %x, s;\nmad.lo.u32 %x, %y, 16, %x;\nld.shared.b32 %d, [%x];";
  EXPECT_EQ(run(copy + "cp.async.wait_all;\n" + read, AsyncMode::Late).finding->kind, FindingKind::Race);
  EXPECT_TRUE(run(copy + "cp.async.wait_all;\nbar.warp.sync -1;\n" + read, AsyncMode::Late));
}

TEST(Copy, WritingTheDestinationIsARaceToo) {
  EXPECT_EQ(run(copy + "st.shared.b32 [%x], 1;\ncp.async.wait_all;\nmov.u32 %d, 0;", AsyncMode::Early).finding->kind,
            FindingKind::Race);
  // The copy must not start while other lanes may still read the destination.
  EXPECT_EQ(run("mov.u32 %x, s;\nmad.lo.u32 %x, %lane, 16, %x;\nst.shared.b32 [%x], 5;\nbar.warp.sync -1;\nxor.b32 %y, "
                "%x, 16;\nld.shared.b32 %y, [%y];\n" +
                    copy + "cp.async.wait_all;\nmov.u32 %d, 0;",
                AsyncMode::Early)
                .finding->kind,
            FindingKind::Race);
}

TEST(Copy, ShortSourcesAreFilledWithZeros) {
  for (auto [size, expected] : {std::pair(0u, 0u), {4u, 0u}, {8u, 1001u}, {6u, 1001u}}) {
    std::vector<uint64_t> results;
    Report report = run(place + "mov.u32 %y, " + std::to_string(size) +
                            ";\ncp.async.cg.shared.global [%x], [%lx], 16, %y;\n"
                            "cp.async.wait_all;\nld.shared.b32 %d, [%x+4];",
                        AsyncMode::Late, &results);
    ASSERT_TRUE(report) << report.finding->str();
    EXPECT_EQ(results[0], expected) << size;
  }
  // A source of size 0 is not accessed, so its address is arbitrary.
  EXPECT_TRUE(run(
      "mov.u32 %x, s;\nmad.lo.u32 %x, %lane, 16, %x;\nmov.u64 %lx, 0;\ncp.async.ca.shared.global [%x], [%lx], 4, 0;\n"
      "cp.async.wait_all;\nmov.u32 %d, 0;",
      AsyncMode::Early));
}

TEST(Copy, AlignmentAndBoundsAreChecked) {
  EXPECT_EQ(run(place + "cp.async.ca.shared.global [%x+4], [%lx], 16;\nmov.u32 %d, 0;", AsyncMode::Early).finding->kind,
            FindingKind::Misaligned);
  EXPECT_EQ(run(place + "cp.async.ca.shared.global [%x], [%lx+4], 8;\nmov.u32 %d, 0;", AsyncMode::Early).finding->kind,
            FindingKind::Misaligned);
  EXPECT_EQ(
      run(place + "cp.async.ca.shared.global [%x], [%lx+128], 16;\nmov.u32 %d, 0;", AsyncMode::Late).finding->kind,
      FindingKind::OutOfBounds);
  EXPECT_EQ(
      run(place + "mov.u32 %y, 20;\ncp.async.ca.shared.global [%x], [%lx], 16, %y;\nmov.u32 %d, 0;", AsyncMode::Late)
          .finding->kind,
      FindingKind::BadOperand);
}

TEST(Copy, ThreadsMustWaitBeforeExit) {
  Report report = run(copy + "mov.u32 %d, 0;", AsyncMode::Early);
  ASSERT_TRUE(report.finding.has_value());
  EXPECT_EQ(report.finding->kind, FindingKind::Unwaited);
}
