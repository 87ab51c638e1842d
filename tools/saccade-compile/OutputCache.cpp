//===- OutputCache.cpp - Outputs of saccade-compile in files -----------------===//
#include "OutputCache.h"
#include "saccade/JIT/CompiledProgram.h"
#include "saccade/Target/Device.h"

using namespace saccade;

/// What the output depends on besides the program and the compile options.
static std::string describe(const LibraryInterface &interface, const Options &options) {
  std::string kind;
  llvm::raw_string_ostream os(kind);
  os << "output " << int(*options.emit);
  for (const LibraryTarget &target : options.targets)
    os << ' ' << target.name();
  if (options.hasGPU())
    os << " ptxas " << fileIdentity(options.assembler) << " libdevice "
       << fileIdentity(options.libdevice.empty() ? findLibdevice(options.assembler) : options.libdevice);
  os << " header " << interface.header;
  return kind;
}

OutputCache::OutputCache(mlir::ModuleOp program, const LibraryInterface &interface, const Options &options)
    : cache(openCache(tool, options.cacheDirectory)) {
  // Reports, and the warnings of ptxas for a cubin, are no part of an output.
  if (cache && options.emit && options.emit != Emit::Cubin && !options.explain)
    key = makeDiskKey(describe(interface, options), program, options.compile);
}

bool OutputCache::load(LibraryInterface &interface, llvm::SmallVectorImpl<char> &output) {
  std::optional<std::string> value = key.empty() ? std::nullopt : cache->lookup(key);
  if (!value)
    return false;
  auto [size, rest] = llvm::StringRef(*value).split(':');
  size_t headerBytes;
  if (size.getAsInteger(10, headerBytes) || headerBytes > rest.size())
    return false;
  interface.header = rest.take_front(headerBytes).str();
  llvm::StringRef bytes = rest.drop_front(headerBytes);
  output.assign(bytes.begin(), bytes.end());
  return true;
}

void OutputCache::store(const LibraryInterface &interface, llvm::StringRef output) {
  if (!key.empty())
    cache->store(key, (llvm::Twine(interface.header.size()) + ":" + interface.header + output).str());
}
