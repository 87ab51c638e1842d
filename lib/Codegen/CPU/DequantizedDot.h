//===- DequantizedDot.h - Few rows times quantized weights --------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_CPU_DEQUANTIZEDDOT_H
#define SACCADE_LIB_CODEGEN_CPU_DEQUANTIZEDDOT_H

#include "DequantizedMatmul.h"

namespace saccade::cpu {

/// Emits emitDequantizedDot, with weights in f32.
class DotKernel {
public:
  DotKernel(Emitter &e, QuantizedRows &weights, mlir::Value lhs, mlir::Value result, int64_t maxColumns);
  virtual ~DotKernel() = default;
  void run();

protected:
  using Value = mlir::Value;

  /// Bytes between rows, beyond their elements: rows that are powers of two apart share sets of the L1 cache.
  static constexpr int64_t rowPadding = 64;

  /// Makes what blocks of the LHS need, of `x`.
  virtual void prepareRows() {}
  /// Adds products of `count` rows and `columns` columns. `firstUnit`: the units of these columns that have been read.
  virtual void emitBlock(Value row, unsigned count, Value column, unsigned slot, unsigned columns, Value firstUnit);
  /// The sums of rows and columns that registers hold beside operands.
  virtual unsigned mostAccumulators() { return e.target.vectorRegisters >= 32 ? 16 : 8; }
  /// Prefetches what comes in the place of a unit after the columns in all slots.
  void prefetchAhead(Value column, unsigned slot, unsigned columns, Value firstUnit, Value unit);
  /// Adds the lanes of `vector` to a result.
  void addTotal(Value vector, Value row, Value column);

  Emitter &e;
  QuantizedRows &weights;
  Value lhs, rows;
  Value x; ///< the LHS in f32, padded to whole units

private:
  void emitRows(Value firstColumn, unsigned columns);
  void addRow(Value row, unsigned slot, Value column, Value unit, Value x, mlir::MutableArrayRef<Value> sums);
  unsigned columnsFor(unsigned rows, unsigned most);
  int64_t vectors() { return std::max<int64_t>(weights.unit() / e.lanes(), 1); }

  Value result;
  Value sums; ///< of results
};

/// Emits the same for an LHS of attn.fake_quantize, as products of int8.
class Int8DotKernel : public DotKernel {
public:
  Int8DotKernel(Emitter &e, QuantizedRows &weights, mlir::Value lhs, mlir::Value result, int64_t maxColumns);
  /// Whether the target has instructions, and weights of `format` a form, for it.
  static bool supports(const CPUTarget &target, attn::BlockFormat format);

protected:
  void prepareRows() override;
  void emitBlock(Value row, unsigned count, Value column, unsigned slot, unsigned columns, Value firstUnit) override;
  unsigned mostAccumulators() override { return e.target.vectorRegisters >= 32 ? 8 : 4; }

private:
  void quantize(Value row, Value block);
  Value emitFactors(Value row, unsigned slot, Value factors);
  Value emitDot(Value start, Value codes, Value integers, bool isSigned);
  Value loadStart(Value row, Value element);
  Value loadFactor(Value row, Value group);
  /// Whether an instruction adds products of bytes without sign and with one.
  bool hasMixedProducts() const { return e.target.int8Dot == Int8Dot::VPDPBUSD; }
  /// What codes without a sign are more than codes · scale says.
  int64_t bias() const;

  int64_t groups; ///< of a row
  Value integers; ///< memref of rows × elements, i8
  Value starts;   ///< memref of rows × elements / 4, i32: −bias times the sum of four integers; null without bias
  Value steps, stepSums; ///< memrefs of rows × groups: the step of integers, and it times their sum
  Value factors;         ///< memref of rows and columns of a block × groups: the scale of weights times the step
};

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_DEQUANTIZEDDOT_H
