//===- Remote.cpp - Calls in another process ----------------------------------===//
//
// Writes a library and the arguments into files for saccade-call, whose source describes their format.
//
//===----------------------------------------------------------------------===//
#include "Remote.h"
#include "saccade/JIT/CompiledProgram.h"
#include "saccade/Support/PrivateFolder.h"
#include "saccade/Target/SharedLibrary.h"
#include "llvm/Support/DataExtractor.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/EndianStream.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"

using namespace saccade;
using namespace saccade::run;

/// The value of an integer, of which a double might not have all bits.
static int64_t readInteger(const HostTensor &tensor) {
  int64_t value = 0;
  if (elementBytes(tensor.type()) < sizeof(value))
    return int64_t(readElement(tensor.type(), tensor.data()));
  std::memcpy(&value, tensor.data(), sizeof(value));
  return value;
}

static std::string encodeArguments(const Entry &entry, llvm::ArrayRef<HostTensor> arguments) {
  std::string content;
  llvm::raw_string_ostream os(content);
  llvm::support::endian::Writer writer(os, llvm::endianness::little);
  for (auto [type, tensor] : llvm::zip_equal(entry.arguments, arguments)) {
    if (!type.isTensor) {
      SaccadeArgumentKind kind = isFloat(type.element)             ? SaccadeArgumentFloat
                                 : type.element == ElementType::i1 ? SaccadeArgumentBool
                                                                   : SaccadeArgumentInteger;
      writer.write<int64_t>(kind);
      if (kind == SaccadeArgumentFloat)
        writer.write<double>(readElement(tensor.type(), tensor.data()));
      else
        writer.write<int64_t>(readInteger(tensor));
      continue;
    }
    writer.write<int64_t>(SaccadeArgumentDLTensor);
    writer.write(tensor.shape());
    writer.write(tensor.strides());
    writer.write<int64_t>(tensor.bytes());
    os.write(tensor.data(), size_t(tensor.bytes()));
    os.write_zeros(unsigned(llvm::alignTo(tensor.bytes(), 8) - uint64_t(tensor.bytes())));
  }
  return content;
}

