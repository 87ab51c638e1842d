//===- ExpandIntrinsicsTest.cpp - Expanded AVX-512 intrinsics ------------------===//
//
// Compares the expansions with the instructions on random bits and on all pairs of special values. On a processor
// without the instructions, a digest of the results is compared with that of a processor that has them.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Parser/Parser.h"
#include "saccade/Target/Target.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/SmallVectorMemoryBuffer.h"
#include "gtest/gtest.h"
#include <cstring>
#include <functional>
#include <random>

using namespace saccade;

namespace {

struct alignas(64) Vector : std::array<uint64_t, 8> {};

/// Compiles the function `run` with this body. Returns the diagnostics of a failure.
std::string compile(llvm::StringRef targetName, const std::string &body, llvm::SmallString<0> &object) {
  const CPUTarget &target = *lookupCPUTarget(targetName);
  mlir::MLIRContext context;
  context.loadDialect<mlir::LLVM::LLVMDialect>();
  std::string text = "llvm.func @run(%in: !llvm.ptr, %out: !llvm.ptr) {\n" + body + "  llvm.return\n}\n";
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  std::string diagnostics;
  mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &each) { diagnostics += each.str() + "\n"; });
  llvm::LLVMContext llvmContext;
  if (std::unique_ptr<llvm::Module> translated = translate(*module, llvmContext, target)) {
    llvm::raw_svector_ostream os(object);
    llvm::cantFail(emitObject(*translated, target, os));
  }
  return diagnostics;
}

/// The function `run(inputs, out)` of one intrinsic, whose operands are vectors of 64 bytes.
class Compiled {
public:
  Compiled(llvm::StringRef targetName, const std::string &body) {
    llvm::SmallString<0> object;
    std::string diagnostics = compile(targetName, body, object);
    EXPECT_EQ(diagnostics, "");
    jit = llvm::cantFail(llvm::orc::LLJITBuilder().create());
    llvm::cantFail(jit->addObjectFile(std::make_unique<llvm::SmallVectorMemoryBuffer>(std::move(object))));
    function = llvm::cantFail(jit->lookup("run")).toPtr<void (*)(const Vector *, Vector *)>();
  }
  std::vector<Vector> operator()(const std::vector<Vector> &inputs, size_t results) const {
    std::vector<Vector> found(results);
    function(inputs.data(), found.data());
    return found;
  }

private:
  std::unique_ptr<llvm::orc::LLJIT> jit;
  void (*function)(const Vector *, Vector *);
};

template <typename Bits> struct Format;
template <> struct Format<uint16_t> {
  static constexpr unsigned mantissa = 7;
};
template <> struct Format<uint32_t> {
  static constexpr unsigned mantissa = 23;
};
template <> struct Format<uint64_t> {
  static constexpr unsigned mantissa = 52;
};

template <typename Bits> bool isNaN(Bits x) {
  constexpr Bits magnitude = Bits(~Bits(0)) >> 1,
                 infinity = magnitude >> Format<Bits>::mantissa << Format<Bits>::mantissa;
  return (x & magnitude) > infinity;
}

/// 0, 1, infinity, NaN, the extremes of denormal and normal numbers and small integers, of both signs.
template <typename Bits> std::vector<Bits> specialValues() {
  constexpr unsigned m = Format<Bits>::mantissa;
  constexpr Bits one = Bits(~Bits(0)) >> 2 >> m << m, infinity = Bits(~Bits(0)) >> 1 >> m << m, ulp = 1;
  constexpr Bits sign = Bits(1) << (8 * sizeof(Bits) - 1), leastNormal = ulp << m;
  std::vector<Bits> values;
  for (Bits x :
       {Bits(0), Bits(1), Bits(leastNormal - 1), leastNormal, Bits(leastNormal + 1), Bits(one - 1), one, Bits(one + 1),
        Bits(one + leastNormal), Bits(one - leastNormal), Bits(one + (leastNormal | ulp << (m - 1))),
        Bits(one + 7 * leastNormal), Bits(infinity - 1), infinity, Bits(infinity | ulp << (m - 1))}) {
    values.push_back(x);
    values.push_back(x | sign);
  }
  return values;
}

