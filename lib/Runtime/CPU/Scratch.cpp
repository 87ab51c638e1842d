//===- Scratch.cpp - The memory of running tasks ------------------------------===//
//
// Memory that is released is kept by its thread (Memory.cpp), so that the next task finds it again.
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
