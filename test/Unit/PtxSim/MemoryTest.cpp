//===- MemoryTest.cpp - Loads, stores, atomics and their errors -----------===//

#include "Harness.h"

using namespace saccade::ptxsim;
using namespace saccade::ptxsim::test;

/// %x is the shared address of the lane's own 32-bit word.
static const std::string own = "mov.u32 %x, s;\nmad.lo.u32 %x, %lane, 4, %x;\n";

TEST(Memory, SharedRoundTrip) {
  EXPECT_EQ(evaluate32(own + "st.shared.b32 [%x], %a;\nld.shared.b32 %d, [%x];", {77}), 77u);
  EXPECT_EQ(evaluate("mov.u64 %lx, s;\nmad.wide.u32 %lx, %lane, 16, %lx;\nst.shared.v2.b32 [%lx+8], {%a, %b};\n"
                     "ld.shared.v2.b32 {%x, %d}, [%lx+8];",
                     4, {b32(1), b32(2)}),
            2u);
  EXPECT_EQ(evaluate("mov.u64 %lx, s;\nmad.wide.u32 %lx, %lane, 16, %lx;\nst.shared.v4.b32 [%lx], {%a, %b, %a, 9};\n"
                     "ld.shared.v4.b32 {%x, %x, %y, %d}, [%lx];",
                     4, {b32(1), b32(2)}),
            9u);
}

TEST(Memory, NarrowLoadsExtendBySign) {
  std::string store = own + "st.shared.b32 [%x], %a;\n";
  EXPECT_EQ(evaluate32(store + "ld.shared.u8 %d, [%x+1];", {0x1234f678}), 0xf6u);
  EXPECT_EQ(evaluate32(store + "ld.shared.s8 %d, [%x+1];", {0x1234f678}), 0xfffffff6u);
  EXPECT_EQ(evaluate32(store + "ld.shared.s16 %d, [%x];", {0x1234f678}), 0xfffff678u);
  EXPECT_EQ(evaluate32(store + "ld.shared.b16 %hx, [%x+2];\ncvt.u32.u16 %d, %hx;", {0x1234f678}), 0x1234u);
  EXPECT_EQ(evaluate32(store + "st.shared.b8 [%x+3], %b;\nld.shared.b32 %d, [%x];", {0x1234f678, 0xabcd}), 0xcd34f678u);
}

TEST(Memory, GenericAddressesReachEverySpace) {
  std::string generic = "mov.u64 %lx, s;\nmad.wide.u32 %lx, %lane, 4, %lx;\ncvta.shared.u64 %ly, %lx;\n";
  EXPECT_EQ(evaluate32(generic + "st.b32 [%ly], %a;\nld.shared.b32 %d, [%lx];", {5}), 5u);
  EXPECT_EQ(evaluate32(generic + "st.shared.b32 [%lx], %a;\nld.b32 %d, [%ly];", {6}), 6u);
  EXPECT_EQ(
      evaluate32(generic + "cvta.to.shared.u64 %ly, %ly;\nst.shared.b32 [%ly], %a;\nld.shared.b32 %d, [%lx];", {7}),
      7u);
  EXPECT_EQ(evaluate32(generic + "isspacep.shared %p, %ly;\nselp.b32 %d, 1, 0, %p;", {}), 1u);
  EXPECT_EQ(evaluate32(generic + "isspacep.global %p, %ly;\nselp.b32 %d, 1, 0, %p;", {}), 0u);
  EXPECT_EQ(evaluate32("ld.param.u64 %lx, [in0];\ncvta.to.global.u64 %lx, %lx;\nld.b32 %d, [%lx];", {8}), 8u);
}

