//===- CHeader.cpp - C header of a program ------------------------------------===//
//
// Generates the C header of a shared library from the signatures of the source program.
//
//===----------------------------------------------------------------------===//
#include "Embedded/Embedded.h"
#include "saccade/Dialect/Attn/Analysis/Signatures.h"
#include "saccade/Target/SharedLibrary.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace saccade;

static constexpr llvm::StringLiteral rules = R"(
 *   const char *saccade_F_shapes(inputs..., int64_t *sizes)
 * checks the inputs of F and writes the extents of its results into `sizes`, one result after the other.
 *
 *   const char *saccade_F(inputs..., results...)
 * checks all arguments and runs F. Results are memory of the caller with the extents that saccade_F_shapes gives; they
 * must not overlap one another or an input. F writes to an input that is "updated" as to a result: to its elements,
 * which must not be read-only.
 *
 * Both return NULL, or an error message. After an error nothing has been written, except that the results are undefined
 * after "out of memory". The message belongs to the library and is valid until the thread's next call. The functions
 * are thread-safe.
 *
 * A tensor is a DLTensor (below), in CPU memory unless stated otherwise, of the element type and rank in its comment;
 * "?" stands for any extent. Element 0 is at data + byte_offset. Strides are in elements: NULL means contiguous, row-major;
 * those of inputs may be 0 or negative; those of results and updated inputs must be positive and must not make elements
 * overlap; those of
 * dimensions of extent 0 or 1 are ignored.
 * In a DLDataType, f32 is {kDLFloat, 32, 1} (f16 and f64 likewise), bf16 {kDLBfloat, 16, 1},
 * f8E4M3FN {kDLFloat8_e4m3fn, 8, 1}, f8E5M2 {kDLFloat8_e5m2, 8, 1}, i32 {kDLInt, 32, 1} or {kDLUInt, 32, 1} (i8, i16
 * and i64 likewise), index {kDLInt, 64, 1}, i1 {kDLBool, 8, 1}.
 * Scalars are int64_t for integers, index and i1 (0 or 1), and double for floats.
 *
 * The library requires no initialisation and may be renamed. Python calls the same functions through TVM-FFI:
 *   tvm_ffi.load_module("LIBRARY.so").F(inputs..., results...)
 *
)";

/// For programs with prepacked weights.
static constexpr llvm::StringLiteral prepacked = R"(
/* F__prepack performs the computations of F that depend on its constant arguments only. Call it once per set of
 * weights, with contiguous memory for its results, and pass these, by name, as the last inputs of every call of F. */
)";

static constexpr llvm::StringLiteral stream = R"(
/* Calls on an NVIDIA GPU: all tensors are in the memory of one GPU ({kDLCUDA, ordinal}). They are
 * asynchronous on a stream: the CUstream (cudaStream_t) that this thread has set here; after NULL, the stream that
 * TVM-FFI has set for the device (PyTorch's current stream if PyTorch tensors are passed), else the default stream.
 * Calls may be captured into a CUDA graph. Messages also report a missing or outdated driver and its errors. */
void saccade_set_stream(void *stream);
)";

static constexpr llvm::StringLiteral threads = R"(
/* The maximum number of threads of all Saccade libraries in the process, the caller included; 0 resets it to the number
 * of processors. If PyTorch is loaded in the process, its number of threads is the limit. */
void saccade_set_threads(int32_t threads);
int32_t saccade_threads(void);
)";

static constexpr llvm::StringLiteral limit = R"(
/* Limits the calls on CPU tensors of all Saccade libraries in the process to code that runs on processors of a CPU
 * target, such as "v3". NULL removes the limit. Returns NULL, or a message with the names of the targets. */
const char *saccade_set_cpu_limit(const char *target);
)";

/// The targets, and how a call selects one.
static void printTargets(ArrayRef<LibraryTarget> targets, llvm::raw_ostream &os) {
  auto isCPU = [](const LibraryTarget &target) { return !target.gpu; };
  size_t cpus = llvm::count_if(targets, isCPU);
  os << " * The library has code for "
     << llvm::join(llvm::map_range(targets, [](const LibraryTarget &target) { return target.name(); }), ", ") << ".\n";
  if (cpus > 0)
    os << " * Calls on CPU tensors run the code for the first CPU target that the processor supports; "
          "saccade_F_target()\n * returns its name, or NULL if the processor supports none: calls are refused then.\n";
  if (cpus < targets.size())
    os << " * Calls with a tensor on a CUDA device run the kernels for its architecture.\n";
  os << " */\n";
}

/// Names that a parameter cannot have.
static bool isTaken(StringRef name) {
  static const llvm::StringSet<> taken = {
      // C and C++
      "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break", "case", "catch", "char",
      "char8_t", "char16_t", "char32_t", "class", "co_await", "co_return", "co_yield", "compl", "concept", "const",
      "consteval", "constexpr", "constinit", "const_cast", "continue", "decltype", "default", "delete", "do", "double",
      "dynamic_cast", "else", "enum", "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if",
      "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or",
      "or_eq", "private", "protected", "public", "register", "reinterpret_cast", "requires", "restrict", "return",
      "short", "signed", "sizeof", "static", "static_assert", "static_cast", "struct", "switch", "template", "this",
      "thread_local", "throw", "true", "try", "typedef", "typeid", "typename", "typeof", "typeof_unqual", "union",
      "unsigned", "using", "virtual", "void", "volatile", "wchar_t", "while", "xor", "xor_eq",
      // macros of common headers and compilers
      "NULL", "EOF", "I", "assert", "errno", "i386", "linux", "stderr", "stdin", "stdout", "unix",
      // names that the prototypes use
      "DLTensor", "int64_t", "sizes"};
  return taken.contains(name);
}

