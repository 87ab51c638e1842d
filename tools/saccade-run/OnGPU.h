//===- OnGPU.h - Calls on a GPU -----------------------------------*- C++ -*-===//
#ifndef SACCADE_TOOLS_RUN_ONGPU_H
#define SACCADE_TOOLS_RUN_ONGPU_H

#include "Report.h"

namespace saccade::run {

/// This machine has no NVIDIA driver.
class NoDevice : public llvm::ErrorInfo<NoDevice, llvm::StringError> {
public:
  explicit NoDevice(const llvm::Twine &message) : ErrorInfo(message, llvm::inconvertibleErrorCode()) {}
  static char ID;
};

/// Makes the call on the first GPU of this machine; copies inputs to the device and results to the host.
llvm::Error runOnGPU(const Call &call, llvm::ArrayRef<HostTensor> inputs, llvm::MutableArrayRef<HostTensor> results);

} // namespace saccade::run

#endif // SACCADE_TOOLS_RUN_ONGPU_H
