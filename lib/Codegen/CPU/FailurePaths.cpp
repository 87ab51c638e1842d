//===- FailurePaths.cpp - Out-of-memory paths of entries ----------------------===//
//
// If an allocation or launch fails, the entry releases its buffers and returns a message. Calls are inlined at this
// point, so only entries contain such calls; a task gets its scratch memory before it starts.
//
//===----------------------------------------------------------------------===//
#include "Launch.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"

using namespace mlir;

/// Looks through insertions into and extractions from memref descriptors.
static Value lookThroughDescriptors(Value pointer) {
  while (auto extract = pointer.getDefiningOp<LLVM::ExtractValueOp>()) {
    Value container = extract.getContainer();
    auto insert = container.getDefiningOp<LLVM::InsertValueOp>();
    while (insert && insert.getPosition() != extract.getPosition())
      insert = insert.getContainer().getDefiningOp<LLVM::InsertValueOp>();
    if (!insert)
      return pointer;
    pointer = insert.getValue();
  }
  return pointer;
}

/// With more buffers than this, slots stay in memory: promoting them to registers would dominate compile time, because
/// each needs a value on every path to the failure block.
static constexpr size_t maxRegisterSlots = 16;

namespace {

/// Adds the checks to one function.
class FailurePath {
public:
  FailurePath(LLVM::LLVMFuncOp function, LLVM::GlobalOp message)
      : function(function), builder(function.getContext()), loc(function.getLoc()),
        pointer(LLVM::LLVMPointerType::get(function.getContext())) {
    failed = builder.createBlock(&function.getBody(), function.getBody().end());
    releaseAll();
    builder.setInsertionPointToEnd(failed);
    LLVM::ReturnOp::create(builder, loc, LLVM::AddressOfOp::create(builder, loc, message).getResult());
  }

  /// Branches to the failure block if `call` fails.
  void check(LLVM::CallOp call) {
    Block *after = call->getBlock()->splitBlock(call->getNextNode());
    builder.setInsertionPointAfter(call);
    Value result = call.getResult();
    bool isMemory = result.getType() == pointer;
    Value zero = LLVM::ZeroOp::create(builder, loc, result.getType());
    Value good =
        LLVM::ICmpOp::create(builder, loc, isMemory ? LLVM::ICmpPredicate::ne : LLVM::ICmpPredicate::eq, result, zero);
    LLVM::CondBrOp::create(builder, loc, good, after, failed);
  }

private:
  /// Gives every buffer a stack slot that is null while the buffer is not allocated, and releases all slots in the
  /// failure block. LLVM promotes a small number of slots to registers.
  void releaseAll() {
    llvm::MapVector<Value, Value> slots;
    SmallVector<LLVM::CallOp> releases;
    function.walk([&](LLVM::CallOp call) {
      if (call.getCallee() == "saccade_allocate")
        slots[call.getResult()] = Value();
      else if (call.getCallee() == "saccade_release")
        releases.push_back(call);
    });
    bool staysInMemory = slots.size() > maxRegisterSlots;
    auto store = [&](Value value, Value slot) {
      LLVM::StoreOp::create(builder, loc, value, slot, /*alignment=*/0, /*isVolatile=*/staysInMemory);
    };
    for (auto &[memory, slot] : slots) {
      builder.setInsertionPointToStart(&function.getBody().front());
      Value one = LLVM::ConstantOp::create(builder, loc, builder.getI64IntegerAttr(1));
      slot = LLVM::AllocaOp::create(builder, loc, pointer, pointer, one);
      store(LLVM::ZeroOp::create(builder, loc, pointer), slot);
      builder.setInsertionPointAfterValue(memory);
      store(memory, slot);
    }
    LLVM::CallOp any;
    for (LLVM::CallOp release : releases) {
      Value slot = slots.lookup(lookThroughDescriptors(release.getArgOperands().front()));
      assert(slot && "buffers are released in the function that allocates them");
      builder.setInsertionPointAfter(release);
      store(LLVM::ZeroOp::create(builder, loc, pointer), slot);
      any = release;
    }
    if (!any)
      return;
    builder.setInsertionPointToEnd(failed);
    for (auto &[memory, slot] : slots) {
      Value held = LLVM::LoadOp::create(builder, loc, pointer, slot, /*alignment=*/0, /*isVolatile=*/staysInMemory);
      LLVM::CallOp::create(builder, loc, TypeRange(), any.getCalleeAttr(), ValueRange(held));
    }
  }

  LLVM::LLVMFuncOp function;
  OpBuilder builder;
  Location loc;
  Type pointer;
  Block *failed;
};

} // namespace

/// Changes the result of a void function to a pointer that is null at every existing return.
static void returnMessage(LLVM::LLVMFuncOp function) {
  Type pointer = LLVM::LLVMPointerType::get(function.getContext());
  function.setFunctionType(LLVM::LLVMFunctionType::get(pointer, function.getArgumentTypes()));
  function.walk([&](LLVM::ReturnOp op) {
    OpBuilder builder(op);
    LLVM::ReturnOp::create(builder, op.getLoc(), LLVM::ZeroOp::create(builder, op.getLoc(), pointer).getResult());
    op.erase();
  });
}

/// Makes the C wrapper return the result of `function`.
static void forwardMessage(LLVM::LLVMFuncOp wrapper, LLVM::LLVMFuncOp function) {
  returnMessage(wrapper);
  wrapper.walk([&](LLVM::CallOp call) {
    OpBuilder builder(call);
    auto replacement = LLVM::CallOp::create(builder, call.getLoc(), function, call.getArgOperands());
    call->getBlock()->getTerminator()->setOperand(0, replacement.getResult());
    call.erase();
  });
}

void saccade::createFailurePaths(ModuleOp module) {
  LLVM::GlobalOp message;
  for (auto function : llvm::to_vector(module.getOps<LLVM::LLVMFuncOp>())) {
    SmallVector<LLVM::CallOp> calls;
    function.walk([&](LLVM::CallOp call) {
      if (call.getCallee() == "saccade_allocate" || call.getCallee() == "saccade_parallel_for")
        calls.push_back(call);
    });
    // Entries that return a scalar are rejected when their C interface is generated.
    if (calls.empty() || !isa<LLVM::LLVMVoidType>(function.getFunctionType().getReturnType()))
      continue;
    assert(!function->hasAttr("attn.task") && "tasks neither allocate nor launch");
    if (!message) {
      OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
      llvm::StringRef text("out of memory\0", 14);
      auto type = LLVM::LLVMArrayType::get(builder.getI8Type(), text.size());
      message = LLVM::GlobalOp::create(builder, function.getLoc(), type, /*isConstant=*/true, LLVM::Linkage::Internal,
                                       "saccade.out_of_memory", builder.getStringAttr(text));
    }
    returnMessage(function);
    FailurePath path(function, message);
    for (LLVM::CallOp call : calls)
      path.check(call);
    if (auto wrapper = module.lookupSymbol<LLVM::LLVMFuncOp>(("_mlir_ciface_" + function.getName()).str()))
      forwardMessage(wrapper, function);
  }
}
