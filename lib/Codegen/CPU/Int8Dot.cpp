//===- Int8Dot.cpp - Few rows times quantized weights, in int8 ----------------===//
//
// The LHS of attn.fake_quantize is rounded again, which gives the same integers. For a group of elements
//
//     Σ ((code − bias) · scale + offset) · step · integer
//         = scale · step · (Σ code · integer − bias · Σ integer) + offset · step · Σ integer
//
// The sums of integers are exact.
//
//===----------------------------------------------------------------------===//
#include "DequantizedDot.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::cpu;
using attn::BlockFormat, attn::fakeQuantizedBlock;

// Vectors of f32 and i32 have this many lanes, on all targets.
static constexpr int64_t lanes = 8;

bool Int8DotKernel::supports(const CPUTarget &target, BlockFormat format) {
  // Integers of 256 bits come with FMA (v3).
  bool isX86 = target.processor().architecture == runtime::Architecture::X86;
  return isX86 && target.hasFMA && format != BlockFormat::U4 && format != BlockFormat::U8;
}

bool cpu::multipliesInInt8(const CPUTarget &target, attn::LoadDequantizedOp weights) {
  return weights.getInt8Lhs() && Int8DotKernel::supports(target, weights.getFormat());
}

Int8DotKernel::Int8DotKernel(Emitter &e, QuantizedRows &weights, Value lhs, Value result, int64_t maxColumns)
    : DotKernel(e, weights, lhs, result, maxColumns) {
  int64_t elements = weights.units() * weights.unit();
  groups = elements / weights.groupElements();
  auto allocRows = [&](int64_t columns, Type type) -> Value {
    columns += rowPadding * 8 / type.getIntOrFloatBitWidth();
    return memref::AllocOp::create(e.b, e.loc, MemRefType::get({maxDotRows, columns}, type), e.b.getI64IntegerAttr(64));
  };
  integers = allocRows(elements, e.b.getI8Type());
  for (Value *numbers : {&steps, &stepSums, &factors})
    *numbers = allocRows(llvm::alignTo(groups, lanes), e.type);
  if (bias() != 0)
    starts = allocRows(elements / 4, e.b.getI32Type());
}

int64_t Int8DotKernel::bias() const {
  // Codes with a sign get this bias in `emitDot`.
  return weights.bias() + (hasMixedProducts() && weights.hasSignedCodes() ? 128 : 0);
}

Value Int8DotKernel::loadStart(Value row, Value element) {
  auto words = VectorType::get({lanes}, e.b.getI32Type());
  return vector::LoadOp::create(e.b, e.loc, words, starts, ValueRange{row, e.div(element, 4)});
}

void Int8DotKernel::prepareRows() {
  weights.clearScales(dequantizedSlots);
  int64_t padded = llvm::alignTo(groups, lanes);
  e.loop(e.index(0), rows, 1, [&](Value row) {
    for (int64_t i = groups; i < padded; ++i)
      for (Value memref : {steps, stepSums})
        e.store(e.scalar(0.0), memref, {row, e.index(i)});
    e.loop(e.index(0), e.index(weights.units() * weights.unit() / fakeQuantizedBlock), 1,
           [&](Value block) { quantize(row, block); });
  });
}

