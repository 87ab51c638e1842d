// Calls artifact.so through saccade-c/Library.hpp, linked with its header and loaded by its path.

#include "artifact.h"
#include "saccade-c/Library.hpp"
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

using saccade::Tensor;

static void expect(bool holds, const char *what) {
  if (holds)
    return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::exit(1);
}

/// The message of the error that a call throws.
template <class Body> static std::string messageOf(Body body) {
  try {
    body();
  } catch (const saccade::Error &error) {
    return error.what();
  }
  return "";
}

int main(int count, char **arguments) {
  expect(count == 2, "the argument is the library");
  // Equal scores: each row is the mean of the values before and at its own position.
  constexpr int64_t batch = 2, heads = 3, rows = 5;
  std::vector<float> q(batch * heads * rows * 16), k(q.size()), v(batch * heads * rows * 8), lse(batch * heads * rows);
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = static_cast<float>(i / 8 % rows);
  Tensor<const float, 4> query(q, {batch, heads, rows, 16}), key(k, {batch, heads, rows, 16}),
      value(v, {batch, heads, rows, 8});

  auto [outputExtents, lseExtents] = saccade::shapes<4, 3>(saccade_attend_shapes, query, key, value, 0.25, rows);
  expect(outputExtents == saccade::Extents<4>{batch, heads, rows, 8}, "extents of the output");
  expect(lseExtents == saccade::Extents<3>{batch, heads, rows}, "extents of the log-sum-exp");

  // The output is a transposed view, written through its strides.
  std::vector<float> memory(batch * heads * rows * 8);
  Tensor<float, 4> output(memory.data(), outputExtents, {8 * heads, 8, 8 * heads * batch, 1});
  Tensor<float, 3> sums(lse, lseExtents);
  saccade::call(saccade_attend, query, key, value, 0.25, rows, output, sums);
  for (int64_t row = 0; row < rows; ++row) {
    expect(std::abs(output(1, 2, row, 7) - static_cast<float>(row) / 2) < 1e-5f, "the mean of the first values");
    expect(std::abs(sums(0, 1, row) - std::log(float(row + 1))) < 1e-5f, "the logarithm of their number");
  }

  // The same by its path, as a typed function; a Tensor to write to is accepted as an input.
  saccade::Library library(arguments[1]);
  auto attend = library.function<void(Tensor<const float, 4>, Tensor<const float, 4>, Tensor<const float, 4>, double,
                                      int64_t, Tensor<float, 4>, Tensor<float, 3>)>("attend");
  std::vector<float> again(memory.size());
  Tensor<float, 4> second(again, outputExtents);
  attend(query, Tensor<float, 4>(k, {batch, heads, rows, 16}), value, 0.25, rows, second, sums);
  for (int64_t row = 0; row < rows; ++row)
    expect(second(1, 2, row, 7) == output(1, 2, row, 7), "equal results");
  saccade::Function<void(Tensor<const double, 1>, Tensor<double, 1>)> exponential(saccade_exponential);
  double one = 1, e = 0;
  exponential({&one, {1}}, {&e, {1}});
  expect(std::abs(e - std::exp(1.0)) < 1e-15, "e");

  // Targets.
  expect(library.target("attend") == saccade_attend_target(), "one target");
  library.setCPULimit("portable");
  expect(library.target("attend") == "portable", "the limit holds");
  library.setCPULimit(nullptr);
  expect(messageOf([&] { library.setCPULimit("v0"); }).find("found 'v0', expected one of portable, v3") !=
             std::string::npos,
         "an unknown target");

  // Errors.
  expect(messageOf([&] { attend(query, key, value, 0.25, rows + 1, second, sums); }).starts_with("attend: "),
         "a length beyond the keys");
  Tensor<const float, 4> narrow(q.data(), {batch, heads, rows, 8});
  expect(messageOf([&] { saccade::shapes<4, 3>(saccade_attend_shapes, narrow, key, value, 1, rows); }) ==
             "attend: argument 'q' (tensor<?x?x?x16xf32>): found extent 8 in dimension 3, expected 16",
         "a wrong head size");
  std::vector<double> wide(q.size());
  Tensor<const double, 4> doubles(wide, {batch, heads, rows, 16});
  expect(messageOf([&] {
           saccade::call(saccade_attend, doubles, key, value, 0.25, rows, output, sums);
         }).find("found element type f64, expected f32") != std::string::npos,
         "a wrong element type");
  expect(messageOf([&] { Tensor<float, 2>(lse, {7, 9}); }) ==
             "found 30 elements, expected 63: the product of the extents",
         "a wrong number of elements");
  expect(messageOf([] { saccade::Library("nowhere.so"); }).find("nowhere.so") != std::string::npos, "a missing file");
  expect(!messageOf([&] { library.get<void()>("saccade_nothing"); }).empty(), "a missing function");
  return 0;
}
