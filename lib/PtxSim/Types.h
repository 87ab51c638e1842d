//===- Types.h - Types, spaces and rounding of PTX ------------------*- C++ -*-===//
#ifndef SACCADE_LIB_PTXSIM_TYPES_H
#define SACCADE_LIB_PTXSIM_TYPES_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <optional>

namespace saccade::ptxsim {

enum class Type : uint8_t {
  Pred,
  B8,
  B16,
  B32,
  B64,
  B128,
  U8,
  U16,
  U32,
  U64,
  S8,
  S16,
  S32,
  S64,
  F16,
  BF16,
  F16x2,
  BF16x2,
  F32,
  F64,
  TF32,
  E4M3,
  E5M2,
  E4M3x2,
  E5M2x2,
  U16x2,
  S16x2,
};

enum class Space : uint8_t { Generic, Global, Shared, Local, Param, Const };

enum class Rounding : uint8_t { NearestEven, Zero, Down, Up, NearestAway };

/// "f16x2" → F16x2.
std::optional<Type> parseType(llvm::StringRef name);

/// Size in bytes; 0 for a predicate.
constexpr unsigned bytesOf(Type type) {
  switch (type) {
  case Type::Pred:
    return 0;
  case Type::B8:
  case Type::U8:
  case Type::S8:
  case Type::E4M3:
  case Type::E5M2:
    return 1;
  case Type::B16:
  case Type::U16:
  case Type::S16:
  case Type::F16:
  case Type::BF16:
  case Type::E4M3x2:
  case Type::E5M2x2:
    return 2;
  case Type::B64:
  case Type::U64:
  case Type::S64:
  case Type::F64:
    return 8;
  case Type::B128:
    return 16;
  default:
    return 4;
  }
}

constexpr bool isSigned(Type type) {
  return type == Type::S8 || type == Type::S16 || type == Type::S32 || type == Type::S64;
}
constexpr bool isUnsigned(Type type) {
  return type == Type::U8 || type == Type::U16 || type == Type::U32 || type == Type::U64;
}
constexpr bool isBits(Type type) { return type >= Type::B8 && type <= Type::B128; }
constexpr bool isInteger(Type type) { return isSigned(type) || isUnsigned(type); }
/// f16, bf16, f16x2 or bf16x2.
constexpr bool isHalf(Type type) { return type >= Type::F16 && type <= Type::BF16x2; }
constexpr bool isPair(Type type) { return type == Type::F16x2 || type == Type::BF16x2; }

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_TYPES_H
