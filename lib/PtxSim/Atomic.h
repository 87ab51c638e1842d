//===- Atomic.h - Operations on memory ------------------------------*- C++ -*-===//
#ifndef SACCADE_LIB_PTXSIM_ATOMIC_H
#define SACCADE_LIB_PTXSIM_ATOMIC_H

#include "Decoder.h"

namespace saccade::ptxsim {

enum class AtomicOperation : uint8_t { Add, Min, Max, And, Or, Xor, Exchange, CompareAndSwap, Inc, Dec };

/// The new value in memory. `a` is the operand, `b` the second operand of cas.
uint64_t combine(AtomicOperation operation, Type type, uint64_t old, uint64_t a, uint64_t b, bool inGlobal);

/// Consumes .add, .min, ...
std::optional<AtomicOperation> takeOperation(Decoder &decoder);
/// Whether `atom` has the operation on this type, with or without .noftz.
bool isAtomicOn(AtomicOperation operation, Type type, bool noFlush);

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_ATOMIC_H
