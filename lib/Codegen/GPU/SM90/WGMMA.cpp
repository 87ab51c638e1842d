//===- WGMMA.cpp - Asynchronous matmuls of a warpgroup ------------------------===//
//
// All instructions of a product are one asm block from wgmma.fence to commit_group, so that nothing comes between them:
// ptxas serialises a product otherwise (C7510 to C7519). Sums are scalar f32, and pass through the block that waits.
//
//===----------------------------------------------------------------------===//
#include "WGMMA.h"
#include "WarpgroupShape.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

/// Descriptors count in units of 16 bytes.
static constexpr int64_t unit = 16;

Value device::tileDescriptor(Emitter &e, Value address, int64_t leadingBytes) {
  // Bits 62 and 63: 128-byte swizzle; 32 to 45: bytes between groups of eight rows; 16 to 29: leading bytes.
  uint64_t constant = uint64_t(1) << 62 | uint64_t(1024 / unit) << 32 | uint64_t(leadingBytes / unit) << 16;
  Type i64 = e.b.getI64Type();
  Value start = arith::ExtUIOp::create(e.b, e.loc, i64, e.div(address, unit));
  return arith::OrIOp::create(e.b, e.loc, start,
                              arith::ConstantIntOp::create(e.b, e.loc, static_cast<int64_t>(constant), 64));
}

/// "$first, $first+1, ...": operands of an asm block.
static std::string operands(size_t first, size_t count) {
  std::string text;
  for (size_t i = first; i < first + count; ++i)
    text += (i == first ? "$" : ", $") + std::to_string(i);
  return text;
}

/// Emits an asm block with `count` results of f32.
static SmallVector<Value> emitAsm(Emitter &e, const std::string &text, size_t count, ValueRange inputs,
                                  const std::string &inputConstraints) {
  std::string constraints;
  for (size_t i = 0; i < count; ++i)
    constraints += "=f,";
  constraints += inputConstraints + "~{memory}";
  auto type = LLVM::LLVMStructType::getLiteral(e.b.getContext(), SmallVector<Type>(count, e.b.getF32Type()));
  Value results = LLVM::InlineAsmOp::create(e.b, e.loc, type, inputs, text, constraints,
                                            /*has_side_effects=*/true, /*is_align_stack=*/false,
                                            LLVM::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr())
                      .getResult(0);
  SmallVector<Value> values;
  for (size_t i = 0; i < count; ++i)
    values.push_back(LLVM::ExtractValueOp::create(e.b, e.loc, results, static_cast<int64_t>(i)));
  return values;
}

static std::string repeated(const std::string &constraint, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i)
    text += constraint + ",";
  return text;
}

/// Constraints that tie the first inputs to the results.
static std::string tied(size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i)
    text += std::to_string(i) + ",";
  return text;
}

static std::string opcode(Type element, size_t sums) {
  std::string type = element.isBF16() ? "bf16" : "f16";
  return "wgmma.mma_async.sync.aligned.m64n" + std::to_string(2 * sums) + "k16.f32." + type + "." + type + " {" +
         operands(0, sums) + "}, ";
}

static std::string block(const std::string &instructions) {
  return "{\n\t.reg .b64 lhs, rhs;\n\t.reg .b32 low, high;\n\twgmma.fence.sync.aligned;\n\t" + instructions +
         "wgmma.commit_group.sync.aligned;\n\t}";
}

/// Sets the register `name` to a descriptor whose address is `bytes` higher, which changes its low half.
static std::string advance(const char *name, size_t operand, int64_t bytes, Advance how = Advance::LowHalf) {
  if (how == Advance::Whole)
    return std::string("add.s64 ") + name + ", $" + std::to_string(operand) + ", " + std::to_string(bytes / unit) +
           ";\n\t";
  return "mov.b64 {low, high}, $" + std::to_string(operand) + ";\n\tadd.s32 low, low, " + std::to_string(bytes / unit) +
         ";\n\tmov.b64 " + name + ", {low, high};\n\t";
}

