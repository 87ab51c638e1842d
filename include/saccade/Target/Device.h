//===- Device.h - From the device module to PTX and cubin ---------*- C++ -*-===//
//
// The last stage for GPUs: LLVM IR, PTX, and what NVIDIA's assembler makes of it where there is one.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_TARGET_DEVICE_H
#define SACCADE_TARGET_DEVICE_H

#include "mlir/IR/BuiltinOps.h"
#include "saccade/Support/GPUTarget.h"
#include "llvm/Support/Error.h"
#include <memory>
#include <string>
#include <vector>

namespace llvm {
class LLVMContext;
class Module;
} // namespace llvm

namespace saccade {

/// Translates the device module of a compiled program to LLVM IR for `target`, and optimises it. Null after a diagnostic
/// where there is no device module, it holds anything but the LLVM and NVVM dialects, or it calls functions of libdevice
/// and `libdevice` cannot be read. Where that path is empty, `findLibdevice` says it.
std::unique_ptr<llvm::Module> translateDevice(mlir::ModuleOp program, llvm::LLVMContext &context,
                                              const GPUTarget &target, llvm::StringRef libdevice = "");

/// The path of NVIDIA's library of math functions in LLVM's bitcode, which comes with ptxas: beside `ptxas`, where that
/// is not empty, beside the one of the PATH, or in the usual folder of the CUDA toolkit; empty where it is in none.
std::string findLibdevice(llvm::StringRef ptxas = "");

/// Links the functions of libdevice that `module` calls into it; one that calls none is left as it is, and `path` is not
/// looked at.
llvm::Error linkLibdevice(llvm::Module &module, llvm::StringRef path);

/// Whether a module calls functions of libdevice that are not in it yet.
bool needsLibdevice(const llvm::Module &module);

/// What a kernel is.
struct KernelInfo {
  std::string name;
  std::string family; ///< who made its code: "sm_80", or "simt", the portable form
};

/// The kernels of a compiled program.
std::vector<KernelInfo> listKernels(mlir::ModuleOp program);

/// The PTX of a translated device module, which must not be used afterwards.
llvm::Expected<std::string> emitPTX(llvm::Module &module, const GPUTarget &target);

/// Takes the device module out of a compiled program: what is left is host code.
void eraseDevice(mlir::ModuleOp program);

/// What the assembler says of a kernel.
struct KernelReport {
  std::string name;
  int64_t registers = 0;                  ///< of a thread
  int64_t spillStores = 0, spillLoads = 0; ///< bytes
  int64_t stack = 0;                      ///< bytes of a thread's frame, spills included
};

/// A program for the device, ready to be loaded.
struct Cubin {
  std::string bytes;
  std::vector<KernelReport> kernels;
  /// Its warnings that cost speed, in its words: C7508, C7510 to C7515, C7519 (serialised matrix products and the like).
  std::vector<std::string> warnings;
};

/// Runs NVIDIA's assembler `ptxas` (the path of the program) on `ptx`. An error with its own words where it refuses it.
llvm::Expected<Cubin> assemble(llvm::StringRef ptx, const GPUTarget &target, llvm::StringRef ptxas);

/// Puts the kernels for `target` into the translated host code of a program, whose tables of entries point to them.
/// `cubin` may be empty.
void addKernels(llvm::Module &host, const GPUTarget &target, llvm::StringRef ptx, llvm::StringRef cubin);

/// The symbol of these kernels, of the type SaccadeKernels (include/saccade/Runtime/Entry.h).
inline constexpr llvm::StringLiteral kernelsSymbol = "saccade.kernels";

/// Joins the host code of one program for several architectures, each with its kernels, into the first of them: its
/// entries know the others' as their alternatives.
llvm::Error joinArchitectures(llvm::Module &into, std::vector<std::unique_ptr<llvm::Module>> others,
                              llvm::ArrayRef<std::string> entries);

/// Reads what `ptxas -v` printed.
void readAssemblerLog(llvm::StringRef log, Cubin &into);

} // namespace saccade

#endif // SACCADE_TARGET_DEVICE_H
