//===- ExpandIntrinsics.cpp - Generic code for AVX-512 intrinsics --------------===//
//
// Defines the intrinsics of `v4`, `v4-bf16` and `v4-amx` kernels as functions of generic vector code with the same
// results, bit for bit (Intel SDM vol. 2; the comments name the instructions). NaN payloads may differ, and so may a
// result of vdpbf16ps or tdpbf16ps that rounds up to the least normal number: Sapphire Rapids and Zen 4 flush it to 0.
// The code generator then splits the vectors, so that a processor with AVX2 runs the same kernels. The functions are
// not inlined, which keeps kernels small.
//
//===----------------------------------------------------------------------===//
#include "ExpandIntrinsics.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include <cmath>

using namespace llvm;

namespace {

/// Arithmetic on lanes of f32 or f64, or on integers of the same width that hold their bits.
class Lanes {
public:
  Lanes(IRBuilder<> &b, Type *floats)
      : b(b), floats(floats), bits(floats->getScalarSizeInBits()), mantissa(bits == 64 ? 52 : 23),
        bias(bits == 64 ? 1023 : 127) {}

  Value *real(double value) { return ConstantFP::get(floats, value); }
  Value *integer(int64_t value) { return ConstantInt::getSigned(integers(), value); }
  Value *toBits(Value *x) { return b.CreateBitCast(x, integers()); }
  Value *fromBits(Value *x) { return b.CreateBitCast(x, floats); }
  Value *clamp(Value *x, int64_t low, int64_t high) {
    return b.CreateBinaryIntrinsic(Intrinsic::smin, b.CreateBinaryIntrinsic(Intrinsic::smax, x, integer(low)),
                                   integer(high));
  }
  /// The bits of the exponent in place, of a float's bits.
  Value *exponentOf(Value *x) { return b.CreateAnd(x, integer(int64_t((1 << (bits - mantissa - 1)) - 1) << mantissa)); }
  Value *signOf(Value *x) { return b.CreateAnd(x, integer(INT64_MIN >> (64 - bits))); }
  /// Denormal numbers become 0 of the same sign.
  Value *flush(Value *x) {
    Value *isZero = b.CreateICmpEQ(exponentOf(toBits(x)), integer(0));
    return b.CreateSelect(isZero, fromBits(signOf(toBits(x))), x);
  }
  Value *isInfinite(Value *x) { return b.CreateFCmpOEQ(b.CreateUnaryIntrinsic(Intrinsic::fabs, x), real(INFINITY)); }
  /// 2^n for a normal result.
  Value *powerOf2(Value *n) { return fromBits(b.CreateShl(b.CreateAdd(n, integer(bias)), mantissa)); }

  Value *reduceDown(Value *x);
  Value *scalef(Value *x, Value *y);
  /// The lanes of `x` whose bit in `mask` is set, and those of `y`.
  Value *select(Value *mask, Value *x, Value *y) {
    auto *flags = FixedVectorType::get(b.getInt1Ty(), mask->getType()->getIntegerBitWidth());
    return b.CreateSelect(b.CreateBitCast(mask, flags), x, y);
  }
  /// sum + x · y of the odd or even bf16 of each lane, where denormal operands and results are 0.
  Value *multiplyOdd(Value *x, Value *y, Value *sum) { return multiply(odd(x), odd(y), sum); }
  Value *multiplyEven(Value *x, Value *y, Value *sum) { return multiply(even(x), even(y), sum); }
  Value *dotBF16(Value *sum, Value *left, Value *right);
  Value *narrow(Value *x);
  Value *dotInt8(Value *sum, Value *left, Value *right);
  /// vpermps: the lane of `table` that the low bits of each index name.
  Value *lookUp(Value *table, Value *indices) {
    unsigned count = cast<FixedVectorType>(floats)->getNumElements();
    Value *result = Constant::getNullValue(floats);
    for (unsigned lane = 0; lane < count; ++lane) {
      Value *index = b.CreateAnd(b.CreateExtractElement(indices, lane), count - 1);
      result = b.CreateInsertElement(result, b.CreateExtractElement(table, index), lane);
    }
    return result;
  }

private:
  Value *odd(Value *x) { return flush(fromBits(b.CreateAnd(toBits(x), integer(int32_t(0xffff0000))))); }
  Value *even(Value *x) { return flush(fromBits(b.CreateShl(toBits(x), 16))); }
  Value *multiply(Value *x, Value *y, Value *sum) {
    return flush(b.CreateIntrinsic(Intrinsic::fma, {floats}, {x, y, sum}));
  }
  Type *integers() { return floats->getWithNewType(b.getIntNTy(bits)); }

