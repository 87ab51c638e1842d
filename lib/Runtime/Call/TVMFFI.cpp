//===- TVMFFI.cpp - Calls through TVM-FFI -------------------------------------===//
//
// Looks up TVM-FFI's library only when an error is raised, so that libraries may be loaded in any order and work
// without TVM-FFI.
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
  if (!found) // it may be loaded with RTLD_LOCAL
    if (void *library = dlopen("libtvm_ffi.so", RTLD_LAZY | RTLD_NOLOAD)) {
      found = dlsym(library, name);
      dlclose(library); // the host holds another reference
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
  else // without TVM-FFI the caller receives -1 only, so the reason is printed
    fprintf(stderr, "%s\n", saccade_entry_last_error());
  return -1;
}
