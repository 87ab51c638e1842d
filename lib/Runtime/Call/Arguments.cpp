//===- Arguments.cpp - Checks and conversion of arguments ---------------------===//
//
// Converts DLTensors and scalars to memref descriptors and values of the program's types. Everything that can be
// checked without reading elements is checked: data, device, element type, rank, extents and strides.
//
//===----------------------------------------------------------------------===//
#include "Arguments.h"
#include "Strides.h"
#include "saccade/Runtime/Conversions.h"
#include <cstring>

using namespace saccade::runtime;

namespace {

/// The input or result that is checked, for messages.
struct ValueContext {
  const SaccadeEntry &entry;
  int32_t index;
  DLDevice device = {};

  const SaccadeValueType &type() const { return entry.values[index]; }
};

/// The offset of the DLTensor in TVM-FFI's tensor object, after reference counts, type index and deleter.
constexpr int64_t tensorObjectHeader = 24;

} // namespace

/// The tensor of an argument, or null.
static const DLTensor *asTensor(const SaccadeArgument &argument) {
  bool isObject = argument.kind == SaccadeArgumentTensorObject;
  if ((!isObject && argument.kind != SaccadeArgumentDLTensor) || !argument.value.pointer)
    return nullptr;
  return reinterpret_cast<const DLTensor *>(static_cast<const char *>(argument.value.pointer) +
                                            (isObject ? tensorObjectHeader : 0));
}

static DLDevice makeDevice(int32_t type, int32_t id) {
  DLDevice device;
  device.device_type = static_cast<decltype(device.device_type)>(type);
  device.device_id = id;
  return device;
}

static bool isOn(DLDevice device, int32_t type) { return static_cast<int32_t>(device.device_type) == type; }

#define REFUSE(STATUS, ...) return refuseValue(STATUS, context.entry, context.index, __VA_ARGS__)

static SaccadeStatus convertInteger(ValueContext context, const SaccadeArgument &argument, int64_t *word) {
  const SaccadeValueType &type = context.type();
  if (argument.kind != SaccadeArgumentInteger && argument.kind != SaccadeArgumentBool)
    REFUSE(SaccadeTypeError, "found %s, expected an integer", describeKind(argument.kind));
  int64_t value = argument.value.integer;
  // Narrow integers are signless: -1 and 255 are both valid for i8.
  int64_t low = 0, high = 1;
  if (type.code != kDLBool && type.bits < 64) {
    low = -(int64_t(1) << (type.bits - 1));
    high = (int64_t(1) << type.bits) - 1;
  }
  if (type.bits < 64 && (value < low || value > high))
    REFUSE(SaccadeValueError, "found %lld, expected %lld to %lld", static_cast<long long>(value),
           static_cast<long long>(low), static_cast<long long>(high));
  *word = value;
  return SaccadeSuccess;
}

static SaccadeStatus convertFloat(ValueContext context, const SaccadeArgument &argument, int64_t *word) {
  double value;
  if (argument.kind == SaccadeArgumentFloat)
    value = argument.value.real;
  else if (argument.kind == SaccadeArgumentInteger || argument.kind == SaccadeArgumentBool)
    value = static_cast<double>(argument.value.integer);
  else
    REFUSE(SaccadeTypeError, "found %s, expected a number", describeKind(argument.kind));
  auto store = [&](auto narrow) { memcpy(word, &narrow, sizeof(narrow)); };
  const SaccadeValueType &type = context.type();
  if (type.bits == 64)
    store(value);
  else if (type.bits == 32)
    store(static_cast<float>(value));
  else if (type.code == kDLBfloat)
    store(__truncdfbf2(value));
  else
    store(__truncdfhf2(value));
  return SaccadeSuccess;
}

