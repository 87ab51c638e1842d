//===- Launch.cpp - Lowering of attn.launch to the LLVM dialect ---------------===//
//
// Captures are passed in a struct on the launching thread's stack, which outlives all work items. A buffer is passed as
// its pointer and its dynamic offset, sizes and strides only, because stores to these structs dominate the code size.
//
//===----------------------------------------------------------------------===//
#include "Launch.h"
#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Conversion/LLVMCommon/Pattern.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/FunctionCallUtils.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

using namespace mlir;
using namespace saccade;

static std::string getRunnerName(StringRef task) { return (task + "_run").str(); }

/// Packs and unpacks the struct fields of one capture.
namespace {
class Capture {
public:
  Capture(const LLVMTypeConverter &converter, Type type)
      : converter(converter), type(type), buffer(dyn_cast<MemRefType>(type)) {
    if (buffer)
      std::tie(strides, offset) = buffer.getStridesAndOffset();
  }

  /// The types of its fields.
  SmallVector<Type> getTypes() const {
    if (!buffer)
      return {converter.convertType(type)};
    SmallVector<Type> types = {LLVM::LLVMPointerType::get(&converter.getContext())};
    types.append(ShapedType::isDynamic(offset) + llvm::count_if(buffer.getShape(), ShapedType::isDynamic) +
                     llvm::count_if(strides, ShapedType::isDynamic),
                 converter.getIndexType());
    return types;
  }

  /// The fields of `value`, which has the converted type.
  SmallVector<Value> unpack(OpBuilder &builder, Location loc, Value value) const {
    if (!buffer)
      return {value};
    MemRefDescriptor descriptor(value);
    SmallVector<Value> parts = {descriptor.alignedPtr(builder, loc)};
    if (ShapedType::isDynamic(offset))
      parts.push_back(descriptor.offset(builder, loc));
    for (auto [i, size] : llvm::enumerate(buffer.getShape()))
      if (ShapedType::isDynamic(size))
        parts.push_back(descriptor.size(builder, loc, i));
    for (auto [i, stride] : llvm::enumerate(strides))
      if (ShapedType::isDynamic(stride))
        parts.push_back(descriptor.stride(builder, loc, i));
    return parts;
  }

  /// The value of the converted type that has the fields `parts`.
  Value pack(OpBuilder &builder, Location loc, ArrayRef<Value> parts) const {
    if (!buffer)
      return parts.front();
    auto descriptor = MemRefDescriptor::poison(builder, loc, converter.convertType(type));
    // A task never frees captures, so the allocated pointer is not used.
    descriptor.setAllocatedPtr(builder, loc, parts.front());
    descriptor.setAlignedPtr(builder, loc, parts.front());
    parts = parts.drop_front();
    auto next = [&](int64_t known) -> Value {
      if (!ShapedType::isDynamic(known))
        return LLVM::ConstantOp::create(builder, loc, converter.getIndexType(), builder.getIndexAttr(known));
      Value part = parts.front();
      parts = parts.drop_front();
      return part;
    };
    descriptor.setOffset(builder, loc, next(offset));
    for (auto [i, size] : llvm::enumerate(buffer.getShape()))
      descriptor.setSize(builder, loc, i, next(size));
    for (auto [i, stride] : llvm::enumerate(strides))
      descriptor.setStride(builder, loc, i, next(stride));
    return descriptor;
  }

private:
  const LLVMTypeConverter &converter;
  Type type;
  MemRefType buffer;
  SmallVector<int64_t> strides;
  int64_t offset = 0;
};
} // namespace

/// The struct type that holds captures of `types`.
static LLVM::LLVMStructType getContextType(const LLVMTypeConverter &converter, TypeRange types) {
  SmallVector<Type> fields;
  for (Type type : types)
    llvm::append_range(fields, Capture(converter, type).getTypes());
  return LLVM::LLVMStructType::getLiteral(&converter.getContext(), fields);
}

static Value getField(OpBuilder &builder, Location loc, LLVM::LLVMStructType type, Value context, int32_t i) {
  return LLVM::GEPOp::create(builder, loc, context.getType(), type, context, ArrayRef<LLVM::GEPArg>{0, i});
}

/// Casts `converted` back to `type`; the conversion folds the cast.
static Value castFromConverted(OpBuilder &builder, Location loc, Type type, Value converted) {
  if (converted.getType() == type)
    return converted;
  return UnrealizedConversionCastOp::create(builder, loc, type, converted).getResult(0);
}

static void createTaskRunner(attn::LaunchOp launch, const LLVMTypeConverter &converter) {
  Location loc = launch.getLoc();
  auto module = launch->getParentOfType<ModuleOp>();
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  auto task = module.lookupSymbol<func::FuncOp>(launch.getTask());
  Type pointer = LLVM::LLVMPointerType::get(builder.getContext()), i64 = builder.getI64Type();
  auto type = builder.getFunctionType({pointer, i64, i64, pointer}, {});
  auto runner = func::FuncOp::create(builder, loc, getRunnerName(launch.getTask()), type);
  runner.setPrivate();
  Block *entry = runner.addEntryBlock();
  builder.setInsertionPointToStart(entry);

  SmallVector<Value> operands;
  LLVM::LLVMStructType contextType = getContextType(converter, launch.getCaptures().getTypes());
  int32_t i = 0;
  for (Type type : launch.getCaptures().getTypes()) {
    Capture capture(converter, type);
    SmallVector<Value> parts;
    for (Type part : capture.getTypes())
      parts.push_back(
          LLVM::LoadOp::create(builder, loc, part, getField(builder, loc, contextType, entry->getArgument(0), i++)));
    operands.push_back(castFromConverted(builder, loc, type, capture.pack(builder, loc, parts)));
  }
  for (unsigned bound : {1, 2})
    operands.push_back(castFromConverted(builder, loc, builder.getIndexType(), entry->getArgument(bound)));

  auto scratchType = cast<MemRefType>(task.getArgumentTypes().back());
  auto constant = [&](int64_t value) -> Value {
    return LLVM::ConstantOp::create(builder, loc, builder.getI64IntegerAttr(value));
  };
  auto scratch = MemRefDescriptor::poison(builder, loc, converter.convertType(scratchType));
  scratch.setAllocatedPtr(builder, loc, entry->getArgument(3));
  scratch.setAlignedPtr(builder, loc, entry->getArgument(3));
  scratch.setOffset(builder, loc, constant(0));
  scratch.setSize(builder, loc, 0, constant(launch.getScratchBytes()));
  scratch.setStride(builder, loc, 0, constant(1));
  operands.push_back(castFromConverted(builder, loc, scratchType, scratch));
  func::CallOp::create(builder, loc, task, operands);
  func::ReturnOp::create(builder, loc);
}