/// Rounds a block of the LHS. Its largest magnitude is that of the block before attn.fake_quantize, up to rounding.
void Int8DotKernel::quantize(Value row, Value block) {
  Value first = e.mul(block, fakeQuantizedBlock), largest;
  SmallVector<Value> elements;
  for (int64_t i = 0; i < fakeQuantizedBlock; i += e.lanes()) {
    elements.push_back(e.loadVector(x, {row, e.add(first, i)}));
    Value magnitude = math::AbsFOp::create(e.b, e.loc, elements.back());
    largest = largest ? arith::MaximumFOp::create(e.b, e.loc, largest, magnitude).getResult() : magnitude;
  }
  largest = vector::ReductionOp::create(e.b, e.loc, vector::CombiningKind::MAXIMUMF, largest);
  Value isZero =
      arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OLT, largest, e.scalar(attn::fakeQuantizedLeast / 2));
  Value inverse = arith::DivFOp::create(e.b, e.loc, e.scalar(127), largest);
  inverse = e.broadcast(e.select(isZero, e.scalar(0), inverse));
  Value step = arith::DivFOp::create(e.b, e.loc, largest, e.scalar(127));
  int64_t group = weights.groupElements(), perGroup = std::max<int64_t>(1, group / e.lanes());
  Value sum;
  for (auto [i, each] : llvm::enumerate(elements)) {
    Value code = math::RoundEvenOp::create(e.b, e.loc, e.mulf(each, inverse));
    // NaN has no integer; the step is NaN or infinite then.
    Value isNumber = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::ORD, code, code);
    code = e.select(isNumber, code, e.splat(0.0));
    Value wide = arith::FPToSIOp::create(e.b, e.loc, VectorType::get({e.lanes()}, e.b.getI32Type()), code);
    Value narrow = arith::TruncIOp::create(e.b, e.loc, VectorType::get({e.lanes()}, e.b.getI8Type()), wide);
    e.storeVector(narrow, integers, {row, e.add(first, i * e.lanes())});
    sum = sum ? e.addf(sum, code) : code;
    if ((i + 1) % perGroup != 0)
      continue;
    Value total =
        vector::ReductionOp::create(e.b, e.loc, vector::CombiningKind::ADD, sum, arith::FastMathFlags::reassoc);
    Value at = e.add(e.mul(block, fakeQuantizedBlock / group), int64_t(i) * e.lanes() / group);
    e.store(step, steps, {row, at});
    e.store(e.mulf(step, total), stepSums, {row, at});
    sum = nullptr;
  }
  if (!starts)
    return;
  auto bytes = VectorType::get({QuantizedRows::bytesOfRegister}, e.b.getI8Type());
  Value factors = vector::LoadOp::create(e.b, e.loc, bytes, integers, ValueRange{row, first});
  Attribute number = e.b.getI8IntegerAttr(int8_t(bias()));
  Value biases = arith::ConstantOp::create(e.b, e.loc, DenseElementsAttr::get(bytes, number));
  Value dot = emitDot(nullptr, biases, factors, /*isSigned=*/false);
  Value zero = arith::ConstantOp::create(e.b, e.loc, e.b.getZeroAttr(dot.getType()));
  e.storeVector(arith::SubIOp::create(e.b, e.loc, zero, dot), starts, {row, e.div(first, 4)});
}

/// Writes the factors of a row and a column to row `to` of `factors`, and returns what offsets add.
Value Int8DotKernel::emitFactors(Value row, unsigned slot, Value to) {
  auto type = VectorType::get({lanes}, e.type);
  Value zero = e.KernelEmitter::splat(type, 0.0);
  auto addGroups = [&](Value group, ValueRange carried) -> SmallVector<Value> {
    auto load = [&](Value memref) -> Value {
      return vector::LoadOp::create(e.b, e.loc, type, memref, ValueRange{row, group});
    };
    Value scales = weights.loadScales(slot, group), sum = carried[0];
    e.storeVector(e.mulf(scales, load(steps)), factors, {to, group});
    Value offsets = weights.loadOffsets(slot, group);
    return {offsets ? e.fma(offsets, load(stepSums), sum) : sum};
  };
  return e.loop(e.index(0), e.index(groups), lanes, zero, addGroups)[0];
}

