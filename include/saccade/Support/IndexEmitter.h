//===- IndexEmitter.h - Builder for index arithmetic and loops ----*- C++ -*-===//
//
// A wrapper of OpBuilder with short names, for code generators that emit index arithmetic, loops and conditionals.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_SUPPORT_INDEXEMITTER_H
#define SACCADE_SUPPORT_INDEXEMITTER_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

namespace saccade {

/// A builder at a location, for `index` and other integer types. Arithmetic folds constants; an int64_t operand becomes
/// a constant of the type of the other operand.
struct IndexEmitter {
  mlir::OpBuilder &b;
  mlir::Location loc;

  IndexEmitter(mlir::OpBuilder &builder, mlir::Location loc) : b(builder), loc(loc) {}

  using Value = mlir::Value;

  //===--- Integers ---===//
  Value index(int64_t value) { return mlir::arith::ConstantIndexOp::create(b, loc, value); }
  /// `value` as a constant of the type of `like`.
  Value constantLike(Value like, int64_t value) {
    return mlir::arith::ConstantOp::create(b, loc, b.getIntegerAttr(like.getType(), value));
  }
  /// `number` as an index.
  Value asIndex(Value number) {
    return number.getType().isIndex() ? number
                                      : mlir::arith::IndexCastOp::create(b, loc, b.getIndexType(), number).getResult();
  }
  Value add(Value x, Value y) { return b.createOrFold<mlir::arith::AddIOp>(loc, x, y); }
  Value add(Value x, int64_t y) { return y == 0 ? x : add(x, constantLike(x, y)); }
  Value sub(Value x, Value y) { return b.createOrFold<mlir::arith::SubIOp>(loc, x, y); }
  Value mul(Value x, Value y) { return b.createOrFold<mlir::arith::MulIOp>(loc, x, y); }
  Value mul(Value x, int64_t y) { return y == 1 ? x : mul(x, constantLike(x, y)); }
  Value min(Value x, Value y) { return b.createOrFold<mlir::arith::MinSIOp>(loc, x, y); }
  Value max(Value x, Value y) { return b.createOrFold<mlir::arith::MaxSIOp>(loc, x, y); }
  /// ⌊x / y⌋ for x >= 0.
  Value div(Value x, int64_t y) {
    return y == 1 ? x : b.createOrFold<mlir::arith::DivUIOp>(loc, x, constantLike(x, y));
  }
  /// ⌊x / y⌋ and x mod y for x >= 0, y > 0.
  Value div(Value x, Value y) { return b.createOrFold<mlir::arith::DivUIOp>(loc, x, y); }
  Value rem(Value x, Value y) { return b.createOrFold<mlir::arith::RemUIOp>(loc, x, y); }
  /// ⌈x / y⌉ for x >= 0, y > 0.
  Value ceilDiv(Value x, Value y) { return div(add(x, sub(y, constantLike(y, 1))), y); }
  Value compare(mlir::arith::CmpIPredicate how, Value x, Value y) {
    return b.createOrFold<mlir::arith::CmpIOp>(loc, how, x, y);
  }
  Value isLess(Value x, Value y) { return compare(mlir::arith::CmpIPredicate::slt, x, y); }
  Value isEqual(Value x, Value y) { return compare(mlir::arith::CmpIPredicate::eq, x, y); }
  Value select(Value condition, Value x, Value y) {
    return b.createOrFold<mlir::arith::SelectOp>(loc, condition, x, y);
  }

  //===--- Control ---===//
  using Body = llvm::function_ref<void(Value)>;
  using CarryingBody = llvm::function_ref<llvm::SmallVector<Value>(Value, mlir::ValueRange)>;
  /// for (i = begin; i < end; i += step) body(i); emits nothing if the bounds are equal constants.
  void loop(Value begin, Value end, int64_t step, Body body) {
    if (mlir::isEqualConstantIntOrValue(begin, end))
      return;
    auto op = mlir::scf::ForOp::create(b, loc, begin, end, constantLike(begin, step));
    mlir::OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(op.getBody());
    body(op.getInductionVar());
  }
  /// The same with loop-carried values.
  llvm::SmallVector<Value> loop(Value begin, Value end, int64_t step, mlir::ValueRange inits, CarryingBody body) {
    auto op = mlir::scf::ForOp::create(b, loc, begin, end, constantLike(begin, step), inits);
    mlir::OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(op.getBody());
    llvm::SmallVector<Value> next = body(op.getInductionVar(), op.getRegionIterArgs());
    mlir::scf::YieldOp::create(b, loc, next);
    return llvm::SmallVector<Value>(op.getResults());
  }
  void ifElse(Value condition, llvm::function_ref<void()> then, llvm::function_ref<void()> otherwise = nullptr) {
    auto op = mlir::scf::IfOp::create(b, loc, condition, /*withElseRegion=*/bool(otherwise));
    mlir::OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(op.thenBlock());
    then();
    if (!otherwise)
      return;
    b.setInsertionPointToStart(op.elseBlock());
    otherwise();
  }
  /// The values of one of two branches; both must return the same types. A constant condition leaves one of them.
  using Branch = llvm::function_ref<llvm::SmallVector<Value>()>;
  llvm::SmallVector<Value> choose(Value condition, Branch then, Branch otherwise) {
    if (std::optional<int64_t> constant = mlir::getConstantIntValue(condition))
      return *constant ? then() : otherwise();
    auto branch = [&](Branch body) {
      return [&, body](mlir::OpBuilder &nested, mlir::Location) {
        mlir::OpBuilder::InsertionGuard guard(b);
        b.setInsertionPoint(nested.getInsertionBlock(), nested.getInsertionPoint());
        llvm::SmallVector<Value> values = body();
        mlir::scf::YieldOp::create(b, loc, values);
      };
    };
    auto op = mlir::scf::IfOp::create(b, loc, condition, branch(then), branch(otherwise));
    return llvm::SmallVector<Value>(op.getResults());
  }
};

} // namespace saccade

#endif // SACCADE_SUPPORT_INDEXEMITTER_H
