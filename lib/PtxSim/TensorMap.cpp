//===- TensorMap.cpp - Descriptions of tensors for bulk copies ------------===//

#include "saccade/PtxSim/TensorMap.h"
#include "TensorBox.h"
#include "llvm/Support/xxhash.h"
#include <algorithm>
#include <cstring>

using namespace saccade::ptxsim;

static constexpr char magic[8] = {'P', 't', 'x', 'S', 'i', 'm', 'T', 'M'};

unsigned saccade::ptxsim::elementBytes(TensorType type) {
  constexpr unsigned sizes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};
  return sizes[unsigned(type)];
}

namespace {
/// A tensor in 112 bytes.
struct Packed {
  uint64_t address, strides[4];
  uint32_t lastIndices[5]; ///< extents less one
  uint16_t box[5];
  uint8_t elementStrides[5], type, rank, swizzle;
};
static_assert(sizeof(Packed) + 16 <= sizeof(TensorMap));
} // namespace

std::variant<TensorMap, std::string> saccade::ptxsim::encodeTiled(const TiledTensor &tensor) {
  auto wrong = [](const std::string &what, uint64_t value, const std::string &expected) {
    return "found " + what + " " + std::to_string(value) + ", expected " + expected;
  };
  if (tensor.rank < 1 || tensor.rank > 5)
    return wrong("rank", tensor.rank, "1 to 5");
  if (unsigned(tensor.type) > unsigned(TensorType::BF16))
    return wrong("type", unsigned(tensor.type), "0 to 9");
  if (unsigned(tensor.swizzle) > 3)
    return wrong("swizzle", unsigned(tensor.swizzle), "0 to 3");
  if (tensor.address % 16)
    return wrong("address", tensor.address, "a multiple of 16");
  Packed packed = {};
  packed.address = tensor.address;
  packed.type = uint8_t(tensor.type), packed.rank = uint8_t(tensor.rank), packed.swizzle = uint8_t(tensor.swizzle);
  unsigned element = elementBytes(tensor.type);
  for (unsigned index = 0; index < tensor.rank; ++index) {
    std::string dimension = "of dimension " + std::to_string(index);
    if (tensor.extents[index] < 1 || tensor.extents[index] > uint64_t(1) << 32)
      return wrong("extent " + dimension, tensor.extents[index], "1 to 2^32");
    if (tensor.box[index] < 1 || tensor.box[index] > 256)
      return wrong("box extent " + dimension, tensor.box[index], "1 to 256");
    if (tensor.elementStrides[index] < 1 || tensor.elementStrides[index] > 8)
      return wrong("element stride " + dimension, tensor.elementStrides[index], "1 to 8");
    packed.lastIndices[index] = uint32_t(tensor.extents[index] - 1);
    packed.box[index] = uint16_t(tensor.box[index]);
    packed.elementStrides[index] = uint8_t(tensor.elementStrides[index]);
    if (index + 1 == tensor.rank)
      break;
    uint64_t stride = tensor.strides[index];
    if (stride % 16 || stride >= uint64_t(1) << 40)
      return wrong("stride of dimension " + std::to_string(index + 1), stride, "a multiple of 16 less than 2^40");
    packed.strides[index] = stride;
  }
  uint32_t inner = tensor.box[0] * element;
  if (inner % 16)
    return wrong("bytes of the box in dimension 0", inner, "a multiple of 16");
  if (uint32_t span = swizzleSpan(tensor.swizzle); tensor.swizzle != TensorSwizzle::None && inner > span)
    return wrong("bytes of the box in dimension 0", inner, "at most the " + std::to_string(span) + " of the swizzle");
  TensorMap map;
  std::memcpy(map.bytes.data(), magic, 8);
  std::memcpy(map.bytes.data() + 16, &packed, sizeof(packed));
  uint64_t hash = llvm::xxh3_64bits({map.bytes.data() + 16, sizeof(packed)});
  std::memcpy(map.bytes.data() + 8, &hash, 8);
  return map;
}

std::optional<TiledTensor> saccade::ptxsim::decodeTiled(const uint8_t *bytes) {
  Packed packed;
  uint64_t hash;
  std::memcpy(&hash, bytes + 8, 8);
  std::memcpy(&packed, bytes + 16, sizeof(packed));
  if (std::memcmp(bytes, magic, 8) != 0 || hash != llvm::xxh3_64bits({bytes + 16, sizeof(packed)}))
    return std::nullopt;
  TiledTensor tensor;
  tensor.type = TensorType(packed.type), tensor.rank = packed.rank, tensor.swizzle = TensorSwizzle(packed.swizzle);
  tensor.address = packed.address;
  for (unsigned index = 0; index < tensor.rank; ++index) {
    tensor.extents[index] = uint64_t(packed.lastIndices[index]) + 1;
    tensor.box[index] = packed.box[index];
    tensor.elementStrides[index] = packed.elementStrides[index];
    if (index + 1 < tensor.rank)
      tensor.strides[index] = packed.strides[index];
  }
  return tensor;
}

std::vector<BoxRow> saccade::ptxsim::boxRows(const TiledTensor &tensor, const std::array<int32_t, 5> &coordinates) {
  uint32_t element = elementBytes(tensor.type), counts[5] = {1, 1, 1, 1, 1};
  for (unsigned index = 1; index < tensor.rank; ++index)
    counts[index] = (tensor.box[index] + tensor.elementStrides[index] - 1) / tensor.elementStrides[index];
  std::vector<BoxRow> rows;
  uint32_t number = counts[1] * counts[2] * counts[3] * counts[4], offset = 0;
  for (uint32_t row = 0; row < number; ++row, offset += tensor.box[0] * element) {
    uint64_t address = tensor.address;
    bool isInside = true;
    for (uint32_t index = 1, rest = row; index < tensor.rank; rest /= counts[index++]) {
      int64_t position = coordinates[index] + int64_t(rest % counts[index]) * tensor.elementStrides[index];
      isInside &= position >= 0 && uint64_t(position) < tensor.extents[index];
      address += uint64_t(position) * tensor.strides[index - 1];
    }
    int64_t start = coordinates[0], extent = int64_t(tensor.extents[0]);
    int64_t first = std::clamp<int64_t>(-start, 0, tensor.box[0]),
            last = std::clamp<int64_t>(extent - start, first, tensor.box[0]);
    if (!isInside)
      last = first;
    rows.push_back({offset, uint32_t(first), uint32_t(last), address + uint64_t(start + first) * element});
  }
  return rows;
}
