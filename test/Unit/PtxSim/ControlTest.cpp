//===- ControlTest.cpp - Branches, calls, barriers and warps --------------===//

#include "Harness.h"

using namespace saccade::ptxsim;
using namespace saccade::ptxsim::test;

static std::vector<uint64_t> run(const std::string &body, const std::vector<Row> &inputs = {}) {
  Outcome outcome = runWarp(body, 4, inputs);
  EXPECT_TRUE(outcome.report) << outcome.report.finding->str();
  return outcome.results[0];
}

TEST(Control, LanesDivergeAndReconverge) {
  auto d = run("setp.lt.u32 %p, %lane, 10;\n@%p bra low;\nmov.u32 %d, 2;\nbra join;\nlow:\nmov.u32 %d, 1;\njoin:\n"
               "activemask.b32 %x;\npopc.b32 %x, %x;\nmad.lo.u32 %d, %x, 100, %d;");
  EXPECT_EQ(d[9], 3201u);
  EXPECT_EQ(d[10], 3202u);
}

TEST(Control, LanesLeaveALoopOneByOne) {
  auto d =
      run("mov.u32 %d, 0;\nmov.u32 %x, 0;\nloop:\nadd.u32 %d, %d, %x;\nadd.u32 %x, %x, 1;\nsetp.le.u32 %p, %x, %lane;\n"
          "@%p bra loop;\nactivemask.b32 %y;\npopc.b32 %y, %y;\nmad.lo.u32 %d, %y, 1000, %d;");
  EXPECT_EQ(d[0], 32000u);
  EXPECT_EQ(d[5], 32015u);
  EXPECT_EQ(d[31], 32496u);
}

TEST(Control, NestedBranchesReconvergeInOrder) {
  auto d = run("mov.u32 %d, 0;\nand.b32 %x, %lane, 1;\nsetp.ne.u32 %p, %x, 0;\n@!%p bra end;\n"
               "and.b32 %x, %lane, 2;\nsetp.ne.u32 %q, %x, 0;\n@%q bra inner;\nadd.u32 %d, %d, 1;\ninner:\n"
               "activemask.b32 %y;\npopc.b32 %y, %y;\nadd.u32 %d, %d, %y;\nend:\nadd.u32 %d, %d, 100;");
  EXPECT_EQ(d[0], 100u);
  EXPECT_EQ(d[1], 117u);
  EXPECT_EQ(d[3], 116u);
}

TEST(Control, IndexedBranches) {
  std::string body =
      "and.b32 %x, %lane, 3;\nts: .branchtargets L0, L1, L2, L1;\nbrx.idx %x, ts;\nL0:\nmov.u32 %d, 10;\nbra.uni "
      "join;\n"
      "L1:\nmov.u32 %d, 11;\nbra.uni join;\nL2:\nmov.u32 %d, 12;\njoin:\nactivemask.b32 %y;\nsetp.eq.s32 %p, %y, -1;\n"
      "@!%p add.u32 %d, %d, 100;";
  auto d = run(body);
  EXPECT_EQ(std::vector<uint64_t>(d.begin(), d.begin() + 4), (std::vector<uint64_t>{10, 11, 12, 11}));
}

TEST(Control, LabelsAreScopedByBraces) {
  auto d =
      run("mov.u32 %d, 0;\n{\n.reg .pred P1;\nsetp.eq.u32 P1, %lane, 0;\n@P1 bra DONE;\nadd.u32 %d, %d, 1;\nDONE:\n}\n"
          "{\n.reg .pred P1;\nsetp.ne.u32 P1, %lane, 0;\n@P1 bra DONE;\nadd.u32 %d, %d, 10;\nDONE:\n}");
  EXPECT_EQ(d[0], 10u);
  EXPECT_EQ(d[1], 1u);
}

TEST(Control, ExitedLanesAreInactive) {
  std::string text = "setp.lt.u32 %p, %lane, 30;\n@%p bra rest;\nret;\nrest:\nactivemask.b32 %d;";
  Outcome outcome = runWarp(text, 4, {});
  ASSERT_TRUE(outcome.report) << outcome.report.finding->str();
  EXPECT_EQ(outcome.results[0][0], 0x3fffffffu);
}

