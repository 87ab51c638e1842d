//===- EntryTable.cpp - The table of an entry ---------------------------------===//
//
// Emits the constant SaccadeEntry of include/saccade/Runtime/Entry.h.
//
//===----------------------------------------------------------------------===//
#include "EntryBuilder.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/TypeUtilities.h"
#include "saccade-c/DLTensor.h"
#include "saccade/Target/Device.h"

using namespace mlir;
using namespace saccade;

std::optional<ABIType> saccade::getABIType(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (isa<ShapedType>(type) && !tensor)
    return std::nullopt;
  Type element = getElementTypeOrSelf(type);
  ABIType abiType;
  if (isa<Float16Type, Float32Type, Float64Type>(element))
    abiType = {kDLFloat, uint8_t(element.getIntOrFloatBitWidth())};
  else if (isa<BFloat16Type>(element))
    abiType = {kDLBfloat, 16};
  else if (tensor && isa<Float8E4M3FNType>(element))
    abiType = {kDLFloat8_e4m3fn, 8};
  else if (tensor && isa<Float8E5M2Type>(element))
    abiType = {kDLFloat8_e5m2, 8};
  else if (isa<IndexType>(element))
    abiType = {kDLInt, 64};
  else if (element.isInteger(1))
    abiType = {kDLBool, 8};
  else if (element.isSignlessInteger(8) || element.isSignlessInteger(16) || element.isSignlessInteger(32) ||
           element.isSignlessInteger(64))
    abiType = {kDLInt, uint8_t(element.getIntOrFloatBitWidth())};
  else
    return std::nullopt;
  if (tensor) {
    abiType.rank = int32_t(tensor.getRank());
    abiType.extents = tensor.getShape();
  }
  return abiType;
}

Value EntryBuilder::createStruct(Location loc, LLVM::LLVMStructType type, ArrayRef<Value> fields) {
  Value result = LLVM::UndefOp::create(builder, loc, type);
  for (auto [i, field] : llvm::enumerate(fields))
    result = LLVM::InsertValueOp::create(builder, loc, result, field, int64_t(i));
  return result;
}

Value EntryBuilder::createExtents(Location loc, ArrayRef<int64_t> extents) {
  if (extents.empty())
    return LLVM::ZeroOp::create(builder, loc, pointer);
  auto type = LLVM::LLVMArrayType::get(i64, extents.size());
  LLVM::GlobalOp global = createConstant(loc, "saccade.extents", type, LLVM::Linkage::Internal, [&] {
    Value array = LLVM::UndefOp::create(builder, loc, type);
    for (auto [i, extent] : llvm::enumerate(extents)) {
      Value here = constant(loc, i64, ShapedType::isDynamic(extent) ? -1 : extent);
      array = LLVM::InsertValueOp::create(builder, loc, array, here, int64_t(i));
    }
    return array;
  });
  return addressOf(loc, global);
}

LLVM::GlobalOp EntryBuilder::declareKernels() {
  OpBuilder outside = OpBuilder::atBlockBegin(module.getBody());
  // The type is opaque here; addKernels defines it.
  auto global = LLVM::GlobalOp::create(outside, module.getLoc(), outside.getI8Type(), /*isConstant=*/false,
                                       LLVM::Linkage::External, kernelsSymbol, Attribute());
  symbols.insert(global);
  return global;
}

LLVM::GlobalOp EntryBuilder::emitTable(const EntryParts &entry, StringRef symbol, LLVM::LLVMFuncOp call,
                                       LLVM::LLVMFuncOp shapes, LLVM::GlobalOp kernels) {
  Location loc = entry.loc();
  MLIRContext *context = module.getContext();
  Type i8 = builder.getI8Type(), i16 = builder.getI16Type();
  auto text = [&](StringRef words) { return addressOf(loc, createText(loc, words)); };

  // name, text, extents, rank, code, bits, updated_by
  auto valueType = LLVM::LLVMStructType::getLiteral(context, {pointer, pointer, pointer, i32, i8, i8, i16});
  auto valuesType = LLVM::LLVMArrayType::get(valueType, entry.numValues());
  LLVM::GlobalOp values = createConstant(loc, "saccade.values", valuesType, LLVM::Linkage::Internal, [&] {
    Value array = LLVM::UndefOp::create(builder, loc, valuesType);
    for (size_t i = 0; i < entry.numValues(); ++i) {
      ABIType type = *getABIType(entry.valueType(i));
      std::string words;
      llvm::raw_string_ostream(words) << entry.valueType(i);
      Value value =
          createStruct(loc, valueType,
                       {text(cast<StringAttr>(entry.names[i])), text(words), createExtents(loc, type.extents),
                        constant(loc, i32, type.rank), constant(loc, i8, type.code), constant(loc, i8, type.bits),
                        constant(loc, i16, i < entry.numInputs() ? entry.updatedBy[i] + 1 : 0)});
      array = LLVM::InsertValueOp::create(builder, loc, array, value, int64_t(i));
    }
    return array;
  });

  // version, num_inputs, num_results, target, name, values, call, shapes, kernels, next, gpu
  auto entryType = LLVM::LLVMStructType::getLiteral(
      context, {i32, i32, i32, i32, pointer, pointer, pointer, pointer, pointer, pointer, pointer});
  return createConstant(loc, symbol, entryType, LLVM::Linkage::External, [&] {
    Value null = LLVM::ZeroOp::create(builder, loc, pointer);
    return createStruct(loc, entryType,
                        {constant(loc, i32, SACCADE_ENTRY_VERSION), constant(loc, i32, entry.numInputs()),
                         constant(loc, i32, entry.type.getNumResults()), constant(loc, i32, target.runsOn),
                         text(entry.name), addressOf(loc, values), LLVM::AddressOfOp::create(builder, loc, call),
                         LLVM::AddressOfOp::create(builder, loc, shapes), kernels ? addressOf(loc, kernels) : null,
                         null, null});
  });
}