/// Makes parameter names from the names of values, which are distinct identifiers.
static SmallVector<std::string> nameParameters(ArrayRef<std::string> values) {
  llvm::StringSet<> used;
  for (const std::string &value : values)
    used.insert(value);
  SmallVector<std::string> parameters;
  for (const std::string &value : values) {
    std::string name = value;
    // Names with a leading underscore are reserved, and a digit may follow it.
    if (isTaken(name) || StringRef(name).starts_with("_"))
      for (name = (Twine(StringRef(name).starts_with("_") ? "v" : "") + name + "_").str(); !used.insert(name).second;)
        name += "_";
    parameters.push_back(name);
  }
  return parameters;
}

static std::string typeText(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

namespace {

/// Writes the prototypes of one function.
class Prototypes {
public:
  Prototypes(const attn::Signature &function, llvm::raw_ostream &os)
      : function(function), os(os), parameters(nameParameters(function.values)) {}

  void print() {
    unsigned inputs = function.type.getNumInputs();
    os << "\n/* " << function.name << "\n";
    for (auto [i, name] : llvm::enumerate(parameters))
      os << " *   " << llvm::left_justify(name, width()) << "  "
         << (isUpdated(i) ? "updated "
             : i < inputs ? "input   "
                          : "result  ")
         << typeText(function.valueType(i)) << "\n";
    int64_t extents = 0;
    for (Type result : function.type.getResults())
      if (auto tensor = dyn_cast<RankedTensorType>(result))
        extents += tensor.getRank();
    os << " */\n";
    printPrototype("", /*withResults=*/true, "");
    printPrototype("_shapes", /*withResults=*/false,
                   "int64_t sizes[" + std::to_string(std::max<int64_t>(extents, 1)) + "]");
    os << "const char *saccade_" << function.name << "_target(void);\n";
  }

private:
  /// Whether the value is an input that is updated in place.
  bool isUpdated(size_t i) const { return i < function.updatedBy.size() && function.updatedBy[i] >= 0; }

  size_t width() const {
    size_t longest = 0;
    for (const std::string &name : parameters)
      longest = std::max(longest, name.size());
    return longest;
  }

  void printPrototype(StringRef suffix, bool withResults, const std::string &last) {
    SmallVector<std::string> list;
    for (auto [i, type] : llvm::enumerate(function.type.getInputs())) {
      StringRef c = isUpdated(i) && withResults ? "DLTensor *"
                    : isa<ShapedType>(type)     ? "const DLTensor *"
                    : isa<FloatType>(type)      ? "double "
                                                : "int64_t ";
      list.push_back(c.str() + parameters[i]);
    }
    if (withResults)
      for (size_t i = function.type.getNumInputs(); i < parameters.size(); ++i)
        list.push_back("DLTensor *" + parameters[i]);
    if (!last.empty())
      list.push_back(last);
    std::string line = ("const char *saccade_" + function.name + suffix + "(").str();
    size_t indent = line.size();
    for (auto [i, parameter] : llvm::enumerate(list)) {
      if (line.size() + parameter.size() + 2 > 120 && i > 0) {
        os << StringRef(line).rtrim() << "\n";
        line.assign(indent, ' ');
      }
      line += parameter + (i + 1 < list.size() ? ", " : "");
    }
    os << line << (list.empty() ? "void);\n" : ");\n");
  }

  const attn::Signature &function;
  llvm::raw_ostream &os;
  SmallVector<std::string> parameters;
};

} // namespace

/// Whether `name` is valid within a C identifier.
static bool fitsIdentifier(StringRef name) {
  return llvm::all_of(name, [](char letter) { return llvm::isAlnum(letter) || letter == '_'; });
}

static std::string includeGuard(StringRef fileName) {
  std::string guard = "SACCADE_GENERATED_";
  for (char letter : fileName)
    guard += llvm::isAlnum(letter) ? llvm::toUpper(letter) : '_';
  return guard;
}

std::optional<LibraryInterface> saccade::getLibraryInterface(ModuleOp program, StringRef fileName,
                                                             ArrayRef<LibraryTarget> targets) {
  LibraryInterface result;
  SmallVector<attn::Signature> functions = attn::getSignatures(program);
  for (const attn::Signature &function : functions) {
    if (!fitsIdentifier(function.name)) {
      emitError(function.loc) << "the name of entry '" << function.name
                              << "' cannot be part of a C identifier, expected letters, digits and '_' only";
      return std::nullopt;
    }
    result.entries.push_back(function.name);
  }
  if (functions.empty()) {
    program.emitError("the program has no public function, expected at least one for a shared library");
    return std::nullopt;
  }

  llvm::raw_string_ostream os(result.header);
  std::string guard = includeGuard(fileName);
  os << "/* " << fileName << ": how to call a shared library compiled by Saccade. Generated; changes will be lost.\n *"
     << rules;
  printTargets(targets, os);
  os << "#ifndef " << guard << "\n#define " << guard << "\n\n"
     << embedded::dlTensorHeader() << "\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n";
  for (const attn::Signature &function : functions)
    Prototypes(function, os).print();
  if (llvm::any_of(functions, [](const attn::Signature &each) { return StringRef(each.name).ends_with("__prepack"); }))
    os << prepacked;
  if (llvm::any_of(targets, [](const LibraryTarget &target) { return target.gpu; }))
    os << stream;
  if (llvm::any_of(targets, [](const LibraryTarget &target) { return !target.gpu; }))
    os << threads << limit;
  os << "\n#ifdef __cplusplus\n}\n#endif\n\n#endif /* " << guard << " */\n";
  return result;
}
