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

enum class ElementType { i1, i8, i16, i32, i64, index, f8E4M3FN, f8E5M2, f16, bf16, f32, f64 };

/// As MLIR spells it: "bf16", "i32", "index", "f8E4M3FN".
llvm::StringRef elementTypeName(ElementType type);
std::optional<ElementType> parseElementType(llvm::StringRef name);

/// The bytes of one element in memory; an i1 takes one byte.
unsigned elementBytes(ElementType type);
bool isFloat(ElementType type);

/// Reads an element as a double, exact except for 64-bit integers above 2^53.
double readElement(ElementType type, const void *element);
/// Writes an element, rounded to nearest even. For integers, out-of-range values saturate and NaN becomes 0. For
/// f8E4M3FN, which has no infinity, they saturate.
void writeElement(ElementType type, void *element, double value);
/// The nearest value in the range of f8E4M3FN, as conversions to it take it; NaN stays NaN. PyTorch saturates likewise.
double saturateToF8E4M3FN(double value);

} // namespace saccade

#endif // SACCADE_SUPPORT_ELEMENTTYPE_H
