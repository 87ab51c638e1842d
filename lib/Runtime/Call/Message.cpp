//===- Message.cpp - Error messages of calls ----------------------------------===//
//
// Each thread has a buffer of fixed size, so that an error does not allocate. Longer messages are truncated.
//
//===----------------------------------------------------------------------===//
#include "Message.h"
#include <cstdarg>
#include <cstdio>

using namespace saccade::runtime;

namespace {

/// A text that is truncated at the size of its buffer.
class Text {
public:
  void clear() { length = 0; }
  [[gnu::format(printf, 2, 3)]] void add(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    addList(format, arguments);
    va_end(arguments);
  }
  void addList(const char *format, va_list arguments) {
    int added = vsnprintf(buffer + length, sizeof(buffer) - length, format, arguments);
    if (added > 0)
      length = length + added < limit ? length + added : limit;
  }
  const char *get() const { return buffer; }

private:
  static constexpr int limit = 2047;
  int length = 0;
  char buffer[limit + 1] = {};
};

thread_local constinit Text message;

struct Name {
  int32_t number;
  const char *words;
};

/// Looks up a number in a table that ends with {0, nullptr}.
const char *find(const Name *names, int32_t number) {
  for (; names->words; ++names)
    if (names->number == number)
      return names->words;
  return nullptr;
}

} // namespace

const char *saccade_entry_last_error(void) { return message.get(); }

ShortText saccade::runtime::describe(DLDataType type) {
  static constexpr Name letters[] = {{kDLInt, "i"},  {kDLUInt, "u"},    {kDLFloat, "f"}, {kDLBfloat, "bf"},
                                     {5, "complex"}, {kDLBool, "bool"}, {0, nullptr}};
  ShortText words;
  const char *letter = find(letters, type.code);
  int length;
  if (type.code == kDLBool && type.bits == 8)
    length = snprintf(words.text, sizeof(words.text), "bool");
  else if (type.code == kDLFloat8_e4m3fn && type.bits == 8)
    length = snprintf(words.text, sizeof(words.text), "f8E4M3FN");
  else if (type.code == kDLFloat8_e5m2 && type.bits == 8)
    length = snprintf(words.text, sizeof(words.text), "f8E5M2");
  else if (letter)
    length = snprintf(words.text, sizeof(words.text), "%s%d", letter, type.bits);
  else
    length = snprintf(words.text, sizeof(words.text), "DLPack type %d of %d bits", type.code, type.bits);
  if (type.lanes != 1)
    snprintf(words.text + length, sizeof(words.text) - length, " x %d lanes", type.lanes);
  return words;
}

ShortText saccade::runtime::describe(DLDevice device) {
  static constexpr Name names[] = {{1, "cpu"},        {2, "cuda"},          {3, "cuda_host"}, {4, "opencl"},
                                   {7, "vulkan"},     {8, "metal"},         {9, "vpi"},       {10, "rocm"},
                                   {11, "rocm_host"}, {13, "cuda_managed"}, {14, "oneapi"},   {15, "webgpu"},
                                   {16, "hexagon"},   {0, nullptr}};
  ShortText words;
  auto type = static_cast<int32_t>(device.device_type);
  const char *name = find(names, type);
  if (type == kDLCPU)
    snprintf(words.text, sizeof(words.text), "cpu");
  else if (name)
    snprintf(words.text, sizeof(words.text), "%s:%d", name, device.device_id);
  else
    snprintf(words.text, sizeof(words.text), "DLPack device %d:%d", type, device.device_id);
  return words;
}

const char *saccade::runtime::describeKind(int32_t kind) {
  // The supported kinds, and further TVM-FFI kinds to which Python values are converted.
  static constexpr Name names[] = {{SaccadeArgumentNone, "None"},
                                   {SaccadeArgumentInteger, "an integer"},
                                   {SaccadeArgumentBool, "a bool"},
                                   {SaccadeArgumentFloat, "a float"},
                                   {SaccadeArgumentDLTensor, "a tensor"},
                                   {SaccadeArgumentTensorObject, "a tensor"},
                                   {5, "a data type"},
                                   {6, "a device"},
                                   {8, "a string"},
                                   {11, "a string"},
                                   {65, "a string"},
                                   {66, "bytes"},
                                   {68, "a function"},
                                   {69, "a shape"},
                                   {71, "an array"},
                                   {72, "a map"},
                                   {75, "a list"},
                                   {76, "a dict"},
                                   {0, nullptr}};
  const char *name = find(names, kind);
  return name ? name : "an object of another kind";
}

static void addValue(const SaccadeEntry &entry, int32_t index) {
  const SaccadeValueType &type = entry.values[index];
  message.add("%s: %s '%s' (%s): ", entry.name, index < entry.num_inputs ? "argument" : "result", type.name, type.text);
}

SaccadeStatus saccade::runtime::refuseValue(SaccadeStatus status, const SaccadeEntry &entry, int32_t index,
                                            const char *format, ...) {
  message.clear();
  addValue(entry, index);
  va_list arguments;
  va_start(arguments, format);
  message.addList(format, arguments);
  va_end(arguments);
  return status;
}

SaccadeStatus saccade::runtime::refuse(SaccadeStatus status, const SaccadeEntry &entry, const char *format, ...) {
  message.clear();
  message.add("%s: ", entry.name);
  va_list arguments;
  va_start(arguments, format);
  message.addList(format, arguments);
  va_end(arguments);
  return status;
}

SaccadeStatus saccade::runtime::refuseCount(const SaccadeEntry &entry, int32_t count, bool needsResults) {
  auto plural = [](int32_t number) { return number == 1 ? "" : "s"; };
  message.clear();
  message.add("%s: found %d argument%s, expected %d input%s", entry.name, count, plural(count), entry.num_inputs,
              plural(entry.num_inputs));
  if (needsResults)
    message.add(" and memory for %d result%s", entry.num_results, plural(entry.num_results));
  message.add(": %s(", entry.name);
  for (int32_t i = 0; i < entry.num_inputs + entry.num_results; ++i) {
    const char *before = i == entry.num_inputs ? ") -> (" : i == 0 ? "" : ", ";
    message.add("%s%s: %s", before, entry.values[i].name, entry.values[i].text);
  }
  message.add(entry.num_results ? ")" : ") -> ()");
  return SaccadeTypeError;
}
