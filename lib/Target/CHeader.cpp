//===- CHeader.cpp - A program's entries as a C header ------------------------===//
//
// Read from signatures, whose types and names are those that the user wrote.
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
 * checks everything and runs F. Results are the caller's memory, with the extents that saccade_F_shapes gives; they
 * overlap neither one another nor an input.
 *
 * Both return NULL, or what was wrong, in words: after that nothing has been written, except that the results hold
 * anything after "out of memory". The text belongs to the library and is valid until the thread's next call. Several
 * threads may call at once.
 *
 * A tensor is a DLTensor (below), in the memory of the CPU where nothing else is said, of the element type and number
 * of dimensions that its comment says; "?" stands for any extent. Element 0 is at data + byte_offset. Strides count elements: NULL is compact
 * and row-major, those of inputs may be 0 or negative, those of results are positive and lead to every element once,
 * and those of dimensions of extent 0 or 1 are ignored.
 * In a DLDataType f32 is {kDLFloat, 32, 1} (f16 and f64 alike), bf16 {kDLBfloat, 16, 1}, i32 {kDLInt, 32, 1}
 * or {kDLUInt, 32, 1} (i8, i16 and i64 alike), index {kDLInt, 64, 1}, i1 {kDLBool, 8, 1}.
 * Scalars are int64_t for integers, index and i1 (0 or 1), and double for floats.
 *
 * The library needs no set-up and may be renamed. Python calls the same functions through TVM-FFI:
 *   tvm_ffi.load_module("LIBRARY.so").F(inputs..., results...)
 */
)";

/// Where weights are prepacked.
static constexpr llvm::StringLiteral prepacked = R"(
/* F__prepack computes once what F would compute of its constant arguments in every call. Call it when the weights are
 * known, with compact memory for its results, and give F these as its last inputs, by their names, as often as you like. */
)";

static constexpr llvm::StringLiteral stream = R"(
/* The library runs on an NVIDIA GPU. All tensors are in the memory of one ({kDLCUDA, its number}); a call returns when
 * its work is under way on a stream: the CUstream (cudaStream_t) that this thread has set here, or after NULL the one
 * that TVM-FFI has for the device, PyTorch's current one where PyTorch's tensors are passed, else the default stream.
 * Calls may be captured into a CUDA graph. Messages tell of a missing or old driver too, and of its errors. */
void saccade_set_stream(void *stream);
)";

static constexpr llvm::StringLiteral threads = R"(
/* How many threads all libraries of this kind in the process may use, the caller included; 0 asks for the machine's
 * count. Where PyTorch is in the process its own number is the limit. */
void saccade_set_threads(int32_t threads);
int32_t saccade_threads(void);
)";

/// Names that mean something else where a parameter's name stands.
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
      // macros of usual headers and compilers
      "NULL", "EOF", "I", "assert", "errno", "i386", "linux", "stderr", "stdin", "stdout", "unix",
      // what the prototypes themselves use
      "DLTensor", "int64_t", "sizes"};
  return taken.contains(name);
}

/// Parameter names for the names of values, which are identifiers and differ.
static SmallVector<std::string> nameParameters(ArrayRef<std::string> values) {
  llvm::StringSet<> used;
  for (const std::string &value : values)
    used.insert(value);
  SmallVector<std::string> parameters;
  for (const std::string &value : values) {
    std::string name = value;
    // Underscores in front are the C compiler's, and a digit may follow them.
    if (isTaken(name) || StringRef(name).starts_with("_"))
      for (name = (StringRef(name).starts_with("_") ? "v" : "") + name + "_"; !used.insert(name).second;)
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
      os << " *   " << llvm::left_justify(name, width()) << "  " << (i < inputs ? "input   " : "result  ")
         << typeText(function.valueType(i)) << "\n";
    int64_t extents = 0;
    for (Type result : function.type.getResults())
      if (auto tensor = dyn_cast<RankedTensorType>(result))
        extents += tensor.getRank();
    os << " */\n";
    printPrototype("", /*withResults=*/true, "");
    printPrototype("_shapes", /*withResults=*/false,
                   "int64_t sizes[" + std::to_string(std::max<int64_t>(extents, 1)) + "]");
  }

private:
  size_t width() const {
    size_t longest = 0;
    for (const std::string &name : parameters)
      longest = std::max(longest, name.size());
    return longest;
  }

  void printPrototype(StringRef suffix, bool withResults, const std::string &last) {
    SmallVector<std::string> list;
    for (auto [i, type] : llvm::enumerate(function.type.getInputs())) {
      StringRef c = isa<ShapedType>(type) ? "const DLTensor *" : isa<FloatType>(type) ? "double " : "int64_t ";
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

/// Whether exported names can be made of it.
static bool fitsIdentifier(StringRef name) {
  return llvm::all_of(name, [](char letter) { return llvm::isAlnum(letter) || letter == '_'; });
}

static std::string includeGuard(StringRef fileName) {
  std::string guard = "SACCADE_GENERATED_";
  for (char letter : fileName)
    guard += llvm::isAlnum(letter) ? llvm::toUpper(letter) : '_';
  return guard;
}

std::optional<LibraryInterface> saccade::getLibraryInterface(ModuleOp program, StringRef fileName, bool hasKernels) {
  LibraryInterface result;
  SmallVector<attn::Signature> functions = attn::getSignatures(program);
  for (const attn::Signature &function : functions) {
    if (!fitsIdentifier(function.name)) {
      emitError(function.loc) << "the name of entry '" << function.name
                              << "' cannot be part of a C function's name; wanted letters, digits and '_' only";
      return std::nullopt;
    }
    result.entries.push_back(function.name);
  }
  if (functions.empty()) {
    program.emitError("the program has no public function, so nothing of a shared library could be called");
    return std::nullopt;
  }

  llvm::raw_string_ostream os(result.header);
  std::string guard = includeGuard(fileName);
  os << "/* " << fileName << ": how to call a shared library compiled by Saccade. Generated; changes will be lost.\n *"
     << rules << "#ifndef " << guard << "\n#define " << guard << "\n\n"
     << embedded::dlTensorHeader() << "\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n";
  for (const attn::Signature &function : functions)
    Prototypes(function, os).print();
  if (llvm::any_of(functions, [](const attn::Signature &each) { return StringRef(each.name).ends_with("__prepack"); }))
    os << prepacked;
  os << (hasKernels ? stream : threads);
  os << "\n#ifdef __cplusplus\n}\n#endif\n\n#endif /* " << guard << " */\n";
  return result;
}
