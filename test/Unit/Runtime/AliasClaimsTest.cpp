//===- AliasClaimsTest.cpp - Refused overlaps against sets of addresses -------===//
//
// A call is refused if a result certainly shares memory with another tensor. For random shapes, strides and addresses,
// no call without shared bytes is refused for it, and every dense tensor that shares bytes with a dense result is.
//
// SACCADE_REGIONS and SACCADE_SEED set the number of calls and the seed.
//
//===----------------------------------------------------------------------===//
#include "Arguments.h"
#include "test/Support/Cases.h"
#include "gtest/gtest.h"
#include <algorithm>
#include <random>
#include <set>
#include <string>

namespace {

/// A tensor at `origin`, in bytes, of elements of `bytes` bytes.
struct Layout {
  Words shape, strides;
  int64_t origin, bytes;

  /// The addresses of all bytes of all elements.
  std::set<int64_t> addresses() const {
    std::set<int64_t> found;
    if (std::find(shape.begin(), shape.end(), 0) != shape.end())
      return found;
    Words at(shape.size(), 0);
    while (true) {
      int64_t address = origin;
      for (size_t i = 0; i < at.size(); ++i)
        address += at[i] * strides[i] * bytes;
      for (int64_t i = 0; i < bytes; ++i)
        found.insert(address + i);
      size_t i = 0;
      while (i < at.size() && ++at[i] == shape[i])
        at[i++] = 0;
      if (i == at.size())
        return found;
    }
  }
  bool isDense(const std::set<int64_t> &addresses) const {
    int64_t count = bytes;
    for (int64_t extent : shape)
      count *= extent;
    return count == 0 || (int64_t(addresses.size()) == count && *addresses.rbegin() - *addresses.begin() + 1 == count);
  }
};

class Calls {
public:
  explicit Calls(uint64_t seed) : random(seed) {}
  int64_t pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); }

  Layout draw(bool isResult, int64_t bytes) {
    Layout layout{Words(pick(1, 3)), {}, 0, bytes};
    for (int64_t &extent : layout.shape)
      extent = pick(0, 19) ? pick(1, 4) : 0;
    // Most are compact in an order of dimensions, with gaps or not; inputs may have any strides.
    Words order;
    for (size_t i = 0; i < layout.shape.size(); ++i)
      order.insert(order.begin() + pick(0, i), i);
    layout.strides.assign(layout.shape.size(), 1);
    int64_t next = pick(0, 4) ? 1 : 2;
    for (int64_t dim : order) {
      layout.strides[dim] = next;
      next *= layout.shape[dim] + (pick(0, 4) ? 0 : 1);
    }
    if (!isResult && pick(0, 2) == 0)
      for (int64_t &stride : layout.strides)
        stride = pick(-3, 5);
    int64_t low = 0;
    for (size_t i = 0; i < layout.shape.size(); ++i)
      low += std::min<int64_t>(0, (layout.shape[i] - 1) * layout.strides[i]);
    layout.origin = (pick(0, 40) - low) * bytes;
    return layout;
  }

private:
  std::mt19937_64 random;
};

/// The message of a call with an input and a result.
std::string run(Layout input, Layout result) {
  alignas(64) static char memory[16384];
  static Words extents;
  extents = result.shape;
  const Words any(4, -1);
  auto typeOf = [&](const char *name, const Layout &layout) {
    return SaccadeValueType{name, "tensor", any.data(), int32_t(layout.shape.size()), kDLInt, uint8_t(8 * layout.bytes),
                            0};
  };
  const SaccadeValueType types[] = {typeOf("x", input), typeOf("y", result)};
  const SaccadeEntry entry = {SACCADE_ENTRY_VERSION,
                              1,
                              1,
                              0,
                              "make",
                              types,
                              [](void **) -> const char * { return nullptr; },
                              [](void **, int64_t *sizes) -> const char * {
                                std::copy(extents.begin(), extents.end(), sizes);
                                return nullptr;
                              },
                              nullptr,
                              nullptr,
                              nullptr};
  DLTensor tensors[2] = {};
  Layout *layouts[] = {&input, &result};
  SaccadeArgument arguments[2];
  for (int i = 0; i < 2; ++i) {
    tensors[i].data = memory + layouts[i]->origin;
    tensors[i].device.device_type = decltype(tensors[i].device.device_type)(kDLCPU);
    tensors[i].ndim = types[i].rank;
    tensors[i].dtype = {kDLInt, static_cast<uint8_t>(types[i].bits), 1};
    tensors[i].shape = layouts[i]->shape.data();
    tensors[i].strides = layouts[i]->strides.data();
    arguments[i] = wrap(tensors[i]);
  }
  return saccade_entry_call(&entry, arguments, 2) == SaccadeSuccess ? "" : saccade_entry_last_error();
}

TEST(AliasClaims, OnlySharedMemoryIsRefusedAndAllOfDenseTensors) {
  Cases drawn(2000);
  int64_t cases = drawn.count * 5, seed = drawn.seed;
  int64_t shared = 0, refused = 0;
  for (int64_t i = seed; i < seed + cases; ++i) {
    Calls calls(i);
    const int64_t widths[] = {1, 2, 4, 8};
    Layout input = calls.draw(false, widths[calls.pick(0, 3)]), result = calls.draw(true, widths[calls.pick(0, 3)]);
    std::set<int64_t> first = input.addresses(), second = result.addresses();
    bool isShared = std::any_of(first.begin(), first.end(), [&](int64_t each) { return second.contains(each); });
    std::string message = run(input, result);
    bool isRefused = message.find("overlaps with argument 'x'") != std::string::npos;
    bool mustBeRefused = isShared && input.isDense(first) && result.isDense(second);
    shared += isShared, refused += isRefused;
    ASSERT_TRUE((!isRefused || isShared) && (isRefused || !mustBeRefused) && (isRefused || message.empty()))
        << "SACCADE_SEED=" << i << " SACCADE_REGIONS=1: input " << testing::PrintToString(input.shape) << " strides "
        << testing::PrintToString(input.strides) << " at " << input.origin << " of " << input.bytes << " bytes, result "
        << testing::PrintToString(result.shape) << " strides " << testing::PrintToString(result.strides) << " at "
        << result.origin << " of " << result.bytes << " bytes, " << (isShared ? "shared: " : "not shared: ") << message;
  }
  std::printf("%lld calls: %lld share memory, %lld are refused\n", (long long)cases, (long long)shared,
              (long long)refused);
  if (cases >= 100) {
    EXPECT_GT(refused * 2, shared);
  }
}

TEST(AliasClaims, NothingIsRefusedBetweenTheElementsOfAnyStrides) {
  // One byte as the result, at every place in and beside an input of two dimensions.
  for (int64_t rows = 0; rows <= 4; ++rows)
    for (int64_t columns = 1; columns <= 4; ++columns)
      for (int64_t down = -3; down <= 4; ++down)
        for (int64_t right = -3; right <= 4; ++right) {
          Layout input{{rows, columns}, {down, right}, 40, 1};
          std::set<int64_t> bytes = input.addresses();
          for (int64_t place = 40 - 24; place < 40 + 32; ++place) {
            std::string message = run(input, {{1}, {1}, place, 1});
            bool isRefused = message.find("overlaps with argument 'x'") != std::string::npos;
            bool mustBeRefused = bytes.contains(place) && input.isDense(bytes);
            ASSERT_TRUE((!isRefused || bytes.contains(place)) && (isRefused || !mustBeRefused))
                << rows << "x" << columns << " strides " << down << ", " << right << ", byte " << place - 40 << ": "
                << message;
          }
        }
}

} // namespace
