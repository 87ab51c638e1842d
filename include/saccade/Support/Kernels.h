//===- Kernels.h - Conventions of kernels and their launches ------*- C++ -*-===//
//
// Attribute names and constants that code generation, the target stage and the runtime share.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_SUPPORT_KERNELS_H
#define SACCADE_SUPPORT_KERNELS_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>

namespace saccade {

/// Threads per CTA of a kernel without `threadsAttr`; a CTA processes one work item of a task, if `itemCounterAttr`
/// does not say otherwise.
inline constexpr int64_t threadsPerCTA = 128;

/// On a kernel: its threads per CTA, i64.
inline constexpr llvm::StringLiteral threadsAttr = "attn.threads";

/// On a kernel: the name of another kernel of the same task, to launch in its place if tensor maps of the operands can
/// be made and its other conditions hold (`equalExtentsAttr`, `fewItemsAttr`). Both take the parameters of the task.
/// The other one may in turn refer to a third one. Of those whose conditions hold, the host launches the one with the
/// most conditions.
inline constexpr llvm::StringLiteral bulkKernelAttr = "attn.bulk_kernel";

/// What the name of that kernel adds to the name of the other one.
inline constexpr llvm::StringLiteral bulkKernelSuffix = "_sm_90a";

/// On a kernel that another one refers to by `bulkKernelAttr`, if not all dense tensors have tensor maps: which calls
/// launch it, a string: "launched if rows are multiples of 16 bytes".
inline constexpr llvm::StringLiteral bulkConditionAttr = "attn.bulk_condition";

/// On a kernel that another one refers to by `bulkKernelAttr`: its tensor maps, which are its first parameters. An
/// array with one array of i64 each: the index of the capture that the map describes, or -1 - i for constant i of
/// `mappedConstantsAttr`, then the plan of `runtime::BulkTensor::describe`.
inline constexpr llvm::StringLiteral tensorMapsAttr = "attn.tensor_maps";

/// On a kernel with tensor maps: the constants of the device module that they describe. An array with an array of two
/// attributes each: the symbol, whose address the host asks the driver for, and the type of the view of it that a map
/// describes, a memref with static shape, strides and offset.
inline constexpr llvm::StringLiteral mappedConstantsAttr = "attn.mapped_constants";

/// On a kernel with tensor maps: pairs of the index of a capture and a dimension, i64, or -1 for a capture that is a
/// number. It computes the right results only if these extents and numbers are all equal.
inline constexpr llvm::StringLiteral equalExtentsAttr = "attn.equal_extents";

/// Unit attribute of a kernel with tensor maps, which is launched only for fewer items than the GPU has
/// multiprocessors.
inline constexpr llvm::StringLiteral fewItemsAttr = "attn.few_items";

/// On a kernel that divides items: the number of CTAs of an item, i64. CTA i computes part i mod n of item i / n.
inline constexpr llvm::StringLiteral partsAttr = "attn.parts";

/// On a kernel whose CTAs take items from a counter until none is left: its last two parameters are the number of items
/// and the address of the counter, four bytes in device memory that are 0 at the start of a launch. If there is a CTA
/// for each item, the kernel does not read the counter, and the address is 0. Other kernels have a CTA for each item.
inline constexpr llvm::StringLiteral itemCounterAttr = "attn.item_counter";

/// Bytes of a tensor map, and their alignment.
inline constexpr int64_t tensorMapBytes = 128, tensorMapAlignment = 64;

/// The most bytes of parameters of a kernel. More than the first number require PTX 8.1, which drivers since CUDA 12.1
/// accept (PTX ISA, ".param").
inline constexpr int64_t parameterBytesBeforePTX81 = 4352, maxParameterBytes = 32764;

/// On a kernel: its dynamic shared memory in bytes, i64; 0 if absent.
inline constexpr llvm::StringLiteral sharedBytesAttr = "attn.shared_bytes";

/// On a task or a kernel: the kernel family of its attention, a string: "v4 packed, f32 multiply-add", "sm_80".
inline constexpr llvm::StringLiteral familyAttr = "attn.family";

/// On a kernel of attention, of a gradient or of a matmul, if the target has bulk copies: why it has no
/// `bulkKernelAttr`, a string: "rows are copied in a loop".
inline constexpr llvm::StringLiteral bulkObstacleAttr = "attn.bulk_obstacle";

/// On a kernel of a gradient that has tensor cores: why its tiles are not in registers, a string: "head size 72 is not
/// a multiple of 16".
inline constexpr llvm::StringLiteral registerObstacleAttr = "attn.register_obstacle";

/// On a function of the device module: marks a kernel.
inline constexpr llvm::StringLiteral kernelAttr = "attn.kernel";

/// The symbol name of a program's device module.
inline constexpr llvm::StringLiteral deviceModule = "saccade_device";

} // namespace saccade

#endif // SACCADE_SUPPORT_KERNELS_H
