//===- Entry.cpp - Checks and calls of entries --------------------------------===//
//
// Checks the arguments of a call from the entry table and runs the compiled code. A valid call does not allocate; the
// checks of four tensors take about 100 ns.
//
//===----------------------------------------------------------------------===//
#include "saccade/Runtime/Entry.h"
#include "Arguments.h"
#include "saccade/Runtime/CPUTargets.h"
#include "saccade/Runtime/Runtime.h"
#include <cstddef>
#include <cstring>

using namespace saccade::runtime;

// The layout of the tables that compiled code contains.
static_assert(sizeof(void *) == 8 && sizeof(SaccadeValueType) == 32 && sizeof(SaccadeEntry) == 72);
static_assert(offsetof(SaccadeValueType, rank) == 24 && offsetof(SaccadeValueType, code) == 28 &&
              offsetof(SaccadeValueType, bits) == 29);
static_assert(offsetof(SaccadeEntry, name) == 16 && offsetof(SaccadeEntry, values) == 24 &&
              offsetof(SaccadeEntry, call) == 32 && offsetof(SaccadeEntry, shapes) == 40 &&
              offsetof(SaccadeEntry, kernels) == 48 && offsetof(SaccadeEntry, next) == 56 &&
              offsetof(SaccadeEntry, gpu) == 64);
static_assert(sizeof(SaccadeKernels) == 48 && offsetof(SaccadeKernels, architecture) == 24 &&
              offsetof(SaccadeKernels, loaded) == 40);
static_assert(sizeof(SaccadeArgument) == 16 && offsetof(SaccadeArgument, value) == 8);

namespace {

/// The storage of a call: pointers to the values, their words and spans, and the extents of results.
class Frame {
public:
  Frame(const SaccadeEntry &entry, DLDevice device) : device(device) {
    int32_t count = entry.num_inputs + entry.num_results;
    int64_t wordCount = 0, extentCount = 0;
    for (int32_t i = 0; i < count; ++i) {
      wordCount += descriptorWords(entry.values[i]);
      if (i >= entry.num_inputs)
        extentCount += entry.values[i].rank;
    }
    if (extentCount < 3)
      extentCount = 3; // for the values of a message
    int64_t pointerBytes = count * int64_t(sizeof(void *)), spanBytes = count * int64_t(sizeof(Span));
    int64_t bytes = pointerBytes + spanBytes + 8 * (wordCount + extentCount);
    char *memory = inside;
    if (bytes > int64_t(sizeof(inside)))
      memory = outside = static_cast<char *>(saccade_allocate(bytes));
    if (!memory)
      return;
    pointers = reinterpret_cast<void **>(memory);
    spans = reinterpret_cast<Span *>(memory + pointerBytes);
    words = reinterpret_cast<int64_t *>(memory + pointerBytes + spanBytes);
    extents = words + wordCount;
  }
  ~Frame() {
    if (outside)
      saccade_release(outside);
  }
  Frame(const Frame &) = delete;
  Frame &operator=(const Frame &) = delete;

  const DLDevice device;     ///< the device of all tensors
  void **pointers = nullptr; ///< null if memory ran out
  Span *spans = nullptr;
  int64_t *words = nullptr;
  int64_t *extents = nullptr;

private:
  alignas(8) char inside[2560]; // suffices for sixteen tensors of rank 4
  char *outside = nullptr;
};

} // namespace

static SaccadeStatus refuseMemory(const SaccadeEntry &entry) {
  return refuse(SaccadeOutOfMemory, entry, "out of memory");
}

/// Whether the limit allows code for `target`.
static bool isAllowed(const CPUTargetRow &target) {
  const CPUTargetRow *limit = cpuLimit();
  return !limit || limit->includes(target);
}

/// The first table, in the order of preference, whose code may run here, or null. For a GPU it is the first one.
static const SaccadeEntry *findRunnable(const SaccadeEntry *entry) {
  auto mayRun = [](const SaccadeEntry &table) {
    const CPUTargetRow *target = findCPUTarget(table.target);
    return target && isAllowed(*target) && hostRuns(*target);
  };
  while (entry && !mayRun(*entry))
    entry = entry->next;
  return entry;
}

