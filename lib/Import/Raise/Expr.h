//===- Expr.h - What an element of a tensor is computed from ------*- C++ -*-===//
//
// Raising does not match ops, it asks what one element of a tensor is: an expression over elements of other tensors and
// positions. Expressions are unique, so that equal ones are one node, and are simplified as they are made: what is left
// is the algebra of a graph, without the order of its operands, its reshapes, transposes, broadcasts and casts.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_IMPORT_RAISE_EXPR_H
#define SACCADE_LIB_IMPORT_RAISE_EXPR_H

#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Value.h"
#include <deque>
#include <map>
#include <optional>
#include <vector>

namespace saccade::raise {

struct Expr;
using Node = const Expr *;

/// An element of a tensor: `index` in terms of the loops of the contraction that is looked at.
struct Access {
  mlir::Value tensor;
  llvm::SmallVector<mlir::AffineExpr, 4> index;
};

struct Expr {
  enum Kind {
    Number,   ///< a floating point constant
    Integer,  ///< an integer constant of `type`
    Position, ///< `position`, an index
    Element,  ///< `access` of a tensor that is not looked into
    Scalar,   ///< a value that is the same for all elements; whole tensors stand for themselves in tensor.extract
    Apply,    ///< the op `name` with `attributes` on `operands`
    Softmax,  ///< the softmax of operand 0 along loop `key`; `value` is what computes it
  };
  Kind kind;
  mlir::Type type; ///< f64 for every floating point number: casts between them are left out
  double number = 0;
  int64_t integer = 0;
  mlir::AffineExpr position = {};
  Access access = {};
  mlir::Value value = {};
  unsigned key = 0;
  llvm::StringRef name = {};
  mlir::DictionaryAttr attributes = {};
  llvm::SmallVector<Node, 3> operands = {};

  unsigned id = 0;           ///< in the order in which nodes were made
  uint64_t loops = 0;        ///< the loops that it depends on, a bit each
  bool readsTensors = false; ///< whether it depends on what a tensor holds
  bool isCostly = false;     ///< whether computing it takes more than a few instructions
  /// Elements that hold just this number, those nearest to arguments first.
  mutable llvm::SmallVector<Access, 2> origins = {};

  bool isReal() const { return llvm::isa<mlir::FloatType>(type); }
  bool dependsOn(unsigned loop) const { return loops >> loop & 1; }
  bool is(llvm::StringRef op) const { return kind == Apply && name == op; }
  bool isNumber(double expected) const { return kind == Number && number == expected; }
  Node operator[](unsigned i) const { return operands[i]; }
};

/// Makes expressions and owns them. Loop l is AffineDimExpr l.
class Graph {
public:
  /// `extents` of the loops, dynamic ones as `ShapedType::kDynamic`; at most 63.
  Graph(mlir::MLIRContext *context, llvm::ArrayRef<int64_t> extents) : context(context), extents(extents) {}

  Node number(double value);
  Node integer(mlir::Type type, int64_t value);
  Node truth(bool value);
  Node position(mlir::AffineExpr expr);
  Node element(mlir::Value tensor, llvm::ArrayRef<mlir::AffineExpr> index);
  Node scalar(mlir::Value value);
  Node softmax(Node input, unsigned key, mlir::Value value);
  /// Any op on scalars, simplified. `type` may be any floating point type.
  Node apply(llvm::StringRef name, mlir::Type type, llvm::ArrayRef<Node> operands,
             mlir::DictionaryAttr attributes = {});

  Node negated(Node condition);
  Node both(Node left, Node right);
  Node sum(Node left, Node right) { return apply("arith.addf", real(), {left, right}); }
  Node product(Node left, Node right) { return apply("arith.mulf", real(), {left, right}); }
  /// `node` with `to` in place of `from`.
  Node replace(Node node, Node from, Node to);

  /// `expr` with what the extents of the loops say of quotients and remainders.
  mlir::AffineExpr simplify(mlir::AffineExpr expr) const;
  int64_t getExtent(unsigned loop) const { return extents[loop]; }
  unsigned getNumLoops() const { return extents.size(); }
  mlir::MLIRContext *getContext() const { return context; }
  mlir::Type real() const;
  size_t size() const { return nodes.size(); }

private:
  Node unique(Expr expr);
  Node foldNumbers(llvm::StringRef name, llvm::ArrayRef<Node> operands);
  Node simplifyReal(llvm::StringRef name, llvm::ArrayRef<Node> operands);
  Node simplifyLogic(llvm::StringRef name, mlir::Type type, llvm::ArrayRef<Node> operands,
                     mlir::DictionaryAttr attributes);
  Node simplifyIndex(llvm::StringRef name, mlir::Type type, llvm::ArrayRef<Node> operands,
                     mlir::DictionaryAttr attributes);
  Node compareIntegers(mlir::DictionaryAttr attributes, llvm::ArrayRef<Node> operands);

  mlir::MLIRContext *context;
  llvm::SmallVector<int64_t> extents;
  std::deque<Expr> nodes;
  std::map<std::vector<uint64_t>, Node> known;
};

/// Calls `visit` for every node below and at `node`, operands first, each once.
void forEachNode(Node node, llvm::function_ref<void(Node)> visit);

/// The addends of a sum, differences included: (node, whether it is subtracted).
llvm::SmallVector<std::pair<Node, bool>> addends(Node node);

} // namespace saccade::raise

#endif // SACCADE_LIB_IMPORT_RAISE_EXPR_H
