"""torch tensors that say that their memory is on the fake GPU of `gpu_arrays`, for a torch without CUDA."""

import gpu_arrays
import torch

_arrays = {}  # the array on the GPU, and the memory that torch knows, by its address


class OnGPU(torch.Tensor):
    """Has extents, strides and element type of a CPU tensor, but the address of an array on the fake GPU: the same for all
    tensors that share the memory that torch knows."""

    is_cpu, is_cuda, device = False, True, torch.device("cuda:0")

    @property
    def array(self):
        storage = self.untyped_storage()
        if storage.data_ptr() not in _arrays:  # a result of torch's functions
            dtype = str(self.dtype).removeprefix("torch.")
            _arrays[storage.data_ptr()] = gpu_arrays.empty(self.shape, dtype), storage
        return _arrays[storage.data_ptr()][0]

    def data_ptr(self):
        return self.array.memory + self.storage_offset() * self.element_size()

    def get_device(self):
        return 0

    def get(self):
        return self.array.get().reshape(self.shape)


def moved(tensor):
    """A copy on the fake GPU."""
    copy = tensor.detach().clone(memory_format=torch.contiguous_format).as_subclass(OnGPU)
    _arrays[copy.untyped_storage().data_ptr()] = gpu_arrays.asarray(tensor.detach().numpy()), copy.untyped_storage()
    return copy


def located(tensor):
    """The tensor as one on the fake GPU if its memory is there: views and saved results that torch makes of such tensors
    in kernels are of torch's type."""
    return tensor.as_subclass(OnGPU) if tensor.untyped_storage().data_ptr() in _arrays else tensor
