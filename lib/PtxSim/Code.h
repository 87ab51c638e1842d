//===- Code.h - Kernels in the compact form that is executed --------*- C++ -*-===//
#ifndef SACCADE_LIB_PTXSIM_CODE_H
#define SACCADE_LIB_PTXSIM_CODE_H

#include "Syntax.h"
#include "saccade/PtxSim/PtxSim.h"
#include <deque>

namespace saccade::ptxsim {

class Warp;
struct Op;

/// Executes one instruction for the lanes of `mask`, which is not empty.
using Handler = void (*)(Warp &warp, const Op &op, uint32_t mask);

/// Where a value lives in a warp's register file: 32 numbers side by side, a lane each (a predicate: one mask of 32
/// bits). Registers, immediates and special registers all live there, so that handlers see no difference.
struct Slot {
  uint32_t offset = 0; ///< in bytes
  uint32_t number = 0; ///< of its mask of undefined lanes; 0 is never undefined
};

/// No instruction: where lanes meet again only at the end.
constexpr uint32_t noTarget = ~uint32_t(0);

/// One decoded instruction.
struct Op {
  Handler run = nullptr;
  const Slot *slots = nullptr; ///< results, then inputs
  int64_t offset = 0;          ///< of an address
  uint32_t numbers[6] = {};    ///< what the family of the instruction makes of its modifiers
  uint32_t target = noTarget;   ///< of a branch or call
  uint32_t reconvergence = noTarget;  ///< where lanes that branch differently meet again
  uint32_t line = 0;
  uint16_t mnemonic = 0;
  uint8_t results = 0, inputs = 0;
  bool guarded = false, guardNegated = false;
  bool tracksUndefined = false; ///< the handler itself tracks which lanes are undefined
  bool needsDefined = false;   ///< undefined inputs are an error
  uint16_t approximate = 0;    ///< how many units in the last place of an f32 result the hardware may be off
  Slot guard;

  const Slot &result(unsigned index) const { return slots[index]; }
  const Slot &input(unsigned index) const { return slots[results + index]; }
};

/// A special register and the slot that is filled at the start of a warp.
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

/// Bytes to copy between the frames of a caller and a function.
struct Transfer {
  uint32_t from, to, size;
};

/// One entry with all functions that it calls.
struct Kernel {
  const Function *entry = nullptr;
  std::vector<Op> ops;
  std::deque<std::vector<Slot>> slots;
  std::vector<std::string> mnemonics;
  std::vector<std::vector<uint32_t>> branchTables; ///< of `brx.idx`
  std::vector<std::vector<Transfer>> transfers;    ///< of calls and returns

  uint32_t fileBytes = 0, numSlots = 1;
  std::vector<uint8_t> constants; ///< the start of every register file
  std::vector<std::pair<SpecialRegister, Slot>> specials;

  uint32_t parameterBytes = 0;
  uint32_t localBytes = 0;
  uint32_t staticShared = 0; ///< bytes, without the window's start
  uint32_t sharedAlignment = 16;
};

struct Code {
  SyntaxModule module;
  Device *device;
  unsigned architecture = 80; ///< of .target sm_80
  std::map<const Variable *, uint64_t> globals;
  std::map<std::string, Kernel, std::less<>> kernels;
};

// Windows of the generic address space. Addresses of global memory are generic as they are.
constexpr uint64_t sharedWindow = uint64_t(1) << 56, localWindow = uint64_t(2) << 56, paramWindow = uint64_t(3) << 56;
constexpr uint64_t windowMask = uint64_t(0xff) << 56;
/// Shared memory begins after what the driver keeps for itself; so address 0 is foreign, as null should be.
constexpr uint32_t sharedStart = 1024;
/// The same for local memory.
constexpr uint32_t localStart = 64;

/// Decodes a function as a kernel. The first error goes into `finding`.
std::optional<Kernel> decodeKernel(Code &code, const Function &function, Finding &finding);

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_CODE_H
