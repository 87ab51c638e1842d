//===- Streams.cpp - Streams, events and graphs of the fake CUDA driver -------===//
//
// Launches run when they are made, so streams have no order to keep. Times are those of the host. A captured stream
// collects launches and writes, which each launch of the graph runs; memory that a captured call allocates is kept.
//
//===----------------------------------------------------------------------===//
#include "Machine.h"
#include <chrono>

using namespace fakecuda;

namespace {
struct Event {
  std::chrono::steady_clock::time_point time;
};
} // namespace

// NOLINTBEGIN(readability-identifier-naming): the names of the driver's functions.
EXPORTED Result cuStreamCreate(void **stream, uint32_t) {
  Call call("cuStreamCreate");
  RETURN_IF(call.checkOutsideCapture());
  *stream = new char; // never freed, as contexts are
  return success;
}

EXPORTED Result cuEventCreate(Event **event, uint32_t) {
  Call call("cuEventCreate");
  RETURN_IF(call.check());
  *event = new Event;
  return success;
}
EXPORTED Result cuEventRecord(Event *event, void *stream) {
  Call call("cuEventRecord", streamText(stream));
  RETURN_IF(call.checkOutsideCapture());
  event->time = std::chrono::steady_clock::now();
  return success;
}
EXPORTED Result cuEventSynchronize(Event *) {
  Call call("cuEventSynchronize");
  return call.checkOutsideCapture();
}
EXPORTED Result cuEventElapsedTime(float *milliseconds, Event *begin, Event *end) {
  Call call("cuEventElapsedTime");
  RETURN_IF(call.check());
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return success;
}
/// The call `name`, which deletes an object.
template <typename T> static Result destroy(const char *name, T *object) {
  Call call(name);
  RETURN_IF(call.check());
  delete object;
  return success;
}
EXPORTED Result cuEventDestroy_v2(Event *event) { return destroy("cuEventDestroy", event); }

EXPORTED Result cuStreamBeginCapture_v2(void *stream, int32_t) {
  Call call("cuStreamBeginCapture", streamText(stream));
  RETURN_IF(call.checkOutsideCapture());
  if (!stream) // the legacy stream cannot be captured
    return captureUnsupported;
  machine().capturing = stream;
  machine().isCapturing = true;
  machine().graph = new Graph;
  return success;
}
EXPORTED Result cuStreamEndCapture(void *stream, Graph **graph) {
  Call call("cuStreamEndCapture", streamText(stream));
  RETURN_IF(call.check());
  if (!machine().graph || stream != machine().capturing)
    return invalidValue;
  *graph = std::exchange(machine().graph, nullptr);
  machine().isCapturing = false;
  return success;
}
EXPORTED Result cuGraphInstantiateWithFlags(Graph **executable, Graph *graph, uint64_t) {
  Call call("cuGraphInstantiateWithFlags");
  RETURN_IF(call.checkOutsideCapture());
  *executable = new Graph(*graph);
  return success;
}
EXPORTED Result cuGraphLaunch(Graph *executable, void *stream) {
  Call call("cuGraphLaunch", streamText(stream));
  RETURN_IF(call.checkOutsideCapture());
  for (const auto &node : executable->nodes)
    RETURN_IF(node());
  return success;
}
EXPORTED Result cuGraphExecDestroy(Graph *executable) { return destroy("cuGraphExecDestroy", executable); }
EXPORTED Result cuGraphDestroy(Graph *graph) { return destroy("cuGraphDestroy", graph); }
// NOLINTEND(readability-identifier-naming)