/// Lanes of random bits, of random exponents near that of 1, and of special values (one of `specialsIn`).
template <typename Bits> Vector draw(std::mt19937_64 &random, unsigned range, unsigned specialsIn = 3) {
  static const std::vector<Bits> special = specialValues<Bits>();
  constexpr unsigned lanes = 64 / sizeof(Bits), m = Format<Bits>::mantissa;
  constexpr Bits one = Bits(~Bits(0)) >> 2 >> m << m;
  std::array<Bits, lanes> drawn;
  for (Bits &lane : drawn) {
    Bits bits = Bits(random());
    if (random() % specialsIn == 0)
      lane = special[random() % special.size()];
    else if (specialsIn > 3 || random() % 2)
      lane = Bits((bits & Bits((Bits(1) << m) - 1)) | (bits & Bits(Bits(1) << (8 * sizeof(Bits) - 1)))) +
             Bits(one + Bits((Bits(random() % (2 * range)) - range) << m));
    else
      lane = bits;
  }
  Vector vector;
  std::memcpy(&vector, &drawn, sizeof(vector));
  return vector;
}

/// Makes all NaNs equal: their payloads depend on the order of operands, which LLVM does not keep.
template <typename Bits> Vector withOneNaN(Vector vector) {
  std::array<Bits, 64 / sizeof(Bits)> lanes;
  std::memcpy(&lanes, &vector, sizeof(vector));
  for (Bits &lane : lanes)
    if (isNaN(lane))
      lane = Bits(~Bits(0)) >> 1;
  std::memcpy(&vector, &lanes, sizeof(vector));
  return vector;
}

/// A target that has the instructions, the number of results, and that of draws.
struct Comparison {
  std::string target = "v4-bf16";
  size_t results = 1;
  int count = 4000;
};

/// Compares the results of all draws, and their digest (FNV-1a of 64-bit words).
template <typename Bits>
void compare(const std::string &body, const std::function<std::vector<Vector>(std::mt19937_64 &)> &drawAll,
             uint64_t digest, const Comparison &with = {}) {
  Compiled expanded(with.target + "-expanded", body);
  bool hasNative = hostRuns(*lookupCPUTarget(with.target));
  std::optional<Compiled> native;
  if (hasNative)
    native.emplace(with.target, body);
  std::mt19937_64 random(1);
  uint64_t found = 0xcbf29ce484222325;
  for (int i = 0; i < with.count; ++i) {
    std::vector<Vector> inputs = drawAll(random), results = expanded(inputs, with.results), expected;
    if (native)
      expected = (*native)(inputs, with.results);
    for (size_t k = 0; k < with.results; ++k) {
      Vector result = withOneNaN<Bits>(results[k]);
      for (int word = 0; native && word < 8; ++word) {
        std::string of;
        for (const Vector &input : inputs)
          of += " " + llvm::utohexstr(input[word]);
        ASSERT_EQ(llvm::utohexstr(withOneNaN<Bits>(expected[k])[word]), llvm::utohexstr(result[word]))
            << "result " << k << ", word " << word << " of" << of;
      }
      for (uint64_t word : result)
        found = (found ^ word) * 0x100000001b3;
    }
  }
  EXPECT_EQ(digest, found) << "the results differ from those of " << with.target;
}

/// Operands of the masked intrinsics after the vectors: no passthrough, all lanes, current rounding.
std::string masked(const std::string &name, const std::string &type, unsigned lanes, const std::string &second) {
  std::string vector = "vector<" + std::to_string(lanes) + "x" + type + ">", mask = "i" + std::to_string(lanes);
  bool isImmediate = second == "i32";
  return "  %one = llvm.mlir.constant(1 : i32) : i32\n  %second = llvm.getelementptr %in[64] : (!llvm.ptr) -> "
         "!llvm.ptr, "
         "i8\n  %x = llvm.load %in : !llvm.ptr -> " +
         vector + "\n  %y = llvm.load %second : !llvm.ptr -> " + vector + "\n  %none = llvm.mlir.zero : " + vector +
         "\n  %all = llvm.mlir.constant(-1 : " + mask + ") : " + mask +
         "\n  %current = llvm.mlir.constant(4 : i32) : i32\n  %r = llvm.call_intrinsic \"llvm.x86.avx512.mask." + name +
         ".512\"(%x, " + (isImmediate ? "%one" : "%y") + ", %none, %all, %current) : (" + vector + ", " +
         (isImmediate ? "i32" : vector) + ", " + vector + ", " + mask + ", i32) -> " + vector +
         "\n  llvm.store %r, %out : " + vector + ", !llvm.ptr\n";
}

template <typename Bits> std::vector<Vector> drawPair(std::mt19937_64 &random) {
  return {draw<Bits>(random, 30), draw<Bits>(random, 10)};
}

