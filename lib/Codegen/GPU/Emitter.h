//===- Emitter.h - Builder helpers for device code ----------------*- C++ -*-===//
//
// Short names for the ops of device code. Kernels are built op by op from the viewpoint of one thread.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_EMITTER_H
#define SACCADE_LIB_CODEGEN_GPU_EMITTER_H

#include "../Common/KernelEmitter.h"
#include "../Common/NarrowFloats.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include <limits>

namespace saccade::device {

/// On a memref.store: every thread that reaches the store executes it. Other stores are executed by one thread per CTA.
inline constexpr llvm::StringLiteral perThreadStoreAttr = "attn.per_thread_store";

/// Address spaces of pointers.
inline constexpr unsigned globalSpace = 1, sharedSpace = 3;

/// A builder at a location for floating-point values of `type` (f32 or f64). Positions and extents are `index` (64
/// bits), offsets inside of a tile are i32.
struct Emitter : KernelEmitter {
  Emitter(mlir::OpBuilder &builder, mlir::Location loc, mlir::FloatType type) : KernelEmitter(builder, loc, type) {}

  //===--- Integers ---===//
  Value i32(int64_t value) { return mlir::arith::ConstantIntOp::create(b, loc, value, 32); }
  using KernelEmitter::rem;
  /// x mod y for x ≥ 0.
  Value rem(Value x, int64_t y) { return b.createOrFold<mlir::arith::RemUIOp>(loc, x, constantLike(x, y)); }
  Value floorDiv(Value x, int64_t y) { return b.createOrFold<mlir::arith::FloorDivSIOp>(loc, x, constantLike(x, y)); }
  Value isAtMost(Value x, Value y) { return compare(mlir::arith::CmpIPredicate::sle, x, y); }
  Value andi(Value x, Value y) { return b.createOrFold<mlir::arith::AndIOp>(loc, x, y); }
  Value toIndex(Value x) { return x.getType().isIndex() ? x : cast(b.getIndexType(), x); }
  Value toI32(Value x) { return x.getType().isIndex() ? cast(b.getI32Type(), x) : x; }

  //===--- Floating point ---===//
  Value fma(Value x, Value y, Value z) { return mlir::LLVM::FMAOp::create(b, loc, x, y, z); }
  /// maxnum: if one operand is NaN, the other one (a single instruction).
  Value maxf(Value x, Value y) override { return mlir::LLVM::MaxNumOp::create(b, loc, x, y); }
  /// The unary f32 instruction `name` of the special function unit: "ex2" (2^x, error within 2 ulp) or "lg2" (log2,
  /// error within 2^−22). Subnormal values are flushed to 0.
  Value approxIntrinsic(llvm::StringRef name, Value x) {
    auto intrinsic = b.getStringAttr("llvm.nvvm." + name + ".approx.ftz.f");
    return mlir::LLVM::CallIntrinsicOp::create(b, loc, type, intrinsic, mlir::ValueRange{x}).getResult(0);
  }
  /// Within a few ulp; overflow gives ∞.
  Value exp2(Value x) override;
  Value log(Value x) override;
  Value minusInfinity() { return scalar(-std::numeric_limits<double>::infinity()); }
  /// Converts an element to `type`, and back.
  Value extend(Value x) { return x.getType() == type ? x : mlir::arith::ExtFOp::create(b, loc, type, x).getResult(); }
  Value truncate(Value x, mlir::Type element) {
    return element == type ? x : mlir::arith::TruncFOp::create(b, loc, element, x).getResult();
  }

  /// Returns x (i32, i64 or f32) as a value that is opaque to LLVM. It prevents LLVM from hoisting the address
  /// arithmetic that depends on x out of loops, which would take a register per address. x is computed at this place,
  /// not later.
  Value optimizationBarrier(Value x) {
    return mlir::LLVM::InlineAsmOp::create(b, loc, x.getType(), mlir::ValueRange{x}, /*asm_string=*/"",
                                           /*constraints=*/x.getType().isF32() ? "=f,0"
                                           : x.getType().isInteger(64)         ? "=l,0"
                                                                               : "=r,0",
                                           /*has_side_effects=*/true, /*is_align_stack=*/false,
                                           mlir::LLVM::TailCallKind::None, mlir::LLVM::AsmDialectAttr(),
                                           mlir::ArrayAttr())
        .getResult(0);
  }

