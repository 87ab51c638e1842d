//===- Rows.h - Loops over the lanes of registers -------------------*- C++ -*-===//
#ifndef SACCADE_LIB_PTXSIM_ROWS_H
#define SACCADE_LIB_PTXSIM_ROWS_H

#include "Warp.h"
#include <cstring>

namespace saccade::ptxsim {

/// Bytes per lane of a register; 8-bit values take 16 bits. 0 for predicates.
constexpr unsigned rowBytes(Type type) { return bytesOf(type) == 1 ? 2 : bytesOf(type); }

/// Writes the values of the lanes of `mask` to a row.
template <typename T> inline void assign(T *row, const T *values, uint32_t mask) {
  if (mask == ~uint32_t(0)) {
    std::memcpy(row, values, 32 * sizeof(T));
    return;
  }
  forLanes(mask, [&](unsigned lane) { row[lane] = values[lane]; });
}

/// result = F()(inputs...) in every active lane. F is also evaluated for inactive lanes, whose inputs are arbitrary, so
/// it must not trap.
template <typename R, typename T, typename F> void mapUnary(Warp &warp, const Op &op, uint32_t mask) {
  const T *a = warp.row<T>(op.input(0));
  R values[32];
  for (unsigned lane = 0; lane < 32; ++lane)
    values[lane] = F()(a[lane]);
  assign(warp.row<R>(op.result(0)), values, mask);
}

template <typename R, typename T, typename F, typename U = T> void mapBinary(Warp &warp, const Op &op, uint32_t mask) {
  const T *a = warp.row<T>(op.input(0));
  const U *b = warp.row<U>(op.input(1));
  R values[32];
  for (unsigned lane = 0; lane < 32; ++lane)
    values[lane] = F()(a[lane], b[lane]);
  assign(warp.row<R>(op.result(0)), values, mask);
}

template <typename R, typename T, typename F, typename C = T> void mapTernary(Warp &warp, const Op &op, uint32_t mask) {
  const T *a = warp.row<T>(op.input(0)), *b = warp.row<T>(op.input(1));
  const C *c = warp.row<C>(op.input(2));
  R values[32];
  for (unsigned lane = 0; lane < 32; ++lane)
    values[lane] = F()(a[lane], b[lane], c[lane]);
  assign(warp.row<R>(op.result(0)), values, mask);
}

/// Mask of the lanes for which `test(lane)` is true.
template <typename F> inline uint32_t lanesWhere(F test) {
  uint8_t bytes[32];
  for (unsigned lane = 0; lane < 32; ++lane)
    bytes[lane] = test(lane) ? 0xff : 0;
  uint32_t mask = 0;
  for (unsigned part = 0; part < 4; ++part) {
    uint64_t eight;
    std::memcpy(&eight, bytes + 8 * part, 8);
    // The multiplication gathers the lowest bit of each byte in the top byte.
    mask |= uint32_t(((eight & 0x0101010101010101) * 0x0102040810204080) >> 56) << (8 * part);
  }
  return mask;
}

/// Negates a predicate.
void notPredicate(Warp &warp, const Op &op, uint32_t mask);

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_ROWS_H
