//===- Simulate.cpp - Calls on a simulated GPU --------------------------------===//
//
// The host code runs natively on addresses of the simulated memory, and the simulator interprets the kernels that it
// launches. Every call runs twice: asynchronous copies complete as late, then as early as PTX allows.
//
//===----------------------------------------------------------------------===//
#include "Simulate.h"
#include "saccade/JIT/KernelRunner.h"
#include "saccade/PtxSim/PtxSim.h"
#include "saccade/PtxSim/TensorMap.h"
#include <thread>

using namespace saccade;
using namespace saccade::run;

namespace {

/// Runs launches on the PTX simulator.
class Simulator : public KernelRunner {
public:
  Simulator(ptxsim::AsyncMode mode, const Simulation &how) : mode(mode), how(how) {}

  llvm::Error load(llvm::StringRef ptx) {
    auto loaded = ptxsim::Program::load(ptx, memory);
    if (auto *finding = std::get_if<ptxsim::Finding>(&loaded))
      return llvm::createStringError(finding->str());
    program.emplace(std::move(std::get<ptxsim::Program>(loaded)));
    return llvm::Error::success();
  }

  void launch(llvm::StringRef name, llvm::ArrayRef<int64_t> params, int64_t ctas, int64_t threads,
              int64_t sharedBytes) override {
    if (finding || ctas == 0)
      return;
    ptxsim::Launch launch;
    launch.grid = {static_cast<uint32_t>(ctas), 1, 1};
    launch.block = {static_cast<uint32_t>(threads), 1, 1};
    launch.dynamicShared = static_cast<uint32_t>(sharedBytes);
    ptxsim::Parameters parameters;
    for (int64_t param : params)
      parameters.add(param);
    launch.parameters = std::move(parameters.bytes);
    launch.async = mode;
    launch.checkGlobalRaces = how.checksGlobalRaces;
    if (how.arithmetic == Arithmetic::Hardware) {
      launch.mma = ptxsim::MmaMode::Hardware;
      launch.approximations = ptxsim::Approximations::Noisy;
    }
    launch.threads = std::max(1u, std::thread::hardware_concurrency());
    ptxsim::Report report = program->run(name, launch);
    finding = report.finding;
    if (finding)
      failed = name.str();
    Launched &launched = launches[name.str()];
    launched.ctas += ctas;
    launched.instructions += report.instructions;
    launched.matrixProducts += report.matrixProducts;
    memory.endLaunch();
  }
  bool encode(const runtime::BulkTensor &tensor, void *map) override {
    ptxsim::TiledTensor tiled;
    tiled.type = static_cast<ptxsim::TensorType>(tensor.type);
    tiled.rank = tensor.rank;
    tiled.address = tensor.address;
    llvm::copy(tensor.extents, tiled.extents.begin());
    llvm::copy(tensor.strides, tiled.strides.begin());
    llvm::copy(tensor.box, tiled.box.begin());
    tiled.swizzle = static_cast<ptxsim::TensorSwizzle>(tensor.swizzle);
    auto encoded = ptxsim::encodeTiled(tiled);
    if (auto *made = std::get_if<ptxsim::TensorMap>(&encoded))
      memcpy(map, made->bytes.data(), made->bytes.size());
    return encoded.index() == 0;
  }
  void *findConstant(llvm::StringRef name) override {
    if (std::optional<uint64_t> found = program->variable(name))
      return pointer(*found);
    if (!finding)
      finding = {ptxsim::FindingKind::BadLaunch, 0, "", "the kernels have no constant '" + name.str() + "'"};
    return nullptr;
  }
  void *allocate(int64_t bytes) override { return pointer(memory.allocate(static_cast<uint64_t>(bytes), "temporary")); }
  void release(void *buffer) override { (void)memory.release(address(buffer)); }
  void *allocateCounter() override {
    constexpr uint8_t zero[sizeof(uint32_t)] = {};
    return pointer(memory.allocate(zero, "counter"));
  }
  int64_t multiprocessors() override { return how.multiprocessors; }

