//===- DequantizedElement.cpp - An element of quantized weights ---------------===//
#include "DequantizedElement.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Support/IndexEmitter.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

namespace {

class ElementEmitter {
public:
  ElementEmitter(OpBuilder &b, Location loc, const QuantizedWeights &weights, Value row, Value column)
      : b(b), loc(loc), e(b, loc), weights(weights), row(row), i32(b.getI32Type()), f32(b.getF32Type()) {
    int64_t elements = weights.traits().elements;
    block = arith::DivUIOp::create(b, loc, column, e.index(elements));
    place = asInteger(arith::RemUIOp::create(b, loc, column, e.index(elements)));
  }

  Value emit() {
    switch (weights.format) {
    case BlockFormat::Q4_0: {
      Value code = nibble(byteAt(mod(place, 16), 2), div(place, 16));
      return mulf(half(0), asFloat(sub(code, 8)));
    }
    case BlockFormat::Q4_1: {
      Value code = nibble(byteAt(mod(place, 16), 4), div(place, 16));
      return addf(mulf(half(0), asFloat(code)), half(2));
    }
    case BlockFormat::Q8_0:
      return mulf(half(0), asFloat(asSigned(byteAt(place, 2))));
    case BlockFormat::Q4_K:
      return q4k();
    case BlockFormat::Q6_K:
      return q6k();
    case BlockFormat::U4:
    case BlockFormat::U8:
      return ofScales();
    }
    llvm_unreachable("unknown format");
  }

private:
  Value constant(int64_t value) { return arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(value)); }
  Value asInteger(Value index) { return arith::IndexCastOp::create(b, loc, i32, index); }
  Value asFloat(Value integer) { return arith::SIToFPOp::create(b, loc, f32, integer); }
  Value add(Value x, int64_t y) { return y == 0 ? x : Value(arith::AddIOp::create(b, loc, x, constant(y))); }
  Value add(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
  Value sub(Value x, int64_t y) { return arith::SubIOp::create(b, loc, x, constant(y)); }
  Value mul(Value x, int64_t y) { return arith::MulIOp::create(b, loc, x, constant(y)); }
  Value div(Value x, int64_t y) { return arith::DivUIOp::create(b, loc, x, constant(y)); }
  Value mod(Value x, int64_t y) { return arith::RemUIOp::create(b, loc, x, constant(y)); }
  Value mask(Value x, int64_t y) { return arith::AndIOp::create(b, loc, x, constant(y)); }
  Value shiftLeft(Value x, int64_t y) { return arith::ShLIOp::create(b, loc, x, constant(y)); }
  Value shiftRight(Value x, Value y) { return arith::ShRUIOp::create(b, loc, x, y); }
  Value join(Value x, Value y) { return arith::OrIOp::create(b, loc, x, y); }
  Value mulf(Value x, Value y) { return arith::MulFOp::create(b, loc, x, y); }
  Value addf(Value x, Value y) { return arith::AddFOp::create(b, loc, x, y); }
  Value subf(Value x, Value y) { return arith::SubFOp::create(b, loc, x, y); }

  Value asUnsigned(Value byte) { return arith::ExtUIOp::create(b, loc, i32, byte); }
  /// Byte `at` + `offset` of the block, 0 to 255.
  Value byteAt(Value at, int64_t offset) {
    Value index = arith::IndexCastOp::create(b, loc, b.getIndexType(), add(at, offset));
    return asUnsigned(tensor::ExtractOp::create(b, loc, weights.codes, ValueRange{row, block, index}));
  }
  Value byteAt(int64_t at) { return byteAt(constant(at), 0); }
  Value asSigned(Value byte) { return sub(arith::XOrIOp::create(b, loc, byte, constant(128)), 128); }
  Value nibble(Value byte, Value part) { return mask(shiftRight(byte, mul(part, 4)), 15); }
  /// The f16 at byte `at`.
  Value half(int64_t at) {
    Value bits = join(byteAt(at), shiftLeft(byteAt(at + 1), 8));
    Value narrow = arith::TruncIOp::create(b, loc, b.getI16Type(), bits);
    Value number = arith::BitcastOp::create(b, loc, b.getF16Type(), narrow);
    return arith::ExtFOp::create(b, loc, f32, number);
  }
  Value isLess(Value x, int64_t y) { return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, x, constant(y)); }
  Value select(Value condition, Value x, Value y) { return arith::SelectOp::create(b, loc, condition, x, y); }

  Value q4k();
  Value q6k();
  Value ofScales();

  OpBuilder &b;
  Location loc;
  IndexEmitter e;
  const QuantizedWeights &weights;
  Value row, block, place; ///< the place in the block is i32
  Type i32, f32;
};

/// Scale and minimum of 32 elements have 6 bits. Those of the last four have 4 bits in one byte and 2 in another.
Value ElementEmitter::q4k() {
  Value number = div(place, 32), isFirst = isLess(number, 4), low = mod(number, 4);
  Value scales = byteAt(low, 4), least = byteAt(low, 8), last = byteAt(low, 12), two = constant(6);
  auto highBits = [&](Value x) { return shiftLeft(shiftRight(x, two), 4); };
  Value scale = select(isFirst, mask(scales, 63), join(mask(last, 15), highBits(scales)));
  Value minimum = select(isFirst, mask(least, 63), join(shiftRight(last, constant(4)), highBits(least)));
  Value byte = byteAt(add(mul(div(place, 64), 32), mod(place, 32)), 16);
  Value code = nibble(byte, mod(number, 2));
  return subf(mulf(mulf(half(0), asFloat(scale)), asFloat(code)), mulf(half(2), asFloat(minimum)));
}

Value ElementEmitter::q6k() {
  Value part = div(place, 128), quarter = div(mod(place, 128), 32), column = mod(place, 32);
  Value low = nibble(byteAt(add(add(mul(part, 64), mul(mod(quarter, 2), 32)), column), 0), div(quarter, 2));
  Value high = mask(shiftRight(byteAt(add(mul(part, 32), column), 128), mul(quarter, 2)), 3);
  Value code = sub(join(low, shiftLeft(high, 4)), 32);
  Value scale = asSigned(byteAt(div(place, 16), 192));
  return mulf(mulf(half(208), asFloat(scale)), asFloat(code));
}

Value ElementEmitter::ofScales() {
  bool isU4 = weights.format == BlockFormat::U4;
  Value code = isU4 ? nibble(byteAt(div(place, 2), 0), mod(place, 2)) : byteAt(place, 0);
  Value scale = tensor::ExtractOp::create(b, loc, weights.scales, ValueRange{row, block});
  if (weights.zeros && !weights.hasPackedZeros())
    return mulf(scale, subf(asFloat(code), tensor::ExtractOp::create(b, loc, weights.zeros, ValueRange{row, block})));
  Value zero = constant(isU4 ? 8 : 128);
  if (weights.zeros) {
    Value number = asInteger(block);
    Value at = isU4 ? arith::DivUIOp::create(b, loc, block, e.index(2)).getResult() : block;
    Value byte = asUnsigned(tensor::ExtractOp::create(b, loc, weights.zeros, ValueRange{row, at}));
    zero = isU4 ? nibble(byte, mod(number, 2)) : byte;
  }
  return mulf(scale, asFloat(arith::SubIOp::create(b, loc, code, zero)));
}

} // namespace

Value attn::emitDequantizedElement(OpBuilder &b, Location loc, const QuantizedWeights &weights, Value row, Value column,
                                   Type type) {
  Value element = ElementEmitter(b, loc, weights, row, column).emit();
  return type.isF32() ? element : Value(arith::TruncFOp::create(b, loc, type, element));
}