  //===--- Threads ---===//
  Value thread() { return mlir::NVVM::ThreadIdXOp::create(b, loc, b.getI32Type()); }
  /// Whether this thread is the first of its warp.
  Value isFirstLane() { return isEqual(rem(thread(), 32), i32(0)); }
  void barrier() { mlir::NVVM::Barrier0Op::create(b, loc); }
  /// The value x (32 or 64 bits) of the lane with index lane ^ `mask`. All lanes of the warp must participate.
  Value shuffleXor(Value x, int64_t mask) { return shuffle(mlir::NVVM::ShflKind::bfly, x, i32(mask)); }
  /// Reduces x (32 or 64 bits) over each `count` consecutive lanes, a power of two. All lanes of the warp must
  /// participate, and get the result.
  Value reduceLanes(Value x, int64_t count, llvm::function_ref<Value(Value, Value)> combine) {
    for (int64_t mask = 1; mask < count; mask *= 2)
      x = combine(x, shuffleXor(x, mask));
    return x;
  }
  /// Whether a condition (i1) holds in some lane of the warp; the same in all lanes, which must participate.
  Value anyLane(Value condition) {
    return mlir::NVVM::VoteSyncOp::create(b, loc, b.getI1Type(), i32(-1), condition, mlir::NVVM::VoteSyncKind::any);
  }
  /// The value x (32 or 64 bits) of the lane `from` (i32). All lanes of the warp must participate.
  Value shuffleFrom(Value x, Value from) { return shuffle(mlir::NVVM::ShflKind::idx, x, from); }

  //===--- Memory ---===//
  using KernelEmitter::load;
  using KernelEmitter::store;
  Value load(Value memref, int64_t at) { return load(memref, mlir::ValueRange{index(at)}); }
  void store(Value value, Value memref, int64_t at) { store(value, memref, mlir::ValueRange{index(at)}); }
  /// All elements of a vector in private memory, and the first ones from `values`.
  llvm::SmallVector<Value> loadAll(Value memref) {
    llvm::SmallVector<Value> values;
    for (int64_t i = 0, n = mlir::cast<mlir::MemRefType>(memref.getType()).getDimSize(0); i < n; ++i)
      values.push_back(load(memref, i));
    return values;
  }
  void storeAll(llvm::ArrayRef<Value> values, Value memref) {
    for (auto [i, value] : llvm::enumerate(values))
      store(value, memref, static_cast<int64_t>(i));
  }
  /// The pointer to an address (i32) in shared memory.
  Value sharedPointer(Value address) {
    auto pointer = mlir::LLVM::LLVMPointerType::get(b.getContext(), sharedSpace);
    return mlir::LLVM::IntToPtrOp::create(b, loc, pointer, address);
  }
  /// A store of this thread to memory that threads share; no other thread may store to this address. See
  /// perThreadStoreAttr.
  void storeShared(Value value, Value memref, mlir::ValueRange at) {
    mlir::memref::StoreOp::create(b, loc, value, memref, at)->setAttr(perThreadStoreAttr, b.getUnitAttr());
  }
  /// The type in LLVM of elements in memory. Floats of 8 bits have none.
  static mlir::Type inMemory(mlir::Type element) {
    return isF8(element) ? mlir::IntegerType::get(element.getContext(), 8) : element;
  }
  /// `pointer` + `count` elements.
  Value advance(Value pointer, mlir::Type element, Value count) {
    Value offset = count.getType().isIndex() ? cast(b.getI64Type(), count) : count;
    return mlir::LLVM::GEPOp::create(b, loc, pointer.getType(), inMemory(element), pointer,
                                     llvm::ArrayRef<mlir::LLVM::GEPArg>{offset});
  }
  Value advance(Value pointer, mlir::Type element, int32_t count) {
    return mlir::LLVM::GEPOp::create(b, loc, pointer.getType(), inMemory(element), pointer,
                                     llvm::ArrayRef<mlir::LLVM::GEPArg>{count});
  }

private:
  Value shuffle(mlir::NVVM::ShflKind kind, Value x, Value lane) {
    auto ofWord = [&](Value word) -> Value {
      return mlir::NVVM::ShflOp::create(b, loc, word.getType(), i32(-1), word, lane, i32(31), kind, mlir::UnitAttr());
    };
    if (x.getType().getIntOrFloatBitWidth() == 32)
      return ofWord(x);
    Value words = mlir::LLVM::BitcastOp::create(b, loc, mlir::VectorType::get({2}, b.getI32Type()), x);
    for (int64_t i : {0, 1}) {
      Value word = ofWord(mlir::LLVM::ExtractElementOp::create(b, loc, words, i32(i)));
      words = mlir::LLVM::InsertElementOp::create(b, loc, words, word, i32(i));
    }
    return mlir::LLVM::BitcastOp::create(b, loc, x.getType(), words);
  }
  Value cast(mlir::Type type, Value x) { return b.createOrFold<mlir::arith::IndexCastOp>(loc, type, x); }
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_EMITTER_H
