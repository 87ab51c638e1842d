//===- Product.h - How operands are packed and multiplied ---------*- C++ -*-===//
//
// A class for each form of Analysis/ProductForm.h: the memory of packed operands, packing, and products. Lowerings keep
// loops, masks and prefetches. A new form is a row of that table, and a class here.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_PRODUCT_H
#define SACCADE_LIB_CODEGEN_CPU_PRODUCT_H

#include "Microkernel.h"
#include "saccade/Dialect/Attn/Analysis/ProductForm.h"

namespace saccade::cpu {

class VectorProduct;
class KPackProduct;

/// Packs and multiplies operands in one form. Lengths along K count units (ProductTraits).
class Product {
public:
  explicit Product(attn::ProductForm form) : traits(traitsOf(form)) {}
  virtual ~Product() = default;
  static const Product &of(attn::ProductForm form);
  static const Product &of(const ProductTraits &traits) { return of(traits.form); }
  /// The product of a form without tile registers.
  static const VectorProduct &inVectors(attn::ProductForm form);
  /// The product of a form of k-packs without tile registers.
  static const KPackProduct &ofKPacks(attn::ProductForm form);

  const ProductTraits &traits;

  //===--- Packed operands ---===//
  /// The memory of `rows` rows of an LHS, whose number is even; of panels of as many columns of an RHS as two registers
  /// have lanes; and of an RHS of `columns` columns that is packed as rows.
  virtual llvm::SmallVector<int64_t> rowsShape(int64_t rows, int64_t units) const { return {rows, units}; }
  llvm::SmallVector<int64_t> panelsShape(const Emitter &e, int64_t panels, int64_t units) const {
    return {panels, units, traits.kPacks * 2 * e.lanes()};
  }
  llvm::SmallVector<int64_t> columnsShape(int64_t units, int64_t columns) const {
    return {units, traits.kPacks * columns};
  }
  /// Packs rows of `src` as in `rowsShape`, `panelsShape` and `columnsShape`. See Pack.h for the parameters.
  virtual void packRows(Emitter &e, mlir::Value src, mlir::Value rows, mlir::Value paddedRows, mlir::Value dst,
                        mlir::Value signMask = nullptr) const;
  virtual void packPanels(Emitter &e, mlir::Value src, mlir::Value rows, mlir::Value dst) const;
  virtual void packColumns(Emitter &e, mlir::Value src, mlir::Value dst) const;
  /// The units that packed operands of attention have in memory for `depth` elements.
  virtual int64_t paddedUnits(int64_t depth) const { return traits.units(depth); }
  /// The units that products of keys [begin, end) read: the first one and the end.
  virtual mlir::Value firstUnit(Emitter &e, mlir::Value begin) const { return e.div(begin, traits.elements()); }
  virtual mlir::Value endUnit(Emitter &e, mlir::Value end) const { return e.ceilDiv(end, traits.elements()); }

  /// Clears what products read beyond `depth` elements and the last of `keys` keys, if packing does not: of packed
  /// queries, panels of keys, and values.
  virtual void clearPadding(Emitter &e, int64_t depth, mlir::Value queries, mlir::Value keys, mlir::Value query,
                            mlir::Value key, mlir::Value value) const {}

  //===--- Attention ---===//
  /// Rows of the blocks of a partial group of rows.
  virtual int64_t tailRows() const { return rowTail; }
  /// The register block of `rows` queries and a panel of keys, and of `rows` weights and `vectors` registers of values.
  virtual RegisterBlock scoreBlock(const CPUTarget &target, int64_t rows, bool isTail) const {
    return panelBlock(target, isTail);
  }
  virtual RegisterBlock valueBlock(const CPUTarget &target, int64_t rows, bool isTail, int64_t vectors) const {
    return rowBlock(target, isTail, vectors);
  }
  /// The products of packed rows from `row` on, which have `units` units, and a packed panel.
  virtual llvm::SmallVector<mlir::Value> multiplyPanel(Emitter &e, RegisterBlock block, int64_t units, mlir::Value rows,
                                                       mlir::Value row, mlir::Value panels,
                                                       mlir::Value panel) const = 0;
  /// Adds the products of units [begin, end) of weights, from row `row` of `weights` on, and of the columns from
  /// `column` on to `acc`.
  virtual llvm::SmallVector<mlir::Value> multiplyColumns(Emitter &e, RegisterBlock block, mlir::Value begin,
                                                         mlir::Value end, llvm::ArrayRef<mlir::Value> acc,
                                                         mlir::Value weights, mlir::Value row, mlir::Value columns,
                                                         mlir::Value column) const = 0;
  /// Stores registers of weights over the scores of their columns, which have been read.
  virtual void storeWeights(Emitter &e, llvm::ArrayRef<mlir::Value> weights, mlir::Value scores, mlir::Value row,
                            mlir::Value column) const = 0;

protected:
  /// Calls `store` for pairs of registers of weights from `column` on, the second of which may be missing.
  void forPairs(Emitter &e, llvm::ArrayRef<mlir::Value> weights,
                llvm::function_ref<void(unsigned i, mlir::Value first, mlir::Value second, bool isWhole)> store) const;
  /// Stores weights as pairs of bf16, at half the column.
  void storePairs(Emitter &e, llvm::ArrayRef<mlir::Value> weights, mlir::Value scores, mlir::Value row,
                  mlir::Value column) const;
};

/// Accumulators are in vector registers.
class VectorProduct : public Product {
public:
  using Product::Product;

