//===- Sink.h - Where the state of a row with a sink begins -------*- C++ -*-===//
#ifndef SACCADE_LIB_TILING_SINK_H
#define SACCADE_LIB_TILING_SINK_H

#include "mlir/IR/Builders.h"

namespace saccade {

/// Maximum (a base-2 exponent) and sum of a row that has seen its sink and no key.
struct SinkStart {
  mlir::Value max, sum;
};

/// The start for element `head` of `sink`, or for `sink` itself where that is a number, in the type of scores.
SinkStart emitSinkStart(mlir::OpBuilder &b, mlir::Location loc, mlir::Value sink, mlir::Value head,
                        mlir::FloatType type);

} // namespace saccade

#endif // SACCADE_LIB_TILING_SINK_H
