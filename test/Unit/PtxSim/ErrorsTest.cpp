//===- ErrorsTest.cpp - Unsupported PTX is reported -----------------------===//

#include "Harness.h"

using namespace saccade::ptxsim;
using namespace saccade::ptxsim::test;

/// The finding of a kernel with one line, which is line 6 of its text.
static Finding lineFinding(const std::string &line) {
  return loadFinding(header() + ".visible .entry k()\n{\n" + line + "\nret;\n}\n");
}

TEST(Errors, UnknownInstructionsAndModifiersNameTheirLine) {
  for (std::string line :
       {"frobnicate.b32 %r, %r;", "wgmma.fence.sync.aligned;", "add.rx.f32 0, 0, 0;", "bar.sync.now 0;",
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {}, {}, {}, {};", "cp.async.bulk.commit_group;",
        "ld.global.everywhere.b32 0, [0];", "ret.maybe;", "membar.galaxy;", "cvt.rn.f12.f32 0, 0;"}) {
    Finding finding = lineFinding(line);
    EXPECT_EQ(finding.kind, FindingKind::Unsupported) << line;
    EXPECT_EQ(finding.line, 6u) << line;
    EXPECT_EQ(finding.source, line);
  }
}

TEST(Errors, OperandsMustFit) {
  for (std::string line : {".reg .b32 %r; .reg .b64 %l; add.s32 %r, %r, %l;", ".reg .b32 %r; add.s32 %r, %r;",
                           ".reg .b32 %r; add.f32 %r, %r, 1;", ".reg .b32 %r; mov.u32 %r, %nothing.x;", "bra nowhere;",
                           ".reg .b32 %r; ld.b128 %r, [%r];", ".reg .b32 %r; add.s32 5, %r, %r;",
                           ".reg .b32 %r; cp.async.cg.shared.global [%r], [%r], 4;"})
    EXPECT_EQ(lineFinding(line).kind, FindingKind::Unsupported) << line;
}

TEST(Errors, RegistersHoldTheTypeInMemory) {
  for (std::string line : {".reg .b32 %r; ld.global.b64 %r, [0];", ".reg .b16 %h; ld.global.f32 %h, [0];",
                           ".reg .b32 %r; st.shared.u64 [0], %r;", ".reg .b16 %h; st.global.v2.b32 [0], {%h, %h};"}) {
    Finding finding = lineFinding(line);
    EXPECT_EQ(finding.kind, FindingKind::Unsupported) << line;
    EXPECT_NE(finding.message.find("the register is narrower than the type"), std::string::npos) << finding.message;
  }
}

TEST(Errors, Syntax) {
  for (std::string line :
       {"add.s32 %r1 %r2;", "@ bra x;", "@%p ret;", "a: a: ret;", ".reg .b33 %r;", ".reg;", ".reg .b32 %r<99999999>;",
        ".shared .b8 x[99999999999];", ".shared .align 3 .b8 x[4];", "mov.u32 [;", ".loclol 5;", "mov.u32 0, 12x;"}) {
    Finding finding = lineFinding(line);
    EXPECT_EQ(finding.kind, FindingKind::Syntax) << line;
    EXPECT_EQ(finding.line, 6u) << line;
  }
  EXPECT_EQ(loadFinding(header() + ".entry k() {").kind, FindingKind::Syntax);
  EXPECT_EQ(loadFinding(header() + ".surprise x;").kind, FindingKind::Syntax);
}

TEST(Errors, UncalledFunctionsAreDecoded) {
  EXPECT_EQ(loadFinding(header() + ".func f() {\nfrobnicate;\n}\n").kind, FindingKind::Unsupported);
  EXPECT_EQ(loadFinding(header() + ".func f() {\ncall f;\n}\n").kind, FindingKind::Unsupported);
  EXPECT_EQ(loadFinding(header() + ".extern .func g();\n.func f() {\ncall g;\n}\n").kind, FindingKind::Unsupported);
}

TEST(Errors, FindingsAreFormatted) {
  Finding finding = lineFinding("frobnicate;");
  EXPECT_EQ(finding.str(), "line 6: unsupported: the instruction 'frobnicate' is not simulated\n    6 | frobnicate;");
}