/// An error of the runner: its command, what it should have done, and the end of what it has printed.
static llvm::Error runnerError(llvm::StringRef command, const llvm::Twine &text, llvm::StringRef printedFile) {
  constexpr size_t maxLines = 8;
  std::string message = ("the runner '" + command + "' " + text).str();
  llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> file = llvm::MemoryBuffer::getFile(printedFile);
  llvm::StringRef printed = file ? (*file)->getBuffer().rtrim() : llvm::StringRef();
  llvm::SmallVector<llvm::StringRef> lines;
  printed.split(lines, '\n', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  message += lines.empty() ? "; it printed nothing" : "; it printed:";
  for (llvm::StringRef line : llvm::ArrayRef(lines).take_back(maxLines))
    message += ("\n  " + line).str();
  return llvm::createStringError(message);
}

/// The machine of an ELF file by its first bytes (System V ABI, e_machine); 0 for another file.
static uint16_t elfMachine(llvm::StringRef content) {
  constexpr size_t machineAt = 18;
  if (!content.starts_with("\x7f"
                           "ELF") ||
      content.size() < machineAt + sizeof(uint16_t))
    return 0;
  return llvm::support::endian::read16le(content.data() + machineAt);
}

/// Whether the last executable file that the command names is for another machine than the library.
static bool isOfAnotherMachine(llvm::ArrayRef<llvm::StringRef> command, llvm::StringRef library) {
  for (llvm::StringRef word : llvm::reverse(command))
    if (auto file = llvm::MemoryBuffer::getFile(word))
      if (uint16_t machine = elfMachine((*file)->getBuffer()))
        return machine != elfMachine(library);
  return false;
}

/// Reads the results of the program, in its order.
static llvm::Expected<std::vector<HostTensor>> decodeResults(const Entry &entry, llvm::StringRef content) {
  llvm::DataExtractor data(content, /*IsLittleEndian=*/true, /*AddressSize=*/8);
  llvm::DataExtractor::Cursor at(0);
  std::map<size_t, HostTensor> written;
  for (size_t place = 0; place < entry.arguments.size() + entry.results.size(); ++place) {
    const ValueType &type = entry.value(place);
    if (place < entry.arguments.size() && type.updatedBy < 0)
      continue;
    llvm::SmallVector<int64_t, 4> shape;
    for (size_t dim = 0; dim < type.shape.size(); ++dim)
      shape.push_back(int64_t(data.getU64(at)));
    uint64_t bytes = data.getU64(at);
    llvm::StringRef elements = data.getBytes(at, bytes);
    if (!at)
      return at.takeError();
    llvm::Expected<HostTensor> tensor = HostTensor::allocate(type.element, shape);
    if (!tensor)
      return tensor.takeError();
    if (tensor->bytes() != int64_t(bytes))
      return llvm::createStringError("a result has " + llvm::Twine(bytes) + " bytes, expected " +
                                     llvm::Twine(tensor->bytes()));
    std::memcpy(tensor->data(), elements.data(), elements.size());
    written.emplace(place, std::move(*tensor));
  }
  std::vector<HostTensor> results;
  for (size_t place : entry.programResults())
    results.push_back(std::move(written.at(place)));
  return results;
}

llvm::Expected<std::vector<HostTensor>> run::runRemote(mlir::ModuleOp module, const CompileOptions &options,
                                                       const Entry &entry, llvm::ArrayRef<HostTensor> arguments,
                                                       const Runner &runner) {
  llvm::Expected<CompiledProgram> program = compileProgram(module, options);
  if (!program)
    return program.takeError();
  llvm::Expected<llvm::SmallVector<char, 0>> library =
      linkSharedLibrary(llvm::StringRef(program->object), {entry.name}, *options.target, /*hasKernels=*/false);
  if (!library)
    return library.takeError();
  llvm::Expected<PrivateFolder> folder = PrivateFolder::create("saccade-run");
  if (!folder)
    return folder.takeError();
  if (llvm::Error error = folder->write("library.so", llvm::StringRef(library->data(), library->size())))
    return error;
  if (llvm::Error error = folder->write("inputs", encodeArguments(entry, arguments)))
    return error;

  std::string path = *folder / "library.so", inputs = *folder / "inputs", outputs = *folder / "outputs",
              printed = *folder / "printed";
  std::string threads = llvm::Twine(runner.threads).str();
  llvm::SmallVector<llvm::StringRef> words;
  llvm::StringRef(runner.command).split(words, ' ', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  if (words.empty())
    return llvm::createStringError("the command of --runner is empty");
  llvm::ErrorOr<std::string> executable = llvm::sys::findProgramByName(words.front());
  if (!executable)
    return llvm::createStringError("cannot find '" + words.front() + "': " + executable.getError().message());
  if (isOfAnotherMachine(words, {library->data(), library->size()}))
    return llvm::createStringError("the runner '" + llvm::Twine(runner.command) +
                                   "' is for another architecture than --target=" + options.target->name);
  words.append({path, entry.name, inputs, outputs, threads,
                !runner.guard                   ? "off"
                : *runner.guard == Guard::Begin ? "begin"
                                                : "end"});
  std::string message;
  std::optional<llvm::StringRef> redirects[] = {std::nullopt, printed, printed};
  int code = llvm::sys::ExecuteAndWait(*executable, words, std::nullopt, redirects, 0, 0, &message);
  if (code < 0)
    return runnerError(runner.command, "failed: " + message, printed);
  if (code > 0)
    return runnerError(runner.command, "ended with exit code " + llvm::Twine(code) + ", expected 0", printed);
  llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> written = llvm::MemoryBuffer::getFile(outputs);
  if (!written)
    return runnerError(runner.command, "wrote no results, expected a command that runs saccade-call with its arguments",
                       printed);
  llvm::Expected<std::vector<HostTensor>> results = decodeResults(entry, (*written)->getBuffer());
  if (results) {
    if (llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> text = llvm::MemoryBuffer::getFile(printed))
      llvm::errs() << (*text)->getBuffer();
    return results;
  }
  return runnerError(runner.command, "wrote results that cannot be read: " + llvm::toString(results.takeError()),
                     printed);
}
