//===- TypeDispatch.h - Selects a handler by type -------------------*- C++ -*-===//
#ifndef SACCADE_LIB_PTXSIM_TYPEDISPATCH_H
#define SACCADE_LIB_PTXSIM_TYPEDISPATCH_H

#include "Decoder.h"
#include "Rows.h"
#include <type_traits>

namespace saccade::ptxsim {

/// Returns choose.operator()<T>() for the C++ type T of an integer or bit type of at least 16 bits (bits: unsigned),
/// null for other types.
template <typename F> Handler dispatchInteger(Type type, F choose) {
  switch (type) {
  case Type::U16:
  case Type::B16:
    return choose.template operator()<uint16_t>();
  case Type::U32:
  case Type::B32:
    return choose.template operator()<uint32_t>();
  case Type::U64:
  case Type::B64:
    return choose.template operator()<uint64_t>();
  case Type::S16:
    return choose.template operator()<int16_t>();
  case Type::S32:
    return choose.template operator()<int32_t>();
  case Type::S64:
    return choose.template operator()<int64_t>();
  default:
    return nullptr;
  }
}

template <typename T> using Unsigned = std::make_unsigned_t<T>;

/// The integer type of twice the width.
template <typename T>
using Wide =
    std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
                       std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                                          std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;

/// Emits an op with one result and `inputs` inputs that all have `type`.
inline bool emitSame(Decoder &decoder, Type type, unsigned inputs, Handler handler) {
  if (!handler)
    return decoder.fail("the type is not simulated for this instruction");
  if (!decoder.expectOperands(inputs + 1))
    return false;
  decoder.result(decoder.at(0), type);
  for (unsigned index = 1; index <= inputs; ++index)
    decoder.input(decoder.at(index), type);
  return decoder.emit(handler);
}

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_TYPEDISPATCH_H
