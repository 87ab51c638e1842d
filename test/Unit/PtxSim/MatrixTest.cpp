//===- MatrixTest.cpp - ldmatrix, stmatrix, movmatrix and mma -------------===//

#include "Harness.h"
#include <cmath>

using namespace saccade::ptxsim;
using namespace saccade::ptxsim::test;

/// Writes 4 KB of shared memory: 16-bit element i is i.
static const std::string fill =
    "mov.u32 %x, 0;\nmov.u32 %y, s;\nmad.lo.u32 %y, %lane, 64, %y;\nfill:\n"
    "mad.lo.u32 %at32, %lane, 32, %x;\nadd.u32 %up, %at32, 1;\nshl.b32 %up, %up, 16;\nor.b32 %at32, %at32, %up;\n"
    "st.shared.b32 [%y], %at32;\nadd.u32 %y, %y, 4;\nadd.u32 %x, %x, 2;\nsetp.lt.u32 %p, %x, 32;\n@%p bra fill;\n"
    "bar.warp.sync -1;\n";
static const std::string declare = ".reg .b32 %at32, %up, %r0, %r1, %r2, %r3;\n";

/// Loads matrices of contiguous rows: element (r, c) of matrix m is 64m + 8r + c.
static std::vector<uint64_t> loadMatrix(const std::string &instruction, const std::string &expected) {
  Outcome outcome = runWarp(declare + fill + "mov.u32 %x, s;\nmad.lo.u32 %x, %lane, 16, %x;\n" + instruction +
                                "\nmov.u32 %d, " + expected + ";",
                            4, {});
  EXPECT_TRUE(outcome.report) << outcome.report.finding->str();
  return outcome.results[0];
}

TEST(Matrix, LdmatrixLoadsTwoElementsPerLane) {
  for (auto [instruction, expected, matrix] :
       {std::tuple("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%x];", "%r0", 0u),
        {"ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0, %r1}, [%x];", "%r1", 1u},
        {"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1, %r2, %r3}, [%x];", "%r3", 3u}}) {
    auto values = loadMatrix(instruction, expected);
    for (unsigned lane = 0; lane < 32; ++lane) {
      unsigned first = 64 * matrix + 8 * (lane / 4) + 2 * (lane % 4);
      EXPECT_EQ(values[lane], (first + 1) << 16 | first) << instruction << lane;
    }
  }
}

TEST(Matrix, LdmatrixTransposes) {
  auto values = loadMatrix("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r0, %r1, %r2, %r3}, [%x];", "%r2");
  for (unsigned lane = 0; lane < 32; ++lane) {
    unsigned first = 64 * 2 + 8 * (2 * (lane % 4)) + lane / 4;
    EXPECT_EQ(values[lane], (first + 8) << 16 | first) << lane;
  }
}

TEST(Matrix, LdmatrixRequiresAlignedRowsAndWholeWarps) {
  EXPECT_EQ(
      findingOf(declare + "mov.u32 %x, s;\nadd.u32 %x, %x, 8;\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {%d}, [%x];")
          .kind,
      FindingKind::Misaligned);
  EXPECT_EQ(findingOf(declare + fill +
                      "mov.u32 %x, s;\nmov.u32 %d, 0;\nsetp.lt.u32 %p, %lane, 16;\n"
                      "@%p ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%d}, [%x];")
                .kind,
            FindingKind::Divergence);
  EXPECT_EQ(findingOf(declare + "mov.u32 %x, s;\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {%d}, [%x];").kind,
            FindingKind::Uninitialised);
}