  IRBuilder<> &b;
  Type *floats;
  unsigned bits, mantissa;
  int64_t bias;
};

/// vreduceps and vreducepd with immediate 1: x − ⌊x⌋, rounded down, so that integers give −0. Only negative x near 0
/// are rounded.
Value *Lanes::reduceDown(Value *x) {
  Value *floor = b.CreateUnaryIntrinsic(Intrinsic::floor, x);
  Value *nearest = b.CreateFSub(x, floor);
  Value *isUp = b.CreateFCmpOGT(b.CreateFAdd(nearest, floor), x);
  Value *down = b.CreateSub(toBits(nearest), b.CreateZExt(isUp, integers()));
  Value *result = b.CreateSelect(b.CreateFCmpOEQ(nearest, real(0.0)), real(-0.0), fromBits(down));
  return b.CreateSelect(isInfinite(x), real(0.0), result);
}

/// vscalefps and vscalefpd: x · 2^⌊y⌋, rounded once. x is m · 2^e with 1 ≤ m < 2, and the power is multiplied in two
/// halves: only the second product can round.
Value *Lanes::scalef(Value *x, Value *y) {
  int64_t least = 1 - bias - int64_t(mantissa) - 4, greatest = bias + 4;
  double far = double(2 * (greatest - least));
  // Comparisons in this order make NaN a number.
  Value *floor = b.CreateUnaryIntrinsic(Intrinsic::floor, y);
  floor = b.CreateSelect(b.CreateFCmpOGT(floor, real(-far)), floor, real(-far));
  floor = b.CreateSelect(b.CreateFCmpOLT(floor, real(far)), floor, real(far));
  Value *exponent = b.CreateSExt(b.CreateFPToSI(floor, floats->getWithNewType(b.getInt32Ty())), integers());

  Value *isSmall = b.CreateICmpEQ(exponentOf(toBits(x)), integer(0));
  Value *normal = b.CreateSelect(isSmall, b.CreateFMul(x, real(std::ldexp(1.0, mantissa + 1))), x);
  exponent = b.CreateSub(exponent, b.CreateSelect(isSmall, integer(mantissa + 1), integer(0)));
  Value *own = exponentOf(toBits(normal));
  exponent = b.CreateAdd(exponent, b.CreateSub(b.CreateLShr(own, mantissa), integer(bias)));
  Value *significand = fromBits(b.CreateOr(b.CreateXor(toBits(normal), own), integer(bias << mantissa)));

  exponent = clamp(exponent, least, greatest);
  Value *half = b.CreateAShr(exponent, 1);
  Value *scaled = b.CreateFMul(b.CreateFMul(significand, powerOf2(half)), powerOf2(b.CreateSub(exponent, half)));

  // Products with 0, 1, infinity and NaN give the results for 0, infinities and NaN, but for one: 2^±∞ replaces a quiet
  // NaN.
  Value *factor = b.CreateSelect(b.CreateFCmpOEQ(y, real(-INFINITY)), real(0.0), y);
  factor = b.CreateSelect(b.CreateOr(isInfinite(y), b.CreateFCmpUNO(y, y)), factor, real(1.0));
  Value *quiet = b.CreateOr(exponentOf(integer(-1)), integer(int64_t(1) << (mantissa - 1)));
  Value *isQuiet = b.CreateICmpEQ(b.CreateAnd(toBits(x), quiet), quiet);
  Value *special = b.CreateSelect(b.CreateAnd(isQuiet, isInfinite(y)), factor, b.CreateFMul(x, factor));
  Value *isSpecial = b.CreateFCmpUNO(b.CreateFSub(x, x), b.CreateFMul(x, factor)); // infinity or NaN
  isSpecial = b.CreateOr(isSpecial, b.CreateFCmpOEQ(x, real(0.0)));
  return b.CreateSelect(isSpecial, special, scaled);
}

/// vdpbf16ps: adds the products of the odd elements, then of the even ones, with one rounding each. Denormal operands
/// and results are 0.
Value *Lanes::dotBF16(Value *sum, Value *left, Value *right) {
  return multiplyEven(left, right, multiplyOdd(left, right, flush(sum)));
}

/// vcvtneps2bf16: rounds to the nearest, to even in ties. Denormal operands are 0.
Value *Lanes::narrow(Value *x) {
  Value *whole = toBits(flush(x));
  Value *isOdd = b.CreateAnd(b.CreateLShr(whole, 16), integer(1));
  Value *rounded = b.CreateAdd(b.CreateAdd(whole, integer(0x7fff)), isOdd);
  Value *quiet = b.CreateOr(whole, integer(1 << 22));
  Value *high = b.CreateLShr(b.CreateSelect(b.CreateFCmpUNO(x, x), quiet, rounded), 16);
  return b.CreateBitCast(b.CreateTrunc(high, floats->getWithNewType(b.getInt16Ty())),
                         floats->getWithNewType(b.getBFloatTy()));
}

/// vpdpbusd: adds the products of four unsigned bytes with four signed ones to each i32, which wraps around.
Value *Lanes::dotInt8(Value *sum, Value *left, Value *right) {
  for (unsigned byte = 0; byte < 4; ++byte) {
    auto select = [&](Value *x) {
      SmallVector<int> mask;
      for (unsigned lane = 0; lane < cast<FixedVectorType>(sum->getType())->getNumElements(); ++lane)
        mask.push_back(int(4 * lane + byte));
      return b.CreateShuffleVector(x, mask);
    };
    Value *product =
        b.CreateMul(b.CreateZExt(select(left), sum->getType()), b.CreateSExt(select(right), sum->getType()));
    sum = b.CreateAdd(sum, product);
  }
  return sum;
}

//===----------------------------------------------------------------------===//
// Tile registers
//===----------------------------------------------------------------------===//

/// Rows of a tile register, and elements of 32 bits of a row.
constexpr unsigned tileSize = 16;

/// The type of a tile register in generic code.
Type *tileType(LLVMContext &context) { return FixedVectorType::get(Type::getFloatTy(context), tileSize * tileSize); }

/// Expands the intrinsics of tile registers with all rows and columns. Tiles are in memory meanwhile.
class Tiles {
public:
  Tiles(IRBuilder<> &b, Function &function)
      : b(b), function(function), row(FixedVectorType::get(b.getFloatTy(), tileSize)), type(tileType(b.getContext())) {}