TEST(Control, CallsOfFunctions) {
  std::string text =
      header() +
      ".func (.param .b32 result) twice(.param .b32 x)\n{\n.reg .b32 %r<3>;\nld.param.b32 %r1, [x];\n"
      "add.u32 %r2, %r1, %r1;\nst.param.b32 [result], %r2;\nret;\n}\n"
      ".visible .entry k(.param .u64 out)\n{\n.reg .b32 %r<5>;\n.reg .b64 %rd<3>;\n.reg .pred %p;\nmov.u32 %r1, "
      "%tid.x;\n"
      "mov.u32 %r2, %r1;\nsetp.lt.u32 %p, %r1, 16;\n@!%p bra skip;\n{\n.param .b32 param0;\n.param .b32 retval0;\n"
      "st.param.b32 [param0], %r1;\ncall.uni (retval0), twice, (param0);\nld.param.b32 %r2, [retval0];\n}\nskip:\n"
      "ld.param.u64 %rd1, [out];\nmad.wide.u32 %rd1, %r1, 4, %rd1;\nst.global.b32 [%rd1], %r2;\nret;\n}\n";
  keepForPtxas(text);
  Device device;
  auto loaded = Program::load(text, device);
  ASSERT_TRUE(std::holds_alternative<Program>(loaded)) << std::get<Finding>(loaded).str();
  uint64_t out = device.allocate(128);
  Launch launch;
  launch.block = {32, 1, 1};
  launch.parameters = Parameters().add(out).bytes;
  Report report = std::get<Program>(loaded).run("k", launch);
  ASSERT_TRUE(report) << report.finding->str();
  std::array<uint8_t, 128> bytes;
  ASSERT_TRUE(device.read(out, bytes));
  auto words = llvm::bit_cast<std::array<uint32_t, 32>>(bytes);
  EXPECT_EQ(words[15], 30u);
  EXPECT_EQ(words[16], 16u);
}

TEST(Control, Trap) {
  Finding finding = findingOf("setp.eq.u32 %p, %lane, 7;\n@%p trap;\nmov.u32 %d, 0;");
  EXPECT_EQ(finding.kind, FindingKind::Trap);
  EXPECT_NE(finding.message.find("lane 7"), std::string::npos);
}

TEST(Warp, ShufflesReadOtherLanes) {
  Row values = lanes(4, [](unsigned lane) { return 100 + lane; });
  EXPECT_EQ(run("shfl.sync.bfly.b32 %d, %a, 1, 0x1f, -1;", {values})[4], 105u);
  EXPECT_EQ(run("shfl.sync.idx.b32 %d, %a, 3, 0x1f, -1;", {values})[20], 103u);
  auto up = run("shfl.sync.up.b32 %d|%p, %a, 2, 0, -1;\n@!%p add.u32 %d, %d, 1000;", {values});
  EXPECT_EQ(up[1], 1101u);
  EXPECT_EQ(up[2], 100u);
  auto down = run("shfl.sync.down.b32 %d|%p, %a, 4, 0x1f, -1;\n@!%p add.u32 %d, %d, 1000;", {values});
  EXPECT_EQ(down[27], 131u);
  EXPECT_EQ(down[28], 1128u);
  // Segments of 8 lanes: c = (32 - 8) << 8 | 7 (and 0 for up).
  auto segment = run("shfl.sync.down.b32 %d|%p, %a, 1, 0x1807, -1;\n@!%p add.u32 %d, %d, 1000;", {values});
  EXPECT_EQ(segment[6], 107u);
  EXPECT_EQ(segment[7], 1107u);
  EXPECT_EQ(run("shfl.sync.idx.b32 %d, %a, 1, 0x1807, -1;", {values})[13], 109u);
}

TEST(Warp, ShufflesFromInactiveLanesAreUndefined) {
  EXPECT_EQ(
      findingOf("mov.u32 %d, 0;\nsetp.lt.u32 %p, %lane, 16;\n@%p shfl.sync.bfly.b32 %d, %lane, 16, 0x1f, 0xffff;").kind,
      FindingKind::Uninitialised);
  EXPECT_EQ(
      findingOf("mov.u32 %d, 0;\nsetp.lt.u32 %p, %lane, 16;\n@%p shfl.sync.bfly.b32 %d, %lane, 1, 0x1f, -1;").kind,
      FindingKind::Divergence);
  EXPECT_EQ(findingOf("shfl.sync.bfly.b32 %d, %lane, 1, 0x1f, 0xffff;").kind, FindingKind::BadOperand);
}

