"""Attention under masks: what is computed, by whom, and how long it takes them. Workers live in processes of their own."""

import pathlib
import time

import numpy as np

from .memory import status
from .workers import Worker

HEADS, DEPTH, DOCUMENTS = 8, 64, 64
WINDOW = 512
TYPES = ("f32", "bf16")
# Largest difference of two results, whose elements are less than normal.
TOLERANCE = {"f32": 2e-5, "bf16": 3e-2}


def document_ids(length, count=DOCUMENTS):
    """The document of each token: `count` random ones, one behind the other."""
    random = np.random.default_rng(5)
    cuts = np.sort(random.choice(np.arange(1, length), count - 1, replace=False))
    return np.repeat(np.arange(count, dtype=np.int32), np.diff([0, *cuts, length]))


def library(length):
    """{name: mask} for this many tokens, of saccade.masks."""
    from saccade import masks

    ids = document_ids(length)
    side = int(length**0.5)
    return {
        "full": None,
        "causal": masks.causal(),
        "window 512": masks.window(WINDOW - 1),
        "64 documents": masks.documents(ids),
        "64 documents, causal": masks.documents(ids) & masks.causal(),
        "longformer": masks.longformer(WINDOW // 2, 16),
        "bigbird": masks.bigbird(length, 64),
        "swin": masks.swin(side, side, 8, 4),
        "neighbourhood": masks.neighborhood((side, side), 7),
    }


class MaskWorker(Worker):
    """Base: the same inputs for everybody, as torch tensors [1, heads, length, depth]."""

    package = "torch"

    def __init__(self, threads):
        import torch

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.torch = torch

    def inputs_of(self, length, type):
        generator = self.torch.Generator().manual_seed(7)
        element = {"f32": self.torch.float32, "bf16": self.torch.bfloat16}[type]
        return [self.torch.randn(1, HEADS, length, DEPTH, generator=generator).to(element) for _ in range(3)]

    def prepare(self, name, length, type):
        """Warms up; (the seconds of a call, what is outside of it)."""
        self.notes, self.result = {}, None
        function = self.function(name, length, self.inputs_of(length, type))

        def call():
            self.result = function()

        self.call = call
        return min(self.timed() for _ in range(3)), self.notes

    def sample(self):
        """Some rows of the last result."""
        return self.result[0, :, :: self.result.shape[2] // 16].float().numpy()


class OurMasks(MaskWorker):
    name = "saccade"

    def function(self, name, length, inputs):
        import saccade

        mask, output = library(length)[name], self.torch.empty_like(inputs[0])
        with self.outside_timing("first call"):
            saccade.attention(*inputs, mask=mask, out=output)
        return lambda: saccade.attention(*inputs, mask=mask, out=output)


class FlexMasks(MaskWorker):
    """FlexAttention, compiled; the block mask and the compilation are told apart from a call."""

    name = "flex"

    def function(self, name, length, inputs):
        from torch.nn.attention import flex_attention as flex

        ids = self.torch.from_numpy(document_ids(length))
        sees = {"causal": lambda b, h, i, j: j <= i, "window 512": lambda b, h, i, j: (j <= i) & (i - j < WINDOW),
                "64 documents": lambda b, h, i, j: ids[i] == ids[j]}[name]  # fmt: skip
        make = lambda: flex.create_block_mask(sees, None, None, length, length, device="cpu")
        make()
        with self.outside_timing("block mask"):
            block_mask = make()
        self.torch.compiler.reset()
        compiled = self.torch.compile(flex.flex_attention, dynamic=False, fullgraph=True)
        with self.outside_timing("first call"):
            compiled(*inputs, block_mask=block_mask)
        return lambda: compiled(*inputs, block_mask=block_mask)


class MaskBuilding:
    """What a mask costs by itself: a call in which every tile is tested and found empty, for a flag says so that is known
    at run time only. Head size 1, so that there is hardly an output to be filled with zeros."""

    def __init__(self, threads):
        import torch

        torch.set_num_threads(threads)

    def measure(self, name, length):
        """(seconds of a warm call, bytes that a call needs beyond its inputs and output)"""
        import saccade

        flag = np.zeros((), bool)
        mask = library(length)[name] & (lambda b, h, i, j: flag[()])
        inputs = [np.zeros((1, 1, length, 1), np.float32) for _ in range(3)]
        output = np.zeros_like(inputs[0])
        call = lambda: saccade.attention(*inputs, mask=mask, out=output)
        small = [array[:, :, :64] for array in inputs]
        saccade.attention(*small, mask=mask)
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak falls back to what is resident now
        before = status("VmHWM")
        call()
        needed = status("VmHWM") - before
        times = []
        for _ in range(21):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return sorted(times)[len(times) // 2], needed