/// start + Σ code · integer for four neighbours a lane. Both are bytes of a register. `start` is null for 0.
Value Int8DotKernel::emitDot(Value start, Value codes, Value integers, bool isSigned) {
  auto words = VectorType::get({lanes}, e.b.getI32Type());
  auto call = [&](StringRef name, Type type, ValueRange operands) -> Value {
    return LLVM::CallIntrinsicOp::create(e.b, e.loc, type, e.b.getStringAttr(name), operands).getResult(0);
  };
  auto splat = [&](VectorType type, int64_t value) -> Value {
    auto number = e.b.getIntegerAttr(type.getElementType(), value);
    return arith::ConstantOp::create(e.b, e.loc, DenseElementsAttr::get(type, Attribute(number)));
  };
  if (hasMixedProducts()) {
    if (isSigned)
      codes = arith::XOrIOp::create(e.b, e.loc, codes, splat(cast<VectorType>(codes.getType()), -128));
    return call("llvm.x86.avx512.vpdpbusd.256", words, {start ? start : splat(words, 0), codes, integers});
  }
  if (isSigned) {
    integers = call("llvm.x86.avx2.psign.b", integers.getType(), {integers, codes});
    codes = math::AbsIOp::create(e.b, e.loc, codes);
  }
  // Two products of a code below 129 and an integer below 128 fit into 16 bits.
  auto pairs = VectorType::get({2 * lanes}, e.b.getI16Type());
  Value sums = call("llvm.x86.avx2.pmadd.ub.sw", pairs, {codes, integers});
  sums = call("llvm.x86.avx2.pmadd.wd", words, {sums, splat(pairs, 1)});
  return start ? arith::AddIOp::create(e.b, e.loc, start, sums).getResult() : sums;
}

/// The factors of a register of sums that begins in `group`.
Value Int8DotKernel::loadFactor(Value row, Value group) {
  auto type = VectorType::get({lanes}, e.type);
  int64_t count = QuantizedRows::bytesOfRegister / weights.groupElements();
  if (count == 1)
    return vector::BroadcastOp::create(e.b, e.loc, type, e.load(factors, {row, group}));
  Value each = vector::LoadOp::create(e.b, e.loc, VectorType::get({count}, e.type), factors, ValueRange{row, group});
  SmallVector<int64_t> places(lanes);
  for (int64_t i = 0; i < lanes; ++i)
    places[i] = i * count / lanes;
  return vector::ShuffleOp::create(e.b, e.loc, each, each, places);
}

void Int8DotKernel::emitBlock(Value row, unsigned count, Value column, unsigned slot, unsigned columns,
                              Value firstUnit) {
  SmallVector<Value> constants;
  for (unsigned c = 0; c < columns; ++c)
    for (unsigned r = 0; r < count; ++r)
      constants.push_back(emitFactors(e.add(row, r), slot + c, e.index(int64_t(constants.size()))));
  auto bytes = VectorType::get({QuantizedRows::bytesOfRegister}, e.b.getI8Type());
  int64_t perUnit = weights.unit() / weights.groupElements(),
          perRegister = bytes.getNumElements() / weights.groupElements();
  SmallVector<Value> totals =
      e.loop(e.index(0), e.index(weights.units()), 1, constants, [&](Value unit, ValueRange carried) {
        SmallVector<Value> sums(carried);
        prefetchAhead(column, slot, columns, firstUnit, unit);
        Value element = e.mul(unit, weights.unit()), group = e.mul(unit, perUnit);
        for (unsigned c = 0; c < columns; ++c)
          for (auto [v, codes] : llvm::enumerate(weights.loadCodeBytes(e.add(column, c), unit)))
            for (unsigned r = 0; r < count; ++r) {
              Value &sum = sums[c * count + r];
              Value at = e.add(element, int64_t(v) * bytes.getNumElements());
              Value factors = vector::LoadOp::create(e.b, e.loc, bytes, integers, ValueRange{e.add(row, r), at});
              Value start = starts ? loadStart(e.add(row, r), at) : Value();
              Value products = arith::SIToFPOp::create(e.b, e.loc, cast<VectorType>(sum.getType()),
                                                       emitDot(start, codes, factors, weights.hasSignedCodes()));
              Value factor = loadFactor(e.index(c * count + r), e.add(group, int64_t(v) * perRegister));
              sum = e.fma(products, factor, sum);
            }
        return sums;
      });
  for (unsigned c = 0; c < columns; ++c)
    for (unsigned r = 0; r < count; ++r)
      addTotal(totals[c * count + r], e.add(row, r), e.add(column, c));
}
