//===- Npy.h - NumPy's file format --------------------------------*- C++ -*-===//
//
// Reads and writes .npy, versions 1 to 3 (NumPy Enhancement Proposal 1).
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_SUPPORT_NPY_H
#define SACCADE_SUPPORT_NPY_H

#include "saccade/Support/HostTensor.h"
#include "llvm/Support/raw_ostream.h"

namespace saccade {

/// Reads `bytes`, the contents of a file. Element types: bool, int8 to int64, float16, float32, float64, little-endian.
/// NumPy has no bf16: 16-bit unsigned integers and 16-bit raw data (`V2`) come as bf16. Any other contents, truncated
/// or damaged, give an error that says what is wrong. Column-major data stays so.
llvm::Expected<HostTensor> parseNpy(llvm::StringRef bytes);

/// Reads the file at `path`; errors name it.
llvm::Expected<HostTensor> readNpy(llvm::StringRef path);

/// Writes version 1.0, row-major. bf16 is widened to float32, which is exact; index is int64.
llvm::Error writeNpy(const HostTensor &tensor, llvm::raw_ostream &os);

} // namespace saccade

#endif // SACCADE_SUPPORT_NPY_H
