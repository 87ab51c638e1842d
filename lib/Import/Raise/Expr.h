//===- Expr.h - Expressions of tensor elements ------------------*- C++ -*-===//
//
// Raising does not match op sequences. It describes one element of a tensor as an expression over elements of other
// tensors and positions. Expressions are uniqued and simplified on construction, so the order of operands, reshapes,
// transposes, broadcasts and casts do not matter.
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

/// An element of a tensor; `index` is in terms of the loops of the contraction being raised.
struct Access {
  mlir::Value tensor;
  llvm::SmallVector<mlir::AffineExpr, 4> index;
};

struct Expr {
  enum Kind {
    Number,   ///< a floating point constant
    Integer,  ///< an integer constant of `type`
    Position, ///< `position`, an index
    Element,  ///< `access` of a tensor that is not traced further
    Scalar,   ///< a value that is the same for all elements, or the tensor operand of tensor.extract
    Apply,    ///< the op `name` with `attributes` on `operands`
    Softmax,  ///< the softmax of operand 0 along loop `key`; `value` is its result tensor
  };
  Kind kind;
  mlir::Type type; ///< f64 for all floating-point types: casts between them are dropped
  double number = 0;
  int64_t integer = 0;
  mlir::AffineExpr position = {};
  Access access = {};
  mlir::Value value = {};
  unsigned key = 0;
  llvm::StringRef name = {};
  mlir::DictionaryAttr attributes = {};
  llvm::SmallVector<Node, 3> operands = {};

  unsigned id = 0;           ///< in order of creation
  uint64_t loops = 0;        ///< bit mask of the loops it depends on
  bool readsTensors = false; ///< whether it depends on tensor elements
  bool isCostly = false;     ///< whether recomputing it is expensive (math functions, division)
  /// Tensor elements that hold this value, those closest to function arguments first.
  mutable llvm::SmallVector<Access, 2> origins = {};

  bool isReal() const { return llvm::isa<mlir::FloatType>(type); }
  bool dependsOn(unsigned loop) const { return loops >> loop & 1; }
  bool is(llvm::StringRef op) const { return kind == Apply && name == op; }
  bool isNumber(double expected) const { return kind == Number && number == expected; }
  Node operator[](unsigned i) const { return operands[i]; }
};

inline bool isTruth(Node node) { return node->type.isInteger(1); }

/// Creates and owns expressions. Loop l is AffineDimExpr l.
class Graph {
public:
  /// `extents` are the trip counts of the loops, at most 63 of them; dynamic ones are `ShapedType::kDynamic`.
  Graph(mlir::MLIRContext *context, llvm::ArrayRef<int64_t> extents) : context(context), extents(extents) {}

  Node number(double value);
  Node integer(mlir::Type type, int64_t value);
  Node truth(bool value);
  Node position(mlir::AffineExpr position);
  Node element(mlir::Value tensor, llvm::ArrayRef<mlir::AffineExpr> index);
  Node scalar(mlir::Value value);
  Node softmax(Node input, unsigned key, mlir::Value value);
  /// Any scalar op on the operands `given`, simplified. `type` may be any floating-point type.
  Node apply(llvm::StringRef name, mlir::Type type, llvm::ArrayRef<Node> given, mlir::DictionaryAttr attributes = {});

  Node negated(Node condition);
  Node both(Node lhs, Node rhs);
  Node sum(Node lhs, Node rhs) { return apply("arith.addf", real(), {lhs, rhs}); }
  Node product(Node lhs, Node rhs) { return apply("arith.mulf", real(), {lhs, rhs}); }
  /// Replaces `from` by `to` in `node`.
  Node replace(Node node, Node from, Node to);

  /// Whether a signed integer of `width` bits holds the index `node`. Dynamic extents are assumed to be at most 2²⁴.
  bool fits(Node node, unsigned width) const;
  /// Whether `position` may be negative.
  bool mayBeNegative(mlir::AffineExpr position) const { return boundsOf(position).first < 0; }
  /// Simplifies quotients and remainders in `expr` with the extents of the loops.
  mlir::AffineExpr simplify(mlir::AffineExpr expr) const;
  int64_t getExtent(unsigned loop) const { return extents[loop]; }
  llvm::ArrayRef<int64_t> getExtents() const { return extents; }
  /// Whether `loop` can be a loop over a dimension of `extent`; a dynamic extent is taken to be equal.
  bool hasExtent(unsigned loop, int64_t extent) const {
    bool isKnown = !llvm::is_contained({extents[loop], extent}, mlir::ShapedType::kDynamic);
    return !isKnown || extents[loop] == extent;
  }
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
  std::pair<double, double> boundsOf(mlir::AffineExpr expr) const;
  Node compareIntegers(mlir::DictionaryAttr attributes, llvm::ArrayRef<Node> operands);

  mlir::MLIRContext *context;
  llvm::SmallVector<int64_t> extents;
  std::deque<Expr> nodes;
  std::map<std::vector<uint64_t>, Node> known;
};

/// Calls `visit` once for `root` and every node below it, operands first.
void forEachNode(Node root, llvm::function_ref<void(Node)> visit);

/// The addends of a sum or difference: (node, whether it is subtracted).
llvm::SmallVector<std::pair<Node, bool>> addends(Node root);

} // namespace saccade::raise

#endif // SACCADE_LIB_IMPORT_RAISE_EXPR_H