TEST(Matrix, LdmatrixReportsEachUndefinedElement) {
  for (unsigned element = 0; element < 64; ++element)
    for (std::string trans : {"", ".trans"}) {
      std::string own = std::to_string(element % 2 * 2), other = std::to_string(2 - element % 2 * 2);
      std::string body =
          "mov.u32 %x, s;\nmad.lo.u32 %x, %lane, 4, %x;\nmov.b16 %hx, 1;\nsetp.ne.u32 %p, %lane, " +
          std::to_string(element / 2) + ";\nst.shared.b16 [%x+" + other + "], %hx;\n@%p st.shared.b16 [%x+" + own +
          "], %hx;\nbar.warp.sync -1;\nand.b32 %y, %lane, 7;\nmov.u32 %x, s;\n" +
          "mad.lo.u32 %x, %y, 16, %x;\nldmatrix.sync.aligned.m8n8.x1" + trans + ".shared.b16 {%d}, [%x];";
      EXPECT_EQ(findingOf(body).kind, FindingKind::Uninitialised) << "element " << element << trans;
    }
}

TEST(Matrix, StmatrixIsTheInverse) {
  Options hopper;
  hopper.target = "sm_90";
  std::string addresses = "mov.u32 %x, s;\nmad.lo.u32 %x, %lane, 16, %x;\n";
  for (std::string trans : {"", ".trans"}) {
    Outcome outcome = runWarp(declare + addresses + "add.u32 %r1, %a, 1;\nstmatrix.sync.aligned.m8n8.x2" + trans +
                                  ".shared.b16 [%x], {%a, %r1};\n"
                                  "bar.warp.sync -1;\nldmatrix.sync.aligned.m8n8.x2" +
                                  trans + ".shared.b16 {%r0, %d}, [%x];",
                              4, {lanes(4, [](unsigned lane) { return 0x10000 * lane + 7 * lane; })}, hopper);
    ASSERT_TRUE(outcome.report) << outcome.report.finding->str();
    for (unsigned lane = 0; lane < 32; ++lane)
      EXPECT_EQ(outcome.results[0][lane], 0x10000 * lane + 7 * lane + 1);
  }
}

TEST(Matrix, MovmatrixTransposesRegisters) {
  Outcome outcome = runWarp("movmatrix.sync.aligned.m8n8.trans.b16 %d, %a;", 4, {lanes(4, [](unsigned lane) {
                              unsigned first = 8 * (lane / 4) + 2 * (lane % 4);
                              return (first + 1) << 16 | first;
                            })});
  ASSERT_TRUE(outcome.report) << outcome.report.finding->str();
  for (unsigned lane = 0; lane < 32; ++lane) {
    unsigned first = 8 * (2 * (lane % 4)) + lane / 4;
    EXPECT_EQ(outcome.results[0][lane], (first + 8) << 16 | first);
  }
}

// --- mma compared with a plain matmul -------------------------------------------------------------------------------