  Value *load(Value *address, Value *stride) {
    Value *tile = b.CreateAlloca(type);
    forRows([&](Value *i) {
      Value *elements = b.CreateAlignedLoad(row, b.CreatePtrAdd(address, b.CreateMul(i, stride)), Align(1));
      b.CreateStore(elements, rowOf(tile, i));
    });
    return b.CreateLoad(type, tile);
  }
  void store(Value *address, Value *stride, Value *x) {
    Value *tile = toMemory(x);
    forRows([&](Value *i) {
      Value *elements = b.CreateLoad(row, rowOf(tile, i));
      b.CreateAlignedStore(elements, b.CreatePtrAdd(address, b.CreateMul(i, stride)), Align(1));
    });
  }
  Value *dotBF16(Value *sum, Value *left, Value *right);

private:
  Value *toMemory(Value *x) {
    Value *tile = b.CreateAlloca(type);
    b.CreateStore(x, tile);
    return tile;
  }
  Value *rowOf(Value *tile, Value *i) { return b.CreateGEP(row, tile, i); }
  /// Emits a loop over the rows of a tile and continues after it.
  void forRows(function_ref<void(Value *i)> body) {
    Instruction *after = b.CreateUnreachable();
    auto [inside, i] = SplitBlockAndInsertSimpleForLoop(b.getInt64(tileSize), after->getIterator());
    b.SetInsertPoint(inside->getParent(), inside->getIterator());
    body(i);
    BasicBlock *rest = after->getParent();
    b.SetInsertPoint(rest, after->eraseFromParent());
  }

