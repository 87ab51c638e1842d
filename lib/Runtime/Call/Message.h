//===- Message.h - Error messages of calls ------------------------*- C++ -*-===//
//
// Formats the error message of a call, one per thread.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_RUNTIME_CALL_MESSAGE_H
#define SACCADE_LIB_RUNTIME_CALL_MESSAGE_H

#include "saccade-c/DLTensor.h"
#include "saccade/Runtime/Entry.h"

namespace saccade::runtime {

/// A short text that is returned by value.
struct ShortText {
  char text[64];
};

/// "f32", "bool", "complex64"; includes lanes and unknown codes.
ShortText describe(DLDataType type);
/// "cpu", "cuda:1".
ShortText describe(DLDevice device);
/// "an integer", "a string".
const char *describeKind(int32_t kind);

/// Sets the message "attend: argument 'k' (tensor<?x8xf32>): " followed by the formatted text; returns `status`.
[[gnu::format(printf, 4, 5)]] SaccadeStatus refuseValue(SaccadeStatus status, const SaccadeEntry &entry, int32_t index,
                                                        const char *format, ...);
/// Sets the message "attend: " followed by the formatted text; returns `status`.
[[gnu::format(printf, 3, 4)]] SaccadeStatus refuse(SaccadeStatus status, const SaccadeEntry &entry, const char *format,
                                                   ...);
/// Reports a wrong number of arguments; the message ends with the signature.
SaccadeStatus refuseCount(const SaccadeEntry &entry, int32_t count, bool needsResults);

} // namespace saccade::runtime

#endif // SACCADE_LIB_RUNTIME_CALL_MESSAGE_H