namespace {

struct Shape {
  const char *types, *name;
  unsigned k, bits;
  uint32_t (*encode)(int value);
  const char *target = "sm_80";
  bool halfResult = false, integers = false;
};

uint32_t asHalf(int value) {
  // Small integers only.
  if (value == 0)
    return 0;
  unsigned magnitude = std::abs(value), exponent = 31 - __builtin_clz(magnitude);
  return (value < 0 ? 0x8000 : 0) | (exponent + 15) << 10 | ((magnitude << (10 - exponent)) & 0x3ff);
}
uint32_t asSingle(int value) { return llvm::bit_cast<uint32_t>(float(value)); }
uint32_t asBF16(int value) { return asSingle(value) >> 16; }
uint32_t asByte(int value) { return uint8_t(value); }
uint32_t asE4M3(int value) {
  if (value == 0)
    return 0;
  unsigned magnitude = std::abs(value), exponent = 31 - __builtin_clz(magnitude);
  return (value < 0 ? 0x80 : 0) | (exponent + 7) << 3 | ((magnitude << 3 >> exponent) & 7);
}

// Fragment layouts of the PTX manual's figures, written independently of the simulator's.
void elementOfA(unsigned bits, unsigned lane, unsigned i, unsigned &row, unsigned &k) {
  unsigned group = lane >> 2, inGroup = lane & 3;
  if (bits == 16) {
    row = i == 0 || i == 1 || i == 4 || i == 5 ? group : group + 8;
    k = inGroup * 2 + (i & 1) + (i >= 4 ? 8 : 0);
  } else if (bits == 32) {
    row = i == 0 || i == 2 ? group : group + 8;
    k = inGroup + (i >= 2 ? 4 : 0);
  } else {
    row = (i < 4 || (i >= 8 && i < 12)) ? group : group + 8;
    k = inGroup * 4 + (i & 3) + (i >= 8 ? 16 : 0);
  }
}
void elementOfB(unsigned bits, unsigned lane, unsigned i, unsigned &k, unsigned &column) {
  unsigned group = lane >> 2, inGroup = lane & 3;
  column = group;
  if (bits == 16)
    k = inGroup * 2 + (i & 1) + (i >= 2 ? 8 : 0);
  else if (bits == 32)
    k = i == 0 ? inGroup : inGroup + 4;
  else
    k = inGroup * 4 + (i & 3) + (i >= 4 ? 16 : 0);
}

std::string list(const char *name, unsigned count) {
  std::string text = "{";
  for (unsigned index = 0; index < count; ++index)
    text += (index ? ", " : "") + std::string(name) + std::to_string(index);
  return text + "}";
}

/// Runs one mma on operands loaded from global memory; returns the bits of the results, [register][lane].
std::vector<std::vector<uint32_t>> runMma(const Shape &shape, const std::vector<std::vector<uint32_t>> &a,
                                          const std::vector<std::vector<uint32_t>> &b,
                                          const std::vector<std::vector<uint32_t>> &c, MmaMode mode = MmaMode::Float) {
  std::string body = ".reg .b32 %ra<8>, %rb<8>, %rc<8>, %rd<8>;\n.reg .b64 %in;\n";
  std::vector<Row> inputs;
  std::string text =
      header(shape.target) + ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n" + body +
      ".reg .b32 %t;\n.reg .b64 %o;\nmov.u32 %t, %tid.x;\nld.param.u64 %in, [in];\nld.param.u64 %o, [out];\n"
      "mad.wide.u32 %in, %t, 4, %in;\nmad.wide.u32 %o, %t, 4, %o;\n";
  std::vector<uint8_t> bytes;
  unsigned at = 0;
  for (auto [name, rows] : {std::pair("%ra", &a), {"%rb", &b}, {"%rc", &c}})
    for (size_t index = 0; index < rows->size(); ++index, at += 128) {
      text += "ld.global.b32 " + std::string(name) + std::to_string(index) + ", [%in+" + std::to_string(at) + "];\n";
      for (uint32_t value : (*rows)[index])
        for (unsigned byte = 0; byte < 4; ++byte)
          bytes.push_back(uint8_t(value >> (8 * byte)));
    }
  text += std::string("mma.sync.aligned.") + shape.name + ".row.col." + shape.types + " " + list("%rd", c.size()) +
          ", " + list("%ra", a.size()) + ", " + list("%rb", b.size()) + ", " + list("%rc", c.size()) + ";\n";
  for (size_t index = 0; index < c.size(); ++index)
    text += "st.global.b32 [%o+" + std::to_string(128 * index) + "], %rd" + std::to_string(index) + ";\n";
  text += "ret;\n}\n";
  keepForPtxas(text);
  Device device;
  auto loaded = Program::load(text, device);
  if (auto *finding = std::get_if<Finding>(&loaded)) {
    ADD_FAILURE() << finding->str();
    return {};
  }
  uint64_t in = device.allocate(bytes), out = device.allocate(128 * c.size());
  Launch launch;
  launch.block = {32, 1, 1};
  launch.parameters = Parameters().add(in).add(out).bytes;
  launch.mma = mode;
  Report report = std::get<Program>(loaded).run("k", launch);
  EXPECT_TRUE(report) << report.finding->str();
  std::vector<std::vector<uint32_t>> results(c.size(), std::vector<uint32_t>(32));
  for (size_t index = 0; index < c.size(); ++index)
    device.read(out + 128 * index, {reinterpret_cast<uint8_t *>(results[index].data()), 128});
  return results;
}

} // namespace

