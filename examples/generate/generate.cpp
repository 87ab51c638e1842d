// Generates text with the compiled step of a decoder (export.py), without Python.
//
// usage: generate FOLDER PROMPT [TOKENS [TEMPERATURE [SEED]]]: 200 tokens and temperature 0, which takes the likeliest
// token, by default. Prints the prompt and the text, and on standard error the tokens per second.
#include "saccade-c/DLTensor.h"
#include "saccade/Runtime/Entry.h"
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

// The tables of the functions of model.so. Their values have the names of the program.
extern "C" const SaccadeEntry __saccade_entry_main, __saccade_entry_main__prepack;

namespace {

constexpr std::int64_t Positions = 512; // of the caches

/// A contiguous tensor with its memory.
class Array {
public:
  /// Zeros of the element type and the extents of a value of the program. Dynamic extents are taken from `open`.
  Array(const SaccadeValueType &type, std::vector<std::int64_t> open = {})
      : extents(type.extents, type.extents + type.rank) {
    std::size_t next = 0, count = 1;
    for (std::int64_t &extent : extents) {
      extent = extent < 0 ? open.at(next++) : extent;
      count *= extent;
    }
    bytes.resize(count * type.bits / 8 + Alignment);
    element = {type.code, type.bits, 1};
  }

  void *data() { return bytes.data() + (-reinterpret_cast<std::uintptr_t>(bytes.data()) & (Alignment - 1)); }
  template <class T> T *as() { return static_cast<T *>(data()); }
  std::size_t size() const { return bytes.size() - Alignment; }
  DLTensor describe() {
    return {data(), {kDLCPU, 0}, std::int32_t(extents.size()), element, extents.data(), nullptr, 0};
  }

private:
  static constexpr std::size_t Alignment = 64;
  std::vector<std::int64_t> extents;
  std::vector<char> bytes;
  DLDataType element;
};

using Arrays = std::map<std::string, Array>;

/// The elements of a file that NumPy wrote, for a value of static size.
Array readNpy(const std::string &path, const SaccadeValueType &type) {
  std::ifstream file(path, std::ios::binary);
  char start[10] = {};
  file.read(start, sizeof start); // magic, version, and the size of the header
  file.ignore(static_cast<unsigned char>(start[8]) + 256 * static_cast<unsigned char>(start[9]));
  Array array(type);
  if (!file.read(array.as<char>(), std::streamsize(array.size())) || file.peek() != EOF)
    throw std::runtime_error(path + ": cannot be read, or has another size than " + type.text);
  return array;
}

/// Calls an entry with arrays by the names of its values.
void call(const SaccadeEntry &entry, Arrays &arrays) {
  int count = entry.num_inputs + entry.num_results;
  std::vector<DLTensor> tensors(count);
  std::vector<SaccadeArgument> arguments(count);
  for (int i = 0; i < count; ++i) {
    tensors[i] = arrays.at(entry.values[i].name).describe();
    arguments[i].kind = SaccadeArgumentDLTensor;
    arguments[i].value.pointer = &tensors[i];
  }
  if (saccade_entry_call(&entry, arguments.data(), count) != SaccadeSuccess)
    throw std::runtime_error(saccade_entry_last_error());
}

class Generator {
public:
  explicit Generator(const std::string &folder) {
    for (int i = 0; i < prepack.num_inputs; ++i)
      weights(folder, prepack.values[i]);
    for (int i = 0; i < prepack.num_results; ++i)
      arrays.emplace(prepack.values[prepack.num_inputs + i].name, Array(prepack.values[prepack.num_inputs + i]));
    call(prepack, arrays);
    for (int i = 0; i < step.num_inputs; ++i) {
      const SaccadeValueType &value = step.values[i];
      if (value.updated_by) // a cache of one sequence
        arrays.emplace(value.name, Array(value, {1, Positions}));
      else if (is(value, "tokens"))
        tokens = &value;
      else if (is(value, "lengths"))
        arrays.emplace(value.name, Array(value, {1}));
      else
        weights(folder, value);
    }
    const SaccadeValueType &result = step.values[step.num_inputs];
    logits = &arrays.emplace(result.name, Array(result, {1})).first->second;
  }

  /// Appends tokens, and returns the logits of the next one.
  const float *append(const std::vector<std::int64_t> &next) {
    arrays.erase(tokens->name);
    Array &given = arrays.emplace(tokens->name, Array(*tokens, {1, std::int64_t(next.size())})).first->second;
    std::copy(next.begin(), next.end(), given.as<std::int64_t>());
    call(step, arrays);
    *arrays.at("lengths").as<std::int32_t>() += std::int32_t(next.size());
    return logits->as<float>();
  }
  std::size_t numTokens() const { return logits->size() / sizeof(float); }

private:
  static bool is(const SaccadeValueType &value, const char *name) { return !std::strcmp(value.name, name); }
  void weights(const std::string &folder, const SaccadeValueType &value) {
    if (!arrays.count(value.name))
      arrays.emplace(value.name, readNpy(folder + "/model." + value.name + ".npy", value));
  }

  const SaccadeEntry &step = __saccade_entry_main, &prepack = __saccade_entry_main__prepack;
  Arrays arrays;
  const SaccadeValueType *tokens = nullptr;
  Array *logits = nullptr;
};

/// A token drawn from the softmax of logits / temperature; the likeliest one at temperature 0.
std::int64_t draw(const float *logits, std::size_t count, double temperature, std::mt19937 &random) {
  std::size_t top = std::max_element(logits, logits + count) - logits;
  if (temperature == 0)
    return std::int64_t(top);
  std::vector<double> weights(count);
  for (std::size_t i = 0; i < count; ++i)
    weights[i] = std::exp((logits[i] - logits[top]) / temperature);
  return std::discrete_distribution<std::int64_t>(weights.begin(), weights.end())(random);
}

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

} // namespace

int main(int argc, char **argv) {
  if (argc < 3 || argc > 6) {
    std::cerr << "usage: generate FOLDER PROMPT [TOKENS [TEMPERATURE [SEED]]]\n";
    return 2;
  }
  std::string prompt = argv[2];
  int count = argc > 3 ? std::atoi(argv[3]) : 200;
  double temperature = argc > 4 ? std::atof(argv[4]) : 0;
  std::mt19937 random(argc > 5 ? std::atoi(argv[5]) : 0);
  try {
    Generator generator(argv[1]);
    std::cout << prompt;
    double start = seconds();
    const float *logits = generator.append({reinterpret_cast<const unsigned char *>(prompt.data()),
                                            reinterpret_cast<const unsigned char *>(prompt.data()) + prompt.size()});
    double middle = seconds();
    for (int i = 0; i < count; ++i) {
      std::int64_t token = draw(logits, generator.numTokens(), temperature, random);
      std::cout << char(token) << std::flush;
      if (i + 1 < count)
        logits = generator.append({token});
    }
    double end = seconds();
    std::cout << "\n";
    std::cerr << prompt.size() / (middle - start) << " tokens/s of the prompt, " << (count - 1) / (end - middle)
              << " tokens/s generated\n";
  } catch (const std::exception &error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
