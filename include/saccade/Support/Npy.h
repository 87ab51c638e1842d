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

/// Parses the contents of a file. Element types: bool, int8 to int64, float16, float32, float64, little-endian. NumPy
/// has no bf16: uint16 and 16-bit raw data (`V2`) are read as bf16. It has no floats of 8 bits: uint8 and 8-bit raw
/// data (`V1`) are read as f8E4M3FN, and `f1`, which ml_dtypes writes, as f8E5M2. Column-major data stays column-major.
/// Unsupported, truncated or malformed contents are an error.
llvm::Expected<HostTensor> parseNpy(llvm::StringRef bytes);

/// Reads the file at `path`; errors include the path.
llvm::Expected<HostTensor> readNpy(llvm::StringRef path);

/// Writes version 1.0, row-major. bf16 and floats of 8 bits are written as float32 (exact), index as int64.
llvm::Error writeNpy(const HostTensor &tensor, llvm::raw_ostream &os);

} // namespace saccade

#endif // SACCADE_SUPPORT_NPY_H
