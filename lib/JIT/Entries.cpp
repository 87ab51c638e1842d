//===- Entries.cpp - The public functions of a program ------------------------===//
//
// Reads the signatures of entries before compilation, from the types of the source program.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Analysis/Signatures.h"
#include "saccade/JIT/Executable.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace saccade;

std::string ValueType::str() const {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (!isTensor)
    return elementTypeName(element).str();
  os << "tensor<";
  for (int64_t extent : shape)
    (ShapedType::isDynamic(extent) ? os << '?' : os << extent) << 'x';
  os << elementTypeName(element) << '>';
  return text;
}

std::string Entry::signature() const {
  auto list = [](const std::vector<ValueType> &types) {
    return llvm::join(llvm::map_range(types, [](const ValueType &type) { return type.name + ": " + type.str(); }),
                      ", ");
  };
  return name + "(" + list(arguments) + ") -> (" + list(results) + ")";
}

llvm::SmallVector<size_t> Entry::programResults() const {
  size_t count = results.size() + llvm::count_if(arguments, [](const ValueType &type) { return type.updatedBy >= 0; });
  constexpr size_t none = -1;
  llvm::SmallVector<size_t> places(count, none);
  for (auto [i, argument] : llvm::enumerate(arguments))
    if (argument.updatedBy >= 0)
      places[argument.updatedBy] = i;
  size_t next = arguments.size();
  for (size_t &place : places)
    if (place == none)
      place = next++;
  return places;
}

Buffer Buffer::compact(void *data, llvm::ArrayRef<int64_t> sizes) {
  Buffer buffer{data, llvm::to_vector<4>(sizes), llvm::SmallVector<int64_t, 4>(sizes.size(), 1)};
  for (size_t i = sizes.size(); i-- > 1;)
    buffer.strides[i - 1] = buffer.strides[i] * std::max<int64_t>(sizes[i], 1);
  return buffer;
}

/// The value type, or nullopt if values of this type cannot cross the ABI boundary.
static std::optional<ValueType> getValueType(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  std::string name;
  llvm::raw_string_ostream(name) << getElementTypeOrSelf(type);
  std::optional<ElementType> element = parseElementType(name);
  if (!element || (isa<ShapedType>(type) && !tensor))
    return std::nullopt;
  ValueType result{*element};
  if (tensor) {
    result.isTensor = true;
    result.shape = llvm::to_vector<4>(tensor.getShape());
  }
  return result;
}

llvm::Expected<std::vector<Entry>> saccade::getEntries(ModuleOp module) {
  std::vector<Entry> entries;
  for (const attn::Signature &signature : attn::getSignatures(module)) {
    Entry entry{signature.name, {}, {}};
    auto name = signature.values.begin();
    auto convert = [&](llvm::ArrayRef<Type> types, llvm::StringRef role, std::vector<ValueType> &into) {
      for (Type type : types) {
        std::optional<ValueType> converted = getValueType(type);
        bool isResult = role == "result";
        if (!converted || (isResult && !converted->isTensor)) {
          emitError(signature.loc)
              << role << " '" << *name << "' of entry '" << entry.name << "' has type " << type
              << ", expected a ranked tensor" << (isResult ? "" : " or scalar")
              << " of f8E4M3FN, f8E5M2, f16, bf16, f32, f64, index or an integer of 1, 8, 16, 32 or 64 bits";
          return false;
        }
        converted->name = *name++;
        into.push_back(*converted);
      }
      return true;
    };
    if (!convert(signature.type.getInputs(), "argument", entry.arguments) ||
        !convert(signature.type.getResults(), "result", entry.results))
      return llvm::createStringError("entry '" + entry.name + "' has an unsupported type");
    for (auto [argument, result] : llvm::zip_equal(entry.arguments, signature.updatedBy))
      argument.updatedBy = result;
    entries.push_back(std::move(entry));
  }
  return entries;
}