/// Checks the device, element type and rank.
static SaccadeStatus checkKind(ValueContext context, const DLTensor &tensor) {
  const SaccadeValueType &type = context.type();
  int32_t expected = static_cast<int32_t>(context.device.device_type);
  if (!isOn(tensor.device, expected) || (expected != kDLCPU && tensor.device.device_id != context.device.device_id))
    REFUSE(SaccadeTypeError, "on %s, expected %s", describe(tensor.device).text, describe(context.device).text);
  DLDataType found = tensor.dtype;
  // Integers are signless: the ops of the program define their signedness.
  bool sameCode = found.code == type.code || (type.code == kDLInt && found.code == kDLUInt);
  if (!sameCode || found.bits != type.bits || found.lanes != 1)
    REFUSE(SaccadeTypeError, "found element type %s, expected %s", describe(found).text,
           describe(DLDataType{type.code, type.bits, 1}).text);
  if (tensor.ndim != type.rank)
    REFUSE(SaccadeTypeError, "found %d dimension%s, expected %d", tensor.ndim, tensor.ndim == 1 ? "" : "s", type.rank);
  if (type.rank > 0 && !tensor.shape)
    REFUSE(SaccadeTypeError, "its shape is NULL");
  return SaccadeSuccess;
}

/// Writes the strides; those that do not affect any address are replaced by contiguous ones.
static void copyStrides(const DLTensor &tensor, bool isEmpty, int64_t *strides) {
  uint64_t compact = 1;
  for (int32_t i = tensor.ndim; i-- > 0;) {
    int64_t extent = tensor.shape[i];
    bool matters = tensor.strides && !isEmpty && extent > 1;
    strides[i] = matters ? tensor.strides[i] : static_cast<int64_t>(compact);
    compact *= static_cast<uint64_t>(extent > 1 ? extent : 1); // may wrap for an empty tensor, which has no address
  }
}

/// Whether no two elements are equal or interleaved: each stride exceeds the span of the smaller ones. Strides of 0 and
/// dimensions of one element do not count. The span is within the address space.
static bool areStridesNested(int32_t rank, const int64_t *sizes, const int64_t *strides) {
  auto magnitude = [&](int32_t i) { return strides[i] < 0 ? -strides[i] : strides[i]; };
  for (int32_t i = 0; i < rank; ++i) {
    if (strides[i] == 0 || sizes[i] == 1)
      continue;
    int64_t smaller = 0;
    for (int32_t j = 0; j < rank; ++j)
      if (j != i && sizes[j] != 1 && magnitude(j) <= magnitude(i))
        smaller += (sizes[j] - 1) * magnitude(j);
    if (smaller >= magnitude(i))
      return false;
  }
  return true;
}

/// Computes the span of a tensor; returns false if extents and strides exceed the address space.
static bool findSpan(const SaccadeValueType &type, uintptr_t origin, const int64_t *sizes, const int64_t *strides,
                     Span &span) {
  int64_t low = 0, high = 0, distinct = 1;
  int64_t bytes = type.bits / 8;
  bool wraps = false;
  for (int32_t i = 0; i < type.rank; ++i) {
    if (strides[i] == 0 || sizes[i] == 1)
      continue;
    int64_t distance;
    wraps |= __builtin_mul_overflow(sizes[i] - 1, strides[i], &distance);
    int64_t &side = distance < 0 ? low : high;
    wraps |= __builtin_add_overflow(side, distance, &side);
    wraps |= __builtin_mul_overflow(distinct, sizes[i], &distinct);
  }
  wraps |= __builtin_mul_overflow(low, bytes, &low) || __builtin_mul_overflow(high, bytes, &high);
  uintptr_t below = 0 - static_cast<uintptr_t>(low), above = static_cast<uintptr_t>(high) + bytes;
  if (wraps || below > origin || above > UINTPTR_MAX - origin)
    return false;
  span.isEmpty = false;
  span.origin = origin;
  span.first = origin - below;
  span.end = origin + above;
  span.last = span.end - bytes;
  span.isDense =
      span.end - span.first == static_cast<uintptr_t>(distinct) * bytes && areStridesNested(type.rank, sizes, strides);
  return true;
}

