//===- StagedInt.h - Integers that are known now or at run time ------*- C++ -*-===//
//
// An analysis written over Numbers is two at once: with constants it computes its answer, with values it emits the ops
// that compute it at run time.
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

/// A signed integer of 64 bits, or a truth value (1 or 0): a constant, or an `index` or `i1` value.
class StagedInt {
public:
  StagedInt(int64_t constant = 0);
  /// `bits`: the magnitude is known to be at most 2^bits.
  explicit StagedInt(mlir::Value value, unsigned bits = 63) : value(value), bits(bits) {}

  std::optional<int64_t> getConstant() const { return value ? std::nullopt : std::optional(constant); }
  bool isConstant(int64_t expected) const { return !value && constant == expected; }
  /// Null for a constant.
  mlir::Value getValue() const { return value; }
  unsigned getBits() const { return bits; }
  /// The same number, now known to be smaller.
  StagedInt withBits(unsigned smaller) const;

  /// Whether both are the same by construction.
  bool operator==(const StagedInt &other) const { return value == other.value && constant == other.constant; }

private:
  mlir::Value value;
  int64_t constant = 0;
  unsigned bits = 0;
};

/// Everything in [low, high], both included.
struct Interval {
  StagedInt low, high;

  Interval() = default;
  Interval(StagedInt point) : low(point), high(point) {}
  Interval(StagedInt low, StagedInt high) : low(low), high(high) {}
  bool isPoint() const { return low == high; }
};

/// Computes with Numbers. Sums and products wrap. Equal ops are emitted once, so that equal numbers are the same ones.
class StagedIntBuilder {
public:
  /// Knows constants only.
  StagedIntBuilder() = default;
  /// Emits ops where `b` stands, all of them into one block; into that around `loop`, before it, where all operands
  /// come from outside of it.
  StagedIntBuilder(mlir::OpBuilder &b, mlir::Location loc, mlir::Operation *loop = nullptr)
      : b(&b), loc(loc), loop(loop), home(b.saveInsertionPoint()) {}

  /// Puts the builder where an op with these operands is to stand.
  void setInsertionPointFor(llvm::ArrayRef<mlir::Value> operands);

  StagedInt add(StagedInt left, StagedInt right);
  StagedInt sub(StagedInt left, StagedInt right);
  StagedInt mul(StagedInt left, StagedInt right);
  StagedInt min(StagedInt left, StagedInt right);
  StagedInt max(StagedInt left, StagedInt right);
  /// Quotients by a positive divisor; by any other one they are unspecified.
  StagedInt floorDiv(StagedInt left, StagedInt divisor);
  StagedInt truncDiv(StagedInt left, StagedInt divisor);
  /// left − floorDiv(left, divisor) · divisor.
  StagedInt mod(StagedInt left, StagedInt divisor);

  StagedInt isEqual(StagedInt left, StagedInt right);
  StagedInt isLess(StagedInt left, StagedInt right);
  StagedInt isAtMost(StagedInt left, StagedInt right) { return negate(isLess(right, left)); }
  StagedInt both(StagedInt left, StagedInt right);
  StagedInt either(StagedInt left, StagedInt right);
  StagedInt negate(StagedInt truth);
  /// `first` where `truth` holds, else `second`; of truth values or of integers.
  StagedInt select(StagedInt truth, StagedInt first, StagedInt second);

  /// The number as an `index` or `i1` value. Needs a builder.
  mlir::Value materialize(StagedInt number, bool isTruth);
  /// An integer of any type as a number, read as a signed one.
  StagedInt fromValue(mlir::Value value);
  mlir::OpBuilder *getBuilder() { return b; }
  mlir::Location getLoc() { return *loc; }

private:
  enum class Kind { Add, Sub, Mul, Min, Max, FloorDiv, TruncDiv, Equal, Less, Both, Either, Negate, Select };
  /// The number that `emit` makes, of at most 2^bits, or what it made for equal operands before.
  StagedInt once(Kind kind, llvm::ArrayRef<StagedInt> operands, unsigned bits, llvm::function_ref<mlir::Value()> emit);
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
