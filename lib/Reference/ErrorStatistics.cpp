//===- ErrorStatistics.cpp - Mean and signed errors ---------------------------===//
#include "ErrorStatistics.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/Hashing.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::reference;

UnitOf::UnitOf(Type type) {
  const llvm::fltSemantics &semantics = cast<FloatType>(type).getFloatSemantics();
  minExponent = llvm::APFloat::semanticsMinExponent(semantics);
  precision = int(llvm::APFloat::semanticsPrecision(semantics));
}

double UnitOf::operator()(double value) const {
  int exponent = minExponent;
  if (value != 0 && std::isfinite(value))
    exponent = std::max(exponent, std::ilogb(value));
  return std::ldexp(1.0, exponent + 1 - precision);
}

/// Values that are equal up to the rounding of f32, which rounding to 16 bits treats alike.
static uint32_t neighbourhoodOf(double value) { return llvm::bit_cast<uint32_t>(static_cast<float>(value)) >> 6; }

ErrorStatistics ErrorStatistics::of(Type type, const Tensor &exact, const Tensor &found, ArrayRef<int64_t> rowNumbers,
                                    const Magnitude *magnitude) {
  assert(exact.size() == found.size() && "expected results of one shape");
  struct Row {
    uint64_t values = 0; ///< hash of the exact values
    double error = 0, deviation = 0;
  };
  llvm::DenseMap<int64_t, Row> rows;
  llvm::DenseMap<uint32_t, double> unitsOfValue;
  ErrorStatistics statistics;
  UnitOf unitOf(type);
  double smallest = std::ldexp(1.0, llvm::APFloat::semanticsMinExponent(cast<FloatType>(type).getFloatSemantics()));
  // A uniform error of at most eps/2 has a deviation of eps/2 / √3.
  double weightDeviation = magnitude ? epsilonOf(magnitude->inputType) / 2 / std::sqrt(3.0) : 0;
  for (int64_t i = 0; i < exact.size(); ++i) {
    double value = exact.values[i].real, error = found.values[i].real - value;
    Row &row = rows[rowNumbers.empty() ? i : rowNumbers[i]];
    row.values = llvm::hash_combine(row.values, neighbourhoodOf(value));
    if (!std::isfinite(value) || !std::isfinite(error))
      continue;
    double unit = unitOf(value);
    ++statistics.elements;
    statistics.max = std::max(statistics.max, std::abs(error));
    statistics.mean += std::abs(error);
    statistics.meanUnit += unit;
    if (std::abs(value) < smallest)
      continue;
    statistics.unitSum += unit;
    row.error += std::copysign(1.0, value) * error;
    if (magnitude) {
      row.deviation += weightDeviation * magnitude->spread.values[i].real;
      unitsOfValue[neighbourhoodOf(value)] += unit;
    }
  }
  if (statistics.elements == 0)
    return statistics;
  statistics.mean /= double(statistics.elements);
  statistics.meanUnit /= double(statistics.elements);
  llvm::DenseMap<uint64_t, std::pair<double, double>> distinct;
  for (auto &[number, row] : rows) {
    auto &[error, deviation] = distinct[row.values >> 1]; // DenseMap reserves the two largest keys
    error += row.error;
    deviation += row.deviation;
  }
  double variance = 0;
  for (auto &[values, sums] : distinct) {
    statistics.signedSum += sums.first;
    statistics.signedDeviation += sums.first * sums.first;
    variance += sums.second * sums.second;
  }
  for (auto &[value, units] : unitsOfValue)
    variance += units * units / 12;
  statistics.signedDeviation = std::sqrt(statistics.signedDeviation);
  statistics.expectedDeviation = std::sqrt(variance);
  statistics.rows = distinct.size();
  return statistics;
}
