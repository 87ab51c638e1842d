//===- GlobalShadow.h - Races between blocks in global memory -------*- C++ -*-===//
#ifndef SACCADE_LIB_PTXSIM_GLOBALSHADOW_H
#define SACCADE_LIB_PTXSIM_GLOBALSHADOW_H

#include "SharedShadow.h"
#include <map>

namespace saccade::ptxsim {

/// Accesses of global memory by the blocks of a launch, per byte. Blocks are ordered only by atomic accesses of one
/// address: what the earlier block did before its access happened before what the later one does after it. A relaxed
/// access counts only for what the block did before its last fence. Fences after the later access are not required, and
/// a fence is that of the whole block.
class GlobalShadow {
public:
  /// Records an access. Returns false if it races with one of another block, described in `conflict`.
  bool access(uint32_t block, uint64_t address, uint32_t size, Access access, uint32_t line, bool isRelaxed = false);
  /// Records a fence of the scope of the GPU.
  void fence(uint32_t block);

  std::string conflict;

private:
  static constexpr uint32_t none = ~uint32_t(0);
  static constexpr uint64_t pageBytes = 4096;
  /// A block, and its clock at the recorded access.
  struct Event {
    uint32_t block = none, clock = 0, line = 0;
  };
  struct Byte {
    Event write, read;
    bool isAtomic = false; ///< the write
    bool hasMoreReads = false;
  };
  using Clocks = std::map<uint32_t, uint32_t>; ///< by block: accesses with an earlier clock happened before

  std::map<uint64_t, std::vector<Byte>> pages;
  std::map<uint64_t, std::vector<Event>> moreReads; ///< by address, of other blocks
  std::map<uint64_t, Clocks> released;              ///< by address of atomic accesses
  std::map<uint32_t, Clocks> known;                 ///< by block; its own clock counts its atomic accesses and fences
  std::map<uint32_t, Clocks> fenced;                ///< `known` at the last fence of a block
};

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_GLOBALSHADOW_H
