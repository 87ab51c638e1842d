//===- EmitEntryPoints.cpp - Give every entry its plain C face ----------------===//
//
// Wraps the C interface functions that func-to-llvm made into two uniform signatures that any host can call.
// It stands last, because only now the calling convention of the entries is final.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "saccade/Target/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_EMITENTRYPOINTS
#include "saccade/Target/Passes.h.inc"
} // namespace saccade

using namespace mlir;

namespace {

constexpr llvm::StringLiteral interfacePrefix = "_mlir_ciface_";

/// Writes the C faces into a module.
class EntryPointBuilder {
public:
  explicit EntryPointBuilder(ModuleOp module)
      : module(module), builder(module.getContext()), pointer(LLVM::LLVMPointerType::get(module.getContext())) {}

  /// const char *saccade_call_<name>(void **args). A callee that can fail returns the message.
  void emitCall(LLVM::LLVMFuncOp callee, StringRef name) {
    Value arguments = createFunction(callee, "saccade_call_" + name, pointer, 1);
    SmallVector<Value> operands = loadOperands(callee.getArgumentTypes(), arguments);
    auto call = LLVM::CallOp::create(builder, callee.getLoc(), callee, operands);
    Value message =
        call.getNumResults() ? call.getResult() : LLVM::ZeroOp::create(builder, callee.getLoc(), pointer).getResult();
    LLVM::ReturnOp::create(builder, callee.getLoc(), message);
  }

  /// const char *saccade_shapes_<name>(void **args, int64_t *sizes). The callee stores (message number, found, wanted,
  /// extents...) through its first argument; number 0 means that all is well.
  void emitShapes(LLVM::LLVMFuncOp callee, LLVM::LLVMStructType returned, ArrayAttr messages, StringRef name) {
    Location loc = callee.getLoc();
    Value arguments = createFunction(callee, "saccade_shapes_" + name, pointer, 2);
    auto function = cast<LLVM::LLVMFuncOp>(arguments.getParentBlock()->getParentOp());
    Value sizes = function.getArgument(1);
    Value one = LLVM::ConstantOp::create(builder, loc, builder.getI64IntegerAttr(1));
    Value result = LLVM::AllocaOp::create(builder, loc, pointer, returned, one);
    SmallVector<Value> operands = loadOperands(callee.getArgumentTypes().drop_front(), arguments);
    operands.insert(operands.begin(), result);
    LLVM::CallOp::create(builder, loc, callee, operands);

    auto field = [&](int64_t i) -> Value {
      Value place = LLVM::GEPOp::create(builder, loc, pointer, returned, result, ArrayRef<LLVM::GEPArg>{0, int32_t(i)});
      return LLVM::LoadOp::create(builder, loc, builder.getI64Type(), place);
    };
    auto store = [&](Value value, int64_t i) {
      Value place =
          LLVM::GEPOp::create(builder, loc, pointer, builder.getI64Type(), sizes, ArrayRef<LLVM::GEPArg>{int32_t(i)});
      LLVM::StoreOp::create(builder, loc, value, place);
    };
    Value number = field(0);
    Value zero = LLVM::ConstantOp::create(builder, loc, builder.getI64IntegerAttr(0));
    Value good = LLVM::ICmpOp::create(builder, loc, LLVM::ICmpPredicate::eq, number, zero);
    Block *fine = builder.createBlock(&function.getBody());
    Block *refused = builder.createBlock(&function.getBody());
    builder.setInsertionPointToEnd(&function.getBody().front());
    LLVM::CondBrOp::create(builder, loc, good, fine, refused);

    builder.setInsertionPointToEnd(fine);
    for (int64_t i = 3, e = returned.getBody().size(); i < e; ++i)
      store(field(i), i - 3);
    LLVM::ReturnOp::create(builder, loc, LLVM::ZeroOp::create(builder, loc, pointer).getResult());

    builder.setInsertionPointToEnd(refused);
    store(field(1), 0);
    store(field(2), 1);
    Value message = LLVM::ZeroOp::create(builder, loc, pointer);
    for (auto [i, text] : llvm::enumerate(messages.getAsValueRange<StringAttr>())) {
      if (text.empty())
        continue; // a check that folded away
      Value mine = LLVM::ConstantOp::create(builder, loc, builder.getI64IntegerAttr(i + 1));
      Value isMine = LLVM::ICmpOp::create(builder, loc, LLVM::ICmpPredicate::eq, number, mine);
      message = LLVM::SelectOp::create(builder, loc, isMine, createText(loc, text), message);
    }
    LLVM::ReturnOp::create(builder, loc, message);
  }

private:
  /// Makes the function, stands at the end of its entry block and returns the first argument.
  Value createFunction(LLVM::LLVMFuncOp near, const Twine &name, Type result, unsigned pointers) {
    builder.setInsertionPointToEnd(module.getBody());
    auto type = LLVM::LLVMFunctionType::get(result, SmallVector<Type>(pointers, pointer));
    auto function = LLVM::LLVMFuncOp::create(builder, near.getLoc(), name.str(), type);
    Block *entry = function.addEntryBlock(builder);
    builder.setInsertionPointToEnd(entry);
    return entry->getArgument(0);
  }

