//===- EntryBuilder.cpp - The functions of an entry ---------------------------===//
//
// The wrappers pack their arguments and call the runtime, which does all checks.
//
//===----------------------------------------------------------------------===//
#include "EntryBuilder.h"
#include "saccade/Runtime/Entry.h"
#include "saccade/Support/CPUTarget.h"

using namespace mlir;
using namespace saccade;

EntryBuilder::EntryBuilder(ModuleOp module, const CPUTarget &target)
    : module(module), target(target), symbols(module), builder(module.getContext()),
      pointer(LLVM::LLVMPointerType::get(module.getContext())), i32(builder.getI32Type()), i64(builder.getI64Type()) {}

Value EntryBuilder::constant(Location loc, Type type, int64_t value) {
  return LLVM::ConstantOp::create(builder, loc, builder.getIntegerAttr(type, value));
}

Value EntryBuilder::addressOf(Location loc, LLVM::GlobalOp global) {
  return LLVM::AddressOfOp::create(builder, loc, global);
}

LLVM::LLVMFuncOp EntryBuilder::createFunction(Location loc, const Twine &name, Type result, ArrayRef<Type> arguments,
                                              LLVM::Linkage linkage) {
  builder.setInsertionPointToEnd(module.getBody());
  auto function =
      LLVM::LLVMFuncOp::create(builder, loc, name.str(), LLVM::LLVMFunctionType::get(result, arguments), linkage);
  // Exported functions run on every processor: the runtime, which they call, selects or refuses the target.
  if (linkage == LLVM::Linkage::External)
    function.setTargetCpu(target.entryCPU);
  symbols.insert(function); // renames on a conflict, which only internal functions may have
  builder.setInsertionPointToEnd(function.addEntryBlock(builder));
  return function;
}

LLVM::LLVMFuncOp EntryBuilder::declare(StringRef name, Type result, ArrayRef<Type> arguments) {
  if (auto known = symbols.lookup<LLVM::LLVMFuncOp>(name))
    return known;
  OpBuilder outside = OpBuilder::atBlockBegin(module.getBody());
  auto function =
      LLVM::LLVMFuncOp::create(outside, module.getLoc(), name, LLVM::LLVMFunctionType::get(result, arguments));
  symbols.insert(function);
  return function;
}

LLVM::GlobalOp EntryBuilder::createConstant(Location loc, const Twine &name, Type type, LLVM::Linkage linkage,
                                            llvm::function_ref<Value()> build) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(module.getBody());
  auto global = LLVM::GlobalOp::create(builder, loc, type, /*isConstant=*/true, linkage, name.str(), Attribute());
  symbols.insert(global);
  builder.createBlock(&global.getInitializerRegion());
  LLVM::ReturnOp::create(builder, loc, build());
  return global;
}

LLVM::GlobalOp EntryBuilder::createText(Location loc, StringRef text) {
  OpBuilder outside = OpBuilder::atBlockBegin(module.getBody());
  std::string terminated = (text + StringRef("\0", 1)).str();
  auto type = LLVM::LLVMArrayType::get(builder.getI8Type(), terminated.size());
  auto global = LLVM::GlobalOp::create(outside, loc, type, /*isConstant=*/true, LLVM::Linkage::Internal, "saccade.text",
                                       outside.getStringAttr(terminated));
  symbols.insert(global);
  return global;
}