TEST(ExpandIntrinsics, RefusesOperandsThatItDoesNotImplement) {
  // The immediate, the mask and the rounding have other values.
  const std::tuple<const char *, const char *, const char *> changes[] = {
      {"constant(1 : i32)", "constant(0 : i32)", "reduce"},  {"constant(1 : i32)", "constant(2 : i32)", "reduce"},
      {"constant(1 : i32)", "constant(17 : i32)", "reduce"}, {"constant(-1 : i16)", "constant(1 : i16)", "reduce"},
      {"constant(4 : i32)", "constant(8 : i32)", "reduce"},  {"constant(4 : i32)", "constant(8 : i32)", "scalef"},
      {"constant(4 : i32)", "constant(9 : i32)", "scalef"}};
  for (auto [from, to, name] : changes) {
    bool isReduce = llvm::StringRef(name) == "reduce";
    std::string body = masked(std::string(name) + ".ps", "f32", 16, isReduce ? "i32" : "vector");
    llvm::SmallString<0> object;
    EXPECT_EQ(compile("v4-expanded", body, object), "");
    size_t at = body.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    std::string diagnostics = compile("v4-expanded", body.replace(at, std::strlen(from), to), object);
    EXPECT_NE(diagnostics.find("has no expansion"), std::string::npos) << to << ": " << diagnostics;
  }
}

TEST(ExpandIntrinsics, ReducesLikeTheInstruction) {
  compare<uint32_t>(masked("reduce.ps", "f32", 16, "i32"), drawPair<uint32_t>, 11827330648675155245u);
  compare<uint64_t>(masked("reduce.pd", "f64", 8, "i32"), drawPair<uint64_t>, 5709345675091022688u);
}

TEST(ExpandIntrinsics, ScalesLikeTheInstruction) {
  compare<uint32_t>(masked("scalef.ps", "f32", 16, "vector"), drawPair<uint32_t>, 15327073169280262293u);
  compare<uint64_t>(masked("scalef.pd", "f64", 8, "vector"), drawPair<uint64_t>, 12171723073374882033u);
}

TEST(ExpandIntrinsics, ScalesTheLanesOfAMaskLikeTheInstruction) {
  std::string body = masked("scalef.ps", "f32", 16, "vector"), all = "constant(-1 : i16)";
  size_t at = body.find(all);
  ASSERT_NE(at, std::string::npos);
  compare<uint32_t>(body.replace(at, all.size(), "constant(23130 : i16)"), drawPair<uint32_t>, 9656883536943133847u);
}

TEST(ExpandIntrinsics, MultipliesPairsLikeTheInstruction) {
  compare<uint32_t>(
      R"(
    %second = llvm.getelementptr %in[64] : (!llvm.ptr) -> !llvm.ptr, i8
    %third = llvm.getelementptr %in[128] : (!llvm.ptr) -> !llvm.ptr, i8
    %sum = llvm.load %in : !llvm.ptr -> vector<16xf32>
    %x = llvm.load %second : !llvm.ptr -> vector<32xbf16>
    %y = llvm.load %third : !llvm.ptr -> vector<32xbf16>
    %r = llvm.call_intrinsic "llvm.x86.avx512bf16.dpbf16ps.512"(%sum, %x, %y)
      : (vector<16xf32>, vector<32xbf16>, vector<32xbf16>) -> vector<16xf32>
    llvm.store %r, %out : vector<16xf32>, !llvm.ptr
)",
      [](std::mt19937_64 &random) -> std::vector<Vector> {
        return {draw<uint32_t>(random, 20), draw<uint16_t>(random, 8), draw<uint16_t>(random, 8)};
      },
      7408607219415258247u);
}

TEST(ExpandIntrinsics, MultipliesBytesLikeTheInstruction) {
  compare<uint32_t>(
      R"(
    %second = llvm.getelementptr %in[64] : (!llvm.ptr) -> !llvm.ptr, i8
    %third = llvm.getelementptr %in[128] : (!llvm.ptr) -> !llvm.ptr, i8
    %sum = llvm.load %in : !llvm.ptr -> vector<16xi32>
    %x = llvm.load %second : !llvm.ptr -> vector<64xi8>
    %y = llvm.load %third : !llvm.ptr -> vector<64xi8>
    %r = llvm.call_intrinsic "llvm.x86.avx512.vpdpbusd.512"(%sum, %x, %y)
      : (vector<16xi32>, vector<64xi8>, vector<64xi8>) -> vector<16xi32>
    llvm.store %r, %out : vector<16xi32>, !llvm.ptr
)",
      [](std::mt19937_64 &random) -> std::vector<Vector> {
        return {draw<uint32_t>(random, 20), draw<uint64_t>(random, 8), draw<uint64_t>(random, 8)};
      },
      16898858502784800011u);
}

