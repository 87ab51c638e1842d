//===- saccade-call.cpp - Calls a compiled library ----------------------------===//
//
// Calls one entry of a shared library for `saccade-run --runner`, in a process of the library's architecture:
//
//   saccade-call LIBRARY ENTRY INPUTS OUTPUTS THREADS GUARD
//
// INPUTS has each argument as 64-bit words: for a scalar its kind (SaccadeArgumentKind) and value; for a tensor its
// kind, the extents, the strides and the number of bytes, then the bytes, padded to eight. OUTPUTS gets each argument
// that the entry updates, then each result: the extents, the number of bytes, and the bytes. GUARD is end, begin or
// off: the side on which the memory of a tensor borders on a page without access.
//
//===----------------------------------------------------------------------===//
#include "saccade-c/DLTensor.h"
#include "saccade/Runtime/Entry.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace {

[[noreturn]] void fail(const std::string &message) {
  fprintf(stderr, "saccade-call: error: %s\n", message.c_str());
  exit(1);
}

/// A tensor of the call and its memory.
struct Tensor {
  DLTensor header = {};
  std::vector<int64_t> extents, strides;
  int64_t bytes = 0;
};

class Call {
public:
  Call(const char *library, const std::string &name, std::string guard) : guard(std::move(guard)) {
    handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
      fail(dlerror());
    entry = find<const SaccadeEntry *>(("__saccade_entry_" + name).c_str());
  }

  void setThreads(int32_t threads) { find<decltype(&saccade_set_threads)>("saccade_set_threads")(threads); }

  void readInputs(FILE *file) {
    tensors.resize(size_t(entry->num_inputs + entry->num_results));
    for (int32_t i = 0; i < entry->num_inputs; ++i) {
      SaccadeArgument argument = {int32_t(readWord(file)), 0, {}};
      if (argument.kind != SaccadeArgumentDLTensor) {
        argument.value.integer = readWord(file);
        arguments.push_back(argument);
        continue;
      }
      Tensor &tensor = tensors[size_t(i)];
      for (std::vector<int64_t> *words : {&tensor.extents, &tensor.strides})
        for (int32_t dim = 0; dim < entry->values[i].rank; ++dim)
          words->push_back(readWord(file));
      tensor.bytes = readWord(file);
      allocate(i);
      std::vector<char> content(size_t((tensor.bytes + 7) / 8 * 8));
      if (fread(content.data(), 1, content.size(), file) != content.size())
        fail("the file of inputs is too short");
      if (tensor.bytes > 0)
        memcpy(tensor.header.data, content.data(), size_t(tensor.bytes));
    }
  }

  void run() {
    std::vector<int64_t> sizes;
    for (int32_t i = 0; i < entry->num_results; ++i)
      sizes.resize(sizes.size() + size_t(result(i).rank));
    check(find<decltype(&saccade_entry_shapes)>("saccade_entry_shapes")(entry, arguments.data(), entry->num_inputs,
                                                                        sizes.data()));
    const int64_t *next = sizes.data();
    for (int32_t i = 0; i < entry->num_results; ++i) {
      Tensor &tensor = tensors[size_t(entry->num_inputs + i)];
      tensor.extents.assign(next, next + result(i).rank);
      next += result(i).rank;
      tensor.bytes = (result(i).bits + 7) / 8;
      for (int64_t extent : tensor.extents)
        tensor.bytes *= extent;
      int64_t stride = 1;
      tensor.strides.resize(tensor.extents.size());
      for (size_t dim = tensor.extents.size(); dim-- > 0; stride *= tensor.extents[dim])
        tensor.strides[dim] = stride;
      allocate(entry->num_inputs + i);
    }
    check(
        find<decltype(&saccade_entry_call)>("saccade_entry_call")(entry, arguments.data(), int32_t(arguments.size())));
  }

  void writeOutputs(FILE *file) {
    for (int32_t i = 0; i < entry->num_inputs + entry->num_results; ++i) {
      if (i < entry->num_inputs && entry->values[i].updated_by == 0)
        continue;
      const Tensor &tensor = tensors[size_t(i)];
      fwrite(tensor.extents.data(), 8, tensor.extents.size(), file);
      fwrite(&tensor.bytes, 8, 1, file);
      fwrite(tensor.header.data, 1, size_t(tensor.bytes), file);
    }
    if (fclose(file) != 0)
      fail("the outputs cannot be written");
  }

private:
  template <typename Pointer> Pointer find(const char *name) {
    void *address = dlsym(handle, name);
    if (!address)
      fail(dlerror());
    return reinterpret_cast<Pointer>(address);
  }

  void check(SaccadeStatus status) {
    if (status != SaccadeSuccess)
      fail(find<decltype(&saccade_entry_last_error)>("saccade_entry_last_error")());
  }

  const SaccadeValueType &result(int32_t i) const { return entry->values[entry->num_inputs + i]; }

  static int64_t readWord(FILE *file) {
    int64_t word = 0;
    if (fread(&word, 8, 1, file) != 1)
      fail("the file of inputs is too short");
    return word;
  }

  /// Memory that begins as NaN, between pages without access.
  char *reserve(int64_t bytes) {
    auto page = size_t(sysconf(_SC_PAGESIZE)), used = (size_t(bytes) + page - 1) / page * page;
    void *pages = mmap(nullptr, used + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
      fail("out of memory");
    char *begin = static_cast<char *>(pages) + page;
    if (used > 0 && mprotect(begin, used, PROT_READ | PROT_WRITE) != 0)
      fail("out of memory");
    constexpr uint16_t poison = 0x7ff1; // NaN in all types of floats
    for (size_t at = 0; at < used; at += sizeof(poison))
      memcpy(begin + at, &poison, sizeof(poison));
    return guard == "end" ? begin + (used - size_t(bytes)) : begin;
  }

  /// Gives value `i` memory, and adds it to the arguments.
  void allocate(int32_t i) {
    Tensor &tensor = tensors[size_t(i)];
    const SaccadeValueType &type = entry->values[i];
    tensor.header.data = reserve(tensor.bytes);
    tensor.header.device = {kDLCPU, 0};
    tensor.header.ndim = type.rank;
    tensor.header.dtype = {type.code, type.bits, 1};
    tensor.header.shape = tensor.extents.data();
    tensor.header.strides = tensor.strides.data();
    SaccadeArgument argument = {SaccadeArgumentDLTensor, 0, {}};
    argument.value.pointer = &tensor.header;
    arguments.push_back(argument);
  }

  std::string guard;
  void *handle;
  const SaccadeEntry *entry;
  std::vector<Tensor> tensors;
  std::vector<SaccadeArgument> arguments;
};

} // namespace

int main(int argc, char **argv) {
  if (argc != 7)
    fail("expected LIBRARY ENTRY INPUTS OUTPUTS THREADS GUARD");
  Call call(argv[1], argv[2], argv[6]);
  call.setThreads(atoi(argv[5]));
  FILE *inputs = fopen(argv[3], "rb"), *outputs = fopen(argv[4], "wb");
  if (!inputs || !outputs)
    fail("the files of inputs and outputs cannot be opened");
  call.readInputs(inputs);
  call.run();
  call.writeOutputs(outputs);
  return 0;
}
