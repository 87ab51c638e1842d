"""Memory for caches of keys and values."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Sequence

import torch

_LARGE_PAGE = 2 << 20


def cache(*shape: int | Sequence[int], dtype: torch.dtype = torch.float32,
          device: torch.device | str = "cpu") -> torch.Tensor:
    """A tensor of zeros for a cache or a pool of pages, in large pages of memory (2 MiB) on Linux.

    A step of decoding reads all of a cache. In pages of 4 KiB, the processor looks up an address in tables of the
    kernel once a page, and does not fetch lines ahead over the end of one. Memory is taken when it is first written, on
    the NUMA node of the thread that writes it. Where the system has no large pages, or on another device, the result is
    that of `torch.zeros`.

    Args:
        shape: the extents, as for `torch.zeros`.
        dtype: the element type; any of PyTorch's.
        device: where the tensor is.

    Raises:
        RuntimeError: an extent is negative.
        TypeError: an extent is no integer.
        MemoryError: the system refuses the address space.

    Example:
        >>> keys, values = saccade.torch.cache(2, 1000, 16, 8, 128, dtype=torch.bfloat16)  # 1000 pages of 16 positions
    """
    given = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    # PyTorch tests the extents, and words what is wrong.
    extents = torch.empty(given, dtype=dtype, device="meta").shape
    size = extents.numel() * dtype.itemsize
    if torch.device(device).type != "cpu" or size < _LARGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(extents, dtype=dtype, device=device)
    try:
        memory = mmap.mmap(-1, size + _LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"a cache of {size} bytes: {error.strerror}") from None
    # A kernel without large pages gives small ones.
    with contextlib.suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    piece = torch.frombuffer(memory, dtype=torch.uint8)
    first = -piece.data_ptr() % _LARGE_PAGE
    return piece[first : first + size].view(dtype).view(extents)
