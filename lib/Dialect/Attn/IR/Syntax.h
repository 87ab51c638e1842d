//===- Syntax.h - The clauses that attention ops have in common --*- C++ -*-===//
//
// `attn.attention` and `attn.accumulate` are written with the same clauses. This is their
// one parser, printer and verifier; private to the dialect.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_DIALECT_ATTN_IR_SYNTAX_H
#define SACCADE_LIB_DIALECT_ATTN_IR_SYNTAX_H

#include "saccade/Dialect/Attn/IR/Attn.h"
#include <array>

namespace saccade::attn::syntax {

/// Everything that the clauses of an attention op say, before operands are resolved.
struct Clauses {
  using Operand = mlir::OpAsmParser::UnresolvedOperand;
  /// An operand in parentheses with its type: `q_len(%n : index)`.
  struct Typed {
    Operand operand;
    mlir::Type type;
  };
  Operand query, key, value;
  DimsAttr queryDims, keyDims, valueDims, outputDims;
  llvm::SmallVector<Operand> captures;
  llvm::SmallVector<mlir::Type> captureTypes;
  /// As region arguments: see `getCapturedType`.
  llvm::SmallVector<mlir::Type> capturedTypes;
  std::optional<Typed> queryLength, keyLength, cuSeqlensQ, cuSeqlensK, scaleValue, sink;
  mlir::FloatAttr scale;
  llvm::SmallVector<Operand> at;
  /// Destinations of `into(...)`, on tile ops.
  llvm::SmallVector<Operand> into;
  llvm::SmallVector<mlir::Type> intoTypes;
  std::unique_ptr<mlir::Region> score, mask, weight;
  llvm::SmallVector<std::unique_ptr<mlir::Region>> tallies;
  llvm::SmallVector<int64_t> bins; ///< of each tally
  bool wantsLse = false, wantsMax = false, wantsArgmax = false;

  /// Hands the regions over to an op, in its order.
  void addRegionsTo(mlir::OperationState &result);
};

/// Parses the three operands with their dimensions and every clause up to the `:` of the types.
mlir::ParseResult parseClauses(mlir::OpAsmParser &parser, Clauses &clauses);

/// Parses the names of dimensions in brackets.
mlir::ParseResult parseDimNames(mlir::AsmParser &parser, llvm::SmallVectorImpl<Dim> &names,
                                mlir::AsmParser::Delimiter delimiter = mlir::AsmParser::Delimiter::Square);
/// Parses `[b,h,s,d]`, or the same in other brackets.
mlir::ParseResult parseDims(mlir::AsmParser &parser, DimsAttr &dims,
                            mlir::AsmParser::Delimiter delimiter = mlir::AsmParser::Delimiter::Square);
void printDims(mlir::OpAsmPrinter &printer, llvm::ArrayRef<Dim> dims);
inline void printDims(mlir::OpAsmPrinter &printer, DimsAttr dims) { printDims(printer, dims.getDims()); }

/// Prints operands and dimensions, then captures, lengths, scale and position.
void printHead(mlir::OpAsmPrinter &printer, ScoringOpInterface op, mlir::Value queryLength, mlir::Value keyLength);
/// Prints all regions. `bins`: those of each tally.
void printRegions(mlir::OpAsmPrinter &printer, ScoringOpInterface op, llvm::ArrayRef<int64_t> bins);

/// Parses what follows the word `mask`, `causal<...>`, `window<...>` or a region, and joins it to `mask` by `and`.
mlir::ParseResult parseMask(mlir::OpAsmParser &parser, mlir::ArrayRef<mlir::Type> capturedTypes,
                            std::unique_ptr<mlir::Region> &mask);

/// The type that a region sees of a captured operand: its own, but a tensor where the operand has become a buffer.
mlir::Type getCapturedType(mlir::Type operandType);
/// Whether tensors of attention may have this element type.
bool isAttentionElement(mlir::Type type);
/// A tensor of attention, what it is called and what its dimensions are.
struct NamedOperand {
  llvm::StringRef role;
  mlir::Value value;
  DimsAttr dims;
  int64_t size(Dim dim) const { return getStaticDimSize(value, dims, dim); }
};
/// Ranks and element types of query, key and value.
mlir::LogicalResult verifyTensors(mlir::Operation *op, const NamedOperand &query, const NamedOperand &key,
                                  const NamedOperand &value);
/// Their extents and head counts; they have so many batches.
mlir::LogicalResult verifyExtents(mlir::Operation *op, const NamedOperand &query, const NamedOperand &key,
                                  const NamedOperand &value, std::array<int64_t, 3> batches);
/// That a region `name` is one block of pure scalar code that ends in attn.yield.
mlir::LogicalResult verifyScalarCode(mlir::Operation *op, llvm::StringRef name, mlir::Block &block);
/// Names, ranks, element types, extents and head counts of query, key and value; scale and position.
mlir::LogicalResult verifyOperands(ScoringOpInterface op);
/// Signatures and bodies of all regions.
mlir::LogicalResult verifyRegions(ScoringOpInterface op);
/// That `value` has the wanted element type, or emits an error.
mlir::LogicalResult verifyElement(mlir::Operation *op, llvm::StringRef role, mlir::Value value, mlir::Type expected);
/// That acc is n×d_v and max and sum are n, in the score type.
mlir::LogicalResult verifyState(mlir::Operation *op, mlir::Value acc, mlir::Value max, mlir::Value sum);
/// Emits an error where two static extents differ.
mlir::LogicalResult verifySameExtent(mlir::Operation *op, const llvm::Twine &what, llvm::StringRef lhsRole,
                                     int64_t left, llvm::StringRef rhsRole, int64_t right);

/// Suggests `s, b, h, q, k` as the names of region arguments.
void nameRegionArguments(ScoringOpInterface op, mlir::Region &region, mlir::OpAsmSetValueNameFn setName);

} // namespace saccade::attn::syntax

#endif // SACCADE_LIB_DIALECT_ATTN_IR_SYNTAX_H
