//===- TVMFFI.cpp - Calls that come through TVM-FFI ---------------------------===//
//
// Its library is found when there is an error to raise, not when ours is loaded: then the order in which a process
// loads them does not matter, and without it everything else still works.
//
//===----------------------------------------------------------------------===//
#include "saccade/Runtime/Entry.h"
#include <cstdio>
#include <cstring>
#include <dlfcn.h>

using SetRaised = void (*)(const char *kind, const char *message);

static SetRaised findSetRaised() {
  constexpr const char *name = "TVMFFIErrorSetRaisedFromCStr";
  void *found = dlsym(RTLD_DEFAULT, name);
  if (!found) // loaded, but for its host alone
    if (void *library = dlopen("libtvm_ffi.so", RTLD_LAZY | RTLD_NOLOAD)) {
      found = dlsym(library, name);
      dlclose(library); // the host keeps it
    }
  return reinterpret_cast<SetRaised>(found);
}

int32_t saccade_entry_call_tvm_ffi(const SaccadeEntry *entry, const void *args, int32_t count, void *result) {
  if (result)
    memset(result, 0, sizeof(SaccadeArgument)); // None
  SaccadeStatus status = saccade_entry_call(entry, static_cast<const SaccadeArgument *>(args), count);
  if (status == SaccadeSuccess)
    return 0;
  if (SetRaised setRaised = findSetRaised())
    setRaised(status == SaccadeTypeError     ? "TypeError"
              : status == SaccadeValueError  ? "ValueError"
              : status == SaccadeOutOfMemory ? "MemoryError"
              : status == SaccadeUnsupported ? "NotImplementedError"
                                             : "RuntimeError",
              saccade_entry_last_error());
  else // Whoever calls like TVM-FFI without it gets the number and has to look here for the reason.
    fprintf(stderr, "%s\n", saccade_entry_last_error());
  return -1;
}
