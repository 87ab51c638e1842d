//===- LibraryNote.cpp - The note that identifies a shared library -----------===//
//
// An ELF note by which a loader tells a complete library of this compiler from any other file before it maps it:
// versions, size, SHA-256, targets and functions. The note is part of the object, so that the linker places it; size
// and hash are known only after linking. python/saccade/_elf.py reads it.
//
//===----------------------------------------------------------------------===//
#include "LibraryNote.h"
#include "saccade/Runtime/Entry.h"
#include "saccade/Target/SharedLibrary.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"

using namespace llvm;

static constexpr uint32_t noteVersion = 1;
static constexpr char name[8] = {'S', 'a', 'c', 'c', 'a', 'd', 'e', '\0'};
static constexpr size_t hashBytes = 32;

static void append32(std::string &into, uint32_t value) {
  char bytes[4];
  support::endian::write32le(bytes, value);
  into.append(bytes, sizeof(bytes));
}

void saccade::addLibraryNote(Module &module, ArrayRef<StringRef> targets, ArrayRef<std::string> entries) {
  std::string description;
  append32(description, noteVersion);
  append32(description, SACCADE_ENTRY_VERSION);
  description.append(8 + hashBytes, '\0');
  description += join(targets, ",") + '\0' + join(entries, ",") + '\0';
  description.resize(alignTo(description.size(), 4));
  std::string note;
  append32(note, sizeof(name));
  append32(note, uint32_t(description.size()));
  append32(note, 1); // the type of this description
  note.append(name, sizeof(name));
  note += description;
  Constant *content = ConstantDataArray::getString(module.getContext(), note, /*AddNull=*/false);
  auto *global = new GlobalVariable(module, content->getType(), /*isConstant=*/true, GlobalValue::InternalLinkage,
                                    content, "saccade.note");
  global->setSection(".note.saccade");
  global->setAlignment(Align(4));
  appendToCompilerUsed(module, {global});
}

void saccade::sealLibraryNote(MutableArrayRef<char> library) {
  // The header of the note up to the name is followed by the version; other data with the same bytes is not expected,
  // because this compiler writes all of the library.
  std::string start(name, sizeof(name));
  append32(start, noteVersion);
  append32(start, SACCADE_ENTRY_VERSION);
  size_t found = StringRef(library.data(), library.size()).find(start);
  if (found == StringRef::npos)
    return; // linked from an object without a note
  char *size = library.data() + found + sizeof(name) + 8;
  support::endian::write64le(size, library.size());
  // The hash is that of the file with 32 zero bytes in its place.
  std::array<uint8_t, hashBytes> hash =
      SHA256::hash({reinterpret_cast<const uint8_t *>(library.data()), library.size()});
  memcpy(size + 8, hash.data(), hash.size());
}
