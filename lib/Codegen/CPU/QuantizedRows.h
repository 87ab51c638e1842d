//===- QuantizedRows.h - Rows of quantized weights in registers ---*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_CPU_QUANTIZEDROWS_H
#define SACCADE_LIB_CODEGEN_CPU_QUANTIZEDROWS_H

#include "Emitter.h"
#include "saccade/Dialect/Attn/IR/BlockFormat.h"

namespace saccade::cpu {

/// Dequantizes rows of weights, a *unit* of elements at a time: a block, or the part of one that shares bytes.
class QuantizedRows {
public:
  /// Up to `slots` rows have their scales in scratch memory at once. `capacity`: the most rows of a task, which are
  /// copied if their bytes are not contiguous.
  QuantizedRows(Emitter &e, const attn::QuantizedWeights &weights, int64_t slots, int64_t capacity);

  /// The elements of a unit: 16 to 128, a power of two.
  int64_t unit() const { return unitElements; }
  /// The units of a row, of which the last one may have more elements than the row.
  int64_t units() const { return weights.blocks() * unitsOfBlock; }
  /// The bytes of a unit, rounded up.
  int64_t unitBytes() const { return llvm::divideCeil(traits.bytes, unitsOfBlock); }

  /// Writes the scales of the units [begin, end) of `row` to `slot`, which `load` reads. `begin` is that of a block.
  void prepare(Value row, unsigned slot, Value begin, Value end);
  /// A register of neighbours that share a scale: codes · scale + offset.
  struct Register {
    Value codes, scale;
    Value offset;  ///< null for 0
    int64_t group; ///< of the unit
  };
  /// The elements of a unit of `row`, whose scales are in `slot`, in order.
  llvm::SmallVector<Register> loadCodes(Value row, unsigned slot, Value unit);
  llvm::SmallVector<Value> load(Value row, unsigned slot, Value unit);

  // The same for products of integers; formats of GGUF only. An element is (code − bias) · scale + offset.

  /// The elements of a register of bytes.
  static constexpr int64_t bytesOfRegister = 32;
  /// The codes of a unit of `row`, 8 bits each, in order.
  llvm::SmallVector<Value> loadCodeBytes(Value row, Value unit);
  bool hasSignedCodes() const { return weights.format == attn::BlockFormat::Q8_0; }
  int64_t bias() const;
  int64_t groupElements() const { return traits.groupElements; }
  /// The scales of eight groups from `group` on, a multiple of 8, of the row in `slot`. Those beyond the last one are 0
  /// after `clearScales`.
  Value loadScales(unsigned slot, Value group) { return loadNumbers(scales, slot, group, 0); }
  Value loadOffsets(unsigned slot, Value group);
  void clearScales(int64_t slots);
  /// Prefetches `count` bytes from byte `offset` of `row` on, which may be those of later rows, into L1 or L2.
  void prefetch(Value row, Value offset, int64_t count, bool intoL1);
  /// The bytes of `elements` elements of a row, a multiple of those of a block.
  int64_t bytesOf(int64_t elements) const { return elements / traits.elements * traits.bytes; }

private:
  using Value = mlir::Value;

  Value loadNumbers(Value memref, unsigned slot, Value group, int64_t offset);
  Value loadHalves(Value row, Value block, int64_t count, int64_t offset);
  void prepareHalves(Value row, unsigned slot, Value block, int64_t count, int64_t offset, Value into);
  void prepareQ4K(Value row, unsigned slot, Value block);
  void prepareQ6K(Value row, unsigned slot, Value block);
  Value loadBytes(Value row, Value offset, int64_t count);
  Value loadHalf(Value row, Value offset);
  Value asInt(Value bytes, bool isSigned);
  Value asFloat(Value codes);
  Value nibbles(Value codes, bool isHigh, int64_t bias);
  Value numberOf(Value memref, unsigned slot, Value group);
  llvm::SmallVector<Value> loadNibblePairs(Value row, Value first, int64_t bias);
  llvm::SmallVector<Value> loadNeighbours(Value row, Value first, int64_t bias);
  llvm::SmallVector<Value> loadQ6K(Value row, Value block, Value part);
  Value zeroOf(Value row, Value block);

  Emitter &e;
  attn::QuantizedWeights weights;
  attn::BlockTraits traits;
  int64_t unitElements, unitsOfBlock, groupsOfUnit;
  Value bytes;           ///< memref of rows × their bytes, contiguous
  Value scales, offsets; ///< memrefs of slots × groups in scratch memory, or null; of Q4_K the same
};

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_QUANTIZEDROWS_H