/// Refuses a call for which no table may run here: the processor does not run the last one, or the limit forbids it.
static SaccadeStatus refuseTargets(const SaccadeEntry *entry) {
  while (entry->next)
    entry = entry->next;
  const CPUTargetRow *target = findCPUTarget(entry->target);
  if (!target || !hostProcessor().includes(*target))
    return refuse(SaccadeUnsupported, *entry, "compiled for target %s, this processor has %s",
                  target ? target->name : "a newer one", hostCPUTarget().name);
  const CPUTargetRow *limit = cpuLimit(); // may change during the call
  if (!limit || limit->includes(*target))
    return refuse(SaccadeUnsupported, *entry,
                  "compiled for target %s, the operating system does not permit AMX tile "
                  "registers; an alternate signal stack may be too small for them",
                  target->name);
  return refuse(SaccadeUnsupported, *entry, "compiled for target %s, calls are limited to %s", target->name,
                limit->name);
}

/// Replaces the first table of an entry by the one whose code the call runs. Checks the version, which must precede any
/// other use of the table, except of `name`, whose offset is fixed.
static SaccadeStatus selectTable(const SaccadeEntry *&entry, const SaccadeArgument *args, int32_t count) {
  if (entry->version != SACCADE_ENTRY_VERSION)
    return refuse(SaccadeUnsupported, *entry, "compiled for version %d of the runtime, this is version %d",
                  entry->version, SACCADE_ENTRY_VERSION);
  if (entry->gpu && findCUDATensor(args, count)) {
    entry = entry->gpu;
    return SaccadeSuccess;
  }
  const SaccadeEntry *runnable = findRunnable(entry);
  if (!runnable)
    return refuseTargets(entry);
  entry = runnable;
  return SaccadeSuccess;
}

/// Converts values [begin, end) of the entry into the frame, starting at `words`.
static SaccadeStatus convert(const SaccadeEntry &entry, const SaccadeArgument *args, int32_t begin, int32_t end,
                             int64_t *words, Frame &frame) {
  for (int32_t i = begin; i < end; ++i) {
    frame.spans[i] = Span();
    frame.pointers[i] = words;
    if (SaccadeStatus status = convertArgument(entry, i, args[i], frame.device, words, frame.spans[i]))
      return status;
    words += descriptorWords(entry.values[i]);
  }
  return SaccadeSuccess;
}

/// Converts the inputs, runs the shape function and checks the extents of the results.
static SaccadeStatus findExtents(const SaccadeEntry &entry, const SaccadeArgument *args, Frame &frame) {
  if (SaccadeStatus status = convert(entry, args, 0, entry.num_inputs, frame.words, frame))
    return status;
  if (const char *message = entry.shapes(frame.pointers, frame.extents)) {
    const char *relation = message + strlen(message) + 1, *place = relation + strlen(relation) + 1;
    auto found = static_cast<long long>(frame.extents[0]), expected = static_cast<long long>(frame.extents[1]);
    if (*place)
      return refuse(SaccadeValueError, entry, "%s: found %lld, expected %s%lld, in %s %lld", message, found, relation,
                    expected, place, static_cast<long long>(frame.extents[2]));
    return refuse(SaccadeValueError, entry, "%s: found %lld, expected %s%lld", message, found, relation, expected);
  }
  const int64_t *extent = frame.extents;
  for (int32_t i = entry.num_inputs; i < entry.num_inputs + entry.num_results; ++i)
    for (int32_t j = 0; j < entry.values[i].rank; ++j, ++extent)
      if (*extent < 0) // computed from a scalar argument
        return refuseValue(SaccadeValueError, entry, i, "dimension %d has the negative extent %lld", j,
                           static_cast<long long>(*extent));
  return SaccadeSuccess;
}

/// Checks that value `index`, which the entry writes, overlaps with none of the first `count` values.
static SaccadeStatus refuseOverlaps(const SaccadeEntry &entry, int32_t index, int32_t count, const Frame &frame) {
  for (int32_t i = 0; i < count; ++i)
    if (i != index && frame.spans[index].overlaps(frame.spans[i]))
      return refuseValue(SaccadeValueError, entry, index, "overlaps with %s '%s'",
                         i < entry.num_inputs ? "argument" : "result", entry.values[i].name);
  return SaccadeSuccess;
}

