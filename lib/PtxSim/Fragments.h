//===- Fragments.h - Fragment layouts of mma ------------------------*- C++ -*-===//
//
// Maps element i of a lane's fragment to its matrix element (PTX ISA, "Matrix fragments for mma"), with g = lane / 4
// and q = lane % 4.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_PTXSIM_FRAGMENTS_H
#define SACCADE_LIB_PTXSIM_FRAGMENTS_H

namespace saccade::ptxsim {

struct Element {
  unsigned row, column;
};

/// A, 16 x k, with `bits` per element: row and k.
constexpr Element elementOfA(unsigned bits, unsigned lane, unsigned i) {
  unsigned g = lane / 4, q = lane % 4;
  if (bits == 16)
    return {g + 8 * (i >> 1 & 1), 2 * q + (i & 1) + 8 * (i >> 2)};
  if (bits == 32)
    return {g + 8 * (i & 1), q + 4 * (i >> 1)};
  return {g + 8 * (i >> 2 & 1), 4 * q + (i & 3) + 16 * (i >> 3)};
}

/// B, k x 8: k and column.
constexpr Element elementOfB(unsigned bits, unsigned lane, unsigned i) {
  unsigned g = lane / 4, q = lane % 4;
  if (bits == 16)
    return {2 * q + (i & 1) + 8 * (i >> 1), g};
  if (bits == 32)
    return {q + 4 * i, g};
  return {4 * q + (i & 3) + 16 * (i >> 2), g};
}

/// C and D, 16 x 8.
constexpr Element elementOfC(unsigned lane, unsigned i) { return {lane / 4 + 8 * (i >> 1), 2 * (lane % 4) + (i & 1)}; }

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_FRAGMENTS_H
