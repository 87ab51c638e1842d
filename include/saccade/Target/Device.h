//===- Device.h - PTX and cubin of the device module --------------*- C++ -*-===//
//
// The last stage for GPUs: translates the device module to LLVM IR and PTX, and assembles a cubin if ptxas is
// available.
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
class ThreadPoolInterface;
} // namespace llvm

namespace saccade {

/// Translates the device module of a compiled program to LLVM IR for `target` and optimises it. Returns null after a
/// diagnostic if there is no device module, if it has ops outside the LLVM and NVVM dialects, or if it calls libdevice
/// functions and `libdevice` cannot be read. An empty path selects `findLibdevice()`.
std::unique_ptr<llvm::Module> translateDevice(mlir::ModuleOp program, llvm::LLVMContext &context,
                                              const GPUTarget &target, llvm::StringRef libdevice = "");

/// Does what translateDevice does, except for optimizations.
std::unique_ptr<llvm::Module> translateUnoptimizedDevice(mlir::ModuleOp program, llvm::LLVMContext &context,
                                                         const GPUTarget &target, llvm::StringRef libdevice = "");

/// The path of libdevice, NVIDIA's bitcode library of math functions: next to `ptxas` if that is not empty, next to the
/// ptxas of the PATH, or in the default folder of the CUDA toolkit. Empty if it is not found.
std::string findLibdevice(llvm::StringRef ptxas = "");

/// Links the libdevice functions that `module` calls into it. A module that calls none is unchanged, and `path` is not
/// read.
llvm::Error linkLibdevice(llvm::Module &module, llvm::StringRef path);

/// Whether a module declares libdevice functions that it does not define.
bool needsLibdevice(const llvm::Module &module);

/// A kernel of the device module.
struct KernelInfo {
  std::string name;
  std::string family; ///< kernel family: "sm_80", or "simt" for the portable kernels
  std::string notes;  ///< as `describeNotes`
};

/// Why a task or kernel has no faster kernel, or which calls launch it: ", without warpgroups: elements are f32". Empty
/// if there is nothing to say.
std::string describeNotes(mlir::Operation *kernel);

/// The kernels of a compiled program.
std::vector<KernelInfo> listKernels(mlir::ModuleOp program);

/// Optimizes a module of `translateUnoptimizedDevice` and generates its PTX, kernels in parallel by tasks of `threads`.
/// May be called by one of these tasks. The PTX does not depend on the number of threads. The module must not be used
/// afterwards.
llvm::Expected<std::string> generatePTX(llvm::Module &module, const GPUTarget &target,
                                        llvm::ThreadPoolInterface &threads);

/// Translates the device module of a compiled program to PTX for `target`, with at most one thread for each processor;
/// `libdevice` as above. Fails after a diagnostic.
mlir::FailureOr<std::string> emitPTX(mlir::ModuleOp program, const GPUTarget &target, llvm::StringRef libdevice = "");

/// Erases the device module of a compiled program and leaves the host code.
void eraseDevice(mlir::ModuleOp program);

/// Resource usage of a kernel, from the assembler's report.
struct KernelReport {
  std::string name;
  int64_t registers = 0;                   ///< per thread
  int64_t spillStores = 0, spillLoads = 0; ///< bytes
  int64_t stack = 0;                       ///< stack frame in bytes per thread, spills included
};

/// An assembled device program.
struct Cubin {
  std::string bytes;
  std::vector<KernelReport> kernels;
  /// The assembler's performance warnings: C7508, C7510 to C7515, C7519 (such as serialised wgmma).
  std::vector<std::string> warnings;
};

/// Fails with the output of `ptxas --version` unless that is the version of NVIDIA's assembler.
llvm::Error checkAssembler(llvm::StringRef ptxas);

/// Runs `ptxas`, the path of NVIDIA's assembler, on `ptx`. A failure returns the assembler's messages.
llvm::Expected<Cubin> assemble(llvm::StringRef ptx, const GPUTarget &target, llvm::StringRef ptxas);

/// Embeds the kernels for `target` in the translated host code of a program, whose entry tables refer to them. `cubin`
/// may be empty.
void addKernels(llvm::Module &host, const GPUTarget &target, llvm::StringRef ptx, llvm::StringRef cubin);

/// The symbol of the embedded kernels, of type SaccadeKernels (include/saccade/Runtime/Entry.h).
inline constexpr llvm::StringLiteral kernelsSymbol = "saccade.kernels";

/// Parses the output of `ptxas -v`.
void readAssemblerLog(llvm::StringRef log, Cubin &into);

} // namespace saccade

#endif // SACCADE_TARGET_DEVICE_H
