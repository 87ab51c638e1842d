//===- ExecutableTest.cpp - Programs compiled into this process ---------------===//
#include "saccade/JIT/Executable.h"
#include "saccade-c/DLTensor.h"
#include "gtest/gtest.h"
#include <cmath>
#include <numeric>
#include <thread>

using namespace saccade;

namespace {

const char *const program = R"(
func.func @sum_of_two(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %rows = tensor.dim %a, %c0 : tensor<?x?xf32>
  %columns = tensor.dim %a, %c1 : tensor<?x?xf32>
  %empty = tensor.empty(%rows, %columns) : tensor<?x?xf32>
  %sum = linalg.add ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %sum : tensor<?x?xf32>
}
func.func @attend(%q: tensor<?x?x8xf32>, %k: tensor<?x?x8xf32>, %v: tensor<?x?x8xf32>) -> tensor<?x?x8xf32> {
  %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] : (tensor<?x?x8xf32>, tensor<?x?x8xf32>, tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  return %o : tensor<?x?x8xf32>
}
)";

/// Compiled once for all tests.
const Executable &compiled() {
  static std::unique_ptr<Executable> executable = [] {
    auto created = Executable::createFromText(program, "program.mlir", CompileOptions());
    if (!created) {
      ADD_FAILURE() << llvm::toString(created.takeError());
      std::abort();
    }
    return std::move(*created);
  }();
  return *executable;
}

std::string errorOf(llvm::Error error) { return error ? llvm::toString(std::move(error)) : ""; }

TEST(Executable, KnowsItsEntriesAndTheirSignatures) {
  ASSERT_EQ(2u, compiled().entries().size());
  ASSERT_NE(nullptr, compiled().lookup("sum_of_two"));
  EXPECT_EQ(nullptr, compiled().lookup("another"));
  EXPECT_EQ("sum_of_two(a: tensor<?x?xf32>, b: tensor<?x?xf32>) -> (result: tensor<?x?xf32>)",
            compiled().lookup("sum_of_two")->signature());
}

TEST(Executable, KnowsWhatCompiledCodeSaysOfAnEntry) {
  EXPECT_EQ(nullptr, compiled().code("another"));
  EXPECT_EQ(nullptr, compiled().tvmFFI("another"));
  const SaccadeEntry *entry = compiled().code("attend");
  ASSERT_NE(nullptr, entry);
  EXPECT_EQ(SACCADE_ENTRY_VERSION, entry->version);
  EXPECT_EQ(3, entry->num_inputs);
  EXPECT_EQ(1, entry->num_results);
  EXPECT_STREQ("attend", entry->name);
  const char *const names[] = {"q", "k", "v", "output"};
  for (int i = 0; i < 4; ++i) {
    const SaccadeValueType &value = entry->values[i];
    EXPECT_STREQ(names[i], value.name);
    EXPECT_STREQ("tensor<?x?x8xf32>", value.text);
    ASSERT_EQ(3, value.rank);
    EXPECT_EQ((std::vector<int64_t>{-1, -1, 8}), std::vector<int64_t>(value.extents, value.extents + 3));
    EXPECT_EQ(kDLFloat, value.code);
    EXPECT_EQ(32, value.bits);
  }
  EXPECT_EQ("output", compiled().lookup("attend")->results.front().name);
}

