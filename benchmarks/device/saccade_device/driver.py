"""The CUDA driver API through ctypes: memory, streams, events and graphs of the first GPU."""

import ctypes

# Attributes of cuDeviceGetAttribute.
MAJOR, MINOR, MULTIPROCESSORS = 75, 76, 16


class Driver:
    """A stream in the primary context. Raises OSError without a driver, RuntimeError for an error of the driver.

    Addresses are integers. Memory lasts until `release`.
    """

    def __init__(self, path="libcuda.so.1"):
        self.library, self.sizes = ctypes.CDLL(path), {}
        self._call("cuInit", 0)
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self._call("cuCtxSetCurrent", context)
        self.stream = self.new_stream()

    def _call(self, function, *arguments):
        result = getattr(self.library, function)(*arguments)
        if result != 0:
            name = ctypes.c_char_p()
            self.library.cuGetErrorName(result, ctypes.byref(name))
            raise RuntimeError(f"{function} returned {name.value.decode() if name.value else f'error {result}'}")

    def describe(self):
        """Properties of the GPU: name, capability ("9.0"), multiprocessors, version of the driver."""
        name, value = ctypes.create_string_buffer(256), ctypes.c_int()
        self._call("cuDeviceGetName", name, 256, 0)

        def attribute(number):
            self._call("cuDeviceGetAttribute", ctypes.byref(value), number, 0)
            return value.value

        capability, processors = f"{attribute(MAJOR)}.{attribute(MINOR)}", attribute(MULTIPROCESSORS)
        self._call("cuDriverGetVersion", ctypes.byref(value))
        return {"name": name.value.decode(), "capability": capability, "multiprocessors": processors,
                "driver": f"{value.value // 1000}.{value.value % 1000 // 10}"}

    # --- memory -------------------------------------------------------------------------------------------------------

    def allocate(self, size):
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 16)))
        self.sizes[address.value] = size
        return address.value

    def write(self, address, content):
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), bytes(content), ctypes.c_size_t(len(content)))

    def put(self, content):
        """Copies bytes to new memory; its address."""
        address = self.allocate(len(content))
        self.write(address, content)
        return address

    def reserve(self, size):
        """New memory filled with 0xFF, which is NaN in every floating-point type."""
        return self.put(b"\xff" * size)

    def get(self, address, size=None):
        """The bytes at an address, all of the allocation by default, after everything launched before."""
        content = ctypes.create_string_buffer(self.sizes[address] if size is None else size)
        self.synchronize()
        self._call("cuMemcpyDtoH_v2", content, ctypes.c_uint64(address), ctypes.c_size_t(len(content)))
        return content.raw

    def copy(self, to, address, size):
        """Copies memory of the GPU on the stream."""
        self._call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(to), ctypes.c_uint64(address), ctypes.c_size_t(size),
                   ctypes.c_void_p(self.stream))

    def release(self):
        for address in self.sizes:
            self._call("cuMemFree_v2", ctypes.c_uint64(address))
        self.sizes.clear()

    # --- streams, events, graphs --------------------------------------------------------------------------------------

    def synchronize(self):
        self._call("cuCtxSynchronize")

    def new_stream(self):
        stream = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(stream), 0)
        return stream.value

    def as_graph(self, function):
        """A function that replays what `function` launches on the stream as a CUDA graph."""
        stream, graph, executable = ctypes.c_void_p(self.stream), ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuStreamBeginCapture_v2", stream, 0)
        try:
            function()
        finally:
            self._call("cuStreamEndCapture", stream, ctypes.byref(graph))
        self._call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_uint64(0))
        self._call("cuGraphDestroy", graph)
        return lambda: self._call("cuGraphLaunch", executable, stream)

    def milliseconds(self, function, count=1):
        """The time of a call of `function` on the stream, the mean of `count` calls after another one."""
        stream, events = ctypes.c_void_p(self.stream), []
        for _ in range(2):
            events.append(ctypes.c_void_p())
            self._call("cuEventCreate", ctypes.byref(events[-1]), 0)
        function()  # keeps the GPU busy until the first event is recorded
        self._call("cuEventRecord", events[0], stream)
        for _ in range(count):
            function()
        self._call("cuEventRecord", events[1], stream)
        self._call("cuEventSynchronize", events[1])
        elapsed = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(elapsed), *events)
        for event in events:
            self._call("cuEventDestroy_v2", event)
        return max(elapsed.value / count, 1e-6)

    # --- kernels ------------------------------------------------------------------------------------------------------

    def load(self, ptx):
        """Loads a PTX module."""
        module = ctypes.c_void_p()
        self._call("cuModuleLoadDataEx", ctypes.byref(module), ptx.encode() + b"\0", 0, None, None)
        return module

    def launch(self, module, name, parameters, threads):
        """Launches one block; `parameters` is the parameter buffer."""
        kernel, size = ctypes.c_void_p(), ctypes.c_size_t(len(parameters))
        self._call("cuModuleGetFunction", ctypes.byref(kernel), module, name.encode())
        content = ctypes.create_string_buffer(parameters, len(parameters))
        extra = (ctypes.c_void_p * 5)(1, ctypes.cast(content, ctypes.c_void_p), 2,
                                      ctypes.cast(ctypes.byref(size), ctypes.c_void_p), None)
        self._call("cuLaunchKernel", kernel, 1, 1, 1, threads, 1, 1, 0, None, None, extra)
