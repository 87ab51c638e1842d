//===- Arguments.cpp - Tensors from --arg -------------------------------------===//
//
// Parses --arg texts by the types of the entry. A type in a text must equal the type of the argument; only .npy files
// are converted, and only to a type that is given explicitly.
//
//===----------------------------------------------------------------------===//
#include "Arguments.h"
#include "saccade/Support/Npy.h"
#include "llvm/ADT/StringExtras.h"

using namespace saccade;
using namespace saccade::run;
using llvm::StringRef;

namespace {

/// An error of an argument and the exit code for it.
struct Refusal {
  ExitCode code;
  std::string message;
};

/// Parses one --arg.
class ArgumentReader {
public:
  ArgumentReader(const ValueType &type, StringRef text) : type(type), text(text) {}

  std::optional<Refusal> read(HostTensor &into) {
    if (StringRef path = getArgumentPath(text); !path.empty())
      return readFile(path, into);
    return type.isTensor ? makeTensor(into) : makeScalar(into);
  }

private:
  std::optional<Refusal> refuse(ExitCode code, const llvm::Twine &message) { return Refusal{code, message.str()}; }

  std::optional<Refusal> keep(llvm::Expected<HostTensor> tensor, HostTensor &into, ExitCode code) {
    if (!tensor)
      return refuse(code, llvm::toString(tensor.takeError()));
    into = std::move(*tensor);
    return std::nullopt;
  }

  std::optional<Refusal> parseType(StringRef name, ElementType &into) {
    std::optional<ElementType> parsed = parseElementType(name);
    if (!parsed)
      return refuse(ExitUsage, "'" + name +
                                   "' is not an element type, expected f32, f64, f16, bf16, f8E4M3FN, f8E5M2, i1, i8, "
                                   "i16, i32, i64 or index");
    into = *parsed;
    if (into != type.element)
      return refuse(ExitInvalidInput,
                    "has element type " + elementTypeName(into) + ", expected " + elementTypeName(type.element));
    return std::nullopt;
  }

  std::optional<Refusal> readFile(StringRef path, HostTensor &into) {
    StringRef typeName = text.drop_front(path.size());
    if (std::optional<Refusal> refusal = keep(readNpy(path), into, ExitFile))
      return refusal;
    if (typeName.consume_front(":")) {
      ElementType expected;
      if (std::optional<Refusal> refusal = parseType(typeName, expected))
        return refusal;
      // Bytes are the bits of either float of 8 bits.
      if (into.type() == ElementType::f8E4M3FN && expected == ElementType::f8E5M2)
        into.reinterpretAs(expected);
      if (into.type() != expected)
        return keep(into.convertTo(expected), into, ExitInvalidInput);
      return std::nullopt;
    }
    // NumPy has no index type; int64 is accepted for it. Bits are those of a float only if the text says so.
    if (into.type() == ElementType::i64 && type.element == ElementType::index)
      into.reinterpretAs(ElementType::index);
    bool is16Bit = into.type() == ElementType::bf16, is8Bit = into.type() == ElementType::f8E4M3FN;
    if (into.type() == type.element && !is16Bit && !is8Bit)
      return std::nullopt;
    StringRef found = is16Bit ? "16-bit data" : is8Bit ? "8-bit data" : elementTypeName(into.type());
    return refuse(ExitInvalidInput, "'" + path + "' contains " + found + "; append ':" + elementTypeName(type.element) +
                                        "' to convert it to " + elementTypeName(type.element));
  }

  std::optional<Refusal> makeScalar(HostTensor &into) {
    double value;
    int64_t integer;
    auto [number, typeName] = text.split(':');
    ElementType given;
    if (!typeName.empty())
      if (std::optional<Refusal> refusal = parseType(typeName, given))
        return refusal;
    bool isInteger = !number.getAsInteger(0, integer);
    if (number.getAsDouble(value) && !isInteger)
      return refuse(ExitUsage, "'" + number + "' is not a number");
    if (!isFloat(type.element) && !isInteger)
      return refuse(ExitInvalidInput, "'" + number + "' is not an integer");
    if (std::optional<Refusal> refusal = keep(HostTensor::allocate(type.element, {}), into, ExitInvalidInput))
      return refusal;
    if (elementBytes(type.element) == 8 && !isFloat(type.element))
      std::memcpy(into.data(), &integer, sizeof(integer)); // a double cannot represent all of them
    else
      into.fill(value);
    return std::nullopt;
  }