SmallVector<Value> EntryBuilder::loadOperands(ArrayRef<Type> types, Value arguments) {
  Location loc = arguments.getLoc();
  SmallVector<Value> operands;
  for (auto [i, type] : llvm::enumerate(types)) {
    Value place = LLVM::GEPOp::create(builder, loc, pointer, pointer, arguments, ArrayRef<LLVM::GEPArg>{int32_t(i)});
    Value operand = LLVM::LoadOp::create(builder, loc, pointer, place);
    // Descriptors are passed by address, scalars by value. An i1 is a byte in memory.
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

LLVM::LLVMFuncOp EntryBuilder::emitCall(const EntryParts &entry) {
  LLVM::LLVMFuncOp callee = entry.call;
  Location loc = callee.getLoc();
  LLVM::LLVMFuncOp function =
      createFunction(loc, "saccade.call." + entry.name, pointer, {pointer}, LLVM::Linkage::Internal);
  SmallVector<Value> operands = loadOperands(callee.getArgumentTypes(), function.getArgument(0));
  auto call = LLVM::CallOp::create(builder, loc, callee, operands);
  Value message = call.getNumResults() ? call.getResult() : LLVM::ZeroOp::create(builder, loc, pointer).getResult();
  LLVM::ReturnOp::create(builder, loc, message);
  return function;
}

LLVM::LLVMFuncOp EntryBuilder::emitShapes(const EntryParts &entry) {
  LLVM::LLVMFuncOp callee = entry.shapes;
  Location loc = callee.getLoc();
  LLVM::LLVMFuncOp function =
      createFunction(loc, "saccade.shapes." + entry.name, pointer, {pointer, pointer}, LLVM::Linkage::Internal);
  // message number, found, expected, place, then the extents of all results
  constexpr int64_t first = 4;
  int64_t count = first;
  for (Type type : entry.type.getResults())
    count += cast<RankedTensorType>(type).getRank();
  auto returned = LLVM::LLVMStructType::getLiteral(module.getContext(), SmallVector<Type>(count, i64));
  Value sizes = function.getArgument(1);
  Value result = LLVM::AllocaOp::create(builder, loc, pointer, returned, constant(loc, i64, 1));
  SmallVector<Value> operands = loadOperands(callee.getArgumentTypes().drop_front(), function.getArgument(0));
  operands.insert(operands.begin(), result);
  LLVM::CallOp::create(builder, loc, callee, operands);

  auto field = [&](int64_t i) -> Value {
    Value place = LLVM::GEPOp::create(builder, loc, pointer, returned, result, ArrayRef<LLVM::GEPArg>{0, int32_t(i)});
    return LLVM::LoadOp::create(builder, loc, i64, place);
  };
  auto store = [&](Value value, int64_t i) {
    Value place = LLVM::GEPOp::create(builder, loc, pointer, i64, sizes, ArrayRef<LLVM::GEPArg>{int32_t(i)});
    LLVM::StoreOp::create(builder, loc, value, place);
  };
  Value number = field(0);
  Value good = LLVM::ICmpOp::create(builder, loc, LLVM::ICmpPredicate::eq, number, constant(loc, i64, 0));
  Block *fine = builder.createBlock(&function.getBody());
  Block *refused = builder.createBlock(&function.getBody());
  builder.setInsertionPointToEnd(&function.getBody().front());
  LLVM::CondBrOp::create(builder, loc, good, fine, refused);

  builder.setInsertionPointToEnd(fine);
  for (int64_t i = first; i < count; ++i)
    store(field(i), i - first);
  LLVM::ReturnOp::create(builder, loc, LLVM::ZeroOp::create(builder, loc, pointer).getResult());

  builder.setInsertionPointToEnd(refused);
  for (int64_t i = 1; i < first; ++i)
    store(field(i), i - 1);
  Value message = LLVM::ZeroOp::create(builder, loc, pointer);
  for (auto [i, text] : llvm::enumerate(entry.messages.getAsValueRange<StringAttr>())) {
    if (text.empty())
      continue; // the check was folded
    Value isThisMessage =
        LLVM::ICmpOp::create(builder, loc, LLVM::ICmpPredicate::eq, number, constant(loc, i64, int64_t(i) + 1));
    message = LLVM::SelectOp::create(builder, loc, isThisMessage, addressOf(loc, createText(loc, text)), message);
  }
  LLVM::ReturnOp::create(builder, loc, message);
  return function;
}

void EntryBuilder::emitCWrapper(const EntryParts &entry, StringRef symbol, LLVM::GlobalOp table, bool isShapes) {
  Location loc = entry.loc();
  size_t count = isShapes ? entry.numInputs() : entry.numValues();
  // In C, integer scalars are int64_t and float scalars are double.
  SmallVector<Type> types;
  for (size_t i = 0; i < count; ++i) {
    Type type = entry.valueType(i);
    types.push_back(isa<RankedTensorType>(type) ? pointer : isa<FloatType>(type) ? builder.getF64Type() : i64);
  }
  if (isShapes)
    types.push_back(pointer);
  LLVM::LLVMFuncOp function = createFunction(loc, symbol, pointer, types, LLVM::Linkage::External);

  // SaccadeArgument: kind, padding, value
  auto argument = LLVM::LLVMStructType::getLiteral(module.getContext(), {i32, i32, i64});
  auto list = LLVM::LLVMArrayType::get(argument, count);
  Value packed = LLVM::AllocaOp::create(builder, loc, pointer, list, constant(loc, i64, 1), /*alignment=*/8);
  auto store = [&](Value value, int32_t i, int32_t field) {
    Value place = LLVM::GEPOp::create(builder, loc, pointer, list, packed, ArrayRef<LLVM::GEPArg>{0, i, field});
    LLVM::StoreOp::create(builder, loc, value, place);
  };
  for (size_t i = 0; i < count; ++i) {
    int64_t kind = types[i] == pointer ? SaccadeArgumentDLTensor
                   : types[i] == i64   ? SaccadeArgumentInteger
                                       : SaccadeArgumentFloat;
    store(constant(loc, i32, kind), int32_t(i), 0);
    store(function.getArgument(i), int32_t(i), 2);
  }

  SmallVector<Value> operands = {addressOf(loc, table), packed, constant(loc, i32, int64_t(count))};
  if (isShapes)
    operands.push_back(function.getArgument(count));
  SmallVector<Type> operandTypes = {pointer, pointer, i32};
  if (isShapes)
    operandTypes.push_back(pointer);
  LLVM::LLVMFuncOp checked = declare(isShapes ? "saccade_entry_shapes" : "saccade_entry_call", i32, operandTypes);
  Value status = LLVM::CallOp::create(builder, loc, checked, operands).getResult();
  Value done = LLVM::ICmpOp::create(builder, loc, LLVM::ICmpPredicate::eq, status, constant(loc, i32, SaccadeSuccess));
  Block *fine = builder.createBlock(&function.getBody());
  Block *refused = builder.createBlock(&function.getBody());
  builder.setInsertionPointToEnd(&function.getBody().front());
  LLVM::CondBrOp::create(builder, loc, done, fine, refused);
  builder.setInsertionPointToEnd(fine);
  LLVM::ReturnOp::create(builder, loc, LLVM::ZeroOp::create(builder, loc, pointer).getResult());
  builder.setInsertionPointToEnd(refused);
  LLVM::LLVMFuncOp message = declare("saccade_entry_last_error", pointer, {});
  LLVM::ReturnOp::create(builder, loc, LLVM::CallOp::create(builder, loc, message, ValueRange()).getResult());
}

void EntryBuilder::emitTargetQuery(const EntryParts &entry, StringRef symbol, LLVM::GlobalOp table) {
  Location loc = entry.loc();
  createFunction(loc, symbol, pointer, {}, LLVM::Linkage::External);
  LLVM::LLVMFuncOp find = declare("saccade_entry_target", pointer, {pointer});
  Value name = LLVM::CallOp::create(builder, loc, find, addressOf(loc, table)).getResult();
  LLVM::ReturnOp::create(builder, loc, name);
}

void EntryBuilder::emitTVMFFIWrapper(const EntryParts &entry, StringRef symbol, LLVM::GlobalOp table) {
  Location loc = entry.loc();
  LLVM::LLVMFuncOp function =
      createFunction(loc, symbol, i32, {pointer, pointer, i32, pointer}, LLVM::Linkage::External);
  LLVM::LLVMFuncOp checked = declare("saccade_entry_call_tvm_ffi", i32, {pointer, pointer, i32, pointer});
  SmallVector<Value> operands = {addressOf(loc, table)};
  llvm::append_range(operands, function.getArguments().drop_front());
  LLVM::ReturnOp::create(builder, loc, LLVM::CallOp::create(builder, loc, checked, operands).getResult());
}
