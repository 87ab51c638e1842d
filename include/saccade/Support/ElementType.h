//===- ElementType.h - Element types at the ABI boundary ----------*- C++ -*-===//
//
// The element types of arguments, results and files, independent of MLIR.
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

/// The bytes of one element in memory; an i1 takes one byte.
unsigned elementBytes(ElementType type);
bool isFloat(ElementType type);

/// Reads an element as a double, exact except for 64-bit integers above 2^53.
double readElement(ElementType type, const void *element);
/// Writes an element, rounded to nearest even. For integers, out-of-range values saturate and NaN becomes 0.
void writeElement(ElementType type, void *element, double value);

} // namespace saccade

#endif // SACCADE_SUPPORT_ELEMENTTYPE_H