  IRBuilder<> &b;
  Function &function;
  Type *row, *type;
};

/// tdpbf16ps: for each row, sums of the products of even elements and of odd ones, which are added to each other and
/// then to the row of `sum`. Denormal operands and results are 0.
Value *Tiles::dotBF16(Value *sum, Value *left, Value *right) {
  Lanes lanes(b, row);
  Value *result = toMemory(sum), *lhs = toMemory(left), *rhs = toMemory(right);
  Value *even = b.CreateAlloca(row), *odd = b.CreateAlloca(row);
  forRows([&](Value *i) {
    b.CreateStore(lanes.real(0.0), even);
    b.CreateStore(lanes.real(0.0), odd);
    forRows([&](Value *k) {
      Value *element = b.CreateLoad(b.getFloatTy(), b.CreateGEP(b.getFloatTy(), rowOf(lhs, i), k));
      Value *x = b.CreateVectorSplat(tileSize, element), *y = b.CreateLoad(row, rowOf(rhs, k));
      b.CreateStore(lanes.multiplyEven(x, y, b.CreateLoad(row, even)), even);
      b.CreateStore(lanes.multiplyOdd(x, y, b.CreateLoad(row, odd)), odd);
    });
    Value *products = lanes.flush(b.CreateFAdd(b.CreateLoad(row, even), b.CreateLoad(row, odd)));
    Value *before = lanes.flush(b.CreateLoad(row, rowOf(result, i)));
    b.CreateStore(lanes.flush(b.CreateFAdd(before, products)), rowOf(result, i));
  });
  return b.CreateLoad(type, result);
}

/// The value of intrinsic `name` of tile registers for the arguments, null for a store, or nothing if it has no
/// expansion.
std::optional<Value *> expandTile(IRBuilder<> &b, StringRef name, Function &function) {
  Tiles tiles(b, function);
  auto argument = [&](unsigned i) { return function.getArg(i); };
  if (name == "llvm.x86.tilezero.internal")
    return Constant::getNullValue(tileType(b.getContext()));
  if (name == "llvm.x86.tileloadd64.internal")
    return tiles.load(argument(2), argument(3));
  if (name == "llvm.x86.tdpbf16ps.internal")
    return tiles.dotBF16(argument(3), argument(4), argument(5));
  if (name != "llvm.x86.tilestored64.internal")
    return std::nullopt;
  tiles.store(argument(2), argument(3), argument(4));
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Intrinsics
//===----------------------------------------------------------------------===//

/// The value of intrinsic `name` for the arguments, or nothing if it has no expansion.
std::optional<Value *> expand(IRBuilder<> &b, StringRef name, Function &function) {
  if (!name.consume_front("llvm.x86.avx512"))
    return expandTile(b, name, function);
  Lanes lanes(b, function.getArg(0)->getType());
  if (name == ".mask.reduce.ps.512" || name == ".mask.reduce.pd.512")
    return lanes.reduceDown(function.getArg(0));
  if (name == ".mask.scalef.ps.512" || name == ".mask.scalef.pd.512")
    return lanes.select(function.getArg(3), lanes.scalef(function.getArg(0), function.getArg(1)), function.getArg(2));
  if (name == "bf16.dpbf16ps.512")
    return lanes.dotBF16(function.getArg(0), function.getArg(1), function.getArg(2));
  if (name == ".permvar.sf.512")
    return lanes.lookUp(function.getArg(0), function.getArg(1));
  if (name == ".vpdpbusd.512" || name == ".vpdpbusd.256")
    return lanes.dotInt8(function.getArg(0), function.getArg(1), function.getArg(2));
  if (name == "bf16.cvtne2ps2bf16.512") {
    Value *low = lanes.narrow(function.getArg(1)), *high = lanes.narrow(function.getArg(0));
    SmallVector<int> all = llvm::to_vector(llvm::seq(32));
    return b.CreateShuffleVector(low, high, all);
  }
  return std::nullopt;
}

/// Whether a call has the constant operands that its expansion implements: the current rounding, of vreduce all lanes
/// and the immediate, and all rows and columns of a tile register.
bool isImplemented(StringRef name, const CallBase &call) {
  auto isConstant = [&](unsigned operand, int64_t value) {
    auto *number = dyn_cast<ConstantInt>(call.getArgOperand(operand));
    return number && number->getSExtValue() == value;
  };
  for (unsigned i = 0; i < call.arg_size() && call.getArgOperand(i)->getType()->isIntegerTy(16); ++i)
    if (name.starts_with("llvm.x86.t") && !isConstant(i, i == 0 ? tileSize : tileSize * 4))
      return false;
  if (!name.contains(".mask."))
    return true;
  unsigned count = call.arg_size();
  return isConstant(count - 1, 4) && (!name.contains(".reduce.") || (isConstant(count - 2, -1) && isConstant(1, 1)));
}

} // namespace

/// `type`, or that of a tile register in generic code.
static Type *expandedType(Type *type) { return type->isX86_AMXTy() ? tileType(type->getContext()) : type; }

Error saccade::expandIntrinsics(Module &module, const CPUTarget &target) {
  for (Function &function : module)
    for (Instruction &instruction : instructions(function))
      instruction.mutateType(expandedType(instruction.getType()));
  for (Function &function : llvm::make_early_inc_range(module)) {
    // The processors that run expanded code have AVX2.
    if (!function.getName().starts_with("llvm.x86.") || function.getName().starts_with("llvm.x86.avx2."))
      continue;
    FunctionType *declared = function.getFunctionType();
    auto *type = FunctionType::get(expandedType(declared->getReturnType()),
                                   map_to_vector(declared->params(), expandedType), /*isVarArg=*/false);
    auto *expanded = Function::Create(type, GlobalValue::InternalLinkage,
                                      "expanded." + function.getName().drop_front(strlen("llvm.x86.")), module);
    expanded->addFnAttr(Attribute::NoInline);
    IRBuilder<> b(BasicBlock::Create(module.getContext(), "entry", expanded));
    std::optional<Value *> result = expand(b, function.getName(), *expanded);
    bool isKnown = result && all_of(function.users(), [&](User *user) {
                     return isa<CallBase>(user) && isImplemented(function.getName(), *cast<CallBase>(user));
                   });
    if (!isKnown)
      return createStringError("intrinsic '" + function.getName() + "' has no expansion for target '" + target.name +
                               "'");
    *result ? b.CreateRet(*result) : b.CreateRetVoid();
    for (User *user : function.users())
      cast<CallBase>(user)->mutateFunctionType(type);
    function.replaceAllUsesWith(expanded);
    function.eraseFromParent();
  }
  if (!target.hasBF16Dot())
    return Error::success();
  SmallVector<FPTruncInst *> conversions;
  for (Function &function : module)
    for (Instruction &instruction : instructions(function))
      if (auto *conversion = dyn_cast<FPTruncInst>(&instruction))
        if (conversion->getSrcTy()->getScalarType()->isFloatTy() &&
            conversion->getDestTy()->getScalarType()->isBFloatTy())
          conversions.push_back(conversion);
  for (FPTruncInst *conversion : conversions) {
    IRBuilder<> b(conversion);
    conversion->replaceAllUsesWith(Lanes(b, conversion->getSrcTy()).narrow(conversion->getOperand(0)));
    conversion->eraseFromParent();
  }
  return Error::success();
}
