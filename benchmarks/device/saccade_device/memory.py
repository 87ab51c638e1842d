"""GPU memory from PyTorch or from the CUDA driver API, with one interface."""

import ctypes


class TorchMemory:
    """Memory of PyTorch's allocator, on the current stream."""

    def __init__(self, torch):
        self.torch, self.kept = torch, {}

    name = property(lambda self: self.torch.cuda.get_device_name(0))
    stream = property(lambda self: self.torch.cuda.current_stream().cuda_stream)

    def _keep(self, tensor):
        self.kept[tensor.data_ptr()] = tensor
        return tensor.data_ptr()

    def put(self, content):
        """Copies bytes to the GPU; the address."""
        return self._keep(self.torch.frombuffer(bytearray(content), dtype=self.torch.uint8).cuda())

    def write(self, address, content):
        """Overwrites an allocation with content of the same size."""
        self.kept[address].copy_(self.torch.frombuffer(bytearray(content), dtype=self.torch.uint8))

    def reserve(self, size):
        """An allocation filled with 0xFF, which is NaN in every floating-point type."""
        return self._keep(self.torch.full((size,), 0xFF, dtype=self.torch.uint8, device="cuda"))

    def get(self, address):
        content = self.kept[address].cpu()
        return ctypes.string_at(content.data_ptr(), content.numel())

    def release(self):
        self.torch.cuda.synchronize()
        self.kept.clear()


class DriverMemory:
    """Memory of the driver API, on the default stream. Raises OSError without a driver, RuntimeError without a GPU."""

    stream = 0

    def __init__(self, path="libcuda.so.1"):
        self.library, self.sizes = ctypes.CDLL(path), {}
        self._call("cuInit", 0)
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self._call("cuCtxSetCurrent", context)

    name = "a GPU, through the driver alone"

    def _call(self, function, *arguments):
        result = getattr(self.library, function)(*arguments)
        if result != 0:
            raise RuntimeError(f"{function} returned CUDA error {result}")

    def _allocate(self, size):
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 16)))
        self.sizes[address.value] = size
        return address.value

    def write(self, address, content):
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), bytes(content), ctypes.c_size_t(len(content)))

    def put(self, content):
        address = self._allocate(len(content))
        self.write(address, content)
        return address

    def reserve(self, size):
        return self.put(b"\xff" * size)

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

    def get(self, address):
        content = ctypes.create_string_buffer(self.sizes[address])
        self._call("cuCtxSynchronize")
        self._call("cuMemcpyDtoH_v2", content, ctypes.c_uint64(address), ctypes.c_size_t(len(content)))
        return content.raw

    def release(self):
        for address in self.sizes:
            self._call("cuMemFree_v2", ctypes.c_uint64(address))
        self.sizes.clear()
