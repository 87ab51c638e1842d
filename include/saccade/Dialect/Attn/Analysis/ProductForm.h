//===- ProductForm.h - How operands are multiplied on a CPU -------*- C++ -*-===//
//
// A product form says how the operands of a matmul are packed and multiplied. Target and element types determine it,
// once. The table has a row for each form, and Codegen/CPU/Product.h a class that emits its code.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_ANALYSIS_PRODUCTFORM_H
#define SACCADE_DIALECT_ATTN_ANALYSIS_PRODUCTFORM_H

#include "mlir/IR/AffineExpr.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Support/CPUTarget.h"

namespace saccade {

/// A row of the table of product forms. A lane of 32 bits of a packed operand has a k-pack: consecutive elements along
/// K. A unit is what an accumulator adds at once: a k-pack, or a row of a block of two k-packs. Elements that are sums
/// of `parts` numbers have a unit for each part.
struct ProductTraits {
  attn::ProductForm form;
  unsigned kPackElements; ///< elements of a k-pack
  unsigned kPacks;        ///< k-packs of a unit
  unsigned parts;         ///< numbers whose sum is an element
  bool inTiles;           ///< whether accumulators are in tile registers
  bool copiesLHS;         ///< whether a matmul always copies its LHS, and thus permits any K
  /// Packed operands have whole steps of `step` elements, with zeros beyond the end of K, and `unitsOfStep` units each.
  int64_t step, unitsOfStep;
  /// The target's name of the multiply instruction, for reports.
  std::string (*instruction)(const CPUTarget &target, bool isF64);
  /// Whether the target has the instruction, and it multiplies elements of these types with sufficient accuracy.
  bool (*supports)(const CPUTarget &target, mlir::Type lhs, mlir::Type rhs, mlir::Type result);

  /// Elements along K of a unit. As many units as an element has parts have the same elements.
  unsigned elements() const { return kPackElements * kPacks; }
  /// Elements along K for each unit.
  unsigned stride() const { return elements() / parts; }
  /// The units of `depth` elements along K.
  int64_t units(int64_t depth) const { return llvm::divideCeil(depth, step) * unitsOfStep; }
  mlir::AffineExpr units(mlir::AffineExpr depth) const { return depth.ceilDiv(step) * unitsOfStep; }
  /// The rows of queries that attention computes together.
  int64_t groupRows() const { return inTiles ? tileRowGroup : rowGroup; }
  /// Whether weights are rounded to 16 bits.
  bool roundsWeights() const { return elements() > parts; }
};

const ProductTraits &traitsOf(attn::ProductForm form);

/// The form of matmuls with packed operands of these element types. In tile registers a product of two f16 has an error
/// of up to 2⁻¹⁸, which only a `result` of f16 permits; for others f16 is converted to f32.
const ProductTraits &chooseProduct(const CPUTarget &target, mlir::Type lhs, mlir::Type rhs, mlir::Type result);
/// The form of attention with packed operands of type `element`.
inline const ProductTraits &chooseAttentionProduct(const CPUTarget &target, mlir::Type element) {
  return chooseProduct(target, element, element, element);
}
/// The same for tasks of `rows` rows, which tile registers require to be whole groups.
const ProductTraits &chooseAttentionProduct(const CPUTarget &target, mlir::Type element, int64_t rows);
/// The form of attention that does not pack keys and values. Splitting f16 for tile registers takes longer than the
/// products save.
const ProductTraits &chooseUnpackedProduct(const CPUTarget &target, mlir::Type element, bool permitsTiles);
/// The form of dot products of int8, or null. Products of int8 are slower than those that `attention` computes in tile
/// registers.
const ProductTraits *chooseInt8Product(const CPUTarget &target, mlir::MLIRContext *context,
                                       const ProductTraits &attention);

} // namespace saccade

#endif // SACCADE_DIALECT_ATTN_ANALYSIS_PRODUCTFORM_H
