//===- Syntax.h - Shared syntax and verifier of attention ops -----*- C++ -*-===//
//
// Parser, printer and verifier of the clauses that `attn.attention` and other ops of scores share. Private to the
// dialect.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_DIALECT_ATTN_IR_SYNTAX_H
#define SACCADE_LIB_DIALECT_ATTN_IR_SYNTAX_H

#include "saccade/Dialect/Attn/IR/Attn.h"
#include <array>

namespace saccade::attn::syntax {

/// The parsed clauses of an attention op, with unresolved operands.
struct Clauses {
  using Operand = mlir::OpAsmParser::UnresolvedOperand;
  /// An operand in parentheses with its type: `q_len(%n : index)`.
  struct Typed {
    Operand operand;
    mlir::Type type;
  };
  llvm::SmallDenseSet<llvm::StringRef> given; ///< the names of the clauses
  Operand query, key, value;
  DimsAttr queryDims, keyDims, valueDims, outputDims;
  llvm::SmallVector<Operand> captures;
  llvm::SmallVector<mlir::Type> captureTypes;
  /// The types of the region arguments (`getCapturedType`).
  llvm::SmallVector<mlir::Type> capturedTypes;
  std::optional<Typed> queryLength, keyLength, cuSeqlensQ, cuSeqlensK, scaleValue, sink, outputGradient, lse, lseLow,
      delta, queryTangent, keyTangent, valueTangent, scaleTangent;
  mlir::FloatAttr scale;
  mlir::TypeAttr qkType;
  llvm::SmallVector<Operand> at;
  /// Destinations of `into(...)`, on tile ops.
  llvm::SmallVector<Operand> into;
  llvm::SmallVector<mlir::Type> intoTypes;
  std::unique_ptr<mlir::Region> score, mask, weight, gradient, tangent;
  std::unique_ptr<mlir::Region> normalizer; ///< until `joinNormalizer`
  llvm::SmallVector<int64_t> reads;         ///< the captures of the reads that the gradient region differentiates
  llvm::SmallVector<std::unique_ptr<mlir::Region>> tallies;
  llvm::SmallVector<int64_t> bins; ///< of each tally
  bool hasLse = false, hasLseLow = false, hasMax = false, hasArgmax = false, hasStickBreaking = false;
  /// `dropout(rate, %seed, heads : types)`; a missing operand is a constant, or the default.
  struct Dropout {
    llvm::SMLoc loc;
    std::optional<Typed> rate, seed, heads;
    double constantRate = 0;
    std::optional<int64_t> constantHeads;
  };
  std::optional<Dropout> dropout;

