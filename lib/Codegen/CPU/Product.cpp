//===- Product.cpp - Products of k-packs in vector registers -------------------===//
//
// The forms whose units are k-packs, and the list of all forms. MatrixProduct.cpp has those of blocks, TileProduct.cpp
// those in tile registers.
//
//===----------------------------------------------------------------------===//
#include "Product.h"
#include "Pack.h"
#include "SVE.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "saccade/Support/Kernels.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::cpu;
using attn::ProductForm;

//===----------------------------------------------------------------------===//
// All forms
//===----------------------------------------------------------------------===//

void cpu::setKernelFamily(Emitter &e, Operation *op, const ProductTraits &product, StringRef form) {
  auto task = op->getParentOfType<FunctionOpInterface>();
  if (!task)
    return;
  std::string instruction = product.instruction(e.target, e.type.isF64());
  task->setAttr(familyAttr, e.b.getStringAttr(e.target.name + " " + form + ", " + instruction));
}

void Product::packRows(Emitter &e, Value src, Value rows, Value paddedRows, Value dst, Value signMask) const {
  emitPackRows(e, src, rows, paddedRows, dst, traits, signMask);
}

void Product::packPanels(Emitter &e, Value src, Value rows, Value dst) const {
  emitPackPanels(e, src, rows, dst, traits);
}

void Product::packColumns(Emitter &e, Value src, Value dst) const { emitPackColumns(e, src, dst, traits); }

void Product::forPairs(Emitter &e, ArrayRef<Value> weights,
                       function_ref<void(unsigned, Value, Value, bool)> store) const {
  for (unsigned i = 0; i < weights.size(); i += 2) {
    bool isWhole = i + 1 < weights.size();
    store(i, weights[i], isWhole ? weights[i + 1] : e.splat(0.0), isWhole);
  }
}

void Product::storePairs(Emitter &e, ArrayRef<Value> weights, Value scores, Value row, Value column) const {
  forPairs(e, weights, [&](unsigned i, Value first, Value second, bool) {
    e.storeVector(emitRoundToPairs(e, first, second), scores,
                  {row, e.add(e.div(column, traits.kPackElements), i / 2 * e.lanes())});
  });
}

//===----------------------------------------------------------------------===//
// In vector registers
//===----------------------------------------------------------------------===//

Value VectorProduct::loadRow(Emitter &e, Value rows, Value row, unsigned i, Value k) const {
  return e.load(rows, {e.add(row, i), k});
}

Value VectorProduct::loadWeight(Emitter &e, Value weights, Value row, unsigned i, Value k) const {
  return e.load(weights, {e.add(row, i), k});
}

SmallVector<Value> VectorProduct::multiplyPanel(Emitter &e, RegisterBlock block, int64_t units, Value rows, Value row,
                                                Value panels, Value panel) const {
  Value zero = arith::ConstantOp::create(e.b, e.loc, e.b.getZeroAttr(sumType(e)));
  SmallVector<Value> zeros(block.rows * block.vectors, zero);
  return addPanel(e, block, units, zeros, rows, row, panels, panel);
}

SmallVector<Value> VectorProduct::addPanel(Emitter &e, RegisterBlock block, int64_t units, ArrayRef<Value> acc,
                                           Value rows, Value row, Value panels, Value panel) const {
  return multiply(
      e, block, e.index(0), e.index(units), acc, [&](unsigned i, Value k) { return loadRow(e, rows, row, i, k); },
      [&](Value k, unsigned j) { return e.loadVector(panels, {panel, k, e.index(j * e.lanes())}); });
}

SmallVector<Value> VectorProduct::multiplyColumns(Emitter &e, RegisterBlock block, Value begin, Value end,
                                                  ArrayRef<Value> acc, Value weights, Value row, Value columns,
                                                  Value column) const {
  return multiply(
      e, block, begin, end, acc, [&](unsigned i, Value k) { return loadWeight(e, weights, row, i, k); },
      [&](Value k, unsigned j) {
        return e.loadVector(columns, {k, e.add(e.mul(column, traits.kPacks), j * e.lanes())});
      });
}

