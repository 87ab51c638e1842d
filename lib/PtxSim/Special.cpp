//===- Special.cpp - Special registers ------------------------------------===//

#include "Special.h"
#include "Block.h"
#include "llvm/ADT/StringSwitch.h"

using namespace saccade::ptxsim;
using S = SpecialRegister;

std::optional<SpecialRegister> saccade::ptxsim::parseSpecial(llvm::StringRef name) {
  return llvm::StringSwitch<std::optional<S>>(name)
      .Case("%tid.x", S::TidX)
      .Case("%tid.y", S::TidY)
      .Case("%tid.z", S::TidZ)
      .Case("%ntid.x", S::NtidX)
      .Case("%ntid.y", S::NtidY)
      .Case("%ntid.z", S::NtidZ)
      .Case("%ctaid.x", S::CtaidX)
      .Case("%ctaid.y", S::CtaidY)
      .Case("%ctaid.z", S::CtaidZ)
      .Case("%nctaid.x", S::NctaidX)
      .Case("%nctaid.y", S::NctaidY)
      .Case("%nctaid.z", S::NctaidZ)
      // A cluster is one block.
      .Case("%clusterid.x", S::CtaidX)
      .Case("%clusterid.y", S::CtaidY)
      .Case("%clusterid.z", S::CtaidZ)
      .Case("%nclusterid.x", S::NctaidX)
      .Case("%nclusterid.y", S::NctaidY)
      .Case("%nclusterid.z", S::NctaidZ)
      .Cases({"%cluster_ctaid.x", "%cluster_ctaid.y", "%cluster_ctaid.z", "%cluster_ctarank"}, S::ClusterRank)
      .Cases({"%cluster_nctaid.x", "%cluster_nctaid.y", "%cluster_nctaid.z", "%cluster_nctarank"}, S::ClusterSize)
      .Case("%laneid", S::LaneId)
      .Case("%warpid", S::WarpId)
      .Case("%nwarpid", S::NumWarps)
      .Case("%smid", S::SmId)
      .Case("%nsmid", S::NumSms)
      .Case("%gridid", S::GridId)
      .Case("%lanemask_eq", S::LanemaskEq)
      .Case("%lanemask_lt", S::LanemaskLt)
      .Case("%lanemask_le", S::LanemaskLe)
      .Case("%lanemask_gt", S::LanemaskGt)
      .Case("%lanemask_ge", S::LanemaskGe)
      .Case("%dynamic_smem_size", S::DynamicSharedSize)
      .Case("%total_smem_size", S::TotalSharedSize)
      .Default(std::nullopt);
}

uint32_t saccade::ptxsim::specialValue(SpecialRegister special, const Warp &warp, unsigned lane) {
  const Block &block = warp.block;
  const auto &threads = block.launch.block, &grid = block.launch.grid;
  uint32_t thread = warp.id * 32 + lane, bit = uint32_t(1) << lane;
  switch (special) {
  case S::TidX:
    return thread % threads[0];
  case S::TidY:
    return thread / threads[0] % threads[1];
  case S::TidZ:
    return thread / (threads[0] * threads[1]);
  case S::NtidX:
  case S::NtidY:
  case S::NtidZ:
    return threads[unsigned(special) - unsigned(S::NtidX)];
  case S::CtaidX:
  case S::CtaidY:
  case S::CtaidZ:
    return block.index[unsigned(special) - unsigned(S::CtaidX)];
  case S::NctaidX:
  case S::NctaidY:
  case S::NctaidZ:
    return grid[unsigned(special) - unsigned(S::NctaidX)];
  case S::ClusterRank:
    return 0;
  case S::ClusterSize:
    return 1;
  case S::LaneId:
    return lane;
  case S::WarpId:
    return warp.id;
  case S::NumWarps:
    return block.numWarps;
  case S::SmId:
  case S::GridId:
    return 0;
  case S::NumSms:
    return 1;
  case S::LanemaskEq:
    return bit;
  case S::LanemaskLt:
    return bit - 1;
  case S::LanemaskLe:
    return bit | (bit - 1);
  case S::LanemaskGt:
    return ~(bit | (bit - 1));
  case S::LanemaskGe:
    return ~(bit - 1);
  case S::DynamicSharedSize:
    return block.launch.dynamicShared;
  case S::TotalSharedSize:
    return uint32_t(block.shared.size());
  }
  return 0;
}