  /// The units that one accumulator sums in a chain.
  int64_t partLength() const { return sumLength / traits.kPacks; }
  /// The type of accumulators: floats of the compute type, or integers of the same width.
  virtual mlir::VectorType sumType(Emitter &e) const { return e.vectorType(); }
  /// Whether elements of the RHS are unsigned, and those of the LHS signed.
  virtual bool hasUnsignedRHS() const { return false; }

  /// Adds the products of units [begin, end) to `acc` (row-major). `a` returns unit k of row i, or of a pair of rows if
  /// a unit has two k-packs (`loadRow`), and `b` a register of unit k of the columns.
  virtual llvm::SmallVector<mlir::Value>
  multiply(Emitter &e, RegisterBlock block, mlir::Value begin, mlir::Value end, llvm::ArrayRef<mlir::Value> acc,
           llvm::function_ref<mlir::Value(unsigned i, mlir::Value k)> a,
           llvm::function_ref<mlir::Value(mlir::Value k, unsigned j)> b) const = 0;
  /// The operand `a` of rows from `row` on that are packed, or are weights.
  virtual mlir::Value loadRow(Emitter &e, mlir::Value rows, mlir::Value row, unsigned i, mlir::Value k) const;
  virtual mlir::Value loadWeight(Emitter &e, mlir::Value weights, mlir::Value row, unsigned i, mlir::Value k) const;

  llvm::SmallVector<mlir::Value> multiplyPanel(Emitter &e, RegisterBlock block, int64_t units, mlir::Value rows,
                                               mlir::Value row, mlir::Value panels, mlir::Value panel) const override;
  /// The same for accumulators that begin with `acc`.
  llvm::SmallVector<mlir::Value> addPanel(Emitter &e, RegisterBlock block, int64_t units,
                                          llvm::ArrayRef<mlir::Value> acc, mlir::Value rows, mlir::Value row,
                                          mlir::Value panels, mlir::Value panel) const;
  llvm::SmallVector<mlir::Value> multiplyColumns(Emitter &e, RegisterBlock block, mlir::Value begin, mlir::Value end,
                                                 llvm::ArrayRef<mlir::Value> acc, mlir::Value weights, mlir::Value row,
                                                 mlir::Value columns, mlir::Value column) const override;
};

/// Units are k-packs, which lanes multiply.
class KPackProduct : public VectorProduct {
public:
  using VectorProduct::VectorProduct;

  /// sum + x · y for vectors of k-packs.
  virtual mlir::Value multiplyAdd(Emitter &e, mlir::Value x, mlir::Value y, mlir::Value sum) const = 0;
  /// K-pack k of a row of a matrix that is not packed.
  virtual mlir::Value loadUnpacked(Emitter &e, mlir::Value matrix, mlir::Value row, mlir::Value k) const {
    return e.load(matrix, {row, k});
  }

  llvm::SmallVector<mlir::Value> multiply(Emitter &e, RegisterBlock block, mlir::Value begin, mlir::Value end,
                                          llvm::ArrayRef<mlir::Value> acc,
                                          llvm::function_ref<mlir::Value(unsigned i, mlir::Value k)> a,
                                          llvm::function_ref<mlir::Value(mlir::Value k, unsigned j)> b) const override;

protected:
  /// The AArch64 instruction that multiplies a vector by a lane.
  virtual llvm::StringRef laneInstruction(bool isF64) const = 0;
};

/// Sets the kernel family attribute of the task around `op`: target, `form` and the multiply instruction.
void setKernelFamily(Emitter &e, mlir::Operation *op, const ProductTraits &product, llvm::StringRef form);

/// The products that are not in Product.cpp.
const VectorProduct &blockProduct();
const VectorProduct &int8BlockProduct();
const Product &tileProduct();
const Product &splitTileProduct();

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_PRODUCT_H
