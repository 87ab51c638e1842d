//===- EntryBuilder.h - Tables and wrappers of entries ------------*- C++ -*-===//
//
// Builds the parts of an entry in the LLVM dialect: functions of uniform signature around the code, the table that
// describes them, and the C and TVM-FFI wrappers.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TARGET_ENTRYBUILDER_H
#define SACCADE_LIB_TARGET_ENTRYBUILDER_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/SymbolTable.h"
#include "saccade/Support/CPUTarget.h"

namespace saccade {

/// The functions and signature of an entry.
struct EntryParts {
  llvm::StringRef name;                 ///< of the function in the program
  mlir::LLVM::LLVMFuncOp call, shapes;  ///< the C interface functions of func-to-llvm
  mlir::FunctionType type;              ///< on tensors
  mlir::ArrayAttr names;                ///< of inputs, then results
  mlir::ArrayAttr messages;             ///< to which the message numbers of `shapes` refer
  llvm::SmallVector<int64_t> updatedBy; ///< for each input, the result of the program that updates it, or -1

  mlir::Location loc() const { return mlir::LLVM::LLVMFuncOp(call).getLoc(); }
  size_t numInputs() const { return type.getNumInputs(); }
  mlir::Type valueType(size_t i) const { return i < numInputs() ? type.getInput(i) : type.getResult(i - numInputs()); }
  size_t numValues() const { return numInputs() + type.getNumResults(); }
};

/// The fields of SaccadeValueType for a type.
struct ABIType {
  uint8_t code, bits;
  int32_t rank = -1;
  llvm::ArrayRef<int64_t> extents = {};
};

/// The ABI type, or nullopt if values of the type cannot cross the ABI boundary.
std::optional<ABIType> getABIType(mlir::Type type);

class EntryBuilder {
public:
  EntryBuilder(mlir::ModuleOp module, const CPUTarget &target);

  /// const char *call(void **args), internal: unpacks descriptors and scalars and calls the entry, which returns a
  /// message if it can fail.
  mlir::LLVM::LLVMFuncOp emitCall(const EntryParts &entry);
  /// const char *shapes(void **args, int64_t *sizes), internal. The callee stores (message number, found, expected,
  /// place, extents...) through its first argument; message number 0 means success.
  mlir::LLVM::LLVMFuncOp emitShapes(const EntryParts &entry);
  /// Declares the SaccadeKernels of a GPU program, which are defined after the device module is compiled.
  mlir::LLVM::GlobalOp declareKernels();
  /// Defines the SaccadeEntry `symbol`; `kernels` is null for a CPU program.
  mlir::LLVM::GlobalOp emitTable(const EntryParts &entry, llvm::StringRef symbol, mlir::LLVM::LLVMFuncOp call,
                                 mlir::LLVM::LLVMFuncOp shapes, mlir::LLVM::GlobalOp kernels);
  /// const char *`symbol`(const DLTensor *or scalar..., DLTensor *...), or with `isShapes` (inputs..., int64_t *sizes).
  void emitCWrapper(const EntryParts &entry, llvm::StringRef symbol, mlir::LLVM::GlobalOp table, bool isShapes);
  /// const char *`symbol`(void): the CPU target of the code that calls run.
  void emitTargetQuery(const EntryParts &entry, llvm::StringRef symbol, mlir::LLVM::GlobalOp table);
  /// int32_t `symbol`(void *, const TVMFFIAny *args, int32_t count, TVMFFIAny *result).
  void emitTVMFFIWrapper(const EntryParts &entry, llvm::StringRef symbol, mlir::LLVM::GlobalOp table);

private:
  /// Creates a function and sets the insertion point to the end of its entry block.
  mlir::LLVM::LLVMFuncOp createFunction(mlir::Location loc, const llvm::Twine &name, mlir::Type result,
                                        llvm::ArrayRef<mlir::Type> arguments, mlir::LLVM::Linkage linkage);
  /// Creates a constant with the value that `build` returns; internal constants are renamed on a conflict.
  mlir::LLVM::GlobalOp createConstant(mlir::Location loc, const llvm::Twine &name, mlir::Type type,
                                      mlir::LLVM::Linkage linkage, llvm::function_ref<mlir::Value()> build);
  mlir::LLVM::GlobalOp createText(mlir::Location loc, llvm::StringRef text);
  /// The address of the extents, or null for an empty list.
  mlir::Value createExtents(mlir::Location loc, llvm::ArrayRef<int64_t> extents);
  mlir::Value createStruct(mlir::Location loc, mlir::LLVM::LLVMStructType type, llvm::ArrayRef<mlir::Value> fields);
  llvm::SmallVector<mlir::Value> loadOperands(llvm::ArrayRef<mlir::Type> types, mlir::Value arguments);
  mlir::Value constant(mlir::Location loc, mlir::Type type, int64_t value);
  mlir::Value addressOf(mlir::Location loc, mlir::LLVM::GlobalOp global);
  mlir::LLVM::LLVMFuncOp declare(llvm::StringRef name, mlir::Type result, llvm::ArrayRef<mlir::Type> arguments);

  mlir::ModuleOp module;
  const CPUTarget &target;
  mlir::SymbolTable symbols;
  mlir::OpBuilder builder;
  mlir::Type pointer, i32, i64;
};

} // namespace saccade

#endif // SACCADE_LIB_TARGET_ENTRYBUILDER_H
