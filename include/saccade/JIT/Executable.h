//===- Executable.h - A program compiled into this process --------*- C++ -*-===//
//
// Compiles a module with the usual pipeline and calls its entries on the caller's memory.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_JIT_EXECUTABLE_H
#define SACCADE_JIT_EXECUTABLE_H

#include "mlir/IR/BuiltinOps.h"
#include "saccade/Pipeline/CompileOptions.h"
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
  llvm::SmallVector<int64_t, 4> shape = {}; ///< `mlir::ShapedType::kDynamic` where not known
  std::string name = {};                    ///< as in the program, without '%'

  /// As MLIR writes it: "tensor<?x8xf32>", "index".
  std::string str() const;
};

/// A public function of the program.
struct Entry {
  std::string name;
  std::vector<ValueType> arguments, results;
  /// "f(a: tensor<?xf32>, n: index) -> (result: tensor<?xf32>)"
  std::string signature() const;
};

/// A tensor in the caller's memory, or a scalar (no extents). Of a program for a GPU, memory of the first GPU (cuda:0).
struct Buffer {
  void *data;                                 ///< of element 0; null is refused unless the tensor is empty
  llvm::SmallVector<int64_t, 4> sizes = {};   ///< extents
  llvm::SmallVector<int64_t, 4> strides = {}; ///< in elements; may be 0 or negative for inputs

  static Buffer scalar(void *data) { return Buffer{data, {}, {}}; }
  /// A compact row-major tensor.
  static Buffer compact(void *data, llvm::ArrayRef<int64_t> sizes);
};

/// Where the time of a compilation went, in seconds.
struct CompileTimes {
  double pipeline = 0, codegen = 0, link = 0;
  double total() const { return pipeline + codegen + link; }
};

/// The face of an entry that TVM-FFI calls: inputs, then results; 0, or -1 with an error raised there.
using TVMFFIFunction = int32_t (*)(void *self, const void *arguments, int32_t count, void *result);

/// A compiled program. Its entries may be called from several threads at once.
class Executable {
public:
  /// Compiles `module`, which the pipeline rewrites. Diagnostics go to the handlers of its context; the error repeats
  /// none of them. Fails too where this machine cannot run `options.target`.
  static llvm::Expected<std::unique_ptr<Executable>> create(mlir::ModuleOp module, const CompileOptions &options);

  /// The same from MLIR text or bytecode, with `name` in the locations of the diagnostics that `sink` gets.
  static llvm::Expected<std::unique_ptr<Executable>> createFromText(llvm::StringRef source, llvm::StringRef name,
                                                                    const CompileOptions &options, DiagnosticSink sink);
  /// With the diagnostics in the error's text.
  static llvm::Expected<std::unique_ptr<Executable>> createFromText(llvm::StringRef source, llvm::StringRef name,
                                                                    const CompileOptions &options);
  ~Executable();

  llvm::ArrayRef<Entry> entries() const;
  /// Null where there is none of that name.
  const Entry *lookup(llvm::StringRef name) const;

  /// What the compiled code says of an entry, to be called through include/saccade/Runtime/Entry.h; null where there is
  /// no entry of that name. Valid while the executable lives.
  const SaccadeEntry *code(llvm::StringRef name) const;
  TVMFFIFunction tvmFFI(llvm::StringRef name) const;

  /// Checks the run-time shapes of `inputs` and says which extents the results will have, one list a result.
  llvm::Expected<std::vector<llvm::SmallVector<int64_t, 4>>> resultShapes(const Entry &entry,
                                                                          llvm::ArrayRef<Buffer> inputs) const;

  /// Checks everything and calls the entry; `outputs` are the caller's, must not overlap one another or an input, and
  /// must have the extents that `resultShapes` gives. Where memory runs out it is an error, and they hold anything.
  /// Both are conveniences over saccade_entry_call; buffers are taken to be of the entry's element types.
  llvm::Error call(const Entry &entry, llvm::ArrayRef<Buffer> inputs, llvm::ArrayRef<Buffer> outputs) const;

  const CompileTimes &compileTimes() const;
  /// Size of the object file, in bytes.
  size_t codeBytes() const;
  /// The kernels of a program for a GPU, as a KernelRunner takes them; empty for a CPU.
  llvm::StringRef ptx() const;
  /// Which these are.
  llvm::ArrayRef<KernelInfo> kernels() const;

private:
  struct State;
  explicit Executable(std::unique_ptr<State> state);
  std::unique_ptr<State> state;
};

/// The public functions of a module before compilation, or an error that names an argument or result of a type that
/// cannot cross the border.
llvm::Expected<std::vector<Entry>> getEntries(mlir::ModuleOp module);

} // namespace saccade

#endif // SACCADE_JIT_EXECUTABLE_H