TEST(Warp, Votes) {
  std::string begin = "setp.lt.u32 %p, %lane, 3;\n", end = "\nselp.b32 %d, 1, 0, %q;";
  EXPECT_EQ(run(begin + "vote.sync.ballot.b32 %d, %p, -1;")[9], 7u);
  EXPECT_EQ(run(begin + "vote.sync.any.pred %q, %p, -1;" + end)[9], 1u);
  EXPECT_EQ(run(begin + "vote.sync.all.pred %q, %p, -1;" + end)[0], 0u);
  EXPECT_EQ(run(begin + "vote.sync.uni.pred %q, %p, -1;" + end)[0], 0u);
  EXPECT_EQ(run(begin + "vote.sync.ballot.b32 %d, !%p, -1;")[0], 0xfffffff8u);
  EXPECT_EQ(run("mov.u32 %d, 0;\nsetp.lt.u32 %p, %lane, 16;\nsetp.lt.u32 %q, %lane, 3;\n@%p vote.sync.ballot.b32 %d, "
                "%q, 0xffff;")[2],
            7u);
}

TEST(Warp, ReductionsAndMatches) {
  EXPECT_EQ(run("redux.sync.add.u32 %d, %lane, -1;")[5], 496u);
  EXPECT_EQ(run("sub.s32 %x, %lane, 4;\nredux.sync.min.s32 %d, %x, -1;")[5], uint32_t(-4));
  EXPECT_EQ(run("sub.s32 %x, %lane, 4;\nredux.sync.max.u32 %d, %x, -1;")[5], ~0u);
  EXPECT_EQ(run("redux.sync.or.b32 %d, %lane, -1;")[5], 31u);
  EXPECT_EQ(run("redux.sync.xor.b32 %d, %lane, -1;")[5], 0u);
  EXPECT_EQ(run("redux.sync.and.b32 %d, %lane, -1;")[5], 0u);
  EXPECT_EQ(run("and.b32 %x, %lane, 3;\nmatch.any.sync.b32 %d, %x, -1;")[5], 0x22222222u);
  EXPECT_EQ(run("mov.u32 %x, 4;\nmatch.all.sync.b32 %d|%p, %x, -1;\n@%p add.u32 %d, %d, 1;")[5], 0u);
  EXPECT_EQ(run("match.all.sync.b32 %d|%p, %lane, -1;\n@%p add.u32 %d, %d, 1;")[5], 0u);
}

TEST(Warp, OneLaneIsElected) {
  Options hopper;
  hopper.target = "sm_90";
  Outcome outcome = runWarp(
      "elect.sync %d|%p, -1;\nvote.sync.ballot.b32 %x, %p, -1;\npopc.b32 %x, %x;\nadd.u32 %d, %d, %x;", 4, {}, hopper);
  ASSERT_TRUE(outcome.report) << outcome.report.finding->str();
  EXPECT_EQ(outcome.results[0][0], 32u);
}

TEST(Warp, SpecialRegisters) {
  EXPECT_EQ(run("mov.u32 %d, %laneid;")[7], 7u);
  EXPECT_EQ(run("mov.u32 %d, %ntid.x;")[7], 32u);
  EXPECT_EQ(run("mov.u32 %d, %lanemask_lt;")[7], 0x7fu);
  EXPECT_EQ(run("mov.u32 %d, %lanemask_ge;")[31], 0x80000000u);
  EXPECT_EQ(run("mov.u32 %d, %nctaid.y;")[7], 1u);
  EXPECT_EQ(run("mov.u32 %d, %warpid;")[7], 0u);
}

/// Runs `body` in one block of `threads`. %t is %tid.x, %x the shared address of the thread's own word, %d the result.
static Report runBlock(const std::string &body, unsigned threads, std::vector<uint32_t> *results = nullptr) {
  std::string text = header() +
                     ".visible .entry k(.param .u64 out)\n{\n.reg .pred %p, %q;\n.reg .b32 %t, %x, %y, %z, %d;\n"
                     ".reg .b64 %at;\n.shared .align 16 .b8 s[4096];\nmov.u32 %t, %tid.x;\nmov.u32 %x, s;\n"
                     "mad.lo.u32 %x, %t, 4, %x;\nmov.u32 %d, 0;\n" +
                     body +
                     "\nld.param.u64 %at, [out];\nmad.wide.u32 %at, %t, 4, %at;\nst.global.b32 [%at], %d;\nret;\n}\n";
  keepForPtxas(text);
  Device device;
  auto loaded = Program::load(text, device);
  if (auto *finding = std::get_if<Finding>(&loaded)) {
    Report report;
    report.finding = *finding;
    return report;
  }
  uint64_t out = device.allocate(4 * threads);
  Launch launch;
  launch.block = {threads, 1, 1};
  launch.parameters = Parameters().add(out).bytes;
  Report report = std::get<Program>(loaded).run("k", launch);
  if (results) {
    results->resize(threads);
    device.read(out, {reinterpret_cast<uint8_t *>(results->data()), 4 * threads});
  }
  return report;
}