/// Checks inputs that are updated in place as results are checked.
static SaccadeStatus checkUpdatedInputs(const SaccadeEntry &entry, const Frame &frame) {
  for (int32_t i = 0; i < entry.num_inputs; ++i) {
    if (!entry.values[i].updated_by)
      continue;
    const auto *descriptor = static_cast<const int64_t *>(frame.pointers[i]);
    if (SaccadeStatus status = checkResult(entry, i, descriptor, /*extents=*/descriptor + 3, frame.spans[i]))
      return status;
    if (SaccadeStatus status = refuseOverlaps(entry, i, entry.num_inputs, frame))
      return status;
  }
  return SaccadeSuccess;
}

/// Converts the results and checks that they overlap neither one another nor an input.
static SaccadeStatus takeResults(const SaccadeEntry &entry, const SaccadeArgument *args, Frame &frame) {
  int64_t *words = frame.words;
  for (int32_t i = 0; i < entry.num_inputs; ++i)
    words += descriptorWords(entry.values[i]);
  int32_t count = entry.num_inputs + entry.num_results;
  if (SaccadeStatus status = convert(entry, args, entry.num_inputs, count, words, frame))
    return status;
  const int64_t *extents = frame.extents;
  for (int32_t i = entry.num_inputs; i < count; ++i) {
    const auto *descriptor = static_cast<const int64_t *>(frame.pointers[i]);
    if (SaccadeStatus status = checkResult(entry, i, descriptor, extents, frame.spans[i]))
      return status;
    extents += entry.values[i].rank;
    if (SaccadeStatus status = refuseOverlaps(entry, i, i, frame))
      return status;
  }
  return SaccadeSuccess;
}

SaccadeStatus saccade_entry_call(const SaccadeEntry *entry, const SaccadeArgument *args, int32_t count) {
  if (SaccadeStatus status = selectTable(entry, args, count))
    return status;
  if (count != entry->num_inputs + entry->num_results)
    return refuseCount(*entry, count, /*needsResults=*/true);
  Frame frame(*entry, findDevice(*entry, args, count));
  if (!frame.pointers)
    return refuseMemory(*entry);
  if (SaccadeStatus status = findExtents(*entry, args, frame))
    return status;
  if (SaccadeStatus status = checkUpdatedInputs(*entry, frame))
    return status;
  if (SaccadeStatus status = takeResults(*entry, args, frame))
    return status;
  const char *message = nullptr;
  SaccadeStatus status = SaccadeSuccess;
  if (SaccadeKernels *kernels = entry->kernels)
    status = kernels->call(entry, frame.device.device_id, frame.pointers, &message);
  else
    message = entry->call(frame.pointers);
  return message && !status ? refuse(SaccadeOutOfMemory, *entry, "%s", message) : status;
}

SaccadeStatus saccade_entry_shapes(const SaccadeEntry *entry, const SaccadeArgument *args, int32_t count,
                                   int64_t *sizes) {
  if (SaccadeStatus status = selectTable(entry, args, count))
    return status;
  if (count < entry->num_inputs || count > entry->num_inputs + entry->num_results)
    return refuseCount(*entry, count, /*needsResults=*/false);
  Frame frame(*entry, findDevice(*entry, args, count));
  if (!frame.pointers)
    return refuseMemory(*entry);
  if (SaccadeStatus status = findExtents(*entry, args, frame))
    return status;
  int64_t number = 0;
  for (int32_t i = 0; i < entry->num_results; ++i)
    for (int32_t j = 0; j < entry->values[entry->num_inputs + i].rank; ++j, ++number)
      sizes[number] = frame.extents[number];
  return SaccadeSuccess;
}

const char *saccade_entry_target(const SaccadeEntry *entry) {
  if (entry->version != SACCADE_ENTRY_VERSION || entry->kernels)
    return nullptr;
  const SaccadeEntry *runnable = findRunnable(entry);
  return runnable ? findCPUTarget(runnable->target)->name : nullptr;
}

const char *saccade_set_cpu_limit(const char *target) {
  if (limitCPUTarget(target))
    return nullptr;
  SaccadeEntry unnamed = {};
  unnamed.name = "saccade_set_cpu_limit";
  char names[128];
  writeCPUTargetNames(names, sizeof(names));
  refuse(SaccadeValueError, unnamed, "found '%s', expected one of %s", target, names);
  return saccade_entry_last_error();
}
