//===- Attn.h - The attn dialect in C++ --------------------------*- C++ -*-===//
//
// Declares the attributes and ops of the dialect, and helpers for regions and named dimensions.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_IR_ATTN_H
#define SACCADE_DIALECT_ATTN_IR_ATTN_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/SCF/IR/DeviceMappingInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/TilingInterface.h"
#include "saccade/Dialect/Attn/IR/AttnDialect.h"
#include <optional>

namespace saccade::attn {
/// The type of scores and sums for operands of `elementType`: f64 for f64, else f32.
mlir::FloatType getScoreType(mlir::Type elementType);

/// The state of the online softmax of some rows. Ops take its parts in this order.
struct State {
  mlir::Value acc;                        ///< weighted sums of the values: rows × columns
  mlir::Value max, sum;                   ///< of the exponents, and of the weights: rows
  llvm::SmallVector<mlir::Value> tallies; ///< sums of the bins of each tally region: rows × bins
  mlir::Value rowMax, argmax;             ///< largest score and its position: rows; null if not requested

  State() = default;
  /// The state with `parts`, at least accumulator, max and sum. The other parts are identified by rank and type.
  explicit State(mlir::ValueRange parts);
  /// All parts that are not null.
  llvm::SmallVector<mlir::Value> getParts() const;
};
} // namespace saccade::attn

#include "saccade/Dialect/Attn/IR/AttnEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "saccade/Dialect/Attn/IR/AttnAttributes.h.inc"

namespace saccade::attn {
/// The dimensions of rows, such as those of the log-sum-exp: those of b, h, s that the output has, in this order.
llvm::SmallVector<Dim> getRowDims(DimsAttr outputDims);

/// An operand with its role for diagnostics and its dimensions.
struct NamedOperand {
  llvm::StringRef role;
  mlir::Value value;
  DimsAttr dims;
  /// The static extent of `dim`: 1 if `dims` does not name it, `ShapedType::kDynamic` if it is dynamic.
  int64_t size(Dim dim) const;
};
} // namespace saccade::attn

#include "saccade/Dialect/Attn/IR/AttnInterfaces.h.inc"

#define GET_OP_CLASSES
#include "saccade/Dialect/Attn/IR/AttnOps.h.inc"

namespace saccade::attn {

/// The largest head size of attention: the code size of a kernel grows with it.
inline constexpr int64_t maxHeadSize = 8192;

/// Argument attribute with the names of dynamic dimensions: an array with a string per dimension, empty for an unnamed
/// one. Dimensions of the same name have the same extent in a call; the shape function checks this.
inline constexpr llvm::StringLiteral dimNamesAttr = "attn.dim_names";

/// Argument attribute `attn.updated_by = N`: the memory of the argument receives result N of the public function, which
/// is no result of its entry then. Without it arguments are only read. XLA has the same as `tf.aliasing_output`.
inline constexpr llvm::StringLiteral updatedByAttr = "attn.updated_by";

/// For each argument of a function: the result that updates it in place, or nullopt.
llvm::SmallVector<std::optional<unsigned>> getUpdatingResults(mlir::FunctionOpInterface function);

/// String attribute of a parallel loop: the op that was tiled to it, if its tiles are structured ops and loops that do
/// not show it: "attention_gradient.query". It names the task.
inline constexpr llvm::StringLiteral tiledFromAttr = "attn.tiled_from";

/// The mapping of a parallel loop with `rank` dimensions whose iterations are work items: #attn.task<0> and so on.
mlir::ArrayAttr taskMapping(mlir::MLIRContext *context, unsigned rank);

/// The arguments of a region. The numbers of the pair come before the positions: none in a mask region; a weight in a
/// weight region that is no normalizer; those of `DerivativeOpInterface` in a region of derivatives; a score in all
/// others.
struct RegionArguments {
  mlir::Value score; ///< the first number; null in a mask region
  mlir::Value batch, head, query, key;
  mlir::Block::BlockArgListType captures;
};

/// Returns the arguments of a region that is not empty. `numbers`: how many numbers come before the positions.
RegionArguments getRegionArguments(mlir::Region &region, unsigned numbers);

/// A region of attention and the name of its clause.
struct NamedRegion {
  llvm::StringRef name;
  mlir::Region *region;
  /// The names of the arguments before the positions.
  llvm::ArrayRef<llvm::StringRef> numberNames;
  bool isMask() const { return name == "mask"; }
  /// The number of arguments before the positions.
  unsigned numbers() const { return numberNames.size(); }
  RegionArguments arguments() const { return getRegionArguments(*region, numbers()); }
};

/// The regions that are not empty, in printing order: mask, score, weight, tallies, derivatives.
llvm::SmallVector<NamedRegion> getNamedRegions(ScoringOpInterface op);

/// Copies the regions of `from` into `to`, which has the same number of tallies.
void cloneRegions(ScoringOpInterface from, ScoringOpInterface to);

/// Whether the result of the region `weight` is proportional to its first argument. Such a region can be applied before
/// the sum of the weights is known. False means "not proved".
bool isProportional(mlir::Region &weight);

/// Whether the weight region of `op` takes softmax weights whose sum must be known: keys are read twice.
bool needsSoftmaxWeights(ScoringOpInterface op);

/// The extent of dimension `dim` of `value`: an attribute if it is static, a `dim` op if it is dynamic, 1 if `dims`
/// does not name `dim`.
mlir::OpFoldResult getDimSize(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value, DimsAttr dims, Dim dim);

/// The static extent of `dim`: 1 if `dims` does not name it, `ShapedType::kDynamic` if it is dynamic.
int64_t getStaticDimSize(mlir::Value value, DimsAttr dims, Dim dim);

inline int64_t NamedOperand::size(Dim dim) const { return getStaticDimSize(value, dims, dim); }

/// The number of batches of queries or keys; a ragged sequence is a batch.
mlir::OpFoldResult getBatches(mlir::OpBuilder &b, ScoringOpInterface op, Role role);

/// The number of sequences with a state.
mlir::OpFoldResult getBatches(mlir::OpBuilder &b, LinearOpInterface op);

/// The heads of the output of linear attention: those of the query or, if there are more, those of the value.
mlir::OpFoldResult getOutputHeads(mlir::OpBuilder &b, LinearOpInterface op);

/// The static number of batches, or `ShapedType::kDynamic`.
int64_t getStaticBatches(ScoringOpInterface op, Role role);
int64_t getStaticBatches(LinearOpInterface op);

/// The scale of `op` if it is a constant, 1/sqrt(d_k) by default; nullopt if it is a run-time value or d_k is dynamic.
std::optional<double> getConstantScale(ScoringOpInterface op);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_IR_ATTN_H
