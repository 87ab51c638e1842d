//===- MbarrierTest.cpp - mbarrier and proxy fences -----------------------===//

#include "AsyncHarness.h"

using namespace saccade::ptxsim;
using namespace saccade::ptxsim::test;

/// Stores of a predicate as byte `index` of %out, by thread 0.
static std::string reported(const std::string &predicate, unsigned index) {
  return "selp.b32 %r9, 1, 0, " + predicate + ";\n@%p0 st.global.u8 [%out+" + std::to_string(index) + "], %r9;\n";
}
static std::string tested(const std::string &parity, unsigned index) {
  return "mbarrier.test_wait.parity.shared::cta.b64 %p1, [%smem], " + parity + ";\n" + reported("%p1", index);
}
static const std::string arrive = "mbarrier.arrive.shared::cta.b64 _, [%smem];\n";
static const std::string one = "@%p0 " + arrive;

static Finding findingOfBody(const std::string &body, unsigned threads = 32) {
  AsyncCase test{body, threads};
  return asyncFinding(test);
}

TEST(Mbarrier, FreshBarrierHasCompletedTheOddPhase) {
  AsyncCase test{initialised(1) + tested("1", 0) + tested("0", 1)};
  test.outputBytes = 2;
  EXPECT_EQ(asyncOutput(test), (std::vector<uint8_t>{1, 0}));
}

TEST(Mbarrier, PhasesAlternate) {
  std::string body = initialised(1), phase;
  for (unsigned step = 0; step < 5; ++step)
    body += one + waited(step & 1) + tested(std::to_string(step & 1), 2 * step) +
            tested(std::to_string(~step & 1), 2 * step + 1);
  AsyncCase test{body};
  test.outputBytes = 10;
  EXPECT_EQ(asyncOutput(test), (std::vector<uint8_t>{1, 0, 1, 0, 1, 0, 1, 0, 1, 0}));
}

TEST(Mbarrier, CountsLanesAndOperands) {
  for (auto [count, arrivals] : {std::pair(32u, arrive),
                                 {7u, "@%p0 mbarrier.arrive.shared::cta.b64 _, [%smem], 7;\n"},
                                 {33u, arrive + one},
                                 {34u, arrive + "@%p0 mbarrier.arrive.shared::cta.b64 _, [%smem], 2;\n"}}) {
    AsyncCase test{initialised(count) + arrivals + waited(0)};
    EXPECT_TRUE(runAsync(test).report) << count;
    test.body = initialised(count + 1) + arrivals + waited(0);
    EXPECT_EQ(asyncFinding(test).kind, FindingKind::Deadlock) << count;
    if (count > 1)
      EXPECT_EQ(findingOfBody(initialised(count - 1) + arrivals + waited(0)).kind,
                count == 7 || count == 34 ? FindingKind::BadOperand : FindingKind::Race);
  }
}

TEST(Mbarrier, CountsBytesInBothOrders) {
  std::string expect = "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%smem], 96;\n",
              complete = "@%p0 mbarrier.complete_tx.relaxed.cluster.shared::cta.b64 [%smem], 32;\n";
  for (const std::string &order : {expect + complete + complete + complete, complete + complete + complete + expect,
                                   complete + expect + complete + complete}) {
    AsyncCase test{initialised(1) + order + waited(0)};
    EXPECT_TRUE(runAsync(test).report);
  }
  EXPECT_EQ(findingOfBody(initialised(1) + expect + complete + complete + waited(0)).kind, FindingKind::Deadlock);
  EXPECT_EQ(findingOfBody(initialised(1) + complete + one).kind, FindingKind::BadOperand);
  // Bytes that are expected without an arrival keep the phase open.
  std::string more = "@%p0 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%smem], 32;\n";
  EXPECT_EQ(findingOfBody(initialised(1) + more + one + waited(0)).kind, FindingKind::Deadlock);
  EXPECT_TRUE(runAsync({initialised(1) + more + one + complete + waited(0)}).report);
}

TEST(Mbarrier, DroppedArrivalsLowerTheNextCount) {
  std::string drop = "@%p0 mbarrier.arrive_drop.shared::cta.b64 _, [%smem];\n";
  EXPECT_TRUE(runAsync({initialised(2) + one + drop + waited(0) + one + waited(1)}).report);
  EXPECT_EQ(findingOfBody(initialised(2) + one + one + waited(0) + one + waited(1)).kind, FindingKind::Deadlock);
}

