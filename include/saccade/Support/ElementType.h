//===- ElementType.h - The element types that cross the border ----*- C++ -*-===//
//
// What arguments, results and files may hold, known without MLIR.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_SUPPORT_ELEMENTTYPE_H
#define SACCADE_SUPPORT_ELEMENTTYPE_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <optional>

namespace saccade {

enum class ElementType { i1, i8, i16, i32, i64, index, f16, bf16, f32, f64 };

/// As MLIR spells it: "bf16", "i32", "index".
llvm::StringRef elementTypeName(ElementType type);
std::optional<ElementType> parseElementType(llvm::StringRef name);

/// Bytes of one element in memory; an i1 takes one.
unsigned elementBytes(ElementType type);
bool isFloat(ElementType type);

/// One element read as a double (exact but for 64-bit integers beyond 2^53), and written with rounding to nearest
/// even; out-of-range values saturate for integers and NaN becomes 0.
double readElement(ElementType type, const void *element);
void writeElement(ElementType type, void *element, double value);

} // namespace saccade

#endif // SACCADE_SUPPORT_ELEMENTTYPE_H
