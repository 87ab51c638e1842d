//===- EntryBuilder.h - What an object holds for each entry -------*- C++ -*-===//
//
// The parts of an entry in the LLVM dialect: uniform functions around the code, the table that describes them, and
// the faces that hosts call.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TARGET_ENTRYBUILDER_H
#define SACCADE_LIB_TARGET_ENTRYBUILDER_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/SymbolTable.h"
#include "saccade/Runtime/Entry.h"

namespace saccade {

/// An entry as earlier stages left it.
struct EntryParts {
  llvm::StringRef name;                ///< of the user's function
  mlir::LLVM::LLVMFuncOp call, shapes; ///< the C interfaces that func-to-llvm made
  mlir::FunctionType type;             ///< on whole tensors
  mlir::ArrayAttr names;               ///< of inputs, then results
  mlir::ArrayAttr messages;            ///< that `shapes` numbers

  mlir::Location loc() const { return mlir::LLVM::LLVMFuncOp(call).getLoc(); }
  size_t numInputs() const { return type.getNumInputs(); }
  mlir::Type valueType(size_t i) const { return i < numInputs() ? type.getInput(i) : type.getResult(i - numInputs()); }
  size_t numValues() const { return numInputs() + type.getNumResults(); }
};

/// A type as SaccadeValueType says it.
struct ABIType {
  uint8_t code, bits;
  int32_t rank = -1;
  llvm::ArrayRef<int64_t> extents = {};
};

/// Nothing where values of the type cannot cross the border.
std::optional<ABIType> getABIType(mlir::Type type);

class EntryBuilder {
public:
  explicit EntryBuilder(mlir::ModuleOp module);

  /// const char *call(void **args), internal: the descriptors and scalars unpacked. A callee that can fail returns the
  /// message.
  mlir::LLVM::LLVMFuncOp emitCall(const EntryParts &entry);
  /// const char *shapes(void **args, int64_t *sizes), internal. The callee stores (message number, found, expected,
  /// extents...) through its first argument; number 0 means that all is well.
  mlir::LLVM::LLVMFuncOp emitShapes(const EntryParts &entry);
  /// Declares the SaccadeKernels of a program for a GPU, which come once they are compiled.
  mlir::LLVM::GlobalOp declareKernels();
  /// The SaccadeEntry under `symbol`, for code of that CPU target; `kernels` is null for a CPU.
  mlir::LLVM::GlobalOp emitTable(const EntryParts &entry, SaccadeCPUTarget target, llvm::StringRef symbol,
                                 mlir::LLVM::LLVMFuncOp call, mlir::LLVM::LLVMFuncOp shapes,
                                 mlir::LLVM::GlobalOp kernels);
  /// const char *`symbol`(const DLTensor *or scalar..., DLTensor *...), or with `isShapes` (inputs..., int64_t *sizes).
  void emitCWrapper(const EntryParts &entry, llvm::StringRef symbol, mlir::LLVM::GlobalOp table, bool isShapes);
  /// int32_t `symbol`(void *, const TVMFFIAny *args, int32_t count, TVMFFIAny *result).
  void emitTVMFFIWrapper(const EntryParts &entry, llvm::StringRef symbol, mlir::LLVM::GlobalOp table);

private:
  /// Makes a function and stands at the end of its first block.
  mlir::LLVM::LLVMFuncOp createFunction(mlir::Location loc, const llvm::Twine &name, mlir::Type result,
                                        llvm::ArrayRef<mlir::Type> arguments, mlir::LLVM::Linkage linkage);
  /// Makes a constant whose value `build` returns; internal ones get a free name.
  mlir::LLVM::GlobalOp createConstant(mlir::Location loc, const llvm::Twine &name, mlir::Type type,
                                      mlir::LLVM::Linkage linkage, llvm::function_ref<mlir::Value()> build);
  mlir::LLVM::GlobalOp createText(mlir::Location loc, llvm::StringRef text);
  /// The address of the extents, NULL where there are none.
  mlir::Value createExtents(mlir::Location loc, llvm::ArrayRef<int64_t> extents);
  mlir::Value createStruct(mlir::Location loc, mlir::LLVM::LLVMStructType type, llvm::ArrayRef<mlir::Value> fields);
  llvm::SmallVector<mlir::Value> loadOperands(llvm::ArrayRef<mlir::Type> types, mlir::Value arguments);
  mlir::Value constant(mlir::Location loc, mlir::Type type, int64_t value);
  mlir::Value addressOf(mlir::Location loc, mlir::LLVM::GlobalOp global);
  mlir::LLVM::LLVMFuncOp declare(llvm::StringRef name, mlir::Type result, llvm::ArrayRef<mlir::Type> arguments);

  mlir::ModuleOp module;
  mlir::SymbolTable symbols;
  mlir::OpBuilder builder;
  mlir::Type pointer, i32, i64;
};

} // namespace saccade

#endif // SACCADE_LIB_TARGET_ENTRYBUILDER_H
