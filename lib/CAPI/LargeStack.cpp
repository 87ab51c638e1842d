//===- LargeStack.cpp - Room for deeply nested programs -----------------------===//
//
// Parsers, verifiers and printers recurse along the nesting of a program, and a host's thread may have little stack.
// Untouched stack costs nothing. No handlers of faults are installed: in a process that is not ours they would take
// the host's place.
//
//===----------------------------------------------------------------------===//
#include "State.h"
#include <csignal>
#include <pthread.h>

bool saccade::runOnLargeStack(llvm::function_ref<void()> body) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0)
    return false;
  auto run = [](void *body) -> void * {
    (*static_cast<llvm::function_ref<void()> *>(body))();
    return nullptr;
  };
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP})
    sigdelset(&blocked, fault);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  pthread_t thread;
  bool started = false;
  // A limit on address space may allow less than we would like.
  for (size_t bytes = size_t(512) << 20; !started && bytes >= (size_t(8) << 20); bytes /= 4)
    started =
        pthread_attr_setstacksize(&attributes, bytes) == 0 && pthread_create(&thread, &attributes, run, &body) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return started && pthread_join(thread, nullptr) == 0;
}