TEST(Mbarrier, StatesNamePhases) {
  std::string state = "@%p0 mbarrier.arrive.shared::cta.b64 %l0, [%smem];\n",
              test = "@%p0 mbarrier.test_wait.shared::cta.b64 %p1, [%smem], %l0;\n@%p0 ";
  AsyncCase now{initialised(2) + state + test.substr(0, test.size() - 5) + reported("%p1", 0) + one + "again:\n" +
                test + "bra check;\nbra done;\ncheck:\n@!%p1 bra again;\ndone:\n"};
  now.outputBytes = 1;
  EXPECT_EQ(asyncOutput(now), std::vector<uint8_t>{0});
  EXPECT_EQ(findingOfBody(initialised(1) + state + waited(0) + one + waited(1) + one + waited(0) +
                          test.substr(0, test.size() - 5))
                .kind,
            FindingKind::BadOperand);
}

TEST(Mbarrier, OrdersMemory) {
  // Warp 0 writes, arrives, and warp 1 waits and reads.
  std::string roles = initialised(32) + "setp.eq.u32 %p1, %warp, 0;\n@!%p1 bra reader;\n",
              write = "shl.b32 %r0, %lane, 2;\nadd.u32 %r0, %r0, %smem;\nst.shared.b32 [%r0+64], %lane;\n",
              read = "bra end;\nreader:\n" + waited(0) +
                     "ld.shared.b32 %r1, [%smem+68];\nst.global.b32 [%out], %r1;\nend:\n";
  AsyncCase test{roles + write + arrive + read, 64};
  test.outputBytes = 4;
  EXPECT_EQ(asyncOutput(test), (std::vector<uint8_t>{1, 0, 0, 0}));
  test.body = roles + arrive + write + read;
  EXPECT_EQ(asyncFinding(test).kind, FindingKind::Race);
  test.body = roles + write + "mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%smem];\n" + read;
  test.forPtxas = false; // .relaxed needs a later PTX version
  EXPECT_EQ(asyncFinding(test).kind, FindingKind::Race);
}

TEST(Mbarrier, OneLaneReleasesItsOwnAccessesOnly) {
  // Lane 3 arrives alone; another lane's write is published only after bar.warp.sync.
  auto body = [&](const std::string &writer, const std::string &between) {
    return initialised(1) +
           "setp.eq.u32 %p1, %warp, 0;\n@!%p1 bra reader;\nsetp.eq.u32 %p2, %lane, 3;\nsetp.eq.u32 %p1, "
           "%lane, " +
           writer + ";\n@%p1 st.shared.b32 [%smem+64], 5;\n" + between +
           "@%p2 mbarrier.arrive.shared::cta.b64 _, [%smem];\nbra end;\nreader:\n" + waited(0) +
           "ld.shared.b32 %r1, [%smem+64];\nst.global.b32 [%out], %r1;\nend:\n";
  };
  AsyncCase test{body("3", ""), 64};
  EXPECT_EQ(asyncOutput(test)[0], 5);
  test.body = body("4", "");
  EXPECT_EQ(asyncFinding(test).kind, FindingKind::Race);
  test.body = body("4", "bar.warp.sync -1;\n");
  EXPECT_EQ(asyncOutput(test)[0], 5);
}

TEST(Mbarrier, CopiesArriveWhenTheyAreComplete) {
  // Each thread of warp 0 copies 16 bytes; warp 1 waits and reads them.
  auto body = [](unsigned count, const std::string &arrival, const std::string &wait) {
    return initialised(count) +
           "setp.eq.u32 %p1, %warp, 0;\nshl.b32 %r0, %lane, 4;\ncvt.u64.u32 %l0, %r0;\nadd.s64 %l0, %l0, %in;\nadd.u32 "
           "%r0, "
           "%r0, %smem;\n@!%p1 bra reader;\ncp.async.ca.shared.global [%r0+1024], [%l0], 16;\n" +
           arrival + "cp.async.wait_all;\nbra end;\nreader:\n" + wait +
           "ld.shared.b32 %r1, [%r0+1024];\nmul.wide.u32 %l1, %lane, 4;\nadd.s64 %l1, %l1, %out;\nst.global.b32 [%l1], "
           "%r1;\nend:\n";
  };
  std::vector<uint32_t> words, expected;
  for (uint32_t index = 0; index < 128; ++index)
    words.push_back(index * index);
  for (uint32_t lane = 0; lane < 32; ++lane)
    expected.push_back(16 * lane * lane);
  const std::string counted = "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%smem];\n",
                    extra = "cp.async.mbarrier.arrive.shared::cta.b64 [%smem];\n" + one;
  AsyncCase test{body(32, counted, waited(0)), 64};
  test.input = rawBytes(words);
  test.outputBytes = 128;
  EXPECT_EQ(asyncOutput(test), rawBytes(expected));
  test.body = body(1, "setp.eq.u32 %p0, %lane, 0;\nbar.warp.sync -1;\n" + extra, waited(0));
  EXPECT_EQ(asyncOutput(test), rawBytes(expected));
  test.body = body(33, counted, waited(0));
  EXPECT_EQ(asyncFinding(test).kind, FindingKind::Deadlock);
  // A read that is not ordered after the copy may also come before it, when its bytes are undefined.
  test.async = AsyncMode::Late;
  for (const std::string &arrival : {counted, std::string()}) {
    test.body = body(32, arrival, "");
    EXPECT_FALSE(runAsync(test).report);
  }
}