  SmallVector<Value> loadOperands(ArrayRef<Type> types, Value arguments) {
    Location loc = arguments.getLoc();
    SmallVector<Value> operands;
    for (auto [i, type] : llvm::enumerate(types)) {
      Value place = LLVM::GEPOp::create(builder, loc, pointer, pointer, arguments, ArrayRef<LLVM::GEPArg>{int32_t(i)});
      Value operand = LLVM::LoadOp::create(builder, loc, pointer, place);
      // Descriptors travel by address; everything else is a scalar. An i1 is a whole byte in memory.
      if (type.isInteger(1)) {
        Value byte = LLVM::LoadOp::create(builder, loc, builder.getI8Type(), operand);
        operand = LLVM::TruncOp::create(builder, loc, type, byte);
      } else if (!isa<LLVM::LLVMPointerType>(type)) {
        operand = LLVM::LoadOp::create(builder, loc, type, operand);
      }
      operands.push_back(operand);
    }
    return operands;
  }

  Value createText(Location loc, StringRef text) {
    std::string terminated = (text + StringRef("\0", 1)).str();
    auto type = LLVM::LLVMArrayType::get(builder.getI8Type(), terminated.size());
    OpBuilder outside = OpBuilder::atBlockBegin(module.getBody());
    auto global =
        LLVM::GlobalOp::create(outside, loc, type, /*isConstant=*/true, LLVM::Linkage::Internal,
                               "saccade.message." + std::to_string(texts++), outside.getStringAttr(terminated));
    return LLVM::AddressOfOp::create(builder, loc, global);
  }

  ModuleOp module;
  OpBuilder builder;
  Type pointer;
  unsigned texts = 0;
};

struct EmitEntryPoints : saccade::impl::EmitEntryPointsBase<EmitEntryPoints> {
  void runOnOperation() override {
    EntryPointBuilder entryPoints(getOperation());
    auto functions = llvm::to_vector(getOperation().getOps<LLVM::LLVMFuncOp>());
    for (LLVM::LLVMFuncOp function : functions) {
      if (function.isExternal())
        continue;
      function.setLinkage(LLVM::Linkage::Internal);
      StringRef name = function.getName();
      auto shapesOf = function->getAttrOfType<StringAttr>("attn.shapes_of");
      auto messages = function->getAttrOfType<ArrayAttr>("attn.messages");
      bool isEntry = function->hasAttr("attn.entry");
      for (StringRef mark : {"attn.shapes_of", "attn.messages", "attn.entry"})
        function->removeAttr(mark);
      if (!name.consume_front(interfacePrefix))
        continue;
      if (isEntry) {
        if (!isa<LLVM::LLVMVoidType, LLVM::LLVMPointerType>(function.getFunctionType().getReturnType())) {
          function.emitError("entry '") << name << "' returns a scalar; return a tensor without dimensions instead";
          return signalPassFailure();
        }
        entryPoints.emitCall(function, name);
      } else if (shapesOf && messages) {
        auto inner = getOperation().lookupSymbol<LLVM::LLVMFuncOp>(name);
        auto returned = cast<LLVM::LLVMStructType>(inner.getFunctionType().getReturnType());
        entryPoints.emitShapes(function, returned, messages, shapesOf);
      }
    }
  }
};

} // namespace