  /// Resolves an operand if it is given.
  static mlir::ParseResult resolve(mlir::OpAsmParser &parser, const std::optional<Typed> &typed,
                                   mlir::OperationState &result) {
    return typed ? parser.resolveOperand(typed->operand, typed->type, result.operands) : mlir::success();
  }
  /// Resolves the operands that all ops on whole tensors have, from query to `at`. `types`: of query, key and value, if
  /// the op has one.
  mlir::ParseResult resolveWholeOperands(mlir::OpAsmParser &parser, llvm::SMLoc loc, llvm::ArrayRef<mlir::Type> types,
                                         mlir::OperationState &result) const;
  /// The attribute `pointwise` of the op, null without a normalizer.
  mlir::UnitAttr pointwise(mlir::OpAsmParser &parser) const {
    return given.contains("normalizer") && !hasStickBreaking ? parser.getBuilder().getUnitAttr() : mlir::UnitAttr();
  }
  /// The attribute `stick_breaking` of the op, null without this normalizer.
  mlir::UnitAttr stickBreaking(mlir::OpAsmParser &parser) const {
    return hasStickBreaking ? parser.getBuilder().getUnitAttr() : mlir::UnitAttr();
  }
  /// Moves the regions to `result`, in the order of the op.
  void addRegionsTo(mlir::OperationState &result);
};

/// Parses query, key and, with `hasValue`, value with their dimensions, and all clauses before the attribute
/// dictionary.
mlir::ParseResult parseClauses(mlir::OpAsmParser &parser, Clauses &clauses, bool hasValue = true);

/// Parses attn.gradient or attn.jvp: all clauses, the attribute dictionary, the types of query, key and value, and
/// those of the results.
mlir::ParseResult parseDerivative(mlir::OpAsmParser &parser, Clauses &clauses, mlir::OperationState &result,
                                  llvm::SmallVectorImpl<mlir::Type> &types,
                                  llvm::SmallVectorImpl<mlir::Type> &resultTypes);

/// Reports a clause of an op of the compiler that the op `op` does not have.
mlir::ParseResult refuseForeignClauses(mlir::OpAsmParser &parser, llvm::SMLoc loc, const Clauses &clauses,
                                       llvm::StringRef op);

/// Parses the names of dimensions in brackets.
mlir::ParseResult parseDimNames(mlir::AsmParser &parser, llvm::SmallVectorImpl<Dim> &names,
                                mlir::AsmParser::Delimiter delimiter = mlir::AsmParser::Delimiter::Square);
/// Parses `[b,h,s,d]`, or the same in other brackets.
mlir::ParseResult parseDims(mlir::AsmParser &parser, DimsAttr &dims,
                            mlir::AsmParser::Delimiter delimiter = mlir::AsmParser::Delimiter::Square);
void printDims(mlir::OpAsmPrinter &printer, llvm::ArrayRef<Dim> dims);
inline void printDims(mlir::OpAsmPrinter &printer, DimsAttr dims) { printDims(printer, dims.getDims()); }
/// For declarative formats.
inline void printDims(mlir::OpAsmPrinter &printer, mlir::Operation *, DimsAttr dims) { printDims(printer, dims); }

/// Prints `clause(operand : type)` for each operand that is not null.
void printTyped(mlir::OpAsmPrinter &printer, llvm::ArrayRef<std::pair<llvm::StringRef, mlir::Value>> operands);
/// Prints operands with dimensions, then captures, lengths, scale and position.
void printHead(mlir::OpAsmPrinter &printer, ScoringOpInterface op);
/// Prints all regions. `bins`: the number of bins of each tally. `reads`: those of the gradient region.
void printRegions(mlir::OpAsmPrinter &printer, ScoringOpInterface op, llvm::ArrayRef<int64_t> bins,
                  llvm::ArrayRef<int64_t> reads = {});

/// Adds the effects on the buffers among the operands of `op`; tensors have none.
void addBufferEffects(mlir::DestinationStyleOpInterface op,
                      llvm::SmallVectorImpl<mlir::SideEffects::EffectInstance<mlir::MemoryEffects::Effect>> &effects);

/// Parses a region `name` of scalar code that is isolated from above. An undefined value in it is an error that says
/// how values get into the region; `hasCaptures`: the op has a `captures` clause.
mlir::ParseResult parseIsolatedRegion(mlir::OpAsmParser &parser, llvm::StringRef name,
                                      llvm::ArrayRef<mlir::OpAsmParser::Argument> args, mlir::Region &region,
                                      bool hasCaptures = true);

/// Emits an error if a keyword follows the last clause of `op`. `names`: the clauses that exist.
mlir::ParseResult refuseUnknownClause(mlir::OpAsmParser &parser, llvm::StringRef op,
                                      llvm::ArrayRef<llvm::StringRef> names);

/// Adds the masks by name that the dialect has without extensions.
void addMaskSugars(AttnDialect &dialect);
/// Parses the mask after the keyword `mask`: a name with its arguments, or a region. Conjoins it with `mask`.
mlir::ParseResult parseMask(mlir::OpAsmParser &parser, mlir::ArrayRef<mlir::Type> capturedTypes,
                            std::unique_ptr<mlir::Region> &mask);

/// Makes the normalizer, if it is given, the weight region, with the ops of the region `weight` behind its own. Refuses
/// what belongs to a softmax.
mlir::ParseResult joinNormalizer(mlir::OpAsmParser &parser, llvm::SMLoc loc, Clauses &clauses);

/// Parses the operands of `dropout` after the keyword at `loc`.
mlir::ParseResult parseDropout(mlir::OpAsmParser &parser, llvm::SMLoc loc, Clauses &clauses);
/// Expands `dropout`, if it is given, at the end of the weight region, and applies it to the product with the output
/// gradient that the gradient region reads. Adds its operands to the captures of all regions.
mlir::ParseResult expandDropout(mlir::OpAsmParser &parser, Clauses &clauses, mlir::Type queryType);

/// The type of the region argument for a captured operand: a tensor for a buffer, else the type of the operand.
mlir::Type getCapturedType(mlir::Type operandType);
/// Whether query, key and value may have this element type.
bool isAttentionElement(mlir::Type type);
/// Verifies ranks and element types of query, key and value.
mlir::LogicalResult verifyTensors(mlir::Operation *op, const NamedOperand &query, const NamedOperand &key,
                                  const NamedOperand &value);
/// Verifies their extents. `batches`: their batch sizes.
mlir::LogicalResult verifyExtents(mlir::Operation *op, const NamedOperand &query, const NamedOperand &key,
                                  const NamedOperand &value, std::array<int64_t, 3> batches);
/// Grouped-query attention: verifies that every head of `shared` has the same number of heads of `grouped`.
mlir::LogicalResult verifyHeads(mlir::Operation *op, const NamedOperand &grouped, const NamedOperand &shared);
/// Verifies that the block of region `name` is pure scalar code that ends in attn.yield.
mlir::LogicalResult verifyScalarCode(mlir::Operation *op, llvm::StringRef name, mlir::Block &block);
/// Verifies dimensions, element types, extents and head counts of query, key and value; scale and position.
mlir::LogicalResult verifyOperands(ScoringOpInterface op);
/// The same for an op on whole tensors, whose operands may be ragged; lengths as well.
mlir::LogicalResult verifyWholeOperands(ScoringOpInterface op);
/// Verifies signatures and bodies of all regions, and that `pointwise` comes with one.
mlir::LogicalResult verifyRegions(ScoringOpInterface op);
/// Verifies that `value` has the element type `expected`.
mlir::LogicalResult verifyElement(mlir::Operation *op, llvm::StringRef role, mlir::Value value, mlir::Type expected);
/// Verifies a tensor with a number of type `element`, or one per bin, for each row of `like`. `dims`: those of rows,
/// and `d` for bins.
mlir::LogicalResult verifyRows(mlir::Operation *op, llvm::StringRef role, mlir::Value rows, mlir::Type element,
                               const NamedOperand &like, llvm::ArrayRef<Dim> dims);
/// Verifies the rank and the extents of `output`, the output of the attention of `op` or its gradient.
mlir::LogicalResult verifyOutputExtents(DerivativeOpInterface op, llvm::StringRef role, mlir::Value output);
/// Verifies that acc is n×d_v and max and sum are n, in the score type.
mlir::LogicalResult verifyState(mlir::Operation *op, mlir::Value acc, mlir::Value max, mlir::Value sum);
/// What the extent of a dimension is called: "batch size", "head count", "length", "head size".
llvm::StringRef describe(Dim dim);
/// Emits an error if two static extents differ.
mlir::LogicalResult verifySameExtent(mlir::Operation *op, const llvm::Twine &what, llvm::StringRef lhsRole, int64_t lhs,
                                     llvm::StringRef rhsRole, int64_t rhs);

/// Suggests `s, b, h, q, k` as the names of region arguments.
void nameRegionArguments(ScoringOpInterface op, mlir::Region &region, mlir::OpAsmSetValueNameFn setName);

} // namespace saccade::attn::syntax

#endif // SACCADE_LIB_DIALECT_ATTN_IR_SYNTAX_H
