//===- Executable.h - A program compiled into this process --------*- C++ -*-===//
//
// Links a compiled module into this process and calls its entries on memory of the caller.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_JIT_EXECUTABLE_H
#define SACCADE_JIT_EXECUTABLE_H

#include "mlir/IR/BuiltinOps.h"
#include "saccade/Pipeline/CompileOptions.h"
#include "saccade/Pipeline/RunPipeline.h"
#include "saccade/Pipeline/Source.h"
#include "saccade/Runtime/Entry.h"
#include "saccade/Support/ElementType.h"
#include "saccade/Target/Device.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"
#include <memory>
#include <string>
#include <vector>

namespace saccade {

/// The type of an argument or a result of an entry.
struct ValueType {
  ElementType element;
  bool isTensor = false;                    ///< else a scalar
  llvm::SmallVector<int64_t, 4> shape = {}; ///< `mlir::ShapedType::kDynamic` for a dynamic extent
  std::string name = {};                    ///< as in the program, without '%'
  int64_t updatedBy = -1; ///< of an argument: the result of the program that updates it in place, or -1

  /// As MLIR writes it: "tensor<?x8xf32>", "index".
  std::string str() const;
};

/// A public function of the program. A result of the program that updates an argument in place is no result of it.
struct Entry {
  std::string name;
  std::vector<ValueType> arguments, results;
  /// The results of the function in the program, in order, as indices of arguments, then results.
  llvm::SmallVector<size_t> programResults() const;
  /// The argument or, after the arguments, the result number `index`.
  const ValueType &value(size_t index) const {
    return index < arguments.size() ? arguments[index] : results[index - arguments.size()];
  }
  /// "f(a: tensor<?xf32>, n: index) -> (result: tensor<?xf32>)"
  std::string signature() const;
};

/// A tensor in memory of the caller, or a scalar (no extents). For a GPU program, memory of the first GPU (cuda:0).
struct Buffer {
  void *data;                                 ///< address of element 0; may be null only if the tensor is empty
  llvm::SmallVector<int64_t, 4> sizes = {};   ///< extents
  llvm::SmallVector<int64_t, 4> strides = {}; ///< in elements; may be 0 or negative for inputs

  static Buffer scalar(void *data) { return Buffer{data, {}, {}}; }
  /// A contiguous row-major tensor.
  static Buffer compact(void *data, llvm::ArrayRef<int64_t> sizes);
};

/// The times of the compilation phases in seconds.
struct CompileTimes {
  double pipeline = 0, codegen = 0, link = 0;
  std::vector<StageTime> stages; ///< of the pipeline; empty if the program was read from a cache
  double total() const { return pipeline + codegen + link; }
};

/// The TVM-FFI wrapper of an entry. `arguments` are inputs, then results; returns 0, or -1 with the error raised in
/// TVM-FFI.
using TVMFFIFunction = int32_t (*)(void *self, const void *arguments, int32_t count, void *result);

/// Warnings and remarks as DiagnosticSink receives them.
using Diagnostics = std::vector<std::pair<mlir::DiagnosticSeverity, std::string>>;

struct CompiledProgram;
class DiskCache;

/// A compiled program. Its entries may be called from several threads at once.
class Executable {
public:
  /// Compiles and links `module`, see compileProgram(). Also fails if this machine cannot run `options.target`. A
  /// program in `cache` is not compiled; programs with warnings or remarks are not stored there.
  static llvm::Expected<std::unique_ptr<Executable>> create(mlir::ModuleOp module, const CompileOptions &options,
                                                            DiskCache *cache = nullptr);

  /// The same from MLIR text or bytecode. `name` is the file name in the diagnostics, which are the text of the error.
  static llvm::Expected<std::unique_ptr<Executable>> createFromText(llvm::StringRef text, llvm::StringRef name,
                                                                    const CompileOptions &options);

  /// Links the program of a key of `cache`; null if it is not there. Also returns its diagnostics.
  static std::pair<std::unique_ptr<Executable>, Diagnostics> load(DiskCache &cache, llvm::StringRef key);

  /// Links a compiled program into this process.
  static llvm::Expected<std::unique_ptr<Executable>> link(const CompiledProgram &program);
  ~Executable();

  llvm::ArrayRef<Entry> entries() const;
  /// The entry `name`, or null.
  const Entry *lookup(llvm::StringRef name) const;

  /// The table of an entry in the compiled code, to be called through include/saccade/Runtime/Entry.h; null if there is
  /// no such entry. Valid as long as the executable.
  const SaccadeEntry *code(llvm::StringRef name) const;
  TVMFFIFunction tvmFFI(llvm::StringRef name) const;

  /// Checks the run-time shapes of `inputs` and returns the extents of each result.
  llvm::Expected<std::vector<llvm::SmallVector<int64_t, 4>>> resultShapes(const Entry &entry,
                                                                          llvm::ArrayRef<Buffer> inputs) const;

  /// Checks the arguments and calls the entry. `outputs` must have the extents that `resultShapes` gives and, as inputs
  /// that are updated in place, must not overlap one another or an input; they are undefined after an out-of-memory
  /// error. Both functions wrap saccade_entry_call and assume that buffers have the element types of the entry.
  llvm::Error call(const Entry &entry, llvm::ArrayRef<Buffer> inputs, llvm::ArrayRef<Buffer> outputs) const;

  const CompileTimes &compileTimes() const;
  /// The size of the object file in bytes.
  size_t codeBytes() const;
  /// The PTX of a GPU program, for a KernelRunner; empty for a CPU.
  llvm::StringRef ptx() const;
  /// The kernels in that PTX.
  llvm::ArrayRef<KernelInfo> kernels() const;

private:
  struct State;
  explicit Executable(std::unique_ptr<State> state);
  std::unique_ptr<State> state;
};

/// The public functions of a module before compilation, or an error that names an argument or result whose type cannot
/// cross the ABI boundary.
llvm::Expected<std::vector<Entry>> getEntries(mlir::ModuleOp module);

} // namespace saccade

#endif // SACCADE_JIT_EXECUTABLE_H
