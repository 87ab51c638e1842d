//===- Library.hpp - Compiled libraries from C++ -------------------*- C++ -*-===//
//
// Calls the functions of a library written by `saccade-compile --emit=so`. Header-only, C++20; depends on the standard
// library and, for `Library`, on dlopen. docs/guides/calling.md has an example.
//
//   saccade::Tensor<const float, 3> q(queries, {1, 2, 4}), k(keys, {1, 3, 4}), v(values, {1, 3, 4});
//   saccade::Tensor<float, 3> o(output, saccade::shapes<3>(saccade_attend_shapes, q, k, v));
//   saccade::call(saccade_attend, q, k, v, o);
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_C_LIBRARY_HPP
#define SACCADE_C_LIBRARY_HPP

#include "DLTensor.h"
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <dlfcn.h>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace saccade {

/// A refused or failed call, with the message of the library: the function, the argument, what was found and expected.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// 16-bit floats in memory.
struct Float16 {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

/// The DLPack type of elements of type T. Specialise it for other types with the same representation.
template <class T> struct ElementType;
template <class T>
  requires std::integral<T>
struct ElementType<T> {
  static constexpr DLDataType value = {std::uint8_t(std::same_as<T, bool>     ? kDLBool
                                                    : std::signed_integral<T> ? kDLInt
                                                                              : kDLUInt),
                                       8 * sizeof(T), 1};
};
template <class T>
  requires std::same_as<T, float> || std::same_as<T, double>
struct ElementType<T> {
  static constexpr DLDataType value = {kDLFloat, 8 * sizeof(T), 1};
};
template <> struct ElementType<Float16> {
  static constexpr DLDataType value = {kDLFloat, 16, 1};
};
template <> struct ElementType<BFloat16> {
  static constexpr DLDataType value = {kDLBfloat, 16, 1};
};

template <std::size_t Rank> using Extents = std::array<std::int64_t, Rank>;

/// A view of a tensor in memory that it does not own: a pointer to element 0, extents, and strides in elements. T is
/// const for an input that is read only.
template <class T, std::size_t Rank> class Tensor {
public:
  using Element = std::remove_const_t<T>;

  /// Contiguous, row-major memory. On a GPU, `data` is a device pointer and `device` is {kDLCUDA, ordinal}.
  Tensor(T *data, const Extents<Rank> &extents, DLDevice device = cpu())
      : Tensor(data, extents, compact(extents), device) {}
  Tensor(T *data, const Extents<Rank> &extents, const Extents<Rank> &strides, DLDevice device = cpu())
      : first(data), sizes(extents), steps(strides), where(device) {}
  /// Contiguous, row-major elements; throws Error if their number is not the product of the extents.
  Tensor(std::span<T> elements, const Extents<Rank> &extents) : Tensor(elements.data(), extents) {
    if (elements.size() != static_cast<std::size_t>(size()))
      throw Error("found " + std::to_string(elements.size()) + " elements, expected " + std::to_string(size()) +
                  ": the product of the extents");
  }

  operator Tensor<const Element, Rank>() const
    requires(!std::is_const_v<T>)
  {
    return {first, sizes, steps, where};
  }

  T *data() const { return first; }
  const Extents<Rank> &extents() const { return sizes; }
  const Extents<Rank> &strides() const { return steps; }
  DLDevice device() const { return where; }
  /// The number of elements.
  std::int64_t size() const {
    std::int64_t count = 1;
    for (std::int64_t extent : sizes)
      count *= extent;
    return count;
  }

  /// The element at these indices, which are not checked; in CPU memory only.
  template <std::integral... Indices>
    requires(sizeof...(Indices) == Rank)
  T &operator()(Indices... indices) const {
    std::int64_t offset = 0;
    std::size_t i = 0;
    ((offset += static_cast<std::int64_t>(indices) * steps[i++]), ...);
    return first[offset];
  }

  /// The DLPack form, which refers to the extents of this object.
  DLTensor describe() const {
    DLTensor tensor{};
    tensor.data = const_cast<Element *>(first);
    tensor.device = where;
    tensor.ndim = static_cast<std::int32_t>(Rank);
    tensor.dtype = ElementType<Element>::value;
    // The members are not const in DLPack, but calls only read them.
    tensor.shape = const_cast<std::int64_t *>(sizes.data());
    tensor.strides = const_cast<std::int64_t *>(steps.data());
    return tensor;
  }

private:
  static DLDevice cpu() { return {kDLCPU, 0}; }
  static Extents<Rank> compact(const Extents<Rank> &extents) {
    Extents<Rank> strides{};
    std::int64_t step = 1;
    for (std::size_t i = Rank; i-- > 0;) {
      strides[i] = step;
      step *= extents[i];
    }
    return strides;
  }

  T *first;
  Extents<Rank> sizes, steps;
  DLDevice where;
};

namespace detail {

/// A DLTensor that lives until the end of the call.
struct Described {
  DLTensor tensor;
  operator const DLTensor *() const { return &tensor; }
  operator DLTensor *() { return &tensor; }
};

/// Converts an argument to the type of the C function's parameter.
template <class Parameter, class T, std::size_t Rank> Described pass(const Tensor<T, Rank> &tensor) {
  static_assert(std::is_pointer_v<Parameter>, "found a tensor, expected a scalar");
  static_assert(!std::same_as<Parameter, DLTensor *> || !std::is_const_v<T>,
                "a result is a Tensor of const elements, expected one to write to");
  return {tensor.describe()};
}
template <class Parameter, class Number>
  requires std::is_arithmetic_v<Number>
Parameter pass(Number number) {
  static_assert(!std::is_pointer_v<Parameter>, "found a scalar, expected a Tensor");
  static_assert(std::integral<Number> || !std::integral<Parameter>, "found a float, expected an integer");
  return static_cast<Parameter>(number);
}

inline void check(const char *message) {
  if (message)
    throw Error(message);
}

template <class... Parameters, class... Arguments, std::size_t... I>
void findShapes(const char *(*function)(Parameters...), std::int64_t *sizes, std::index_sequence<I...>,
                const std::tuple<Arguments...> &arguments) {
  check(function(pass<std::tuple_element_t<I, std::tuple<Parameters...>>>(std::get<I>(arguments))..., sizes));
}

/// The type of the C parameter for an argument of a `Function`.
template <class T> struct ParameterOf {
  static_assert(std::is_arithmetic_v<T>, "expected a Tensor or a number");
  using type = std::conditional_t<std::integral<T>, std::int64_t, double>;
};
template <class T, std::size_t Rank> struct ParameterOf<Tensor<T, Rank>> {
  using type = std::conditional_t<std::is_const_v<T>, const DLTensor *, DLTensor *>;
};

} // namespace detail

/// Calls a function `saccade_F` of a library with its inputs, then its results, which are memory of the caller. Throws
/// Error.
template <class... Parameters, class... Arguments>
  requires(sizeof...(Parameters) == sizeof...(Arguments))
void call(const char *(*function)(Parameters...), const Arguments &...arguments) {
  detail::check(function(detail::pass<Parameters>(arguments)...));
}

/// The extents of all results of a call with these inputs, from `saccade_F_shapes`: one array for each of the `Ranks`
/// of the results, as a tuple if there are several. Throws Error.
template <std::size_t... Ranks, class... Parameters, class... Arguments>
  requires(sizeof...(Parameters) == sizeof...(Arguments) + 1 && sizeof...(Ranks) > 0)
auto shapes(const char *(*function)(Parameters...), const Arguments &...arguments) {
  std::array<std::int64_t, (Ranks + ... + 1)> sizes{};
  detail::findShapes(function, sizes.data(), std::index_sequence_for<Arguments...>(),
                     std::tuple<const Arguments &...>(arguments...));
  std::tuple<Extents<Ranks>...> result;
  const std::int64_t *next = sizes.data();
  auto take = [&](auto &extents) {
    for (std::int64_t &extent : extents)
      extent = *next++;
  };
  std::apply([&](auto &...extents) { (take(extents), ...); }, result);
  if constexpr (sizeof...(Ranks) == 1)
    return std::get<0>(result);
  else
    return result;
}

template <class Signature> class Function;

/// A typed function, such as Function<void(Tensor<const float, 3>, double, Tensor<float, 3>)>: inputs, then results.
template <class... Arguments> class Function<void(Arguments...)> {
public:
  /// `saccade_F` in C.
  using Pointer = const char *(*)(typename detail::ParameterOf<Arguments>::type...);

  Function(Pointer function) : function(function) {}
  /// Checks the arguments and runs the function. Throws Error.
  void operator()(const Arguments &...arguments) const { call(function, arguments...); }

private:
  Pointer function;
};

/// A library that is loaded at run time. Once one of its functions was called, its code stays in the process.
class Library {
public:
  /// Throws Error if the file cannot be loaded.
  explicit Library(const std::string &path) : handle(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!handle)
      throw Error(dlerror());
  }
  Library(Library &&other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  Library &operator=(Library &&other) noexcept {
    std::swap(handle, other.handle);
    return *this;
  }
  ~Library() {
    if (handle)
      dlclose(handle);
  }

  /// The C function `symbol`, with the type of its prototype: get<decltype(saccade_attend)>("saccade_attend"). Throws
  /// Error if there is none.
  template <class Prototype> Prototype *get(const std::string &symbol) const {
    void *found = dlsym(handle, symbol.c_str());
    if (!found)
      throw Error(dlerror());
    return reinterpret_cast<Prototype *>(found);
  }

  /// The function `name` of the program. The caller is responsible for its signature: void(inputs..., results...).
  template <class Signature> saccade::Function<Signature> function(const std::string &name) const {
    using Pointer = typename saccade::Function<Signature>::Pointer;
    return get<std::remove_pointer_t<Pointer>>("saccade_" + name);
  }

  /// The CPU target whose code the function `name` runs on CPU tensors, such as "v4"; empty if it has none for this
  /// processor.
  std::string target(const std::string &name) const {
    const char *found = get<const char *()>("saccade_" + name + "_target")();
    return found ? found : "";
  }

  /// Limits the calls of all libraries of the process to a CPU target and lower ones; nullptr removes the limit. Throws
  /// Error for an unknown name.
  void setCPULimit(const char *target) const {
    detail::check(get<const char *(const char *)>("saccade_set_cpu_limit")(target));
  }

private:
  void *handle;
};

} // namespace saccade

#endif // SACCADE_C_LIBRARY_HPP