/// sum + x · y for the k-pack x and the vector y, by the form of an AArch64 instruction that reads x from a lane:
/// loading x then takes no vector instruction, unlike `ld1r` of NEON, which broadcasts it. A statement, because LLVM
/// selects the form with a lane only for some values: never for a bfdot of a load, and not for a load that advances its
/// address.
static Value multiplyAddLane(Emitter &e, StringRef instruction, Value x, Value y, Value sum) {
  Value nothing = LLVM::PoisonOp::create(e.b, e.loc, e.vectorType());
  Value first = LLVM::ConstantOp::create(e.b, e.loc, e.b.getI32IntegerAttr(0));
  Value lane = LLVM::InsertElementOp::create(e.b, e.loc, nothing, x, first);
  auto statement = LLVM::InlineAsmOp::create(
      e.b, e.loc, e.vectorType(), ValueRange{sum, y, lane}, instruction, /*constraints=*/"=w,0,w,w",
      /*has_side_effects=*/false, /*is_align_stack=*/false, LLVM::tailcallkind::TailCallKind::None,
      LLVM::AsmDialectAttr(), ArrayAttr());
  return statement.getResult(0);
}

SmallVector<Value> KPackProduct::multiply(Emitter &e, RegisterBlock block, Value begin, Value end, ArrayRef<Value> acc,
                                          function_ref<Value(unsigned, Value)> a,
                                          function_ref<Value(Value, unsigned)> b) const {
  if (e.target.hasLaneProducts)
    return emitMicrokernel(e, block, begin, end, acc, a, b, [&](Value x, Value y, Value sum) {
      return multiplyAddLane(e, laneInstruction(e.type.isF64()), x, y, sum);
    });
  auto broadcast = [&](unsigned i, Value k) { return e.broadcast(a(i, k)); };
  return emitMicrokernel(e, block, begin, end, acc, broadcast, b,
                         [&](Value x, Value y, Value sum) { return multiplyAdd(e, x, y, sum); });
}

namespace {

/// Elements of the compute type.
class MultiplyAdd : public KPackProduct {
public:
  MultiplyAdd() : KPackProduct(ProductForm::MultiplyAdd) {}

  Value multiplyAdd(Emitter &e, Value x, Value y, Value sum) const override {
    // For vector.fma LLVM may select `fmad`, which writes the sum into another register.
    return e.target.hasSVE ? emitSVE(e, "llvm.aarch64.sve.fmla", e.vectorType(), {emitAllLanes(e), sum, x, y})
                           : e.fma(x, y, sum);
  }
  void storeWeights(Emitter &e, ArrayRef<Value> weights, Value scores, Value row, Value column) const override {
    for (auto [i, weight] : llvm::enumerate(weights))
      e.storeVector(weight, scores, {row, e.add(column, i * e.lanes())});
  }

protected:
  StringRef laneInstruction(bool isF64) const override {
    return isF64 ? "fmla $0.2d, $2.2d, $3.d[0]" : "fmla $0.4s, $2.4s, $3.s[0]";
  }
};

/// Pairs of bf16.
class Pairs : public KPackProduct {
public:
  Pairs() : KPackProduct(ProductForm::Pairs) {}

  Value multiplyAdd(Emitter &e, Value x, Value y, Value sum) const override {
    if (e.target.hasSVE)
      return emitSVE(e, "llvm.aarch64.sve.bfdot", e.vectorType(),
                     {sum, emitScalablePairs(e, x), emitScalablePairs(e, y)});
    auto pairs = VectorType::get({2 * e.lanes()}, e.b.getBF16Type());
    auto elements = [&](Value kPacks) -> Value { return vector::BitCastOp::create(e.b, e.loc, pairs, kPacks); };
    if (e.target.bf16Dot == BF16Dot::BFDOT)
      return LLVM::CallIntrinsicOp::create(e.b, e.loc, e.vectorType(),
                                           e.b.getStringAttr("llvm.aarch64.neon.bfdot.v4f32.v8bf16"),
                                           ValueRange{sum, elements(x), elements(y)})
          .getResult(0);
    return x86vector::DotBF16Op::create(e.b, e.loc, e.vectorType(), sum, elements(x), elements(y));
  }
  Value loadUnpacked(Emitter &e, Value matrix, Value row, Value k) const override {
    auto pair = VectorType::get({2}, e.b.getBF16Type()), one = VectorType::get({1}, e.type);
    Value both = vector::LoadOp::create(e.b, e.loc, pair, matrix, ValueRange{row, e.mul(k, 2)});
    return vector::ExtractOp::create(e.b, e.loc, vector::BitCastOp::create(e.b, e.loc, one, both),
                                     ArrayRef<int64_t>{0});
  }
  void storeWeights(Emitter &e, ArrayRef<Value> weights, Value scores, Value row, Value column) const override {
    storePairs(e, weights, scores, row, column);
  }

protected:
  StringRef laneInstruction(bool) const override { return "bfdot $0.4s, $2.8h, $3.2h[0]"; }
};

/// Four int8, with sums in i32. Packing copies k-packs.
class Int8Quads : public KPackProduct {
public:
  using KPackProduct::KPackProduct;