TEST(Executable, ScalarsOfEveryTypeArrive) {
  // Each element of the result is one scalar; the i1 becomes 1 if set.
  auto created = Executable::createFromText(R"(
func.func @gather(%i: index, %b: i1, %n: i8, %h: f16, %t: bf16, %d: f64) -> tensor<6xf64> {
  %one = arith.constant 1.0 : f64
  %zero = arith.constant 0.0 : f64
  %i32 = arith.index_cast %i : index to i64
  %0 = arith.sitofp %i32 : i64 to f64
  %1 = arith.select %b, %one, %zero : f64
  %2 = arith.sitofp %n : i8 to f64
  %3 = arith.extf %h : f16 to f64
  %4 = arith.extf %t : bf16 to f64
  %result = tensor.from_elements %0, %1, %2, %3, %4, %d : tensor<6xf64>
  return %result : tensor<6xf64>
}
)",
                                            "scalars.mlir", CompileOptions());
  ASSERT_TRUE(bool(created)) << llvm::toString(created.takeError());
  const SaccadeEntry *entry = (*created)->code("gather");
  std::vector<SaccadeArgument> args(7);
  const double reals[] = {-1.5, 0.25, 0.1};
  const int64_t integers[] = {-7, 1, -128};
  for (int i = 0; i < 3; ++i) {
    args[i].kind = SaccadeArgumentInteger;
    args[i].value.integer = integers[i];
    args[3 + i].kind = SaccadeArgumentFloat;
    args[3 + i].value.real = reals[i];
  }
  double result[6] = {};
  int64_t extent = 6;
  DLTensor tensor = {};
  tensor.data = result;
  tensor.device.device_type = decltype(tensor.device.device_type)(kDLCPU);
  tensor.ndim = 1;
  tensor.dtype = {kDLFloat, 64, 1};
  tensor.shape = &extent;
  args[6].kind = SaccadeArgumentDLTensor;
  args[6].value.pointer = &tensor;
  ASSERT_EQ(SaccadeSuccess, saccade_entry_call(entry, args.data(), 7)) << saccade_entry_last_error();
  EXPECT_EQ((std::vector<double>{-7, 1, -128, -1.5, 0.25, 0.1}), std::vector<double>(result, result + 6));
  // The TVM-FFI wrapper takes the same arguments.
  result[0] = 0;
  SaccadeArgument none = args[0];
  EXPECT_EQ(0, (*created)->tvmFFI("gather")(nullptr, args.data(), 7, &none));
  EXPECT_EQ(-7, result[0]);
  EXPECT_EQ(SaccadeArgumentNone, none.kind);
}

TEST(Executable, CallsWithCompactTensors) {
  std::vector<float> a(15), b(15, 100), sum(15);
  std::iota(a.begin(), a.end(), 0.0f);
  const Entry &entry = *compiled().lookup("sum_of_two");
  EXPECT_EQ("", errorOf(compiled().call(entry, {Buffer::compact(a.data(), {3, 5}), Buffer::compact(b.data(), {3, 5})},
                                        {Buffer::compact(sum.data(), {3, 5})})));
  for (int i = 0; i < 15; ++i)
    EXPECT_EQ(a[i] + 100, sum[i]);
}

TEST(Executable, StridedTensorsAreTakenAsTheyAre) {
  // A transposed input, a broadcast input (stride 0) and every other column of an output.
  std::vector<float> a(15), row(5), sum(3 * 10, -1);
  std::iota(a.begin(), a.end(), 0.0f);
  std::iota(row.begin(), row.end(), 100.0f);
  Buffer transposed{a.data(), {3, 5}, {1, 3}}, repeated{row.data(), {3, 5}, {0, 1}},
      sparse{sum.data(), {3, 5}, {10, 2}};
  EXPECT_EQ("", errorOf(compiled().call(*compiled().lookup("sum_of_two"), {transposed, repeated}, {sparse})));
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 5; ++j) {
      EXPECT_EQ(a[i + 3 * j] + row[j], sum[10 * i + 2 * j]);
      EXPECT_EQ(-1, sum[10 * i + 2 * j + 1]);
    }
}

TEST(Executable, ResultShapesFollowFromTheInputs) {
  float any[1];
  const Entry &entry = *compiled().lookup("attend");
  auto shapes = compiled().resultShapes(
      entry, {Buffer::compact(any, {4, 7, 8}), Buffer::compact(any, {2, 9, 8}), Buffer::compact(any, {2, 9, 8})});
  ASSERT_TRUE(bool(shapes));
  EXPECT_EQ((llvm::SmallVector<int64_t, 4>{4, 7, 8}), shapes->front());
}

