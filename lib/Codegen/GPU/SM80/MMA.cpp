//===- MMA.cpp - Wrapper of mma.sync ------------------------------------------===//
//
// Emits mma.sync and the conversion of its operands.
//
//===----------------------------------------------------------------------===//
#include "MMA.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

SmallVector<Value> device::mmaSync(Emitter &e, Type element, ValueRange lhs, ValueRange rhs, ValueRange acc) {
  // The op takes i32 words for bf16 and vector<2xf16> for f16.
  auto operands = [&](ValueRange words) {
    return llvm::map_to_vector(words, [&](Value word) -> Value {
      if (element.isBF16())
        return word;
      return LLVM::BitcastOp::create(e.b, e.loc, VectorType::get({2}, element), word);
    });
  };
  NVVM::MMATypes type = element.isBF16() ? NVVM::MMATypes::bf16 : NVVM::MMATypes::f16;
  Type f32 = e.b.getF32Type();
  auto resultType = LLVM::LLVMStructType::getLiteral(e.b.getContext(), {f32, f32, f32, f32});
  Value result =
      NVVM::MmaOp::create(e.b, e.loc, resultType, operands(lhs), operands(rhs), acc, ArrayRef<int64_t>{16, 8, 16},
                          std::nullopt, std::nullopt, std::array<NVVM::MMATypes, 2>{type, type},
                          std::array<NVVM::MMALayout, 2>{NVVM::MMALayout::row, NVVM::MMALayout::col});
  SmallVector<Value> values;
  for (int64_t i = 0; i < 4; ++i)
    values.push_back(LLVM::ExtractValueOp::create(e.b, e.loc, result, i));
  return values;
}

Value device::packWord(Emitter &e, Type element, Value low, Value high) {
  StringRef name = element.isBF16() ? "llvm.nvvm.ff2bf16x2.rn" : "llvm.nvvm.ff2f16x2.rn";
  Value pair = LLVM::CallIntrinsicOp::create(e.b, e.loc, VectorType::get({2}, element), e.b.getStringAttr(name),
                                             ValueRange{high, low})
                   .getResult(0);
  return LLVM::BitcastOp::create(e.b, e.loc, e.b.getI32Type(), pair);
}
