//===- Plugins.h - Passes and dialects from shared libraries ------*- C++ -*-===//
//
// A plugin stays loaded until the process ends. Its passes are registered once, its dialects in every context that is
// created afterwards.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_PIPELINE_PLUGINS_H
#define SACCADE_PIPELINE_PLUGINS_H

#include "mlir/IR/DialectRegistry.h"
#include "saccade/Pipeline/CompileOptions.h"
#include "saccade/Support/CommandLine.h"
#include "saccade/Support/ForkSafeMutex.h"
#include "llvm/Support/Error.h"

namespace saccade {

enum class PluginKind { Pass, Dialect };

/// Whether this build loads plugins. They resolve the symbols of LLVM and MLIR in the process, and a build that links
/// these libraries statically hides them.
bool canLoadPlugins();

/// Loads a plugin, unless it is loaded, and records it in `options`. An error says why it cannot be loaded: it was
/// built for another version of Saccade, or linked to another version of MLIR, or has no function of a plugin of this
/// kind.
llvm::Error loadPlugin(PluginKind kind, llvm::StringRef path, CompileOptions &options);

/// The same for tools. Returns ExitUnsupported or ExitFile after an error on stderr.
ExitCode loadPlugins(llvm::StringRef tool, PluginKind kind, llvm::ArrayRef<std::string> paths, CompileOptions &options);

/// Registers the dialects of the loaded plugins.
void registerPluginDialects(mlir::DialectRegistry &registry);

/// Held while a plugin registers passes, and to be held while names of passes are looked up.
ForkSafeMutex &passRegistryLock();

/// The path of the plugin that an address belongs to; empty if it belongs to none. Valid until the process ends.
llvm::StringRef getPluginOf(const void *address);

} // namespace saccade

#endif // SACCADE_PIPELINE_PLUGINS_H