TEST(Executable, ShapesThatDoNotFitAreRefusedInWords) {
  float any[1000];
  auto attend = [&](const std::vector<int64_t> &q, const std::vector<int64_t> &k, const std::vector<int64_t> &v) {
    return errorOf(compiled().call(*compiled().lookup("attend"),
                                   {Buffer::compact(any, q), Buffer::compact(any, k), Buffer::compact(any, v)},
                                   {Buffer::compact(any, q)}));
  };
  EXPECT_NE(std::string::npos,
            attend({4, 7, 8}, {2, 9, 8}, {2, 10, 8}).find("value has another length than key: found 10, expected 9"));
  EXPECT_NE(std::string::npos,
            attend({4, 7, 8}, {3, 9, 8}, {3, 9, 8})
                .find("query heads is not a multiple of the number of KV heads: found 4, expected a multiple of 3"));
  EXPECT_EQ("attend: argument 'k' (tensor<?x?x8xf32>): found extent 6 in dimension 2, expected 8",
            attend({4, 7, 8}, {2, 9, 6}, {2, 9, 8}));
  EXPECT_EQ("attend: argument 'q' (tensor<?x?x8xf32>): found 2 dimensions, expected 3",
            attend({4, 7}, {2, 9, 8}, {2, 9, 8}));
  EXPECT_EQ("attend: argument 'v' (tensor<?x?x8xf32>): is NULL: a fake tensor has no data",
            errorOf(compiled().call(
                *compiled().lookup("attend"),
                {Buffer::compact(any, {1, 1, 8}), Buffer::compact(any, {1, 1, 8}), Buffer::compact(nullptr, {1, 1, 8})},
                {Buffer::compact(any, {1, 1, 8})})));
  EXPECT_NE(std::string::npos, errorOf(compiled().call(*compiled().lookup("attend"), {}, {}))
                                   .find("found 0 arguments, expected 3 inputs and memory for 1 result"));
}

TEST(Executable, ResultsOfTheWrongShapeAreRefused) {
  float any[100];
  Buffer input = Buffer::compact(any, {3, 5});
  const Entry &entry = *compiled().lookup("sum_of_two");
  EXPECT_EQ("sum_of_two: result 'result' (tensor<?x?xf32>): found extent 4 in dimension 1, expected 5",
            errorOf(compiled().call(entry, {input, input}, {Buffer::compact(any + 15, {3, 4})})));
  EXPECT_EQ("sum_of_two: result 'result' (tensor<?x?xf32>): overlaps with argument 'a'",
            errorOf(compiled().call(entry, {input, input}, {input})));
  EXPECT_NE(std::string::npos, errorOf(compiled().call(entry, {input, input}, {})).find("found 2 arguments"));
}

TEST(Executable, SeveralHostThreadsMayCallAtOnce) {
  constexpr int64_t heads = 4, rows = 33, depth = 8, size = heads * rows * depth;
  std::vector<float> input(size), expected(size);
  for (int64_t i = 0; i < size; ++i)
    input[i] = std::sin(0.37f * static_cast<float>(i));
  auto attend = [&](float *result) {
    Buffer in = Buffer::compact(input.data(), {heads, rows, depth});
    return errorOf(
        compiled().call(*compiled().lookup("attend"), {in, in, in}, {Buffer::compact(result, {heads, rows, depth})}));
  };
  ASSERT_EQ("", attend(expected.data()));
  EXPECT_TRUE(std::isfinite(expected[0]));
  std::vector<std::thread> hosts;
  for (int host = 0; host < 4; ++host)
    hosts.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        std::vector<float> result(size);
        ASSERT_EQ("", attend(result.data()));
        ASSERT_EQ(expected, result); // bitwise equal, regardless of the threads
      }
    });
  for (std::thread &host : hosts)
    host.join();
}

TEST(Executable, TextThatIsNoProgramIsAnErrorWithItsPlace) {
  auto created = Executable::createFromText("func.func @f( {", "broken.mlir", CompileOptions());
  ASSERT_FALSE(bool(created));
  EXPECT_NE(std::string::npos, llvm::toString(created.takeError()).find("broken.mlir:1"));
}

} // namespace