  /// Copies a tensor to the device; at least 16 bytes, so that an empty tensor has a valid address.
  void *copyToDevice(const HostTensor &tensor, llvm::StringRef name) {
    std::vector<uint8_t> bytes(tensor.data(), tensor.data() + tensor.bytes());
    bytes.resize(std::max<size_t>(bytes.size(), 16));
    return pointer(memory.allocate(bytes, name.str()));
  }
  /// Allocates uninitialised memory for a result.
  void *reserve(const HostTensor &tensor, llvm::StringRef name) {
    return pointer(memory.allocate(std::max<uint64_t>(tensor.bytes(), 16), name.str()));
  }
  /// Copies a result to the host. Fails if a byte of it was not written.
  llvm::Error copyToHost(void *from, HostTensor &to, llvm::StringRef name) {
    auto size = static_cast<uint64_t>(to.bytes());
    if (uint64_t missing = memory.undefinedBytes(address(from), size))
      return llvm::createStringError("kernels left " + llvm::Twine(missing) + " of " + llvm::Twine(size) +
                                     " bytes of result '" + name + "' unwritten");
    if (size && !memory.read(address(from), {reinterpret_cast<uint8_t *>(to.data()), size}))
      return llvm::createStringError("result '" + name + "' cannot be read from the device");
    return llvm::Error::success();
  }

  std::optional<ptxsim::Finding> finding; ///< the first finding of a launch
  std::string failed;                     ///< the kernel that it is of
  Launches launches;

private:
  static void *pointer(uint64_t address) { return reinterpret_cast<void *>(address); }
  static uint64_t address(void *pointer) { return reinterpret_cast<uint64_t>(pointer); }

  ptxsim::AsyncMode mode;
  Simulation how;
  ptxsim::Device memory;
  std::optional<ptxsim::Program> program;
};

} // namespace

/// Makes the call on a new simulated device with asynchronous copies timed by `mode`.
static llvm::Error simulateOnce(const Call &call, llvm::StringRef ptx, ptxsim::AsyncMode mode, const Simulation &how,
                                llvm::ArrayRef<HostTensor> inputs, llvm::MutableArrayRef<HostTensor> results,
                                Launches &launches) {
  Simulator device(mode, how);
  if (llvm::Error error = device.load(ptx))
    return error;
  Call onDevice = call;
  for (auto [type, tensor, buffer] : llvm::zip_equal(call.entry.arguments, inputs, onDevice.inputs))
    if (type.isTensor)
      buffer.data = device.copyToDevice(tensor, type.name);
  for (auto [place, tensor] : llvm::zip_equal(call.results, results))
    if (place >= inputs.size())
      onDevice.buffer(place).data = device.reserve(tensor, call.entry.value(place).name);
  {
    ScopedKernelRunner use(device);
    if (llvm::Error error = call.executable.call(call.entry, onDevice.inputs, onDevice.outputs))
      return error;
  }
  launches = device.launches;
  if (device.finding)
    return llvm::createStringError("kernel '" + device.failed + "': " + device.finding->str());
  for (auto [place, tensor] : llvm::zip_equal(call.results, results))
    if (llvm::Error error = device.copyToHost(onDevice.buffer(place).data, tensor, call.entry.value(place).name))
      return error;
  return llvm::Error::success();
}

llvm::Error run::simulate(const Call &call, llvm::StringRef ptx, const Simulation &how,
                          llvm::ArrayRef<HostTensor> inputs, llvm::MutableArrayRef<HostTensor> results,
                          Launches &launches) {
  if (llvm::Error error = simulateOnce(call, ptx, ptxsim::AsyncMode::Late, how, inputs, results, launches))
    return error;
  std::vector<std::string> late;
  for (const HostTensor &result : results)
    late.emplace_back(result.data(), result.bytes());
  if (llvm::Error error = simulateOnce(call, ptx, ptxsim::AsyncMode::Early, how, inputs, results, launches))
    return error;
  for (auto [place, result, before] : llvm::zip_equal(call.results, results, late))
    if (llvm::StringRef(result.data(), result.bytes()) != before)
      return llvm::createStringError("result '" + call.entry.value(place).name +
                                     "' depends on the timing of asynchronous copies or the order of warps");
  return llvm::Error::success();
}
