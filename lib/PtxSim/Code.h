//===- Code.h - Decoded kernels -------------------------------------*- C++ -*-===//
#ifndef SACCADE_LIB_PTXSIM_CODE_H
#define SACCADE_LIB_PTXSIM_CODE_H

#include "Syntax.h"
#include "saccade/PtxSim/PtxSim.h"
#include <deque>

namespace saccade::ptxsim {

class Warp;
struct Op;

/// Executes one instruction for the lanes of `mask`, which is nonzero.
using Handler = void (*)(Warp &warp, const Op &op, uint32_t mask);

/// Location of a value in a warp's register file: one element per lane, contiguous (a predicate is a 32-bit lane mask).
/// Registers, immediates and special registers all have slots, so handlers treat them alike.
struct Slot {
  uint32_t offset = 0; ///< in bytes
  uint32_t number = 0; ///< index of its mask of undefined lanes; 0: always defined
};

/// No instruction: lanes reconverge only at the end of the function.
constexpr uint32_t noTarget = ~uint32_t(0);

/// One decoded instruction.
struct Op {
  Handler run = nullptr;
  const Slot *slots = nullptr;       ///< results, then inputs
  int64_t offset = 0;                ///< of an address
  uint32_t numbers[6] = {};          ///< decoded modifiers; meaning depends on the handler
  uint32_t target = noTarget;        ///< of a branch or call
  uint32_t reconvergence = noTarget; ///< where diverged lanes reconverge
  uint32_t line = 0;
  uint16_t mnemonic = 0;
  uint8_t results = 0, inputs = 0;
  bool guarded = false, guardNegated = false;
  bool tracksUndefined = false;  ///< the handler computes the undefined lanes itself
  bool needsDefined = false;     ///< undefined inputs are an error
  bool isMatrixProduct = false;  ///< mma.sync or wgmma.mma_async
  bool touchesMatrices = false;  ///< uses registers of wgmma.mma_async otherwise than as its operands
  uint16_t approximate = 0;      ///< error bound of the hardware's f32 result, in ulp
  bool exactForIntegers = false; ///< the hardware's result is exact if the operand is an integer
  Slot guard;

  const Slot &result(unsigned index) const { return slots[index]; }
  const Slot &input(unsigned index) const { return slots[results + index]; }
};

/// A special register that is constant in a warp; its slot is filled when the warp starts.
enum class SpecialRegister : uint8_t {
  TidX,
  TidY,
  TidZ,
  NtidX,
  NtidY,
  NtidZ,
  CtaidX,
  CtaidY,
  CtaidZ,
  NctaidX,
  NctaidY,
  NctaidZ,
  ClusterRank,
  ClusterSize,
  LaneId,
  WarpId,
  NumWarps,
  SmId,
  NumSms,
  GridId,
  LanemaskEq,
  LanemaskLt,
  LanemaskLe,
  LanemaskGt,
  LanemaskGe,
  DynamicSharedSize,
  TotalSharedSize,
};

/// Bytes to copy between the frames of a caller and a callee.
struct Transfer {
  uint32_t from, to, size;
};

/// One entry with all functions it calls.
struct Kernel {
  const Function *entry = nullptr;
  std::vector<Op> ops;
  std::deque<std::vector<Slot>> slots;
  std::vector<std::string> mnemonics;
  std::vector<std::vector<uint32_t>> branchTables; ///< of `brx.idx`
  std::vector<std::vector<Transfer>> transfers;    ///< of calls and returns

  uint32_t fileBytes = 0, numSlots = 1;
  std::vector<uint8_t> constants; ///< initial contents of every register file
  std::vector<std::pair<SpecialRegister, Slot>> specials;

  uint32_t parameterBytes = 0;
  uint32_t localBytes = 0;
  uint32_t staticShared = 0; ///< in bytes, without `sharedStart`
  uint32_t sharedAlignment = 16;
  bool usesAsync = false;   ///< has mbarriers, bulk copies or wgmma
  bool hasMatrices = false; ///< has wgmma.mma_async
};

struct Code {
  SyntaxModule module;
  Device *device;
  unsigned architecture = 80; ///< of .target sm_80
  std::map<const Variable *, uint64_t> globals;
  std::map<std::string, Kernel, std::less<>> kernels;
};

// Windows of the generic address space. Global addresses are generic addresses.
constexpr uint64_t sharedWindow = uint64_t(1) << 56, localWindow = uint64_t(2) << 56, paramWindow = uint64_t(3) << 56;
constexpr uint64_t windowMask = uint64_t(0xff) << 56;
/// Shared memory starts after the bytes reserved by the driver; address 0 is therefore out of bounds.
constexpr uint32_t sharedStart = 1024;
/// Start of local memory, for the same reason.
constexpr uint32_t localStart = 64;

/// Decodes a function as a kernel. Returns nullopt and sets `finding` on the first error.
std::optional<Kernel> decodeKernel(Code &code, const Function &function, Finding &finding);

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_CODE_H
