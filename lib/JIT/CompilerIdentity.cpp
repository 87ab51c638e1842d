//===- CompilerIdentity.cpp - Keys of compilations in the disk cache ----------===//
//
// A build ID is a checksum that the linker stores in a file. It changes with every part of the compiler, and reading it
// costs nothing, unlike a checksum of the file.
//
//===----------------------------------------------------------------------===//
#include "mlir/Bytecode/BytecodeWriter.h"
#include "saccade/JIT/CompiledProgram.h"
#include "saccade/JIT/KernelCache.h"
#include "saccade/Target/Target.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/TargetParser/Host.h"
#include <elf.h>
#include <gnu/libc-version.h>
#include <link.h>

using namespace mlir;
using namespace saccade;

namespace {
/// The build ID of the file that an address belongs to.
struct BuildID {
  explicit BuildID(const void *address) : address(reinterpret_cast<uintptr_t>(address)) {
    dl_iterate_phdr([](dl_phdr_info *file, size_t, void *id) { return static_cast<BuildID *>(id)->visit(*file); },
                    this);
  }

  int visit(const dl_phdr_info &file) {
    llvm::ArrayRef<ElfW(Phdr)> segments(file.dlpi_phdr, file.dlpi_phnum);
    auto containsAddress = [&](const ElfW(Phdr) & segment) {
      return segment.p_type == PT_LOAD && address - (file.dlpi_addr + segment.p_vaddr) < segment.p_memsz;
    };
    if (llvm::none_of(segments, containsAddress))
      return 0;
    for (const ElfW(Phdr) &segment : segments)
      if (segment.p_type == PT_NOTE)
        readNotes(reinterpret_cast<const char *>(file.dlpi_addr + segment.p_vaddr), segment);
    return 1; // ends the iteration
  }

  void readNotes(const char *notes, const ElfW(Phdr) & segment) {
    const char *end = notes + segment.p_memsz;
    size_t alignment = std::max<size_t>(segment.p_align, 4);
    while (notes + sizeof(ElfW(Nhdr)) <= end) {
      const auto &note = *reinterpret_cast<const ElfW(Nhdr) *>(notes);
      const char *name = notes + sizeof(note);
      const char *content = name + llvm::alignTo(note.n_namesz, alignment);
      if (note.n_type == NT_GNU_BUILD_ID && llvm::StringRef(name, note.n_namesz) == llvm::StringRef("GNU\0", 4))
        text = llvm::toHex(llvm::StringRef(content, note.n_descsz), /*LowerCase=*/true);
      notes = content + llvm::alignTo(note.n_descsz, alignment);
    }
  }

  const uintptr_t address;
  std::string text;
};
} // namespace

llvm::StringRef saccade::compilerIdentity() {
  // A statically linked LLVM has the build ID of this library.
  static const std::string identity = [] {
    std::string text = std::string("LLVM " LLVM_VERSION_STRING ", libc ") + gnu_get_libc_version();
    const void *const parts[] = {reinterpret_cast<const void *>(&compilerIdentity),
                                 reinterpret_cast<const void *>(&llvm::sys::getHostCPUName),
                                 reinterpret_cast<const void *>(&registerMLIRContextCLOptions)};
    for (const void *part : parts) {
      BuildID id(part);
      if (id.text.empty())
        return std::string();
      text += ", " + id.text;
    }
    return text;
  }();
  return identity;
}

std::string saccade::fileIdentity(llvm::StringRef path) {
  llvm::sys::fs::file_status status;
  if (path.empty() || llvm::sys::fs::status(path, status))
    return "";
  return (path + ":" + llvm::Twine(status.getSize()) + ":" +
          llvm::Twine(status.getLastModificationTime().time_since_epoch().count()))
      .str();
}

std::string saccade::contentIdentity(llvm::StringRef path) {
  if (path.empty())
    return "";
  llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> file = llvm::MemoryBuffer::getFile(path);
  return file ? (*file)->getBuffer().str() : "";
}

std::string saccade::makeDiskKey(llvm::StringRef kind, llvm::StringRef program, llvm::StringRef name,
                                 const CompileOptions &options) {
  if (compilerIdentity().empty() || !options.insertions.empty() || !options.plugins.empty() ||
      !options.dumpStages.empty() || !options.stopAfter.empty())
    return "";
  std::string key;
  llvm::raw_string_ostream os(key);
  // Each part is preceded by its length, so that keys are unique.
  auto add = [&](llvm::StringRef part) { os << part.size() << ':' << part; };
  add(kind);
  add(compilerIdentity());
  add(options.target->triple);
  add(options.target->cpu);
  add(options.target->features);
  add(contentIdentity(options.scheduleTable));
  if (options.device) {
    add(options.device->features);
    add(fileIdentity(findLibdevice()));
  }
  add(KernelCache::makeKey(program, name, options));
  return key;
}

std::string saccade::makeDiskKey(llvm::StringRef kind, ModuleOp module, const CompileOptions &options) {
  std::string bytecode;
  llvm::raw_string_ostream os(bytecode);
  if (failed(writeBytecodeToFile(module, os)))
    return "";
  return makeDiskKey(kind, bytecode, /*name=*/"", options);
}
