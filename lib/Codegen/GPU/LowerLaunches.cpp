//===- LowerLaunches.cpp - The host side of kernel launches -------------------===//
//
// Lowers attn.launch to a call of the runtime with the kernel's name and an array of parameter words. It runs after the
// conversion of the device module, which determines a kernel's parameters and its shared memory.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "saccade/Codegen/GPU/Passes.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Support/Kernels.h"

namespace saccade {
#define GEN_PASS_DEF_LOWERLAUNCHES
#include "saccade/Codegen/GPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

namespace {

/// Lowers one launch.
class Launch {
public:
  Launch(attn::LaunchOp op, func::FuncOp task, ModuleOp module)
      : op(op), task(task), module(module), b(op), loc(op.getLoc()) {}

  LogicalResult run() {
    auto name = task->getAttrOfType<StringAttr>(kernelAttr);
    auto device = module.lookupSymbol<mlir::gpu::GPUModuleOp>(deviceModule);
    auto kernel = name && device ? device.lookupSymbol<LLVM::LLVMFuncOp>(name.getValue()) : LLVM::LLVMFuncOp();
    if (!kernel)
      return op.emitOpError("launches a task that has no kernel");
    for (Value capture : op.getCaptures())
      addWords(capture);
    auto bytes = kernel->getAttrOfType<IntegerAttr>(sharedBytesAttr);
    func::CallOp::create(b, loc, runtimeFunction(),
                         ValueRange{nameOf(kernel.getName()), store(), constant(words.size()), toWord(op.getCount()),
                                    constant(bytes ? bytes.getInt() : 0)});
    op.erase();
    return success();
  }

private:
  Value constant(int64_t value) { return arith::ConstantIntOp::create(b, loc, value, 64); }
  Value toWord(Value index) { return arith::IndexCastOp::create(b, loc, b.getI64Type(), index); }

  Value widen(Value scalar) {
    if (scalar.getType().isIndex())
      return toWord(scalar);
    unsigned width = scalar.getType().getIntOrFloatBitWidth();
    if (isa<FloatType>(scalar.getType()))
      scalar = arith::BitcastOp::create(b, loc, b.getIntegerType(width), scalar);
    return width == 64 ? scalar : arith::ExtUIOp::create(b, loc, b.getI64Type(), scalar).getResult();
  }

  /// In the order of func-to-llvm: two pointers, offset, sizes, strides.
  void addWords(Value capture) {
    if (!isa<MemRefType>(capture.getType()))
      return words.push_back(widen(capture));
    auto metadata = memref::ExtractStridedMetadataOp::create(b, loc, capture);
    Value pointer = toWord(memref::ExtractAlignedPointerAsIndexOp::create(b, loc, capture));
    words.append({pointer, pointer, toWord(metadata.getOffset())});
    for (ValueRange numbers : {ValueRange(metadata.getSizes()), ValueRange(metadata.getStrides())})
      for (Value number : numbers)
        words.push_back(toWord(number));
  }

  /// Stores the words on the stack of the entry, which outlives the call of the runtime.
  Value store() {
    auto type = MemRefType::get({static_cast<int64_t>(words.size())}, b.getI64Type());
    Value row;
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(&op->getParentOfType<func::FuncOp>().getBody().front());
      row = memref::AllocaOp::create(b, loc, type);
    }
    for (auto [i, word] : llvm::enumerate(words))
      memref::StoreOp::create(b, loc, word, row, ValueRange{arith::ConstantIndexOp::create(b, loc, i)});
    Value address = toWord(memref::ExtractAlignedPointerAsIndexOp::create(b, loc, row));
    return LLVM::IntToPtrOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()), address);
  }

  /// The address of the kernel's name, null-terminated.
  Value nameOf(StringRef kernel) {
    std::string symbol = ("saccade.name." + kernel).str();
    if (!module.lookupSymbol(symbol)) {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(module.getBody());
      std::string text = kernel.str() + '\0';
      auto type = LLVM::LLVMArrayType::get(b.getI8Type(), text.size());
      LLVM::GlobalOp::create(b, loc, type, /*isConstant=*/true, LLVM::Linkage::Internal, symbol, b.getStringAttr(text));
    }
    return LLVM::AddressOfOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()), symbol);
  }

  func::FuncOp runtimeFunction() {
    if (auto known = module.lookupSymbol<func::FuncOp>("saccade_launch"))
      return known;
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    Type pointer = LLVM::LLVMPointerType::get(b.getContext()), i64 = b.getI64Type();
    auto function =
        func::FuncOp::create(b, loc, "saccade_launch", b.getFunctionType({pointer, pointer, i64, i64, i64}, {}));
    function.setPrivate();
    return function;
  }

  attn::LaunchOp op;
  func::FuncOp task;
  ModuleOp module;
  OpBuilder b;
  Location loc;
  SmallVector<Value> words;
};

struct LowerLaunches : saccade::impl::LowerLaunchesBase<LowerLaunches> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SmallVector<attn::LaunchOp> launches;
    module.walk([&](attn::LaunchOp op) { launches.push_back(op); });
    for (attn::LaunchOp op : launches)
      if (failed(Launch(op, module.lookupSymbol<func::FuncOp>(op.getTask()), module).run()))
        return signalPassFailure();
    // The task declarations have no uses left.
    for (auto task : llvm::to_vector(module.getOps<func::FuncOp>()))
      if (task->hasAttr(kernelAttr))
        task.erase();
  }
};

} // namespace