  VectorType sumType(Emitter &e) const override { return VectorType::get({e.lanes()}, e.b.getI32Type()); }
  Value multiplyAdd(Emitter &e, Value x, Value y, Value sum) const override {
    auto bytes = VectorType::get({4 * e.lanes()}, e.b.getI8Type());
    auto elementsOf = [&](Value kPacks) -> Value { return vector::BitCastOp::create(e.b, e.loc, bytes, kPacks); };
    return LLVM::CallIntrinsicOp::create(e.b, e.loc, sum.getType(), e.b.getStringAttr(intrinsic()),
                                         ValueRange{sum, elementsOf(y), elementsOf(x)})
        .getResult(0);
  }
  void packRows(Emitter &e, Value src, Value rows, Value paddedRows, Value dst, Value signMask) const override {
    of(ProductForm::MultiplyAdd).packRows(e, src, rows, paddedRows, dst, signMask);
  }
  void packPanels(Emitter &e, Value src, Value rows, Value dst) const override {
    of(ProductForm::MultiplyAdd).packPanels(e, src, rows, dst);
  }
  void storeWeights(Emitter &, ArrayRef<Value>, Value, Value, Value) const override {
    llvm_unreachable("weights are not rounded to int8");
  }

protected:
  /// (sums, elements of the RHS, elements of the LHS) -> sums
  virtual StringRef intrinsic() const = 0;
  StringRef laneInstruction(bool) const override { llvm_unreachable("an instruction of x86"); }
};

/// Signed in the LHS and unsigned in the RHS.
class MixedInt8Quads : public Int8Quads {
public:
  MixedInt8Quads() : Int8Quads(ProductForm::Int8Dot) {}

  bool hasUnsignedRHS() const override { return true; }

protected:
  StringRef intrinsic() const override { return "llvm.x86.avx512.vpdpbusd.512"; }
};

/// Signed in both operands.
class SignedInt8Quads : public Int8Quads {
public:
  SignedInt8Quads() : Int8Quads(ProductForm::SignedInt8Dot) {}

protected:
  StringRef intrinsic() const override { return "llvm.x86.avx2.vpdpbssd.256"; }
};

} // namespace

//===----------------------------------------------------------------------===//
// List of forms
//===----------------------------------------------------------------------===//

const Product &Product::of(ProductForm form) {
  static const MultiplyAdd multiplyAdd;
  static const Pairs pairs;
  static const MixedInt8Quads mixedInt8Quads;
  static const SignedInt8Quads signedInt8Quads;
  switch (form) {
  case ProductForm::MultiplyAdd:
    return multiplyAdd;
  case ProductForm::Pairs:
    return pairs;
  case ProductForm::Int8Dot:
    return mixedInt8Quads;
  case ProductForm::SignedInt8Dot:
    return signedInt8Quads;
  case ProductForm::Blocks:
    return blockProduct();
  case ProductForm::Int8Blocks:
    return int8BlockProduct();
  case ProductForm::Tiles:
    return tileProduct();
  case ProductForm::SplitTiles:
    return splitTileProduct();
  }
  llvm_unreachable("unknown form");
}

const VectorProduct &Product::inVectors(ProductForm form) {
  assert(!traitsOf(form).inTiles);
  return static_cast<const VectorProduct &>(of(form));
}

const KPackProduct &Product::ofKPacks(ProductForm form) {
  assert(traitsOf(form).kPacks == 1);
  return static_cast<const KPackProduct &>(inVectors(form));
}