TEST(Matrix, MmaMatchesPlainMatmul) {
  const Shape shapes[] = {{"f32.f16.f16.f32", "m16n8k16", 16, 16, asHalf},
                          {"f32.bf16.bf16.f32", "m16n8k16", 16, 16, asBF16},
                          {"f32.f16.f16.f32", "m16n8k8", 8, 16, asHalf},
                          {"f32.bf16.bf16.f32", "m16n8k8", 8, 16, asBF16},
                          {"f32.tf32.tf32.f32", "m16n8k8", 8, 32, asSingle},
                          {"f32.tf32.tf32.f32", "m16n8k4", 4, 32, asSingle},
                          {"f16.f16.f16.f16", "m16n8k16", 16, 16, asHalf, "sm_80", true},
                          {"s32.s8.s8.s32", "m16n8k32", 32, 8, asByte, "sm_80", false, true},
                          {"f32.e4m3.e4m3.f32", "m16n8k32", 32, 8, asE4M3, "sm_90"},
                          {"s32.s8.s8.s32", "m16n8k16", 16, 8, asByte, "sm_80", false, true}};
  for (const Shape &shape : shapes) {
    auto valueA = [](unsigned row, unsigned k) { return int((row * 7 + k * 3) % 9) - 4; };
    auto valueB = [](unsigned k, unsigned column) { return int((k * 5 + column * 11) % 7) - 3; };
    auto valueC = [](unsigned row, unsigned column) { return int(row * 8 + column) - 60; };
    unsigned each = 32 / shape.bits;
    std::vector a(16 * shape.k * shape.bits / 1024, std::vector<uint32_t>(32)),
        b(8 * shape.k * shape.bits / 1024, std::vector<uint32_t>(32)),
        c(shape.halfResult ? 2 : 4, std::vector<uint32_t>(32));
    for (unsigned lane = 0; lane < 32; ++lane) {
      for (unsigned i = 0; i < a.size() * each; ++i) {
        unsigned row, k;
        elementOfA(shape.bits, lane, i, row, k);
        a[i / each][lane] |= shape.encode(valueA(row, k)) << (shape.bits * (i % each));
      }
      for (unsigned i = 0; i < b.size() * each; ++i) {
        unsigned k, column;
        elementOfB(shape.bits, lane, i, k, column);
        b[i / each][lane] |= shape.encode(valueB(k, column)) << (shape.bits * (i % each));
      }
      for (unsigned i = 0; i < 4; ++i) {
        unsigned row = lane / 4 + (i < 2 ? 0 : 8), column = lane % 4 * 2 + (i & 1);
        int value = valueC(row, column);
        if (shape.halfResult)
          c[i / 2][lane] |= asHalf(value) << (16 * (i & 1));
        else
          c[i][lane] = shape.integers ? uint32_t(value) : asSingle(value);
      }
    }
    for (MmaMode mode : {MmaMode::Float, MmaMode::Exact, MmaMode::Hardware}) {
      auto d = runMma(shape, a, b, c, mode);
      ASSERT_EQ(d.size(), c.size());
      for (unsigned lane = 0; lane < 32; ++lane)
        for (unsigned i = 0; i < 4; ++i) {
          unsigned row = lane / 4 + (i < 2 ? 0 : 8), column = lane % 4 * 2 + (i & 1);
          int expected = valueC(row, column);
          for (unsigned k = 0; k < shape.k; ++k)
            expected += valueA(row, k) * valueB(k, column);
          if (shape.halfResult)
            EXPECT_EQ(d[i / 2][lane] >> (16 * (i & 1)) & 0xffff, asHalf(expected))
                << shape.types << shape.name << lane << i;
          else
            EXPECT_EQ(d[i][lane], shape.integers ? uint32_t(expected) : asSingle(expected))
                << shape.types << shape.name << lane << i;
        }
    }
  }
}