TEST(Memory, LocalMemoryIsPrivateToALane) {
  Outcome outcome = runWarp(".local .align 4 .b8 depot[16];\nmov.u64 %lx, depot;\ncvta.local.u64 %ly, %lx;\n"
                            "st.local.b32 [%lx+4], %lane;\nld.b32 %d, [%ly+4];",
                            4, {});
  ASSERT_TRUE(outcome.report) << outcome.report.finding->str();
  for (unsigned lane = 0; lane < 32; ++lane)
    EXPECT_EQ(outcome.results[0][lane], lane);
  EXPECT_EQ(
      findingOf(".local .align 4 .b8 depot[16];\nmov.u64 %lx, depot;\nst.local.b32 [%lx+16], %lane;\nmov.u32 %d, 0;")
          .kind,
      FindingKind::OutOfBounds);
}

TEST(Memory, MisalignedAddressesAreErrors) {
  Finding finding = findingOf(own + "ld.shared.b32 %d, [%x+2];");
  EXPECT_EQ(finding.kind, FindingKind::Misaligned);
  EXPECT_EQ(finding.source, "ld.shared.b32 %d, [%x+2];");
  EXPECT_EQ(findingOf("mov.u32 %x, s;\nst.shared.v4.b32 [%x+8], {%a, %a, %a, %a};\nmov.u32 %d, 0;", {b32(1)}).kind,
            FindingKind::Misaligned);
}

TEST(Memory, UnallocatedAddressesAreErrors) {
  EXPECT_EQ(findingOf("mov.u32 %x, s;\nld.shared.b32 %d, [%x+4096];").kind, FindingKind::OutOfBounds);
  EXPECT_EQ(findingOf("mov.u32 %x, 0;\nld.shared.b32 %d, [%x];").kind, FindingKind::OutOfBounds);
  EXPECT_EQ(findingOf("mov.u64 %lx, 0;\nld.global.b32 %d, [%lx];").kind, FindingKind::OutOfBounds);
  // The input has 128 bytes.
  Finding finding = findingOf("ld.param.u64 %lx, [in0];\nld.global.b32 %d, [%lx+128];", {b32(1)});
  EXPECT_EQ(finding.kind, FindingKind::OutOfBounds);
  EXPECT_NE(finding.message.find("0 bytes after the end of 'input'"), std::string::npos) << finding.message;
  EXPECT_EQ(findingOf("ld.param.u64 %lx, [in0];\nld.global.v2.b32 {%x, %d}, [%lx+-8];", {b32(1)}).kind,
            FindingKind::OutOfBounds);
}

TEST(Memory, UnwrittenMemoryIsUndefined) {
  Finding stored = findingOf(own + "ld.shared.b32 %d, [%x];");
  EXPECT_EQ(stored.kind, FindingKind::Uninitialised);
  EXPECT_NE(stored.message.find("a value stored to global memory"), std::string::npos);
  EXPECT_EQ(findingOf("mov.u32 %d, %x;").kind, FindingKind::Uninitialised);
  EXPECT_EQ(findingOf("add.u32 %y, %x, 1;\nsetp.eq.u32 %p, %y, 0;\n@%p trap;\nmov.u32 %d, 0;").kind,
            FindingKind::Uninitialised);
  EXPECT_EQ(findingOf("ld.shared.b32 %d, [%x];").kind, FindingKind::Uninitialised);
  // Copying an undefined value without using it is not an error.
  EXPECT_EQ(evaluate32(own + "ld.shared.b32 %y, [%x];\nst.shared.b32 [%x], %y;\nmov.u32 %d, 3;", {}), 3u);
  // One undefined byte of four.
  EXPECT_EQ(findingOf(own + "st.shared.b16 [%x], 1;\nst.shared.b8 [%x+2], 1;\nld.shared.b32 %d, [%x];").kind,
            FindingKind::Uninitialised);
  EXPECT_EQ(evaluate32(own + "st.shared.b16 [%x], 1;\nld.shared.u16 %d, [%x];", {}), 1u);
}