TEST(Errors, ParametersHaveALimit) {
  auto text = [](const std::string &version, unsigned bytes) {
    return ".version " + version + "\n.target sm_80\n.address_size 64\n.visible .entry k(.param .align 4 .b8 a[" +
           std::to_string(bytes) + "])\n{\nret;\n}\n";
  };
  for (auto [version, limit] : {std::pair("8.0", 4352u), {"8.1", 32764u}}) {
    keepForPtxas(text(version, limit));
    Device device;
    EXPECT_TRUE(std::holds_alternative<Program>(Program::load(text(version, limit), device)));
    EXPECT_EQ(loadFinding(text(version, limit + 4)).kind, FindingKind::Unsupported);
  }
}

TEST(Errors, LaunchesAreChecked) {
  Device device;
  std::string text = header() + ".visible .entry k(.param .b32 x, .param .b64 y)\n.reqntid 64, 2\n{\nret;\n}\n";
  keepForPtxas(text);
  auto loaded = Program::load(text, device);
  ASSERT_TRUE(std::holds_alternative<Program>(loaded)) << std::get<Finding>(loaded).str();
  const Program &program = std::get<Program>(loaded);
  EXPECT_EQ(program.entries(), std::vector<std::string>{"k"});
  EXPECT_EQ(program.parameterBytes("k"), 16u);
  Launch launch;
  launch.block = {64, 2, 1};
  launch.parameters = Parameters().add(uint32_t(1)).add(uint64_t(2)).bytes;
  EXPECT_TRUE(program.run("k", launch));
  auto kind = [&](auto change) {
    Launch changed = launch;
    change(changed);
    auto finding = program.run("k", changed).finding;
    return finding ? finding->kind : FindingKind::Syntax;
  };
  EXPECT_EQ(kind([](Launch &l) { l.block = {128, 1, 1}; }), FindingKind::BadLaunch);
  EXPECT_EQ(kind([](Launch &l) { l.grid = {0, 1, 1}; }), FindingKind::BadLaunch);
  EXPECT_EQ(kind([](Launch &l) { l.dynamicShared = 200 << 10; }), FindingKind::BadLaunch);
  EXPECT_EQ(kind([](Launch &l) { l.parameters.clear(); }), FindingKind::BadLaunch);
  EXPECT_EQ(program.run("other", launch).finding->kind, FindingKind::BadLaunch);
}

TEST(Errors, UnknownTargetsAreRefused) {
  for (std::string target : {"sm_98304", "sm_81", "compute_80", "sm_90ab"}) {
    Finding finding = loadFinding(".version 8.0\n.target " + target + ", debug\n.address_size 64\n");
    EXPECT_EQ(finding.kind, FindingKind::Unsupported) << target;
    EXPECT_EQ(finding.line, 2u);
    EXPECT_NE(finding.message.find("found target " + target + ", expected one of sm_70, sm_72, sm_75, sm_80"),
              std::string::npos)
        << finding.message;
  }
}

TEST(Errors, SharedMemoryIsLimitedByTheTarget) {
  for (auto [target, bytes] : {std::pair<std::string, unsigned>("sm_75", 64 << 10), {"sm_80", 163 << 10}}) {
    Device device;
    auto loaded = Program::load(
        ".version 8.0\n.target " + target + "\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n", device);
    Launch launch;
    launch.dynamicShared = bytes;
    EXPECT_TRUE(std::get<Program>(loaded).run("k", launch));
    launch.dynamicShared = bytes + 1;
    EXPECT_EQ(std::get<Program>(loaded).run("k", launch).finding->message,
              "found " + std::to_string(bytes + 1) + " bytes of shared memory, expected at most the " +
                  std::to_string(bytes) + " of " + target);
  }
}

TEST(Errors, InstructionLimit) {
  Device device;
  auto loaded = Program::load(header() + ".visible .entry k()\n{\nloop:\nbra loop;\n}\n", device);
  Launch launch;
  launch.maxInstructions = 100000;
  EXPECT_EQ(std::get<Program>(loaded).run("k", launch).finding->kind, FindingKind::InstructionLimit);
}

TEST(Errors, FindingOfTheFirstBlockIsReportedWithManyThreads) {
  Device device;
  auto loaded = Program::load(header() + ".visible .entry k()\n{\n.reg .pred %p;\n.reg .b32 %r;\nmov.u32 %r, "
                                         "%ctaid.x;\nsetp.ge.u32 %p, %r, 5;\n@%p trap;\nret;\n}\n",
                              device);
  Launch launch;
  launch.grid = {100, 1, 1};
  launch.threads = 4;
  auto finding = std::get<Program>(loaded).run("k", launch).finding;
  ASSERT_TRUE(finding.has_value());
  EXPECT_NE(finding->message.find("block (5, 0, 0)"), std::string::npos) << finding->message;
}