/// Initialises shared memory, so that only the order of accesses is tested.
static const std::string clear = "st.shared.b32 [%x], 0;\nbar.sync 0;\n";
static const std::string exchange =
    clear + "st.shared.b32 [%x], %t;\nSYNC\nxor.b32 %y, %t, 33;\nmov.u32 %z, s;\nmad.lo.u32 %y, %y, 4, %z;\n"
            "ld.shared.b32 %d, [%y];";
static std::string withSync(const std::string &sync) {
  std::string text = exchange;
  return text.replace(text.find("SYNC"), 4, sync);
}

TEST(Barrier, OrdersAWholeBlock) {
  std::vector<uint32_t> results;
  Report report = runBlock(withSync("bar.sync 0;"), 128, &results);
  ASSERT_TRUE(report) << report.finding->str();
  EXPECT_EQ(results[5], 36u);
  EXPECT_TRUE(runBlock(withSync("barrier.sync.aligned 1, 128;"), 128));
}

TEST(Barrier, MissingBarrierIsARace) {
  Report report = runBlock(withSync(""), 128);
  ASSERT_TRUE(report.finding.has_value());
  EXPECT_EQ(report.finding->kind, FindingKind::Race);
  // Warp 0 reads before warp 1 writes.
  EXPECT_NE(report.finding->message.find("which warp 0 lane 1 read in line"), std::string::npos)
      << report.finding->message;
}

TEST(Barrier, LanesOfAWarpAreUnordered) {
  std::string neighbour = "st.shared.b32 [%x], %t;\nSYNC\nxor.b32 %y, %t, 1;\nmov.u32 %z, s;\nmad.lo.u32 %y, %y, 4, "
                          "%z;\nld.shared.b32 %d, [%y];";
  auto with = [&](const std::string &sync) {
    std::string text = neighbour;
    return runBlock(text.replace(text.find("SYNC"), 4, sync), 32);
  };
  EXPECT_TRUE(with("bar.warp.sync -1;"));
  EXPECT_TRUE(with("bar.sync 0;"));
  EXPECT_EQ(with("").finding->kind, FindingKind::Race);
  EXPECT_EQ(with("shfl.sync.bfly.b32 %y, %t, 1, 31, -1;").finding->kind, FindingKind::Race);
}

TEST(Barrier, PartsOfAWarpSynchronise) {
  std::string halves =
      "setp.lt.u32 %p, %t, 16;\nselp.b32 %y, 0xffff, 0xffff0000, %p;\nst.shared.b32 [%x], %t;\nbar.warp.sync %y;\n"
      "xor.b32 %y, %t, WITH;\nmov.u32 %z, s;\nmad.lo.u32 %y, %y, 4, %z;\nld.shared.b32 %d, [%y];";
  auto with = [&](const std::string &other) {
    std::string text = halves;
    return runBlock(text.replace(text.find("WITH"), 4, other), 32);
  };
  EXPECT_TRUE(with("1"));
  EXPECT_EQ(with("16").finding->kind, FindingKind::Race);
  // Some of the named lanes do not arrive, or a lane does not name itself.
  std::string some = "setp.lt.u32 %p, %t, 4;\n@%p bar.warp.sync ";
  EXPECT_EQ(runBlock(some + "-1;", 32).finding->kind, FindingKind::Divergence);
  EXPECT_EQ(runBlock(some + "14;", 32).finding->kind, FindingKind::BadOperand);
  EXPECT_TRUE(runBlock(some + "15;", 32));
}

TEST(Barrier, WriteAfterReadRequiresABarrier) {
  std::string text = withSync("bar.sync 0;") + "\nEND\nst.shared.b32 [%x], 1;";
  auto with = [&](const std::string &sync) {
    std::string changed = text;
    return runBlock(changed.replace(changed.find("END"), 3, sync), 128);
  };
  EXPECT_TRUE(with("bar.sync 0;"));
  Report race = with("");
  ASSERT_TRUE(race.finding.has_value());
  EXPECT_EQ(race.finding->kind, FindingKind::Race);
}

