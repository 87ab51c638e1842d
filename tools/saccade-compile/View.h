//===- View.h - Graph of a program --------------------------------*- C++ -*-===//
#ifndef SACCADE_TOOLS_COMPILE_VIEW_H
#define SACCADE_TOOLS_COMPILE_VIEW_H

#include "Options.h"

namespace saccade {

/// Writes the graph of the ops of `module` to the file of --view: text of Graphviz for .dot, else an image that
/// Graphviz's `dot` draws. Without `dot` on the PATH, writes the text next to it, with a warning.
ExitCode writeView(mlir::ModuleOp module, const Options &options);

} // namespace saccade

#endif // SACCADE_TOOLS_COMPILE_VIEW_H