static SaccadeStatus convertTensor(ValueContext context, const SaccadeArgument &argument, int64_t *words, Span &span) {
  const SaccadeValueType &type = context.type();
  if (argument.kind != SaccadeArgumentTensorObject && argument.kind != SaccadeArgumentDLTensor)
    REFUSE(SaccadeTypeError, "found %s, expected a tensor", describeKind(argument.kind));
  if (!argument.value.pointer)
    REFUSE(SaccadeTypeError, "is NULL, expected a tensor");
  const DLTensor &tensor = *asTensor(argument);
  if (SaccadeStatus status = checkKind(context, tensor))
    return status;

  int64_t *sizes = words + 3, *strides = sizes + type.rank;
  bool isEmpty = false;
  for (int32_t i = 0; i < type.rank; ++i) {
    int64_t extent = tensor.shape[i];
    if (extent < 0)
      REFUSE(SaccadeValueError, "found extent %lld in dimension %d", static_cast<long long>(extent), i);
    if (type.extents[i] >= 0 && extent != type.extents[i])
      REFUSE(SaccadeValueError, "found extent %lld in dimension %d, expected %lld", static_cast<long long>(extent), i,
             static_cast<long long>(type.extents[i]));
    isEmpty |= extent == 0;
    sizes[i] = extent;
  }
  copyStrides(tensor, isEmpty, strides);

  uintptr_t origin = reinterpret_cast<uintptr_t>(tensor.data) + tensor.byte_offset;
  if (!isEmpty) {
    if (!tensor.data)
      REFUSE(SaccadeValueError, "is NULL: a fake tensor has no data");
    if (origin % (type.bits / 8))
      REFUSE(SaccadeValueError, "the data address is not a multiple of the element size, %d bytes", type.bits / 8);
    if (!findSpan(type, origin, sizes, strides, span))
      REFUSE(SaccadeValueError, "its extents and strides exceed the address space");
  }
  words[0] = words[1] = static_cast<int64_t>(origin);
  words[2] = 0;
  return SaccadeSuccess;
}

const DLTensor *saccade::runtime::findCUDATensor(const SaccadeArgument *args, int32_t count) {
  for (int32_t i = 0; i < count; ++i)
    if (const DLTensor *tensor = asTensor(args[i]); tensor && isOn(tensor->device, kDLCUDA))
      return tensor;
  return nullptr;
}

DLDevice saccade::runtime::findDevice(const SaccadeEntry &entry, const SaccadeArgument *args, int32_t count) {
  if (!entry.kernels)
    return makeDevice(kDLCPU, 0);
  const DLTensor *tensor = findCUDATensor(args, count);
  return tensor ? tensor->device : makeDevice(kDLCUDA, 0);
}

SaccadeStatus saccade::runtime::convertArgument(const SaccadeEntry &entry, int32_t index,
                                                const SaccadeArgument &argument, DLDevice device, int64_t *words,
                                                Span &span) {
  ValueContext context{entry, index, device};
  const SaccadeValueType &type = context.type();
  if (type.rank >= 0)
    return convertTensor(context, argument, words, span);
  bool isReal = type.code == kDLFloat || type.code == kDLBfloat;
  return isReal ? convertFloat(context, argument, words) : convertInteger(context, argument, words);
}

SaccadeStatus saccade::runtime::checkResult(const SaccadeEntry &entry, int32_t index, const int64_t *words,
                                            const int64_t *extents, const Span &span) {
  ValueContext context{entry, index};
  int32_t rank = context.type().rank;
  const int64_t *sizes = words + 3, *strides = sizes + rank;
  for (int32_t i = 0; i < rank; ++i)
    if (sizes[i] != extents[i])
      REFUSE(SaccadeValueError, "found extent %lld in dimension %d, expected %lld", static_cast<long long>(sizes[i]), i,
             static_cast<long long>(extents[i]));
  if (span.isEmpty)
    return SaccadeSuccess;
  for (int32_t i = 0; i < rank; ++i)
    if (sizes[i] != 1 && strides[i] <= 0)
      REFUSE(SaccadeValueError, "found stride %lld in dimension %d, expected a positive one",
             static_cast<long long>(strides[i]), i);
  Strides layout{rank, sizes, strides};
  if (layout.areNested())
    return SaccadeSuccess;
  int32_t first, second;
  if (layout.findOverlappingDims(first, second))
    REFUSE(SaccadeValueError, "its strides %lld and %lld in dimensions %d and %d make elements overlap",
           static_cast<long long>(strides[first]), static_cast<long long>(strides[second]), first, second);
  switch (layout.elementsOverlap()) {
  case Strides::No:
    return SaccadeSuccess;
  case Strides::Yes:
    REFUSE(SaccadeValueError, "its strides make elements overlap");
  case Strides::TooLarge:
    REFUSE(SaccadeValueError, "its strides are too complex to prove that no elements overlap");
  }
  return SaccadeSuccess;
}