void saccade::createTaskRunners(ModuleOp module, const LLVMTypeConverter &converter) {
  module.walk([&](attn::LaunchOp launch) {
    if (!module.lookupSymbol(getRunnerName(launch.getTask())))
      createTaskRunner(launch, converter);
  });
}

namespace {

Value callRuntime(ConversionPatternRewriter &rewriter, Operation *op, StringRef name, ValueRange operands,
                  Type result) {
  auto module = op->getParentOfType<ModuleOp>();
  FailureOr<LLVM::LLVMFuncOp> function =
      LLVM::lookupOrCreateFn(rewriter, module, name, SmallVector<Type>(operands.getTypes()), result);
  assert(succeeded(function) && "the runtime's names are reserved");
  auto call = LLVM::CallOp::create(rewriter, op->getLoc(), *function, operands);
  return call->getNumResults() ? call.getResult() : Value();
}

struct LaunchLowering : ConvertOpToLLVMPattern<attn::LaunchOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;

  LogicalResult matchAndRewrite(attn::LaunchOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    Type pointer = getPtrType(), i64 = rewriter.getI64Type();
    LLVM::LLVMStructType contextType = getContextType(*getTypeConverter(), op.getCaptures().getTypes());
    Value context = createContext(op, contextType, rewriter);
    int32_t i = 0;
    for (auto [type, capture] : llvm::zip_equal(op.getCaptures().getTypes(), adaptor.getCaptures()))
      for (Value part : Capture(*getTypeConverter(), type).unpack(rewriter, loc, capture))
        LLVM::StoreOp::create(rewriter, loc, part, getField(rewriter, loc, contextType, context, i++));
    Value runner = LLVM::AddressOfOp::create(rewriter, loc, pointer, getRunnerName(op.getTask()));
    Value bytes = LLVM::ConstantOp::create(rewriter, loc, i64, rewriter.getI64IntegerAttr(op.getScratchBytes()));
    callRuntime(rewriter, op, "saccade_parallel_for", {runner, context, adaptor.getCount(), bytes},
                rewriter.getI32Type());
    rewriter.eraseOp(op);
    return success();
  }

  /// Allocates in the entry block, so that a launch in a loop does not grow the stack.
  Value createContext(attn::LaunchOp op, Type type, ConversionPatternRewriter &rewriter) const {
    OpBuilder::InsertionGuard guard(rewriter);
    auto function = op->getParentOfType<FunctionOpInterface>();
    rewriter.setInsertionPointToStart(&function.getFunctionBody().front());
    Value one = LLVM::ConstantOp::create(rewriter, op.getLoc(), rewriter.getI64IntegerAttr(1));
    return LLVM::AllocaOp::create(rewriter, op.getLoc(), getPtrType(), type, one);
  }
};

struct AllocLowering : ConvertOpToLLVMPattern<memref::AllocOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;

  LogicalResult matchAndRewrite(memref::AllocOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    if (!isConvertibleAndHasIdentityMaps(op.getType()))
      return rewriter.notifyMatchFailure(op, "is not compact");
    SmallVector<Value> sizes, strides;
    Value bytes;
    getMemRefDescriptorSizes(op.getLoc(), op.getType(), adaptor.getDynamicSizes(), rewriter, sizes, strides, bytes);
    Value memory = callRuntime(rewriter, op, "saccade_allocate", bytes, getPtrType());
    rewriter.replaceOp(op,
                       {createMemRefDescriptor(op.getLoc(), op.getType(), memory, memory, sizes, strides, rewriter)});
    return success();
  }
};

struct DeallocLowering : ConvertOpToLLVMPattern<memref::DeallocOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;

  LogicalResult matchAndRewrite(memref::DeallocOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    MemRefDescriptor descriptor(adaptor.getMemref());
    callRuntime(rewriter, op, "saccade_release", descriptor.allocatedPtr(rewriter, op.getLoc()), getVoidType());
    rewriter.eraseOp(op);
    return success();
  }
};

struct ThreadsLowering : ConvertOpToLLVMPattern<attn::ThreadsOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;

  LogicalResult matchAndRewrite(attn::ThreadsOp op, OpAdaptor, ConversionPatternRewriter &rewriter) const override {
    Value count = callRuntime(rewriter, op, "saccade_threads", {}, rewriter.getI32Type());
    rewriter.replaceOpWithNewOp<LLVM::SExtOp>(op, getIndexType(), count);
    return success();
  }
};

} // namespace

void saccade::populateRuntimeCallPatterns(const LLVMTypeConverter &converter, RewritePatternSet &patterns) {
  patterns.add<LaunchLowering, AllocLowering, DeallocLowering, ThreadsLowering>(converter);
}