/// Element (0, 0) of c + Σ of 16 products, given as bits of f16 factors in the first row and column.
static float sumOf(const char *target, MmaMode mode, float c,
                   const std::vector<std::pair<uint32_t, uint32_t>> &factors) {
  Shape shape{"f32.f16.f16.f32", "m16n8k16", 16, 16, asHalf, target};
  std::vector a(4, std::vector<uint32_t>(32)), b(2, std::vector<uint32_t>(32)), addend(4, std::vector<uint32_t>(32));
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned i = 0; i < 8; ++i) {
      unsigned row, k;
      elementOfA(16, lane, i, row, k);
      if (row == 0)
        a[i / 2][lane] |= factors[k].first << (16 * (i & 1));
    }
    for (unsigned i = 0; i < 4; ++i) {
      unsigned k, column;
      elementOfB(16, lane, i, k, column);
      if (column == 0)
        b[i / 2][lane] |= factors[k].second << (16 * (i & 1));
    }
  }
  addend[0][0] = llvm::bit_cast<uint32_t>(c);
  return llvm::bit_cast<float>(runMma(shape, a, b, addend, mode)[0][0]);
}

TEST(Matrix, HardwareModeTruncatesAsMeasured) {
  // Golden values of MMA-Sim's model: sixteen products p on c = 1.
  auto with = [](const char *target, uint32_t x, uint32_t y) {
    return sumOf(target, MmaMode::Hardware, 1, std::vector<std::pair<uint32_t, uint32_t>>(16, {x, y}));
  };
  constexpr uint32_t twoToMinus12 = 0x0c00, twoToMinus13 = 0x0800;
  EXPECT_EQ(with("sm_80", twoToMinus12, twoToMinus12), 1 + 0x1p-20f);
  EXPECT_EQ(with("sm_90", twoToMinus12, twoToMinus12), 1 + 0x1p-20f);
  EXPECT_EQ(with("sm_80", twoToMinus12, twoToMinus13), 1);
  EXPECT_EQ(with("sm_90", twoToMinus12, twoToMinus13), 1 + 0x1p-21f);
  EXPECT_EQ(with("sm_90", twoToMinus12, twoToMinus13 | 0x8000), 1 - 0x1p-21f);
  EXPECT_EQ(with("sm_90", twoToMinus13, twoToMinus13), 1);
  std::vector<std::pair<uint32_t, uint32_t>> factors(16, {0, 0});
  factors[0] = {0x3c00, 0x4200}; // 1 * 3
  EXPECT_EQ(sumOf("sm_80", MmaMode::Hardware, 0x1p24f, factors), 0x1p24f + 2);
  EXPECT_EQ(sumOf("sm_80", MmaMode::Float, 0x1p24f, factors), 0x1p24f + 4);
  factors[0] = {0x3c00, 0x3c00};
  EXPECT_EQ(sumOf("sm_80", MmaMode::Hardware, 0x1p24f, factors), 0x1p24f);
}

TEST(Matrix, ModesDifferWhereSumsCancel) {
  // 2^24 - 2^24 + 2^-3: aligned to 2^24, the small term has no bits left.
  std::vector<std::pair<uint32_t, uint32_t>> factors(16, {0, 0});
  factors[0] = {0x6c00, 0x6c00}, factors[1] = {0x6c00, 0xec00}, factors[2] = {0x3c00, 0x3000};
  EXPECT_EQ(sumOf("sm_80", MmaMode::Hardware, 0, factors), 0);
  EXPECT_EQ(sumOf("sm_90", MmaMode::Hardware, 0, factors), 0);
  EXPECT_EQ(sumOf("sm_80", MmaMode::Float, 0, factors), 0.125f);
  EXPECT_EQ(sumOf("sm_80", MmaMode::Exact, 0, factors), 0.125f);
}

TEST(Matrix, UndefinedMmaOperandsAreErrors) {
  Finding finding = findingOf(declare + "mov.u32 %r1, 0;\nmma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%d, %x, "
                                        "%y, %r3}, {%r1, %r0}, {%r1}, {%r1, %r1, %r1, %r1};");
  EXPECT_EQ(finding.kind, FindingKind::Uninitialised);
}
