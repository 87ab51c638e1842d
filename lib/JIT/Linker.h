//===- Linker.h - Object code into this process -------------------*- C++ -*-===//
#ifndef SACCADE_LIB_JIT_LINKER_H
#define SACCADE_LIB_JIT_LINKER_H

#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"

namespace saccade {

/// Links an object of ours into this process. It finds the runtime that this library carries, and libm in the process.
llvm::Expected<std::unique_ptr<llvm::orc::LLJIT>> linkObject(std::unique_ptr<llvm::MemoryBuffer> object);

} // namespace saccade

#endif // SACCADE_LIB_JIT_LINKER_H
