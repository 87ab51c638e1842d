//===- StagedInt.h - Compile-time or run-time integers ---------------*- C++ -*-===//
//
// An analysis over StagedInt has two uses: on constants it computes its result, on SSA values it emits the ops that
// compute the result at run time.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_STAGEDINT_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_STAGEDINT_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"
#include <array>
#include <map>
#include <optional>
#include <tuple>

namespace saccade::attn {

/// A signed 64-bit integer or a truth value (1 or 0): a constant, or an SSA value of type `index` or `i1`.
class StagedInt {
public:
  StagedInt(int64_t constant = 0);
  /// `bits`: the magnitude is at most 2^bits.
  explicit StagedInt(mlir::Value value, unsigned bits = 63) : value(value), bits(bits) {}

  std::optional<int64_t> getConstant() const { return value ? std::nullopt : std::optional(constant); }
  bool isConstant(int64_t expected) const { return !value && constant == expected; }
  /// Null for a constant.
  mlir::Value getValue() const { return value; }
  unsigned getBits() const { return bits; }
  /// The same value with a tighter bound of its magnitude.
  StagedInt withBits(unsigned smaller) const;

  /// Whether both are the same by construction.
  bool operator==(const StagedInt &other) const { return value == other.value && constant == other.constant; }

private:
  mlir::Value value;
  int64_t constant = 0;
  unsigned bits = 0;
};

/// The closed interval [low, high].
struct Interval {
  StagedInt low, high;

  Interval() = default;
  Interval(StagedInt point) : low(point), high(point) {}
  Interval(StagedInt low, StagedInt high) : low(low), high(high) {}
  bool isPoint() const { return low == high; }
};

/// Arithmetic on StagedInt. Sums and products wrap. Equal ops are emitted once, so that equal results compare equal.
class StagedIntBuilder {
public:
  /// For constants only.
  StagedIntBuilder() = default;
  /// Emits ops at the insertion point of `b`, or before `loop` if all operands are defined outside of it.
  StagedIntBuilder(mlir::OpBuilder &b, mlir::Location loc, mlir::Operation *loop = nullptr)
      : b(&b), loc(loc), loop(loop), home(b.saveInsertionPoint()) {}

  /// Sets the insertion point for an op with these operands.
  void setInsertionPointFor(llvm::ArrayRef<mlir::Value> operands);

  StagedInt add(StagedInt lhs, StagedInt rhs);
  StagedInt sub(StagedInt lhs, StagedInt rhs);
  StagedInt mul(StagedInt lhs, StagedInt rhs);
  StagedInt min(StagedInt lhs, StagedInt rhs);
  StagedInt max(StagedInt lhs, StagedInt rhs);
  /// Quotients by a positive divisor; for other divisors the result is unspecified.
  StagedInt floorDiv(StagedInt lhs, StagedInt divisor);
  StagedInt truncDiv(StagedInt lhs, StagedInt divisor);
  /// lhs − floorDiv(lhs, divisor) · divisor.
  StagedInt mod(StagedInt lhs, StagedInt divisor);

  StagedInt isEqual(StagedInt lhs, StagedInt rhs);
  StagedInt isLess(StagedInt lhs, StagedInt rhs);
  StagedInt isAtMost(StagedInt lhs, StagedInt rhs) { return negate(isLess(rhs, lhs)); }
  StagedInt both(StagedInt lhs, StagedInt rhs);
  StagedInt either(StagedInt lhs, StagedInt rhs);
  StagedInt negate(StagedInt number);
  /// condition ? first : second, for two truth values or two integers.
  StagedInt select(StagedInt condition, StagedInt first, StagedInt second);

  /// The number as an `index` or `i1` value. Requires a builder.
  mlir::Value materialize(StagedInt number, bool isTruth);
  /// Converts an integer of any type, interpreted as signed.
  StagedInt fromValue(mlir::Value value);
  mlir::OpBuilder *getBuilder() { return b; }
  mlir::Location getLoc() { return *loc; }

private:
  enum class Kind { Add, Sub, Mul, Min, Max, FloorDiv, TruncDiv, Equal, Less, Both, Either, Negate, Select };
  /// Returns the result of `emit`, at most 2^bits in magnitude, or the cached result for equal operands.
  StagedInt getOrEmit(Kind kind, llvm::ArrayRef<StagedInt> operands, unsigned bits,
                      llvm::function_ref<mlir::Value()> emit);
  mlir::Value integer(StagedInt number) { return materialize(number, /*isTruth=*/false); }
  mlir::Value truth(StagedInt number) { return materialize(number, /*isTruth=*/true); }

  mlir::OpBuilder *b = nullptr;
  std::optional<mlir::Location> loc;
  mlir::Operation *loop = nullptr;
  mlir::OpBuilder::InsertPoint home;
  using Key = std::tuple<Kind, std::array<void *, 3>, std::array<int64_t, 3>>;
  std::map<Key, mlir::Value> emitted;
};

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_STAGEDINT_H
