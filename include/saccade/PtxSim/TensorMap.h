//===- TensorMap.h - Descriptions of tensors for bulk copies --------*- C++ -*-===//
#ifndef SACCADE_PTXSIM_TENSORMAP_H
#define SACCADE_PTXSIM_TENSORMAP_H

#include <array>
#include <cstdint>
#include <string>
#include <variant>

namespace saccade::ptxsim {

/// Element types, numbered as CUtensorMapDataType.
enum class TensorType : uint8_t { U8, U16, U32, S32, U64, S64, F16, F32, F64, BF16 };

/// How 16-byte chunks of a box are permuted in shared memory, numbered as CUtensorMapSwizzle.
enum class TensorSwizzle : uint8_t { None, Bytes32, Bytes64, Bytes128 };

/// The arguments of cuTensorMapEncodeTiled without interleaving. Dimension 0 is the innermost and is contiguous.
struct TiledTensor {
  TensorType type = TensorType::BF16;
  uint32_t rank = 2;                    ///< 1 to 5
  uint64_t address = 0;                 ///< of global memory
  std::array<uint64_t, 5> extents = {}; ///< in elements
  std::array<uint64_t, 4> strides = {}; ///< in bytes, of dimensions 1 to rank - 1
  std::array<uint32_t, 5> box = {};     ///< in elements
  std::array<uint32_t, 5> elementStrides = {1, 1, 1, 1, 1};
  TensorSwizzle swizzle = TensorSwizzle::None;
};

/// The opaque parameter of a kernel, 128 bytes. Only PtxSim can read it.
struct alignas(64) TensorMap {
  std::array<uint8_t, 128> bytes = {};
};

/// Makes a tensor map, or says which argument cuTensorMapEncodeTiled would refuse.
std::variant<TensorMap, std::string> encodeTiled(const TiledTensor &tensor);

} // namespace saccade::ptxsim

#endif // SACCADE_PTXSIM_TENSORMAP_H
