//===- LegalizeSVE.cpp - Code that LLVM selects for SVE registers -------------===//
#include "LegalizeSVE.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"

using namespace llvm;

static bool isBF16Vector(Type *type) { return isa<VectorType>(type) && type->getScalarType()->isBFloatTy(); }

/// A masked access of i16 in place of `access`, or null if `access` is no masked access of bf16.
static Value *createIntegerAccess(IntrinsicInst &access) {
  Intrinsic::ID id = access.getIntrinsicID();
  bool isLoad = id == Intrinsic::masked_load || id == Intrinsic::masked_gather;
  if (!isLoad && id != Intrinsic::masked_store && id != Intrinsic::masked_scatter)
    return nullptr;
  Type *type = isLoad ? access.getType() : access.getArgOperand(0)->getType();
  if (!isBF16Vector(type))
    return nullptr;
  IRBuilder<> b(&access);
  auto *integers = VectorType::get(b.getInt16Ty(), cast<VectorType>(type));
  auto asIntegers = [&](unsigned argument) { return b.CreateBitCast(access.getArgOperand(argument), integers); };
  Value *first = access.getArgOperand(0), *second = access.getArgOperand(1), *third = access.getArgOperand(2);
  const Align alignment(2);
  switch (id) {
  case Intrinsic::masked_load:
    return b.CreateBitCast(b.CreateMaskedLoad(integers, first, alignment, second, asIntegers(2)), type);
  case Intrinsic::masked_gather:
    return b.CreateBitCast(b.CreateMaskedGather(integers, first, alignment, second, asIntegers(2)), type);
  case Intrinsic::masked_store:
    return b.CreateMaskedStore(asIntegers(0), second, alignment, third);
  default:
    return b.CreateMaskedScatter(asIntegers(0), second, alignment, third);
  }
}

/// bf16 to f64: bf16 is the upper half of an f32.
static Value *widen(FPExtInst &extension) {
  Type *type = extension.getSrcTy();
  if (!isBF16Vector(type))
    return nullptr;
  IRBuilder<> b(&extension);
  auto *vector = cast<VectorType>(type);
  Value *bits = b.CreateBitCast(extension.getOperand(0), VectorType::get(b.getInt16Ty(), vector));
  bits = b.CreateShl(b.CreateZExt(bits, VectorType::get(b.getInt32Ty(), vector)), 16);
  Value *wide = b.CreateBitCast(bits, VectorType::get(b.getFloatTy(), vector));
  return b.CreateFPExt(wide, extension.getType());
}

/// f64 to bf16, one element at a time: rounding to f32 first would round twice.
static Value *narrow(FPTruncInst &truncation) {
  auto *type = dyn_cast<FixedVectorType>(truncation.getType());
  if (!type || !isBF16Vector(type))
    return nullptr;
  IRBuilder<> b(&truncation);
  Value *result = PoisonValue::get(type);
  for (unsigned i = 0; i < type->getNumElements(); ++i) {
    Value *element = b.CreateExtractElement(truncation.getOperand(0), i);
    result = b.CreateInsertElement(result, b.CreateFPTrunc(element, type->getElementType()), i);
  }
  return result;
}

/// A shuffle of bf16 as one of i16.
static Value *createIntegerShuffle(ShuffleVectorInst &shuffle) {
  Type *type = shuffle.getType();
  if (!isBF16Vector(type))
    return nullptr;
  IRBuilder<> b(&shuffle);
  auto asIntegers = [&](Value *vector) {
    return b.CreateBitCast(vector, VectorType::get(b.getInt16Ty(), cast<VectorType>(vector->getType())));
  };
  Value *first = asIntegers(shuffle.getOperand(0)), *second = asIntegers(shuffle.getOperand(1));
  return b.CreateBitCast(b.CreateShuffleVector(first, second, shuffle.getShuffleMask()), type);
}

static Value *createReplacement(Instruction &instruction) {
  if (auto *access = dyn_cast<IntrinsicInst>(&instruction))
    return createIntegerAccess(*access);
  if (auto *extension = dyn_cast<FPExtInst>(&instruction))
    return widen(*extension);
  if (auto *truncation = dyn_cast<FPTruncInst>(&instruction))
    return narrow(*truncation);
  if (auto *shuffle = dyn_cast<ShuffleVectorInst>(&instruction))
    return createIntegerShuffle(*shuffle);
  return nullptr;
}

void saccade::legalizeForSVE(Module &module) {
  for (Function &function : module)
    for (Instruction &instruction : make_early_inc_range(instructions(function)))
      if (Value *replacement = createReplacement(instruction)) {
        instruction.replaceAllUsesWith(replacement);
        instruction.eraseFromParent();
      }
}