  std::optional<Refusal> makeTensor(HostTensor &into) {
    llvm::SmallVector<StringRef, 3> parts;
    text.split(parts, ':');
    llvm::SmallVector<StringRef, 4> extents;
    parts[0].split(extents, 'x', -1, /*KeepEmpty=*/!parts[0].empty());
    llvm::SmallVector<int64_t, 4> shape;
    for (StringRef extent : extents)
      if (extent.getAsInteger(10, shape.emplace_back()) || shape.back() < 0)
        return refuse(ExitUsage,
                      "'" + text + "' is neither FILE.npy[:TYPE] nor SHAPE:TYPE[:SEED], such as 2x8x128x64:f32:1");
    if (parts.size() > 3)
      return refuse(ExitUsage, "'" + text + "' has too many parts, expected SHAPE:TYPE[:SEED]");
    ElementType given;
    if (parts.size() > 1)
      if (std::optional<Refusal> refusal = parseType(parts[1], given))
        return refusal;
    if (std::optional<Refusal> refusal = keep(HostTensor::allocate(type.element, shape), into, ExitInvalidInput))
      return refusal;
    StringRef seedText = parts.size() > 2 ? parts[2] : "0";
    if (seedText.consume_front("=")) {
      double value;
      if (seedText.getAsDouble(value))
        return refuse(ExitUsage, "'" + seedText + "' is not a number");
      into.fill(value);
      return std::nullopt;
    }
    uint64_t seed;
    if (seedText.getAsInteger(10, seed))
      return refuse(ExitUsage, "'" + seedText + "' is not a seed, expected a number or =VALUE");
    into.fillRandom(seed);
    return std::nullopt;
  }

  const ValueType &type;
  StringRef text;
};

} // namespace

StringRef run::getArgumentPath(StringRef text) {
  if (text.ends_with(".npy") || text.contains(".npy:"))
    return text.take_front(text.rfind(".npy") + 4);
  return "";
}

ExitCode run::makeArguments(const Entry &entry, llvm::ArrayRef<std::string> texts, std::vector<HostTensor> &into) {
  auto error = []() -> llvm::raw_ostream & { return llvm::errs() << "saccade-run: error: "; };
  if (texts.size() > entry.arguments.size()) {
    error() << entry.signature() << " takes " << entry.arguments.size() << " arguments, but --arg is given "
            << texts.size() << " times\n";
    return ExitUsage;
  }
  for (auto [i, type] : llvm::enumerate(entry.arguments)) {
    if (i >= texts.size()) {
      error() << "argument '" << type.name << "' (" << type.str() << ") is missing: " << entry.signature() << " takes "
              << entry.arguments.size() << "; give it with --arg="
              << (type.isTensor ? "FILE.npy or --arg=SHAPE:" + elementTypeName(type.element).str() : "VALUE") << '\n';
      return ExitUsage;
    }
    HostTensor &tensor = into.emplace_back();
    if (std::optional<Refusal> refusal = ArgumentReader(type, texts[i]).read(tensor)) {
      error() << "argument '" << type.name << "' (" << type.str() << "): " << refusal->message << '\n';
      return refusal->code;
    }
    if (!type.isTensor && tensor.size() != 1) {
      error() << "argument '" << type.name << "' (" << type.str() << "): '" << texts[i] << "' has " << tensor.size()
              << " elements, expected a scalar\n";
      return ExitInvalidInput;
    }
  }
  return ExitSuccess;
}

Buffer run::toBuffer(const ValueType &type, const HostTensor &tensor) {
  if (!type.isTensor)
    return Buffer::scalar(tensor.data());
  return Buffer{tensor.data(), llvm::to_vector<4>(tensor.shape()), llvm::to_vector<4>(tensor.strides())};
}