/// A program that multiplies two tiles (bf16 pairs) and adds them to a third one.
std::string tileProgram() {
  std::string text = R"(
    %rows = llvm.mlir.constant(16 : i16) : i16
    %bytes = llvm.mlir.constant(64 : i16) : i16
    %stride = llvm.mlir.constant(64 : i64) : i64
    %second = llvm.getelementptr %in[1024] : (!llvm.ptr) -> !llvm.ptr, i8
    %third = llvm.getelementptr %in[2048] : (!llvm.ptr) -> !llvm.ptr, i8
)";
  for (auto [name, from] : {std::pair("sum", "in"), std::pair("x", "second"), std::pair("y", "third")})
    text += std::string("    %") + name + R"( = llvm.call_intrinsic "llvm.x86.tileloadd64.internal"(%rows, %bytes, %)" +
            from + R"(, %stride) : (i16, i16, !llvm.ptr, i64) -> !llvm.x86_amx
)";
  return text + R"(
    %zero = llvm.call_intrinsic "llvm.x86.tilezero.internal"(%rows, %bytes) : (i16, i16) -> !llvm.x86_amx
    %r = llvm.call_intrinsic "llvm.x86.tdpbf16ps.internal"(%rows, %bytes, %bytes, %sum, %x, %y)
      : (i16, i16, i16, !llvm.x86_amx, !llvm.x86_amx, !llvm.x86_amx) -> !llvm.x86_amx
    %p = llvm.call_intrinsic "llvm.x86.tdpbf16ps.internal"(%rows, %bytes, %bytes, %zero, %x, %y)
      : (i16, i16, i16, !llvm.x86_amx, !llvm.x86_amx, !llvm.x86_amx) -> !llvm.x86_amx
    %next = llvm.getelementptr %out[1024] : (!llvm.ptr) -> !llvm.ptr, i8
    llvm.call_intrinsic "llvm.x86.tilestored64.internal"(%rows, %bytes, %out, %stride, %r)
      : (i16, i16, !llvm.ptr, i64, !llvm.x86_amx) -> ()
    llvm.call_intrinsic "llvm.x86.tilestored64.internal"(%rows, %bytes, %next, %stride, %p)
      : (i16, i16, !llvm.ptr, i64, !llvm.x86_amx) -> ()
)";
}

TEST(ExpandIntrinsics, MultipliesTilesLikeTheInstruction) {
  auto drawTiles = [](std::mt19937_64 &random) {
    // Few special values: a result is a sum of 32 products.
    std::vector<Vector> rows;
    unsigned specials = random() % 2 ? 1000 : 64, range = random() % 2 ? 8 : 80;
    for (int i = 0; i < 16; ++i)
      rows.push_back(draw<uint32_t>(random, range, specials));
    for (int i = 0; i < 32; ++i)
      rows.push_back(draw<uint16_t>(random, range, specials));
    return rows;
  };
  compare<uint32_t>(tileProgram(), drawTiles, 7202688830485802111u, {"v4-amx", 32, 200});
}

TEST(ExpandIntrinsics, RefusesPartsOfTiles) {
  std::string body = tileProgram();
  llvm::SmallString<0> object;
  EXPECT_EQ(compile("v4-amx-expanded", body, object), "");
  for (const char *extent : {"constant(16 : i16)", "constant(64 : i16)"}) {
    std::string changed = body;
    changed.replace(changed.find(extent), std::strlen(extent), "constant(8 : i16)");
    EXPECT_NE(compile("v4-amx-expanded", changed, object).find("has no expansion"), std::string::npos) << extent;
  }
}

TEST(ExpandIntrinsics, RoundsToBF16LikeTheInstructions) {
  compare<uint16_t>(R"(
    %second = llvm.getelementptr %in[64] : (!llvm.ptr) -> !llvm.ptr, i8
    %high = llvm.load %in : !llvm.ptr -> vector<16xf32>
    %low = llvm.load %second : !llvm.ptr -> vector<16xf32>
    %r = llvm.call_intrinsic "llvm.x86.avx512bf16.cvtne2ps2bf16.512"(%high, %low)
      : (vector<16xf32>, vector<16xf32>) -> vector<32xbf16>
    llvm.store %r, %out : vector<32xbf16>, !llvm.ptr
)",
                    drawPair<uint32_t>, 2913384282624899666u);
  compare<uint16_t>(R"(
    %x = llvm.load %in : !llvm.ptr -> vector<16xf32>
    %r = llvm.fptrunc %x : vector<16xf32> to vector<16xbf16>
    llvm.store %r, %out : vector<16xbf16>, !llvm.ptr
)",
                    drawPair<uint32_t>, 17435056699188888235u);
  compare<uint16_t>(R"(
    %x = llvm.load %in : !llvm.ptr -> f32
    %r = llvm.fptrunc %x : f32 to bf16
    llvm.store %r, %out : bf16, !llvm.ptr
)",
                    drawPair<uint32_t>, 12504871162278038972u);
}

} // namespace
