//===- Plugins.cpp - Passes and dialects from shared libraries ----------------===//
//
// A plugin is checked before it is loaded: with symbols of another version it would not load, or crash.
//
//===----------------------------------------------------------------------===//
#include "saccade/Pipeline/Plugins.h"
#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "mlir/Tools/Plugins/PassPlugin.h"
#include "saccade/Support/ToolMain.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include <atomic>
#include <dlfcn.h>
#include <link.h>
#include <map>

using namespace mlir;
using namespace saccade;
using llvm::StringRef;

namespace {
/// The plugins of this process.
struct Loaded {
  ForkSafeMutex lock; ///< also of MLIR's registry of passes
  std::atomic<bool> isAny = false;
  std::map<std::pair<std::string, PluginKind>, std::string> paths; ///< by the real path, as they were given
  std::vector<DialectPlugin> dialects;
};
} // namespace

static Loaded &loaded() {
  static auto *all = new Loaded; // plugins are in use until the process ends
  return *all;
}

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

/// The section of a plugin in which saccade_add_plugin() puts the version line of Saccade.
static constexpr llvm::StringLiteral versionSection = ".saccade.plugin";

static llvm::Error verifyVersion(const llvm::object::ObjectFile &file) {
  for (const llvm::object::SectionRef &section : file.sections()) {
    llvm::Expected<StringRef> name = section.getName();
    if (!name || *name != versionSection) {
      llvm::consumeError(name ? llvm::Error::success() : name.takeError());
      continue;
    }
    llvm::Expected<StringRef> content = section.getContents();
    if (!content)
      return content.takeError();
    StringRef version = content->split('\0').first;
    if (version != versionLine())
      return llvm::createStringError("it was built for " + version + ", expected " + versionLine() +
                                     ": build it again with this installation");
  }
  return llvm::Error::success();
}

/// The file names of the libraries in this process that start with `prefix`.
static std::vector<std::string> librariesOfProcess(StringRef prefix) {
  std::pair<StringRef, std::vector<std::string>> search{prefix, {}};
  dl_iterate_phdr(
      [](dl_phdr_info *file, size_t, void *data) {
        auto &[prefix, found] = *static_cast<decltype(search) *>(data);
        StringRef name = llvm::sys::path::filename(file->dlpi_name);
        if (name.starts_with(prefix))
          found.push_back(name.str());
        return 0;
      },
      &search);
  return search.second;
}

/// Verifies that the plugin needs the versions of MLIR and LLVM that are in this process.
static llvm::Error verifyNeeded(const llvm::object::ELF64LEObjectFile &file) {
  auto entries = file.getELFFile().dynamicEntries();
  if (!entries)
    return entries.takeError();
  uint64_t table = 0;
  for (const auto &entry : *entries)
    if (entry.getTag() == DT_STRTAB)
      table = entry.getPtr();
  auto strings = file.getELFFile().toMappedAddr(table);
  if (!strings)
    return strings.takeError();
  for (const auto &entry : *entries) {
    if (entry.getTag() != DT_NEEDED)
      continue;
    StringRef needed = reinterpret_cast<const char *>(*strings) + entry.getVal();
    for (StringRef prefix : {"libMLIR.", "libLLVM."}) {
      std::vector<std::string> present = librariesOfProcess(prefix);
      if (needed.starts_with(prefix) && !present.empty() && !llvm::is_contained(present, needed))
        return llvm::createStringError("it needs '" + needed + "', but Saccade uses '" + present.front() +
                                       "': build it with the same version of LLVM");
    }
  }
  return llvm::Error::success();
}

static llvm::Error verifyFile(StringRef path) {
  auto binary = llvm::object::createBinary(path);
  if (!binary)
    return binary.takeError();
  auto *file = llvm::dyn_cast<llvm::object::ELF64LEObjectFile>(binary->getBinary());
  if (!file)
    return llvm::createStringError("it is no shared library for this machine");
  if (llvm::Error error = verifyVersion(*file))
    return error;
  return verifyNeeded(*file);
}

//===----------------------------------------------------------------------===//
// Loading
//===----------------------------------------------------------------------===//

bool saccade::canLoadPlugins() {
#ifdef SACCADE_STATIC_LLVM
  return false;
#else
  return true;
#endif
}

static llvm::Error load(PluginKind kind, const std::string &path, std::vector<DialectPlugin> &dialects) {
  if (kind == PluginKind::Pass) {
    llvm::Expected<PassPlugin> plugin = PassPlugin::load(path);
    if (!plugin)
      return plugin.takeError();
    plugin->registerPassRegistryCallbacks();
    return llvm::Error::success();
  }
  llvm::Expected<DialectPlugin> plugin = DialectPlugin::load(path);
  if (!plugin)
    return plugin.takeError();
  dialects.push_back(*plugin);
  return llvm::Error::success();
}

llvm::Error saccade::loadPlugin(PluginKind kind, StringRef path, CompileOptions &options) {
  auto refuse = [&](const llvm::Twine &reason) {
    return llvm::createStringError("cannot load the plugin '" + path + "': " + reason);
  };
  if (!canLoadPlugins())
    return refuse(
        "this build contains LLVM and loads no plugins; build Saccade from source with the shared libraries of "
        "LLVM and MLIR");
  options.plugins.push_back(path.str());
  llvm::SmallString<256> real;
  if (std::error_code error = llvm::sys::fs::real_path(path, real))
    return refuse(error.message());
  Loaded &all = loaded();
  std::lock_guard guard(all.lock);
  auto [known, isNew] = all.paths.try_emplace({real.str().str(), kind}, path.str());
  if (!isNew)
    return llvm::Error::success();
  llvm::Error error = verifyFile(real);
  if (!error) {
    setRunningPass("", path); // its initializers may crash
    error = load(kind, real.str().str(), all.dialects);
    setRunningPass("", "");
  }
  if (!error) {
    all.isAny = true;
    return error;
  }
  all.paths.erase(known);
  return refuse(llvm::toString(std::move(error)));
}

ExitCode saccade::loadPlugins(StringRef tool, PluginKind kind, llvm::ArrayRef<std::string> paths,
                              CompileOptions &options) {
  for (const std::string &path : paths)
    if (llvm::Error error = loadPlugin(kind, path, options)) {
      llvm::errs() << tool << ": error: " << llvm::toString(std::move(error)) << '\n';
      return canLoadPlugins() ? ExitFile : ExitUnsupported;
    }
  return ExitSuccess;
}

void saccade::registerPluginDialects(DialectRegistry &registry) {
  Loaded &all = loaded();
  std::lock_guard guard(all.lock);
  for (const DialectPlugin &plugin : all.dialects)
    plugin.registerDialectRegistryCallbacks(registry);
}

ForkSafeMutex &saccade::passRegistryLock() { return loaded().lock; }

StringRef saccade::getPluginOf(const void *address) {
  Loaded &all = loaded();
  if (!all.isAny)
    return "";
  std::lock_guard guard(all.lock);
  Dl_info info;
  if (!dladdr(address, &info) || !info.dli_fname)
    return "";
  for (const auto &[key, given] : all.paths)
    if (key.first == info.dli_fname)
      return given;
  return "";
}