TEST(Mbarrier, MustBeInitialisedVisibly) {
  EXPECT_EQ(findingOfBody(arrive).kind, FindingKind::Uninitialised);
  EXPECT_EQ(
      findingOfBody(initialised(32) + "@%p0 mbarrier.inval.shared::cta.b64 [%smem];\nbar.sync 0;\n" + arrive).kind,
      FindingKind::Uninitialised);
  std::string init = "setp.eq.u32 %p0, %thread, 0;\n@%p0 mbarrier.init.shared::cta.b64 [%smem], 32;\n",
              fence = "@%p0 fence.mbarrier_init.release.cluster;\n", proxy = "@%p0 fence.proxy.async;\n",
              last = "bar.sync 0;\n" + arrive + waited(0);
  EXPECT_EQ(findingOfBody(init + last).kind, FindingKind::Race);
  EXPECT_EQ(findingOfBody(init + fence + arrive).kind, FindingKind::Race);
  EXPECT_EQ(findingOfBody(fence.insert(0, "setp.eq.u32 %p0, %thread, 0;\n") + init + last).kind, FindingKind::Race);
  EXPECT_TRUE(runAsync({init + proxy + last}).report);
  EXPECT_EQ(findingOfBody(initialised(1) + "@%p0 mbarrier.init.shared::cta.b64 [%smem], 1;\n").kind,
            FindingKind::BadOperand);
  EXPECT_EQ(findingOfBody("@%p0 mbarrier.inval.shared::cta.b64 [%smem];\n").kind, FindingKind::Uninitialised);
}

TEST(Mbarrier, OtherAccessesOfALiveBarrierAreRaces) {
  for (std::string access : {"ld.shared.b32 %r0, [%smem+4];", "st.shared.b32 [%smem], 1;",
                             "ld.shared.v4.b32 {%r0, %r1, %r2, "
                             "%r3}, [%smem];"})
    EXPECT_EQ(findingOfBody(initialised(1) + access).kind, FindingKind::Race) << access;
  EXPECT_TRUE(runAsync({initialised(1) + "@%p0 st.shared.b32 [%smem+8], 1;"}).report);
}

TEST(Mbarrier, OperandsAreChecked) {
  std::string first = "setp.eq.u32 %p0, %thread, 0;\n";
  EXPECT_EQ(findingOfBody("mbarrier.init.shared::cta.b64 [%smem+4], 1;").kind, FindingKind::Misaligned);
  EXPECT_EQ(findingOfBody("mbarrier.init.shared::cta.b64 [%smem+8192], 1;").kind, FindingKind::OutOfBounds);
  EXPECT_EQ(findingOfBody(first + "mov.u32 %r0, 0;\n@%p0 mbarrier.init.shared::cta.b64 [%smem], %r0;").kind,
            FindingKind::BadOperand);
  EXPECT_EQ(findingOfBody(first + "mov.u32 %r0, 1048576;\n@%p0 mbarrier.init.shared::cta.b64 [%smem], %r0;").kind,
            FindingKind::BadOperand);
}

TEST(Mbarrier, ParitiesAreZeroOrOne) {
  EXPECT_EQ(
      findingOfBody(initialised(1) + "mov.u32 %r0, 3;\nmbarrier.test_wait.parity.shared::cta.b64 %p1, [%smem], %r0;\n")
          .kind,
      FindingKind::BadOperand);
}

