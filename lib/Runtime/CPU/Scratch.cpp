//===- Scratch.cpp - Scratch memory of tasks ----------------------------------===//
//
// Scratch comes from the cache of the thread (Memory.cpp).
//
//===----------------------------------------------------------------------===//
#include "Scratch.h"
#include "saccade/Runtime/Runtime.h"

using namespace saccade::runtime;

static thread_local int depth;

ScratchScope::ScratchScope(int64_t bytes) : level(depth++), memory(saccade_allocate(bytes)) {}

ScratchScope::~ScratchScope() {
  saccade_release(memory);
  --depth;
}

const void *ScratchScope::thread() { return &depth; }
