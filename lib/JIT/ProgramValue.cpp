//===- ProgramValue.cpp - Compiled programs in the disk cache -----------------===//
//
// A value is a sequence of little-endian 64-bit numbers and of strings, each preceded by its length. The format belongs
// to one build of the compiler, whose identity is part of the key.
//
//===----------------------------------------------------------------------===//
#include "saccade/JIT/CompiledProgram.h"
#include "llvm/Support/DataExtractor.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/EndianStream.h"

using namespace mlir;
using namespace saccade;

static constexpr uint64_t numElementTypes = uint64_t(ElementType::f64) + 1;

namespace {

/// Writes the parts of a program.
class Writer {
public:
  explicit Writer(llvm::raw_ostream &os) : os(os) {}

  void number(uint64_t value) { llvm::support::endian::write(os, value, llvm::endianness::little); }
  void text(llvm::StringRef value) {
    number(value.size());
    os << value;
  }
  template <typename List, typename Item> void list(const List &values, Item item) {
    number(values.size());
    for (const auto &value : values)
      item(value);
  }
  void types(const std::vector<ValueType> &values) {
    list(values, [&](const ValueType &type) {
      number(uint64_t(type.element));
      number(type.isTensor);
      list(type.shape, [&](int64_t extent) { number(uint64_t(extent)); });
      text(type.name);
      number(uint64_t(type.updatedBy));
    });
  }

private:
  llvm::raw_ostream &os;
};

/// Reads them. After the end of the data, numbers are 0 and lists end.
class Reader {
public:
  explicit Reader(llvm::StringRef value) : data(value, /*IsLittleEndian=*/true, /*AddressSize=*/8) {}
  ~Reader() { llvm::consumeError(cursor.takeError()); }

  uint64_t number() { return data.getU64(cursor); }
  /// A number below `end`; others end the reading.
  uint64_t number(uint64_t end) {
    uint64_t value = number();
    isValid &= value < end;
    return isValid ? value : 0;
  }
  std::string text() {
    uint64_t size = number();
    return data.getBytes(cursor, size).str();
  }
  template <typename Item> void list(Item item) {
    for (uint64_t i = 0, count = number(); i < count && isValid && cursor; ++i)
      item();
  }
  std::vector<ValueType> types() {
    std::vector<ValueType> values;
    list([&] {
      ValueType type{ElementType(number(numElementTypes))};
      type.isTensor = number(2);
      list([&] { type.shape.push_back(int64_t(number())); });
      type.name = text();
      type.updatedBy = int64_t(number());
      values.push_back(std::move(type));
    });
    return values;
  }
  /// Whether everything was read and nothing is left.
  bool isComplete() { return isValid && cursor && data.eof(cursor); }

private:
  llvm::DataExtractor data;
  llvm::DataExtractor::Cursor cursor{0};
  bool isValid = true;
};

} // namespace

std::string saccade::encodeProgram(const CompiledProgram &program) {
  std::string value;
  llvm::raw_string_ostream os(value);
  Writer writer(os);
  writer.list(program.entries, [&](const Entry &entry) {
    writer.text(entry.name);
    writer.types(entry.arguments);
    writer.types(entry.results);
  });
  writer.list(program.kernels, [&](const KernelInfo &kernel) {
    writer.text(kernel.name);
    writer.text(kernel.family);
    writer.text(kernel.notes);
  });
  writer.list(program.diagnostics, [&](const auto &diagnostic) {
    writer.number(uint64_t(diagnostic.first));
    writer.text(diagnostic.second);
  });
  writer.text(program.object);
  return value;
}

std::optional<CompiledProgram> saccade::decodeProgram(llvm::StringRef value) {
  Reader reader(value);
  CompiledProgram program;
  reader.list([&] {
    Entry entry{reader.text(), {}, {}};
    entry.arguments = reader.types();
    entry.results = reader.types();
    program.entries.push_back(std::move(entry));
  });
  reader.list([&] {
    std::string name = reader.text();
    std::string family = reader.text();
    program.kernels.push_back({std::move(name), std::move(family), reader.text()});
  });
  reader.list([&] {
    auto severity = mlir::DiagnosticSeverity(reader.number(uint64_t(mlir::DiagnosticSeverity::Remark) + 1));
    program.diagnostics.emplace_back(severity, reader.text());
  });
  program.object = reader.text();
  if (!reader.isComplete())
    return std::nullopt;
  return program;
}
