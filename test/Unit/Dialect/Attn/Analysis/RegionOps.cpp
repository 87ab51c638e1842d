//===- RegionOps.cpp - The ops that regions permit ----------------------------===//
#include "RegionOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Parser/Parser.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

using namespace mlir;
using namespace saccade::attn;

Operation *RegionOps::create(OpBuilder &b, Location loc, const Signature &signature, ValueRange operands,
                             int64_t predicate) {
  OperationState state(loc, signature.name);
  state.addOperands(operands);
  state.addTypes(signature.results);
  if (signature.hasPredicate)
    state.addAttribute("predicate", b.getI64IntegerAttr(predicate));
  return b.create(state);
}

namespace {

/// An attention whose score region contains the candidate.
class Verifier {
public:
  Verifier(MLIRContext &context, ArrayRef<Type> types) : b(&context) {
    std::string names, list;
    for (auto [i, type] : llvm::enumerate(types)) {
      llvm::raw_string_ostream(list) << (i ? ", " : "") << type;
      names += (i ? ", %c" : "%c") + std::to_string(i);
    }
    std::string parameters;
    for (auto [i, type] : llvm::enumerate(types))
      llvm::raw_string_ostream(parameters) << ", %c" << i << ": " << type;
    std::string tensor = "tensor<?x8xf32>";
    module = parseSourceString<ModuleOp>("func.func @f(%q: " + tensor + parameters + ") -> " + tensor +
                                             " {\n%o = attn.attention %q[s,d], %q[s,d], " + "%q[s,d] captures(" +
                                             names + " : " + list + ") score(%s, %b, %h, %i, %j" + ", " + names +
                                             ") { attn.yield %s : f32 } : (" + tensor + ", " + tensor + ", " + tensor +
                                             ") -> " + tensor + "\nreturn %o : " + tensor + "\n}",
                                         &context);
    module->walk([&](AttentionOp op) { attention = op; });
    block = &attention.getScore().front();
    b.setInsertionPointToStart(block);
    for (auto [type, argument] : llvm::zip_equal(types, block->getArguments().drop_front(5)))
      values[type] = argument;
  }

  /// Whether the op verifies, alone or as part of the region.
  bool accepts(const Signature &signature, bool inRegion) {
    SmallVector<Value> operands;
    for (Type type : signature.operands)
      operands.push_back(values[type]);
    Operation *op = RegionOps::create(b, b.getUnknownLoc(), signature, operands, 0);
    bool verifies = succeeded(verify(inRegion ? attention.getOperation() : op));
    op->erase();
    return verifies;
  }

  /// The results that the op infers from its operands; nullopt if it does not infer them.
  std::optional<SmallVector<Type>> infer(RegisteredOperationName name, ArrayRef<Type> types) {
    auto *interface = name.getInterface<InferTypeOpInterface>();
    if (!interface)
      return std::nullopt;
    SmallVector<Value> operands;
    for (Type type : types)
      operands.push_back(values[type]);
    SmallVector<Type> results;
    if (failed(interface->inferReturnTypes(b.getContext(), b.getUnknownLoc(), operands, DictionaryAttr(),
                                           OpaqueProperties(nullptr), RegionRange(), results)))
      results.clear();
    return results;
  }

private:
  OpBuilder b;
  OwningOpRef<ModuleOp> module;
  AttentionOp attention;
  Block *block;
  llvm::DenseMap<Type, Value> values;
};

bool hasArity(RegisteredOperationName name, size_t count) {
  return count == 1   ? name.hasTrait<OpTrait::OneOperand>()
         : count == 2 ? name.hasTrait<OpTrait::NOperands<2>::Impl>()
                      : name.hasTrait<OpTrait::NOperands<3>::Impl>();
}

} // namespace

RegionOps::RegionOps(MLIRContext &context) {
  OpBuilder b(&context);
  scalarTypes = {b.getF32Type(), b.getF64Type(),      b.getF16Type(),       b.getBF16Type(), b.getIndexType(),
                 b.getI1Type(),  b.getIntegerType(8), b.getIntegerType(16), b.getI32Type(),  b.getI64Type()};
  ScopedDiagnosticHandler quiet(&context, [](Diagnostic &) { return success(); });
  Verifier verifier(context, scalarTypes);
  // Operands of equal type, a float and an integer, or a condition and two operands of equal type.
  std::vector<SmallVector<Type, 3>> candidates;
  for (Type type : scalarTypes) {
    candidates.push_back({type});
    candidates.push_back({type, type});
    candidates.push_back({type, type, type});
    if (!type.isInteger(1))
      candidates.push_back({b.getI1Type(), type, type});
    for (Type exponent : scalarTypes)
      if (isa<FloatType>(type) && !isa<FloatType>(exponent))
        candidates.push_back({type, exponent});
  }
  for (RegisteredOperationName name : context.getRegisteredOperations()) {
    // The verifier permits no scalar op of another dialect but attn.length.
    StringRef dialect = name.getDialectNamespace();
    if (dialect != "arith" && dialect != "math")
      continue;
    std::vector<Signature> found;
    for (bool hasPredicate : {false, true}) {
      for (const SmallVector<Type, 3> &operands : candidates) {
        if (!hasArity(name, operands.size()))
          continue;
        std::vector<SmallVector<Type>> results;
        if (std::optional<SmallVector<Type>> inferred = verifier.infer(name, operands)) {
          results.push_back(*inferred);
        } else if (name.hasTrait<OpTrait::OneResult>()) {
          for (Type type : scalarTypes)
            results.push_back({type});
        } else {
          for (Type type : scalarTypes)
            results.push_back({type, type});
          results.push_back({operands[0], b.getI1Type()});
        }
        for (const SmallVector<Type> &types : results) {
          Signature signature{name, operands, types, hasPredicate};
          if (verifier.accepts(signature, /*inRegion=*/false))
            found.push_back(signature);
        }
      }
      if (!found.empty())
        break;
    }
    if (found.empty() || !verifier.accepts(found.front(), /*inRegion=*/true))
      continue;
    opNames.push_back(name.getStringRef().str());
    signatures[opNames.back()] = std::move(found);
  }
}