SmallVector<Value> device::startProduct(Emitter &e, Type element, int64_t n, Value lhs, Value rhs,
                                        ArrayRef<std::pair<int64_t, int64_t>> offsets, Advance how) {
  auto count = static_cast<size_t>(n / 2);
  std::string text;
  for (auto [i, offset] : llvm::enumerate(offsets)) {
    text += advance("lhs", count, offset.first, how) + advance("rhs", count + 1, offset.second, how);
    // The first product does not read the sums. Neither operand is negated or transposed.
    text += opcode(element, count) + "lhs, rhs, " + (i ? "1" : "0") + ", 1, 1, 0, 0;\n\t";
  }
  return emitAsm(e, block(text), count, {lhs, rhs}, "l,l,");
}

SmallVector<Value> device::addProduct(Emitter &e, Type element, ValueRange sums, ValueRange lhs, Value rhs,
                                      ArrayRef<int64_t> offsets, Advance how) {
  size_t count = sums.size(), words = 2 * count;
  std::string text;
  for (auto [i, offset] : llvm::enumerate(offsets)) {
    text += advance("rhs", words + lhs.size(), offset, how);
    text += opcode(element, count) + "{" + operands(words + 4 * i, 4) + "}, rhs, 1, 1, 1, 1;\n\t";
  }
  SmallVector<Value> inputs(sums);
  inputs.append(lhs.begin(), lhs.end());
  inputs.push_back(rhs);
  return emitAsm(e, block(text), count, inputs, tied(count) + repeated("r", lhs.size()) + "l,");
}

SmallVector<Value> device::addTileProduct(Emitter &e, Type element, ValueRange sums, const ProductTile &lhs,
                                          const ProductTile &rhs, int64_t steps) {
  size_t count = sums.size();
  std::string text, transposed = std::string(lhs.isTransposed ? "1" : "0") + (rhs.isTransposed ? ", 1" : ", 0");
  for (int64_t step = 0; step < steps; ++step) {
    text += advance("lhs", 2 * count, step * lhs.stepBytes()) + advance("rhs", 2 * count + 1, step * rhs.stepBytes());
    text += opcode(element, count) + "lhs, rhs, 1, 1, 1, " + transposed + ";\n\t";
  }
  SmallVector<Value> inputs(sums);
  inputs.append({lhs.descriptor, rhs.descriptor});
  return emitAsm(e, block(text), count, inputs, tied(count) + "l,l,");
}

SmallVector<Value> device::waitForGroups(Emitter &e, int64_t pending, ValueRange values) {
  std::string text = "wgmma.wait_group.sync.aligned " + std::to_string(pending) + ";";
  return emitAsm(e, text, values.size(), values, tied(values.size()));
}

void device::pause(Emitter &e) {
  LLVM::InlineAsmOp::create(e.b, e.loc, LLVM::LLVMVoidType::get(e.b.getContext()), ValueRange{}, "nanosleep.u32 0;", "",
                            /*has_side_effects=*/true, /*is_align_stack=*/false, LLVM::TailCallKind::None,
                            LLVM::AsmDialectAttr(), ArrayAttr());
}

void device::clearTileRows(Emitter &e, Value tile, int64_t rows, int64_t bytes, Value thread, int64_t threads,
                           function_ref<Value(Value row)> isKept) {
  constexpr int64_t vectorBytes = 16;
  auto vector = VectorType::get({4}, e.b.getI32Type());
  Value zeros = arith::ConstantOp::create(e.b, e.loc, e.b.getZeroAttr(vector));
  e.loop(e.mul(thread, vectorBytes), e.i32(bytes), threads * vectorBytes, [&](Value offset) {
    // The swizzle permutes the vectors of a row.
    Value row = e.rem(e.div(offset, WarpgroupShape::boxRowBytes), rows);
    e.ifElse(
        isKept(row), [] {},
        [&] { LLVM::StoreOp::create(e.b, e.loc, zeros, e.sharedPointer(e.add(tile, offset)), vectorBytes); });
  });
}