TEST(Memory, NonCoherentLoadsOfWrittenMemoryAreErrors) {
  Finding finding = findingOf("ld.param.u64 %lx, [out];\nmad.wide.u32 %lx, %lane, 4, %lx;\nst.global.b32 [%lx], 1;\n"
                              "ld.global.nc.b32 %d, [%lx];");
  EXPECT_EQ(finding.kind, FindingKind::ReadOnly);
  EXPECT_EQ(evaluate32("ld.param.u64 %lx, [in0];\nld.global.nc.L1::no_allocate.b32 %d, [%lx];", {4}), 4u);
}

TEST(Memory, ParametersCanBeRead) {
  EXPECT_EQ(evaluate32("ld.param.u64 %lx, [in0];\nmov.b64 %ly, in0;\ncvta.param.u64 %ly, %ly;\nld.b64 %ly, [%ly];\n"
                       "ld.global.b32 %d, [%ly];",
                       {12}),
            12u);
  EXPECT_EQ(findingOf("mov.b64 %ly, in0;\ncvta.param.u64 %ly, %ly;\nst.b64 [%ly], 1;\nmov.u32 %d, 0;", {b32(0)}).kind,
            FindingKind::ReadOnly);
}

TEST(Atomic, ReturnsTheOldValue) {
  std::string begin = own + "st.shared.b32 [%x], %a;\n";
  EXPECT_EQ(evaluate32(begin + "atom.shared.add.u32 %d, [%x], %b;", {5, 3}), 5u);
  for (auto [operation, expected] : {std::pair("add.u32", 0xffffffffu),
                                     {"min.s32", 0xfffffffcu},
                                     {"min.u32", 3u},
                                     {"max.s32", 3u},
                                     {"and.b32", 0u},
                                     {"or.b32", 0xffffffffu},
                                     {"xor.b32", 0xffffffffu},
                                     {"exch.b32", 3u},
                                     {"inc.u32", 0u},
                                     {"dec.u32", 3u}})
    EXPECT_EQ(
        evaluate32(begin + "atom.shared." + operation + " %y, [%x], %b;\nld.shared.b32 %d, [%x];", {0xfffffffc, 3}),
        expected)
        << operation;
  EXPECT_EQ(evaluate32(begin + "atom.shared.cas.b32 %y, [%x], %b, %c;\nld.shared.b32 %d, [%x];", {5, 5, 9}), 9u);
  EXPECT_EQ(evaluate32(begin + "atom.shared.cas.b32 %y, [%x], %b, %c;\nld.shared.b32 %d, [%x];", {5, 6, 9}), 5u);
}

TEST(Atomic, LanesAreSerialisedAtOneAddress) {
  std::string zero = "setp.eq.u32 %p, %lane, 0;\nmov.u32 %x, s;\n@%p st.shared.b32 [%x], 0;\nbar.warp.sync -1;\n";
  EXPECT_EQ(evaluate32(zero + "red.shared.add.u32 [%x], %lane;\nbar.warp.sync -1;\nld.shared.b32 %d, [%x];", {}), 496u);
}

TEST(Atomic, GlobalMemoryFlushesSubnormalSums) {
  std::string global = "ld.param.u64 %lx, [in0];\nmad.wide.u32 %lx, %lane, 4, %lx;\n";
  EXPECT_EQ(evaluate32(global + "red.global.add.f32 [%lx], %b;\nld.global.b32 %d, [%lx];", {1, 1}), 0u);
  EXPECT_EQ(evaluate32(global + "atom.add.f32 %x, [%lx], %b;\nld.global.b32 %d, [%lx];", {0x3f800000, 0x40000000}),
            0x40400000u);
  EXPECT_EQ(evaluate32(own + "st.shared.b32 [%x], %a;\nred.shared.add.f32 [%x], %b;\nld.shared.b32 %d, [%x];", {1, 1}),
            2u);
  EXPECT_EQ(evaluate32(global + "atom.global.add.noftz.f16x2 %x, [%lx], %b;\nld.global.b32 %d, [%lx];",
                       {0x3c000001, 0x3c000001}),
            0x40000002u);
  EXPECT_EQ(evaluate("ld.param.u64 %lx, [in0];\nmad.wide.u32 %lx, %lane, 8, %lx;\natom.relaxed.gpu.global.add.f64 %ly, "
                     "[%lx], %b;\n"
                     "ld.global.b64 %d, [%lx];",
                     8, {f64(1), f64(2)}),
            0x4008000000000000u);
}

