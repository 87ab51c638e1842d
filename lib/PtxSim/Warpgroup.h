//===- Warpgroup.h - Instructions of four warps ---------------------*- C++ -*-===//
#ifndef SACCADE_LIB_PTXSIM_WARPGROUP_H
#define SACCADE_LIB_PTXSIM_WARPGROUP_H

#include "Code.h"

namespace saccade::ptxsim {

class Block;
class Decoder;
class Warp;

/// Four warps, the first one a multiple of four.
struct Warpgroup {
  static constexpr unsigned size = 4;

  uint32_t arrived = 0;   ///< warps that wait at `op`
  const Op *op = nullptr; ///< wgmma.mma_async or setmaxnreg
  uint32_t agent = 0;     ///< of its wgmma; 0: none yet
};

/// A warp arrives at an instruction that its warpgroup executes together. Returns true for the last one, whose caller
/// executes it for all four and calls `proceed`. All four must have executed the same wgmma.fence, commit_group and
/// wait_group: PTX leaves undefined what happens if threads of a warpgroup evaluate the condition of one differently.
bool meet(Warp &warp, const Op &op, uint32_t mask);
void proceed(Block &block, Warpgroup &group);
/// The same check where a warp exits.
void leaveWarpgroup(Warp &warp);
/// Reports a finding and returns false unless all 32 lanes of the warp execute the instruction.
bool requireAllLanes(Warp &warp, uint32_t mask);

/// How a warp uses the registers of wgmma.mma_async. A register may be used otherwise only while no operation that has
/// it is under way, and then needs a wgmma.fence before the next one.
struct MatrixRegisters {
  struct Register {
    uint16_t results = 0, operands = 0; ///< operations under way that write or read it
    uint32_t touched = 0;               ///< 1 + `fences` when another instruction last used it
    const Op *last = nullptr;           ///< the last wgmma that accumulated in it
    uint32_t lastFences = 0;            ///< `fences` at that time
  };
  struct Operation {
    const Op *op;
    uint32_t group;
  };
  std::vector<Register> registers;   ///< by slot number
  std::vector<Operation> operations; ///< under way
  uint32_t fences = 0;               ///< executed wgmma.fence
  uint32_t group = 0;                ///< committed groups
  std::vector<const Op *> executed;  ///< wgmma.fence, commit_group and wait_group since the warps last met

  /// Checks and records the use of an instruction's registers.
  void touch(Warp &warp, const Op &op);
};

/// The matrix operands of a wgmma.mma_async.
struct MatrixOperands {
  unsigned results, firstOfA, registersOfA; ///< accumulators; inputs with fragments of A
};
MatrixOperands matrixOperands(const Op &op);

/// wgmma.mma_async, after the first modifier.
bool decodeMatrixMultiply(Decoder &decoder);

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_WARPGROUP_H