TEST(Barrier, OrdersReadsOfAllLanesBeforeTheReadOfOne) {
  // All threads read the first word; then each thread reads and writes its own word.
  std::string text = "st.shared.b32 [%x], %t;\nbar.sync 0;\nmov.u32 %z, s;\nld.shared.b32 %d, [%z];\nEND\n"
                     "ld.shared.b32 %d, [%x];\nst.shared.b32 [%x], %d;";
  auto with = [&](const std::string &sync) {
    std::string changed = text;
    return runBlock(changed.replace(changed.find("END"), 3, sync), 32);
  };
  EXPECT_TRUE(with("bar.sync 0;"));
  EXPECT_EQ(with("").finding->kind, FindingKind::Race);
}

TEST(Barrier, NamedBarriersOrderTheirWarpsOnly) {
  // Warps 0 and 1 use barrier 1, warps 2 and 3 barrier 2; thread t reads the word of thread t ^ 32 or t ^ 64.
  std::string text =
      clear +
      "st.shared.b32 [%x], %t;\nshr.u32 %y, %t, 6;\nadd.u32 %y, %y, 1;\nbar.sync %y, 64;\nxor.b32 %y, %t, WITH;\n"
      "mov.u32 %z, s;\nmad.lo.u32 %y, %y, 4, %z;\nld.shared.b32 %d, [%y];";
  auto with = [&](const std::string &other) {
    std::string changed = text;
    return runBlock(changed.replace(changed.find("WITH"), 4, other), 128);
  };
  EXPECT_TRUE(with("32"));
  EXPECT_EQ(with("64").finding->kind, FindingKind::Race);
}

TEST(Barrier, ArriveReleasesWithoutWaiting) {
  // Warp 0 produces and arrives; warp 1 waits and reads.
  std::string text = "setp.lt.u32 %p, %t, 32;\n@!%p bra consume;\nst.shared.b32 [%x], %t;\nbar.arrive 1, "
                     "64;\nSTORE\nbra end;\nconsume:\n"
                     "bar.sync 1, 64;\nsub.u32 %y, %x, 128;\nld.shared.b32 %d, [%y];\nend:";
  auto with = [&](const std::string &store) {
    std::string changed = text;
    return runBlock(changed.replace(changed.find("STORE"), 5, store), 64);
  };
  EXPECT_TRUE(with(""));
  EXPECT_EQ(with("st.shared.b32 [%x], 0;").finding->kind, FindingKind::Race);
}

TEST(Barrier, Reductions) {
  std::vector<uint32_t> results;
  EXPECT_TRUE(runBlock("setp.lt.u32 %p, %t, 50;\nbar.red.popc.u32 %d, 0, %p;", 128, &results));
  EXPECT_EQ(results[100], 50u);
  EXPECT_TRUE(
      runBlock("setp.lt.u32 %p, %t, 50;\nbarrier.red.or.pred %q, 0, %p;\nselp.b32 %d, 1, 0, %q;", 128, &results));
  EXPECT_EQ(results[100], 1u);
  EXPECT_TRUE(
      runBlock("setp.lt.u32 %p, %t, 50;\nbar.red.and.pred %q, 0, 128, !%p;\nselp.b32 %d, 1, 0, %q;", 128, &results));
  EXPECT_EQ(results[100], 0u);
}

TEST(Barrier, DivergenceIsAnError) {
  EXPECT_EQ(runBlock("setp.lt.u32 %p, %t, 16;\n@%p bar.sync 0;", 64).finding->kind, FindingKind::Divergence);
}

TEST(Barrier, DeadlocksNameTheWaitingWarps) {
  Report report = runBlock("setp.lt.u32 %p, %t, 32;\n@%p bar.sync 1, 64;", 64);
  ASSERT_TRUE(report.finding.has_value());
  EXPECT_EQ(report.finding->kind, FindingKind::Deadlock);
  EXPECT_EQ(report.finding->source, "@%p bar.sync 1, 64;");
  EXPECT_NE(report.finding->message.find("barrier 1"), std::string::npos);
}

TEST(Barrier, ExitedWarpsAreNotExpected) {
  EXPECT_TRUE(runBlock("setp.ge.u32 %p, %t, 32;\n@%p ret;\nbar.sync 0;", 64));
}

TEST(Barrier, CountsMustAgree) {
  EXPECT_EQ(runBlock("setp.lt.u32 %p, %t, 32;\nselp.b32 %y, 64, 96, %p;\nbar.sync 1, %y;", 64).finding->kind,
            FindingKind::BadOperand);
  EXPECT_EQ(runBlock("mov.u32 %y, 40;\nbar.sync 1, %y;", 64).finding->kind, FindingKind::BadOperand);
}
