"""torch tensors that say that their memory is on the fake GPU of `gpu_arrays`, for a torch without CUDA."""

import gpu_arrays
import torch


class OnGPU(torch.Tensor):
    """Has extents, strides and element type of a CPU tensor, but the address of an array on the fake GPU."""

    is_cpu, is_cuda, device = False, True, torch.device("cuda:0")

    def data_ptr(self):
        if not hasattr(self, "array"):  # a result of torch's functions
            self.array = gpu_arrays.empty(self.shape, str(self.dtype).removeprefix("torch."))
        return self.array.memory

    def get_device(self):
        return 0

    def get(self):
        return self.array.get()


def moved(tensor):
    """A copy on the fake GPU."""
    copy = tensor.contiguous().as_subclass(OnGPU)
    copy.array = gpu_arrays.asarray(tensor.numpy())
    return copy
