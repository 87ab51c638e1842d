//===- Attn.h - The attn dialect in C++ --------------------------*- C++ -*-===//
//
// What C++ code sees of the dialect: attributes, ops, and the small vocabulary around them.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_IR_ATTN_H
#define SACCADE_DIALECT_ATTN_IR_ATTN_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/TilingInterface.h"
#include <optional>

namespace saccade::attn {
/// The type in which scores and sums over `elementType` are held: f64 for f64, else f32.
mlir::FloatType getScoreType(mlir::Type elementType);
} // namespace saccade::attn

#include "saccade/Dialect/Attn/IR/AttnDialect.h.inc"
#include "saccade/Dialect/Attn/IR/AttnEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "saccade/Dialect/Attn/IR/AttnAttributes.h.inc"

#include "saccade/Dialect/Attn/IR/AttnInterfaces.h.inc"

#define GET_OP_CLASSES
#include "saccade/Dialect/Attn/IR/AttnOps.h.inc"

namespace saccade::attn {

/// The attribute that names the dynamic extents of an entry's argument, one string a dimension, empty for one without a
/// name: extents of one name are equal in all calls, which the shape function checks.
inline constexpr llvm::StringLiteral dimNamesAttr = "attn.dim_names";

/// Where the index arguments stand in a region: all but masks have a score or a weight in front of them.
struct RegionArguments {
  mlir::Value score; ///< of a weight region the weight; null in a mask region
  mlir::Value batch, head, query, key;
  mlir::Block::BlockArgListType captures;
};

/// Names the arguments of the entry block of a mask region or (`isScore`) of one that takes a score or a weight. The
/// region must not be empty.
RegionArguments getRegionArguments(mlir::Region &region, bool isScore);

/// A region of attention and the clause that it is written as.
struct NamedRegion {
  llvm::StringRef name;
  mlir::Region *region;
  bool isMask() const { return name == "mask"; }
};

/// The regions that are not empty, in the order in which they are printed: mask, score, weight, tallies.
llvm::SmallVector<NamedRegion> getNamedRegions(ScoringOpInterface op);

/// Copies the regions of `from` into `to`, which has as many tallies.
void cloneRegions(ScoringOpInterface from, ScoringOpInterface to);

/// Whether what `weight` yields is proportional to the weight: twice as much for twice the weight, whatever else it
/// reads. Then it may be asked before the weights' sum is known. False means: could not be shown.
bool isProportional(mlir::Region &weight);

/// The extent of dimension `dim` of `value`, whose dimensions are named `dims`: a constant attribute where it is
/// static, a `dim` op else, 1 where the operand does not have that dimension.
mlir::OpFoldResult getDimSize(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value, DimsAttr dims, Dim dim);

/// The static extent, 1 where the operand lacks `dim`, `ShapedType::kDynamic` where it is not known.
int64_t getStaticDimSize(mlir::Value value, DimsAttr dims, Dim dim);

/// The scale of `op` as a constant, 1/sqrt(d_k) by default; nothing where it is a run-time value or d_k is dynamic.
std::optional<double> getConstantScale(ScoringOpInterface op);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_IR_ATTN_H
