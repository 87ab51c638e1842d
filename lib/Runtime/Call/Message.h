//===- Message.h - Why a call is refused --------------------------*- C++ -*-===//
//
// One message a thread, written only where something is wrong.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_RUNTIME_CALL_MESSAGE_H
#define SACCADE_LIB_RUNTIME_CALL_MESSAGE_H

#include "saccade-c/DLTensor.h"
#include "saccade/Runtime/Entry.h"

namespace saccade::runtime {

/// A few words made on the spot.
struct ShortText {
  char text[64];
};

/// "f32", "bool", "complex64"; lanes and unknown codes are shown too.
ShortText describe(DLDataType type);
/// "cpu", "cuda:1".
ShortText describe(DLDevice device);
/// "an int", "a string".
const char *describeKind(int32_t kind);

/// "attend: argument 'k' (tensor<?x8xf32>): " and what the format makes.
[[gnu::format(printf, 4, 5)]] SaccadeStatus refuseValue(SaccadeStatus status, const SaccadeEntry &entry, int32_t index,
                                                        const char *format, ...);
/// "attend: " and what the format makes.
[[gnu::format(printf, 3, 4)]] SaccadeStatus refuse(SaccadeStatus status, const SaccadeEntry &entry, const char *format,
                                                   ...);
/// The number of values is wrong: the message ends with the whole signature.
SaccadeStatus refuseCount(const SaccadeEntry &entry, int32_t count, bool needsResults);

} // namespace saccade::runtime

#endif // SACCADE_LIB_RUNTIME_CALL_MESSAGE_H
