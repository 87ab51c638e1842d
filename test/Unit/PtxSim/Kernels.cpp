//===- Kernels.cpp - Runs the kernels of test/PtxSim/Inputs ---------------===//

#include "Kernels.h"
#include <random>

using namespace saccade::ptxsim;
using namespace saccade::ptxsim::test;

/// Loads `text` and runs `entry`; `prepare` sets up memory and launch, `check` compares the results.
template <typename Prepare, typename Check>
static Verdict runKernel(const std::string &text, const char *entry, const Launch &how, Prepare prepare, Check check) {
  Verdict verdict;
  Device device;
  auto loaded = Program::load(text, device);
  if (auto *finding = std::get_if<Finding>(&loaded)) {
    verdict.report.finding = *finding;
    return verdict;
  }
  Launch launch = how;
  prepare(device, launch);
  verdict.report = std::get<Program>(loaded).run(entry, launch);
  verdict.rightResult = verdict.report && check(device);
  return verdict;
}

static std::vector<float> elements(size_t count, int spread) {
  std::vector<float> values;
  for (size_t index = 0; index < count; ++index)
    values.push_back(element(index, spread));
  return values;
}

Verdict test::runAdd(const std::string &text, const Launch &how) {
  constexpr int n = 300;
  std::vector<float> a = elements(n, 50), b = elements(n, 7);
  uint64_t result = 0;
  return runKernel(
      text, "add", how,
      [&](Device &device, Launch &launch) {
        uint64_t inA = device.allocate(bytesOf(a), "a"), inB = device.allocate(bytesOf(b), "b");
        result = device.allocate(4 * n, "c");
        launch.grid = {3, 1, 1}, launch.block = {128, 1, 1};
        launch.parameters = Parameters().add(inA).add(inB).add(result).add(n).bytes;
      },
      [&](Device &device) {
        auto c = read<float>(device, result, n);
        for (int i = 0; i < n; ++i)
          if (c[i] != a[i] + b[i])
            return false;
        return true;
      });
}

Verdict test::runSum(const std::string &text, const Launch &how) {
  constexpr int n = 1000;
  std::vector<float> a = elements(n, 50);
  uint64_t result = 0;
  return runKernel(
      text, "sum", how,
      [&](Device &device, Launch &launch) {
        uint64_t in = device.allocate(bytesOf(a), "a");
        result = device.allocate(4, "result");
        launch.block = {128, 1, 1};
        launch.parameters = Parameters().add(in).add(result).add(n).bytes;
      },
      [&](Device &device) {
        float expected = 0;
        for (float value : a)
          expected += value;
        return read<float>(device, result, 1)[0] == expected;
      });
}

Verdict test::runMatmul(const std::string &text, const Launch &how) {
  constexpr int m = 37, n = 21, k = 50;
  std::vector<float> a = elements(m * k, 9), b = elements(k * n, 5);
  uint64_t result = 0;
  return runKernel(
      text, "matmul", how,
      [&](Device &device, Launch &launch) {
        uint64_t inA = device.allocate(bytesOf(a), "a"), inB = device.allocate(bytesOf(b), "b");
        result = device.allocate(4 * m * n, "c");
        launch.grid = {(n + 15) / 16, (m + 15) / 16, 1}, launch.block = {16, 16, 1};
        launch.parameters = Parameters().add(inA).add(inB).add(result).add(m).add(n).add(k).bytes;
      },
      [&](Device &device) {
        auto c = read<float>(device, result, m * n);
        for (int row = 0; row < m; ++row)
          for (int column = 0; column < n; ++column) {
            float expected = 0;
            for (int i = 0; i < k; ++i)
              expected += a[row * k + i] * b[i * n + column];
            if (c[row * n + column] != expected)
              return false;
          }
        return true;
      });
}

Verdict test::runHistogram(const std::string &text, const Launch &how) {
  std::vector<int32_t> values;
  for (int index = 0; index < 500; ++index)
    values.push_back(int(element(index, 100)) + 100);
  uint64_t result = 0;
  return runKernel(
      text, "histogram", how,
      [&](Device &device, Launch &launch) {
        uint64_t in = device.allocate(bytesOf(values), "values");
        result = device.allocate(bytesOf(std::vector<uint32_t>(8, 0)), "result");
        launch.block = {64, 1, 1};
        launch.parameters = Parameters().add(in).add(result).add(int(values.size())).bytes;
      },
      [&](Device &device) {
        std::vector<uint32_t> expected(8);
        for (int value : values) {
          unsigned bin = 0;
          switch (value & 7) {
          case 0:
            bin = 3;
            break;
          case 1:
            bin = value > 64 ? 1 : 2;
            break;
          case 2:
            bin = 7;
            break;
          case 3:
            bin = value / 3 & 7;
            break;
          case 4:
            bin = __builtin_popcount(value) & 7;
            break;
          default:
            break;
          }
          ++expected[bin];
        }
        return read<uint32_t>(device, result, 8) == expected;
      });
}

