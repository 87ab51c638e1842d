//===- QuantizedKeys.cpp - Keys and queries rounded to int8 -----------------------===//
#include "QuantizedKeys.h"
#include <algorithm>
#include <cmath>

using namespace saccade::reference;

double saccade::reference::quantizationStep(const std::vector<double> &row) {
  double largest = 0;
  for (double element : row)
    largest = std::isnan(element) || std::isnan(largest) ? NAN : std::max(largest, std::abs(element));
  return largest / 127;
}

/// `row`, rounded to multiples of its step.
static std::vector<double> roundRow(const std::vector<double> &row) {
  double step = quantizationStep(row);
  std::vector<double> result(row.size());
  for (size_t i = 0; i < row.size(); ++i)
    result[i] = step == 0 ? 0 : std::nearbyint(row[i] / step) * step;
  return result;
}

QuantizedKeys::QuantizedKeys(StridedRow first, int64_t keyStride, int64_t keys, int64_t depth)
    : first(first), keyStride(keyStride), depth(depth), mean(depth) {
  // A key that is not finite may be masked.
  for (int64_t key = 0; key < keys; ++key)
    for (int64_t i = 0; i < depth; ++i)
      if (double element = first.elements[key * keyStride + i * first.stride]; std::isfinite(element))
        mean[i] += element / double(keys);
  for (int64_t key = 0; key < keys; ++key)
    for (double element : roundRow(centered(key)))
      rounded.push_back(element);
}

std::vector<double> QuantizedKeys::centered(int64_t key) const {
  std::vector<double> row(depth);
  for (int64_t i = 0; i < depth; ++i)
    row[i] = first.elements[key * keyStride + i * first.stride] - mean[i];
  return row;
}

std::vector<double> QuantizedKeys::round(StridedRow query) const {
  std::vector<double> result(depth);
  for (int64_t i = 0; i < depth; ++i)
    result[i] = query[i];
  std::vector<double> row = roundRow(result);
  result.insert(result.end(), row.begin(), row.end());
  return result;
}

double QuantizedKeys::dotProduct(const std::vector<double> &query, int64_t key) const {
  double sum = 0;
  for (int64_t i = 0; i < depth; ++i)
    sum += query[i] * mean[i] + query[depth + i] * rounded[key * depth + i];
  return sum;
}

double QuantizedKeys::errorBound(StridedRow query, int64_t key) const {
  std::vector<double> row(depth), keyRow = centered(key);
  for (int64_t i = 0; i < depth; ++i)
    row[i] = query[i];
  double ofQuery = quantizationStep(row) / 2, ofKey = quantizationStep(keyRow) / 2, bound = 0;
  for (int64_t i = 0; i < depth; ++i)
    bound += std::abs(row[i]) * ofKey + std::abs(keyRow[i]) * ofQuery + ofQuery * ofKey;
  return bound;
}

double QuantizedKeys::deviation(StridedRow query, int64_t key) const {
  std::vector<double> row(depth), keyRow = centered(key);
  for (int64_t i = 0; i < depth; ++i)
    row[i] = query[i];
  // A uniform error within half a step has the variance step² / 12.
  double ofQuery = std::pow(quantizationStep(row), 2) / 12, ofKey = std::pow(quantizationStep(keyRow), 2) / 12;
  double variance = 0;
  for (int64_t i = 0; i < depth; ++i)
    variance += row[i] * row[i] * ofKey + keyRow[i] * keyRow[i] * ofQuery + ofQuery * ofKey;
  return std::sqrt(variance);
}
