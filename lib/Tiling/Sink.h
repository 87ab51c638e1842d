//===- Sink.h - The initial state of a row with a sink ------------*- C++ -*-===//
#ifndef SACCADE_LIB_TILING_SINK_H
#define SACCADE_LIB_TILING_SINK_H

#include "mlir/IR/Builders.h"

namespace saccade {

/// The maximum (a base-2 exponent) and sum of a row that has attended to its sink and no key.
struct SinkStart {
  mlir::Value max, sum;
};

/// Emits the initial state of a row for element `head` of `sink`, or for `sink` itself if it is a scalar. `type` is the
/// score type.
SinkStart emitSinkStart(mlir::OpBuilder &b, mlir::Location loc, mlir::Value sink, mlir::Value head,
                        mlir::FloatType type);

} // namespace saccade

#endif // SACCADE_LIB_TILING_SINK_H
