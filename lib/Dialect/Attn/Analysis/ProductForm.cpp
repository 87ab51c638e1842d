//===- ProductForm.cpp - The table of product forms ----------------------------===//
#include "saccade/Dialect/Attn/Analysis/ProductForm.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace saccade;
using attn::ProductForm;

static bool areF16(Type lhs, Type rhs, Type result) { return lhs.isF16() && rhs.isF16() && result.isF16(); }
static bool areBF16(Type lhs, Type rhs) { return lhs.isBF16() && rhs.isBF16(); }
static bool areInt8(Type lhs, Type rhs) { return lhs.isInteger(8) && rhs.isInteger(8); }

template <const char *text> static std::string named(const CPUTarget &, bool) { return text; }
static constexpr char splitTiles[] = "f16 as two bf16 in tiles (tdpbf16ps)", bf16Tiles[] = "bf16 tiles (tdpbf16ps)",
                      bf16Blocks[] = "bf16 blocks (bfmmla)";
static std::string namedInt8(const CPUTarget &target, bool) {
  return ("int8 scores (" + stringify(target.int8Dot) + ")").str();
}
template <Int8Dot instruction> static bool hasInt8(const CPUTarget &target, Type lhs, Type rhs, Type) {
  return target.int8Dot == instruction && areInt8(lhs, rhs);
}

/// The preferred forms come first. The last one is for all targets and types.
static const ProductTraits table[] = {
    // form, elements of a k-pack, k-packs of a unit, parts, in tile registers, copies LHS, step, units of a step,
    // instruction, supports
    {ProductForm::SplitTiles, 2, 1, 2, true, true, 32, 32, named<splitTiles>,
     [](const CPUTarget &target, Type lhs, Type rhs, Type result) {
       return target.hasTiles && areF16(lhs, rhs, result);
     }},
    {ProductForm::Tiles, 2, 1, 1, true, false, 2, 1, named<bf16Tiles>,
     [](const CPUTarget &target, Type lhs, Type rhs, Type) { return target.hasTiles && areBF16(lhs, rhs); }},
    // Processors with `bfdot` have `bfmmla` too.
    {ProductForm::Blocks, 2, 2, 1, false, true, 4, 1, named<bf16Blocks>,
     [](const CPUTarget &target, Type lhs, Type rhs, Type) {
       return target.bf16Dot == BF16Dot::BFDOT && areBF16(lhs, rhs);
     }},
    {ProductForm::Pairs, 2, 1, 1, false, false, 2, 1,
     [](const CPUTarget &target, bool) { return ("bf16 pairs (" + stringify(target.bf16Dot) + ")").str(); },
     [](const CPUTarget &target, Type lhs, Type rhs, Type) { return target.hasBF16Dot() && areBF16(lhs, rhs); }},
    {ProductForm::Int8Blocks, 4, 2, 1, false, true, 8, 1, namedInt8, hasInt8<Int8Dot::SMMLA>},
    {ProductForm::SignedInt8Dot, 4, 1, 1, false, false, 4, 1, namedInt8, hasInt8<Int8Dot::VPDPBSSD>},
    {ProductForm::Int8Dot, 4, 1, 1, false, false, 4, 1, namedInt8, hasInt8<Int8Dot::VPDPBUSD>},
    {ProductForm::MultiplyAdd, 1, 1, 1, false, false, 1, 1,
     [](const CPUTarget &target, bool isF64) -> std::string {
       return std::string(isF64 ? "f64" : "f32") + (target.hasFMA ? " multiply-add" : " multiply, add");
     },
     [](const CPUTarget &, Type, Type, Type) { return true; }},
};

/// The first form of the table for these element types that is also `permitted`.
static const ProductTraits &choose(const CPUTarget &target, Type lhs, Type rhs, Type result,
                                   function_ref<bool(const ProductTraits &)> permitted) {
  return *llvm::find_if(
      table, [&](const ProductTraits &each) { return each.supports(target, lhs, rhs, result) && permitted(each); });
}

const ProductTraits &saccade::traitsOf(ProductForm form) {
  return *llvm::find_if(table, [&](const ProductTraits &each) { return each.form == form; });
}

const ProductTraits &saccade::chooseProduct(const CPUTarget &target, Type lhs, Type rhs, Type result) {
  return choose(target, lhs, rhs, result, [](const ProductTraits &) { return true; });
}

const ProductTraits &saccade::chooseAttentionProduct(const CPUTarget &target, Type element, int64_t rows) {
  return choose(target, element, element, element,
                [&](const ProductTraits &each) { return !each.inTiles || rows % each.groupRows() == 0; });
}

const ProductTraits &saccade::chooseUnpackedProduct(const CPUTarget &target, Type element, bool permitsTiles) {
  return choose(target, element, element, element, [&](const ProductTraits &each) {
    return each.kPacks == 1 && each.parts == 1 && (permitsTiles || !each.inTiles);
  });
}

const ProductTraits *saccade::chooseInt8Product(const CPUTarget &target, MLIRContext *context,
                                                const ProductTraits &attention) {
  Type int8 = IntegerType::get(context, 8), int32 = IntegerType::get(context, 32);
  const ProductTraits &found = chooseProduct(target, int8, int8, int32);
  return attention.inTiles || found.form == ProductForm::MultiplyAdd ? nullptr : &found;
}
