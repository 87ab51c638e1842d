//===- ElementType.cpp - Element types at the ABI boundary --------------------===//
//
// Converts single elements with exact rounding; used where speed does not matter.
//
//===----------------------------------------------------------------------===//
#include "saccade/Support/ElementType.h"
#include "llvm/ADT/APFloat.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

using namespace saccade;

namespace {
struct Row {
  ElementType type;
  llvm::StringRef name;
  unsigned bytes;
};
} // namespace

static const Row table[] = {
    {ElementType::i1, "i1", 1},
    {ElementType::i8, "i8", 1},
    {ElementType::i16, "i16", 2},
    {ElementType::i32, "i32", 4},
    {ElementType::i64, "i64", 8},
    {ElementType::index, "index", 8},
    {ElementType::f8E4M3FN, "f8E4M3FN", 1},
    {ElementType::f8E5M2, "f8E5M2", 1},
    {ElementType::f16, "f16", 2},
    {ElementType::bf16, "bf16", 2},
    {ElementType::f32, "f32", 4},
    {ElementType::f64, "f64", 8},
};

static const Row &row(ElementType type) { return table[static_cast<unsigned>(type)]; }

llvm::StringRef saccade::elementTypeName(ElementType type) { return row(type).name; }
unsigned saccade::elementBytes(ElementType type) { return row(type).bytes; }
bool saccade::isFloat(ElementType type) { return type >= ElementType::f8E4M3FN; }

std::optional<ElementType> saccade::parseElementType(llvm::StringRef name) {
  for (const Row &row : table)
    if (row.name == name)
      return row.type;
  return std::nullopt;
}

template <typename T> static T load(const void *memory) {
  T value;
  std::memcpy(&value, memory, sizeof(T));
  return value;
}

template <typename T> static void storeInteger(void *memory, double value) {
  T stored = 0;
  if (value >= static_cast<double>(std::numeric_limits<T>::max()))
    stored = std::numeric_limits<T>::max();
  else if (value <= static_cast<double>(std::numeric_limits<T>::min()))
    stored = std::numeric_limits<T>::min();
  else if (!std::isnan(value))
    stored = static_cast<T>(std::nearbyint(value));
  std::memcpy(memory, &stored, sizeof(T));
}

/// Reads a float whose bits are those of an integer T.
template <typename T> static double readNarrow(const llvm::fltSemantics &semantics, const void *memory) {
  llvm::APFloat value(semantics, llvm::APInt(8 * sizeof(T), load<T>(memory)));
  bool lossy;
  value.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lossy);
  return value.convertToDouble();
}

template <typename T> static void writeNarrow(const llvm::fltSemantics &semantics, void *memory, double value) {
  llvm::APFloat converted(value);
  bool lossy;
  converted.convert(semantics, llvm::APFloat::rmNearestTiesToEven, &lossy);
  auto bits = static_cast<T>(converted.bitcastToAPInt().getZExtValue());
  std::memcpy(memory, &bits, sizeof(bits));
}

double saccade::readElement(ElementType type, const void *element) {
  switch (type) {
  case ElementType::i1:
    return load<uint8_t>(element) != 0;
  case ElementType::i8:
    return load<int8_t>(element);
  case ElementType::i16:
    return load<int16_t>(element);
  case ElementType::i32:
    return load<int32_t>(element);
  case ElementType::i64:
  case ElementType::index:
    return static_cast<double>(load<int64_t>(element));
  case ElementType::f8E4M3FN:
    return readNarrow<uint8_t>(llvm::APFloat::Float8E4M3FN(), element);
  case ElementType::f8E5M2:
    return readNarrow<uint8_t>(llvm::APFloat::Float8E5M2(), element);
  case ElementType::f16:
    return readNarrow<uint16_t>(llvm::APFloat::IEEEhalf(), element);
  case ElementType::bf16:
    return readNarrow<uint16_t>(llvm::APFloat::BFloat(), element);
  case ElementType::f32:
    return load<float>(element);
  case ElementType::f64:
    return load<double>(element);
  }
  llvm_unreachable("an element type that is not in the table");
}

double saccade::saturateToF8E4M3FN(double value) {
  constexpr double largest = 448;
  return std::isnan(value) ? value : std::clamp(value, -largest, largest);
}

void saccade::writeElement(ElementType type, void *element, double value) {
  switch (type) {
  case ElementType::i1: {
    uint8_t stored = value != 0;
    std::memcpy(element, &stored, 1);
    return;
  }
  case ElementType::i8:
    return storeInteger<int8_t>(element, value);
  case ElementType::i16:
    return storeInteger<int16_t>(element, value);
  case ElementType::i32:
    return storeInteger<int32_t>(element, value);
  case ElementType::i64:
  case ElementType::index:
    return storeInteger<int64_t>(element, value);
  case ElementType::f8E4M3FN:
    return writeNarrow<uint8_t>(llvm::APFloat::Float8E4M3FN(), element, saturateToF8E4M3FN(value));
  case ElementType::f8E5M2:
    return writeNarrow<uint8_t>(llvm::APFloat::Float8E5M2(), element, value);
  case ElementType::f16:
    return writeNarrow<uint16_t>(llvm::APFloat::IEEEhalf(), element, value);
  case ElementType::bf16:
    return writeNarrow<uint16_t>(llvm::APFloat::BFloat(), element, value);
  case ElementType::f32: {
    auto stored = static_cast<float>(value);
    std::memcpy(element, &stored, sizeof(stored));
    return;
  }
  case ElementType::f64:
    std::memcpy(element, &value, sizeof(value));
    return;
  }
}