TEST(Mbarrier, PhasesMustBeObserved) {
  EXPECT_EQ(findingOfBody(initialised(1) + one + one).kind, FindingKind::Race);
  EXPECT_TRUE(runAsync({initialised(1) + one + waited(0) + one}).report);
}

TEST(Mbarrier, WaitingForAPhaseTwoBackIsReported) {
  // Warp 1 polls phase 0 once, and again after warp 0 has completed phases 0 and 1.
  std::string body = initialised(1) +
                     "setp.eq.u32 %p1, %warp, 0;\n@%p1 bra first;\n"
                     "mbarrier.test_wait.parity.shared::cta.b64 %p2, [%smem], 0;\nbar.sync 1, 64;\nbar.sync 2, 64;\n"
                     "mbarrier.test_wait.parity.shared::cta.b64 %p2, [%smem], 0;\nbra end;\nfirst:\nbar.sync 1, 64;\n" +
                     one + waited(0) + one + waited(1) + "bar.sync 2, 64;\nend:\n";
  EXPECT_EQ(findingOfBody(body, 64).kind, FindingKind::Race);
}

TEST(Mbarrier, StatesAreThoseOfTheCurrentOrTheLastPhase) {
  auto body = [](unsigned phases) {
    std::string text = initialised(32) + "mbarrier.arrive.shared::cta.b64 %l0, [%smem];\n" + waited(0);
    for (unsigned phase = 1; phase < phases; ++phase)
      text += arrive + waited(phase % 2);
    return text + "mbarrier.test_wait.shared::cta.b64 %p1, [%smem], %l0;\n";
  };
  EXPECT_TRUE(runAsync({body(1)}).report);
  EXPECT_EQ(findingOfBody(body(2)).kind, FindingKind::BadOperand);
}

TEST(Mbarrier, WaitsMayFailOnce) {
  // Without a loop, the wait orders nothing.
  std::string body = initialised(1) +
                     "setp.eq.u32 %p1, %warp, 0;\n@!%p1 bra reader;\n@%p0 st.shared.b32 [%smem+64], 1;\n" + one +
                     "bra end;\nreader:\nmbarrier.try_wait.parity.shared::cta.b64 %p3, [%smem], 0;\nld.shared.b32 %r0, "
                     "[%smem+64];\nend:\n";
  EXPECT_EQ(findingOfBody(body, 64).kind, FindingKind::Race);
}

TEST(NamedBarrier, GenerationsMustNotMix) {
  // Warps 0 and 1, then warps 2 and 3 use the same barrier: nothing keeps warp 2 from taking the place of warp 1.
  EXPECT_EQ(findingOfBody("bar.sync 1, 64;\n", 128).kind, FindingKind::Race);
  EXPECT_TRUE(
      runAsync({"shr.u32 %r0, %warp, 1;\nadd.u32 %r0, %r0, 1;\nbar.sync %r0, 64;\nbar.sync %r0, 64;\n", 128}).report);
}

TEST(NamedBarrier, TwoWarpsAlternate) {
  // Warp w waits at barrier 1 + w, adds 1 to a number, and lets the other warp go on.
  std::string loop = "mov.u32 %r0, 0;\nadd.u32 %r1, %warp, 1;\nsub.u32 %r2, 2, %warp;\nsetp.eq.u32 %p0, %lane, 0;\n"
                     "setp.eq.u32 %p1, %thread, 32;\n@%p1 st.shared.b32 [%smem], 0;\nsetp.eq.u32 %p2, %warp, 1;\n"
                     "@%p2 bar.arrive 1, 64;\nloop:\nbar.sync %r1, 64;\n@%p0 ld.shared.b32 %r3, [%smem];\n"
                     "@%p0 add.u32 %r3, %r3, 1;\n@%p0 st.shared.b32 [%smem], %r3;\n",
              next = "bar.arrive %r2, 64;\nadd.u32 %r0, %r0, 1;\nsetp.lt.u32 %p1, %r0, 4;\n@%p1 bra loop;\n"
                     "bar.sync 0;\nld.shared.b32 %r3, [%smem];\nst.global.b32 [%out], %r3;\n";
  AsyncCase test{loop + next, 64};
  test.outputBytes = 4;
  EXPECT_EQ(asyncOutput(test), (std::vector<uint8_t>{8, 0, 0, 0}));
  test.body = loop + "sub.u32 %r2, 3, %r2;\n" + next;
  EXPECT_EQ(asyncFinding(test).kind, FindingKind::Deadlock);
}
