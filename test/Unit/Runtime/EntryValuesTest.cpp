//===- EntryValuesTest.cpp - Scalars, several results, many arguments ---------===//
#include "Arguments.h"
#include "gtest/gtest.h"
#include <bit>
#include <cstring>
#include <dlfcn.h>
#include <string>

namespace {

// --- several results ---------------------------------------------------------

TEST(Results, EachHasItsExtentsAndItsMemory) {
  static constexpr int64_t any[] = {-1, -1};
  const SaccadeValueType types[] = {{"x", "tensor<?xi8>", any, 1, kDLInt, 8, 0},
                                    {"y", "tensor<?xi8>", any, 1, kDLInt, 8, 0},
                                    {"z", "tensor<?x?xi8>", any, 2, kDLInt, 8, 0}};
  const SaccadeEntry entry = {SACCADE_ENTRY_VERSION,
                              1,
                              2,
                              0,
                              "split",
                              types,
                              [](void **) -> const char * { return nullptr; },
                              [](void **, int64_t *sizes) -> const char * {
                                sizes[0] = 2, sizes[1] = 3, sizes[2] = 4;
                                return nullptr;
                              },
                              nullptr,
                              nullptr,
                              nullptr};
  signed char memory[100];
  int64_t shapes[3][2] = {{6}, {2}, {3, 4}};
  DLTensor tensors[3] = {};
  std::vector<SaccadeArgument> args;
  for (int i = 0; i < 3; ++i) {
    tensors[i].data = memory + 20 * i;
    tensors[i].device.device_type = decltype(tensors[i].device.device_type)(kDLCPU);
    tensors[i].ndim = types[i].rank;
    tensors[i].dtype = {kDLInt, 8, 1};
    tensors[i].shape = shapes[i];
    args.push_back(wrap(tensors[i]));
  }
  auto run = [&]() -> std::string {
    return saccade_entry_call(&entry, args.data(), 3) == SaccadeSuccess ? "" : saccade_entry_last_error();
  };
  EXPECT_EQ("", run());
  tensors[0].dtype.code = kDLUInt; // integers are signless
  EXPECT_EQ("", run());
  tensors[0].dtype.code = kDLBool;
  EXPECT_EQ("split: argument 'x' (tensor<?xi8>): found element type bool, expected i8", run());
  tensors[0].dtype.code = kDLInt;
  shapes[2][1] = 5;
  EXPECT_EQ("split: result 'z' (tensor<?x?xi8>): found extent 5 in dimension 1, expected 4", run());
  shapes[2][1] = 4;
  tensors[2].data = memory + 21;
  EXPECT_EQ("split: result 'z' (tensor<?x?xi8>): overlaps with result 'y'", run());
  int64_t sizes[3] = {};
  EXPECT_EQ(SaccadeSuccess, saccade_entry_shapes(&entry, args.data(), 1, sizes));
  EXPECT_EQ((Words{2, 3, 4}), Words(sizes, sizes + 3));
}

// --- scalars -----------------------------------------------------------------

std::vector<uint64_t> scalarWords;

template <uint8_t code, uint8_t bits> std::string pass(const char *text, SaccadeArgument argument) {
  const SaccadeValueType type = {"x", text, nullptr, -1, code, bits, 0};
  const SaccadeEntry entry = {SACCADE_ENTRY_VERSION,
                              1,
                              0,
                              0,
                              "take",
                              &type,
                              [](void **args) -> const char * {
                                uint64_t word = 0;
                                memcpy(&word, args[0], bits / 8);
                                scalarWords = {word};
                                return nullptr;
                              },
                              [](void **, int64_t *) -> const char * { return nullptr; },
                              nullptr,
                              nullptr,
                              nullptr};
  scalarWords.clear();
  return saccade_entry_call(&entry, &argument, 1) == SaccadeSuccess ? "" : saccade_entry_last_error();
}

TEST(Scalars, IntegersMustFitIntoTheirType) {
  auto narrow = [](int64_t value) { return pass<kDLInt, 8>("i8", integer(value)); };
  EXPECT_EQ("", narrow(-128));
  EXPECT_EQ(0x80u, scalarWords.at(0));
  EXPECT_EQ("", narrow(255));
  EXPECT_EQ(0xffu, scalarWords.at(0));
  EXPECT_EQ("take: argument 'x' (i8): found 256, expected -128 to 255", narrow(256));
  EXPECT_EQ("take: argument 'x' (i8): found -129, expected -128 to 255", narrow(-129));
  EXPECT_EQ("", (pass<kDLInt, 64>("index", integer(INT64_MIN))));
  EXPECT_EQ(uint64_t(1) << 63, scalarWords.at(0));
  EXPECT_EQ("", (pass<kDLBool, 8>("i1", integer(1, SaccadeArgumentBool))));
  EXPECT_EQ("take: argument 'x' (i1): found 2, expected 0 to 1", (pass<kDLBool, 8>("i1", integer(2))));
  EXPECT_EQ("take: argument 'x' (index): found a float, expected an integer", (pass<kDLInt, 64>("index", real(1))));
}

TEST(Scalars, FloatsAreRoundedToTheirTypeAndTakeIntegers) {
  EXPECT_EQ("", (pass<kDLFloat, 64>("f64", real(0.1))));
  EXPECT_EQ(std::bit_cast<uint64_t>(0.1), scalarWords.at(0));
  EXPECT_EQ("", (pass<kDLFloat, 32>("f32", real(0.1))));
  EXPECT_EQ(std::bit_cast<uint32_t>(0.1f), scalarWords.at(0));
  EXPECT_EQ("", (pass<kDLFloat, 16>("f16", integer(1))));
  EXPECT_EQ(0x3c00u, scalarWords.at(0));
  EXPECT_EQ("", (pass<kDLBfloat, 16>("bf16", real(-1))));
  EXPECT_EQ(0xbf80u, scalarWords.at(0));
  EXPECT_EQ("take: argument 'x' (f32): found None, expected a number", (pass<kDLFloat, 32>("f32", integer(0, 0))));
}

// --- size and TVM-FFI --------------------------------------------------------

TEST(Entry, MoreArgumentsThanTheStackHoldsAreTaken) {
  constexpr int count = 100;
  std::vector<SaccadeValueType> types(count, floats("many"));
  std::vector<SaccadeArgument> args;
  Matrix matrix(3);
  for (int i = 0; i < count; ++i)
    args.push_back(wrap(matrix.tensor));
  static std::vector<int64_t> addresses;
  SaccadeEntry entry = {SACCADE_ENTRY_VERSION,
                        count,
                        0,
                        0,
                        "many",
                        types.data(),
                        [](void **args) -> const char * {
                          for (int i = 0; i < count; ++i)
                            addresses.push_back(*static_cast<int64_t *>(args[i]));
                          return nullptr;
                        },
                        [](void **, int64_t *) -> const char * { return nullptr; },
                        nullptr,
                        nullptr,
                        nullptr};
  EXPECT_EQ(SaccadeSuccess, saccade_entry_call(&entry, args.data(), count));
  EXPECT_EQ(std::vector<int64_t>(count, matrix.address()), addresses);
}

TEST(Entry, MessagesThatAreTooLongAreCutOff) {
  std::string text(5000, 'x');
  SaccadeValueType type = {"a", text.c_str(), nullptr, -1, kDLInt, 64, 0};
  SaccadeEntry entry = {SACCADE_ENTRY_VERSION, 1, 0, 0, "long", &type, nullptr, nullptr, nullptr, nullptr, nullptr};
  SaccadeArgument argument = real(1);
  EXPECT_EQ(SaccadeTypeError, saccade_entry_call(&entry, &argument, 1));
  EXPECT_EQ(2047u, strlen(saccade_entry_last_error()));
}

TEST(Entry, WithoutTVMFFITheReasonGoesToStandardError) {
  ASSERT_EQ(nullptr, dlsym(RTLD_DEFAULT, "TVMFFIErrorSetRaisedFromCStr"));
  SaccadeArgument result = real(1);
  testing::internal::CaptureStderr();
  const SaccadeValueType type = floats("a");
  const SaccadeEntry entry = {
      SACCADE_ENTRY_VERSION, 1, 0, 0, "alone", &type, nullptr, nullptr, nullptr, nullptr, nullptr};
  EXPECT_EQ(-1, saccade_entry_call_tvm_ffi(&entry, nullptr, 0, &result));
  EXPECT_EQ(SaccadeArgumentNone, result.kind);
  EXPECT_EQ(0, testing::internal::GetCapturedStderr().find("alone: found 0 arguments"));
}

TEST(Entry, CodeForAnotherProcessorIsRefused) {
  SaccadeEntry entry = {SACCADE_ENTRY_VERSION,
                        0,
                        0,
                        1000,
                        "future",
                        nullptr,
                        [](void **) -> const char * { abort(); },
                        [](void **, int64_t *) -> const char * { abort(); },
                        nullptr,
                        nullptr,
                        nullptr};
  EXPECT_EQ(saccade_entry_call(&entry, nullptr, 0), SaccadeUnsupported);
  EXPECT_TRUE(std::string(saccade_entry_last_error())
                  .starts_with("future: compiled for target a newer one, this processor has "))
      << saccade_entry_last_error();
  EXPECT_EQ(saccade_entry_shapes(&entry, nullptr, 0, nullptr), SaccadeUnsupported);
}

TEST(Entry, CodeForAnotherVersionOfTheRuntimeIsRefused) {
  // Only the name may be read if the layout differs: the counts exceed any memory.
  for (int32_t version : {SACCADE_ENTRY_VERSION - 1, SACCADE_ENTRY_VERSION + 1}) {
    SaccadeEntry entry = {version, INT32_MAX / 2, INT32_MAX / 2, INT32_MAX, "other", nullptr,
                          nullptr, nullptr,       nullptr,       nullptr,   nullptr};
    std::string expected = "other: compiled for version " + std::to_string(version) +
                           " of the runtime, this is version " + std::to_string(SACCADE_ENTRY_VERSION);
    EXPECT_EQ(SaccadeUnsupported, saccade_entry_call(&entry, nullptr, INT32_MAX / 2 * 2));
    EXPECT_EQ(expected, saccade_entry_last_error());
    EXPECT_EQ(SaccadeUnsupported, saccade_entry_shapes(&entry, nullptr, INT32_MAX / 2, nullptr));
    EXPECT_EQ(expected, saccade_entry_last_error());
  }
}

TEST(Entry, HostTargetAgreesWithTheCompiler) {
  // The compiler uses LLVM's detection; a table for its "host" target must run here, and none above.
  std::string words;
  for (int32_t target = SaccadeCPUTargetPortable; target <= SaccadeCPUTargetV4BF16; ++target) {
    SaccadeEntry entry = {SACCADE_ENTRY_VERSION,
                          0,
                          0,
                          target,
                          "at",
                          nullptr,
                          [](void **) -> const char * { return nullptr; },
                          [](void **, int64_t *) -> const char * { return nullptr; },
                          nullptr,
                          nullptr,
                          nullptr};
    words += saccade_entry_call(&entry, nullptr, 0) == SaccadeSuccess ? '1' : '0';
  }
  bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
  EXPECT_EQ(words, v4 ? (__builtin_cpu_supports("avx512bf16") ? "1111" : "1110") : v3 ? "1100" : "1000");
}

} // namespace