TEST(Memory, FencesOfEveryKindHaveNoEffect) {
  std::string body = "mov.u32 %d, %a;\n";
  for (std::string order : {"", ".sc", ".acq_rel", ".acquire", ".release"})
    for (std::string scope : {".cta", ".cluster", ".gpu", ".sys"})
      body += "fence" + order + scope + ";\n";
  for (std::string scope : {".cta", ".gl", ".sys"})
    body += "membar" + scope + ";\n";
  Options hopper;
  hopper.target = "sm_90";
  hopper.forPtxas = false; // newer versions of PTX have some of the forms
  Outcome outcome = runWarp(body, 4, {lanes(4, [](unsigned lane) { return 5 * lane; })}, hopper);
  ASSERT_TRUE(outcome.report) << outcome.report.finding->str();
  for (unsigned lane = 0; lane < 32; ++lane)
    EXPECT_EQ(outcome.results[0][lane], 5 * lane);
}

TEST(Memory, ModuleVariables) {
  std::string text =
      header() + ".global .align 4 .b32 table[4] = {10, 20, -30, 0x28};\n.const .align 8 .b8 bytes[2] = {7, 9};\n"
                 ".global .align 4 .f32 half = 0f3F000000;\n.extern .shared .align 16 .b8 dynamic[];\n"
                 ".visible .entry k(.param .u64 out)\n.maxntid 32\n{\n.reg .b32 %r<8>;\n.reg .b64 %rd<8>;\n"
                 "ld.param.u64 %rd1, [out];\nld.global.s32 %r1, [table+8];\nst.global.b32 [%rd1], %r1;\n"
                 "ld.const.u8 %r2, [bytes+1];\nst.global.b32 [%rd1+4], %r2;\nld.global.b32 %r3, [half];\n"
                 "st.global.b32 [%rd1+8], %r3;\nmov.u64 %rd2, dynamic;\nst.shared.b32 [%rd2+60], 3;\n"
                 "ld.shared.b32 %r4, [dynamic+60];\nst.global.b32 [%rd1+12], %r4;\nmov.u32 %r5, %dynamic_smem_size;\n"
                 "st.global.b32 [%rd1+16], %r5;\nret;\n}\n";
  keepForPtxas(text);
  Device device;
  auto loaded = Program::load(text, device);
  ASSERT_TRUE(std::holds_alternative<Program>(loaded)) << std::get<Finding>(loaded).str();
  uint64_t out = device.allocate(20);
  Launch launch;
  launch.dynamicShared = 64;
  launch.parameters = Parameters().add(out).bytes;
  Report report = std::get<Program>(loaded).run("k", launch);
  ASSERT_TRUE(report) << report.finding->str();
  std::array<uint8_t, 20> bytes;
  ASSERT_TRUE(device.read(out, bytes));
  auto words = llvm::bit_cast<std::array<uint32_t, 5>>(bytes);
  EXPECT_EQ(words, (std::array<uint32_t, 5>{uint32_t(-30), 9, 0x3f000000, 3, 64}));
  launch.dynamicShared = 32;
  EXPECT_EQ(std::get<Program>(loaded).run("k", launch).finding->kind, FindingKind::OutOfBounds);
  launch.parameters.pop_back();
  EXPECT_EQ(std::get<Program>(loaded).run("k", launch).finding->kind, FindingKind::BadLaunch);
  launch.block = {64, 1, 1};
  EXPECT_EQ(std::get<Program>(loaded).run("k", launch).finding->kind, FindingKind::BadLaunch);
}