Verdict test::runGemm(const std::string &text, const Launch &how, uint32_t m, uint32_t n, uint32_t k) {
  auto bf16Bits = [](size_t count, int spread) {
    std::vector<uint16_t> bits;
    for (float value : elements(count, spread))
      bits.push_back(uint16_t(llvm::bit_cast<uint32_t>(value) >> 16));
    return bits;
  };
  std::vector<uint16_t> a = bf16Bits(m * k, 9), b = bf16Bits(n * k, 5);
  uint64_t result = 0;
  return runKernel(
      text, "gemm", how,
      [&](Device &device, Launch &launch) {
        uint64_t inA = device.allocate(bytesOf(a), "a"), inB = device.allocate(bytesOf(b), "b");
        result = device.allocate(4 * m * n, "c");
        launch.grid = {n / 64, (m + 63) / 64, 1}, launch.block = {128, 1, 1};
        launch.parameters = Parameters().add(inA).add(inB).add(result).add(m).add(n).add(k).bytes;
      },
      [&](Device &device) {
        auto c = read<float>(device, result, m * n);
        for (uint32_t row = 0; row < m; ++row)
          for (uint32_t column = 0; column < n; ++column) {
            float expected = 0;
            for (uint32_t i = 0; i < k; ++i)
              expected += element(row * k + i, 9) * element(column * k + i, 5);
            if (c[row * n + column] != expected)
              return false;
          }
        return true;
      });
}

/// A tensor of `rows` x 128 bf16 values with boxes of 64 rows.
static TensorMap mapOf(uint64_t address, uint64_t rows, uint32_t columns, TensorSwizzle swizzle) {
  TiledTensor tensor;
  tensor.address = address;
  tensor.extents = {128, rows}, tensor.strides = {256}, tensor.box = {columns, 64};
  tensor.swizzle = swizzle;
  auto map = encodeTiled(tensor);
  EXPECT_TRUE(std::holds_alternative<TensorMap>(map));
  return std::get<TensorMap>(map);
}

Verdict test::runHopperAttention(const std::string &text, const Launch &how, uint32_t queries, uint32_t keys) {
  constexpr uint32_t head = 128;
  // Numbers from -1 to 1, exact in bf16: scores have a deviation of 4 before scaling.
  std::minstd_rand random;
  auto values = [&](size_t count) {
    std::vector<uint16_t> bits;
    for (size_t index = 0; index < count; ++index)
      bits.push_back(uint16_t(llvm::bit_cast<uint32_t>(float(random() % 129) / 64 - 1) >> 16));
    return bits;
  };
  std::vector<uint16_t> q = values(queries * head), k = values(keys * head), v = values(keys * head);
  auto number = [](const std::vector<uint16_t> &bits, size_t index) {
    return double(llvm::bit_cast<float>(uint32_t(bits[index]) << 16));
  };
  uint64_t result = 0;
  const float scale = 0.25f;
  return runKernel(
      text, "attention", how,
      [&](Device &device, Launch &launch) {
        result = device.allocate(queries * head * 2, "o");
        Parameters parameters;
        parameters.add(mapOf(device.allocate(bytesOf(q), "q"), queries, 64, TensorSwizzle::Bytes128));
        parameters.add(mapOf(device.allocate(bytesOf(k), "k"), keys, 64, TensorSwizzle::Bytes128));
        parameters.add(mapOf(device.allocate(bytesOf(v), "v"), keys, 64, TensorSwizzle::Bytes128));
        parameters.add(mapOf(result, queries, 128, TensorSwizzle::None)).add(keys).add(scale);
        launch.parameters = parameters.bytes;
        launch.grid = {(queries + 127) / 128, 1, 1}, launch.block = {384, 1, 1};
        launch.dynamicShared = 98376;
      },
      [&](Device &device) {
        auto o = read<uint16_t>(device, result, queries * head);
        for (uint32_t row = 0; row < queries; ++row) {
          std::vector<double> weights(keys), expected(head);
          double sum = 0;
          for (uint32_t key = 0; key < keys; ++key) {
            double score = 0;
            for (uint32_t i = 0; i < head; ++i)
              score += number(q, row * head + i) * number(k, key * head + i);
            sum += weights[key] = std::exp2(score * scale);
          }
          for (uint32_t key = 0; key < keys; ++key)
            for (uint32_t i = 0; i < head; ++i)
              expected[i] += weights[key] / sum * number(v, key * head + i);
          // Weights and results are rounded to bf16.
          for (uint32_t i = 0; i < head; ++i)
            if (!(std::fabs(number(o, row * head + i) - expected[i]) < 0.0015))
              return false;
        }
        return true;
      });
}
