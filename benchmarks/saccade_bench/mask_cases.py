"""Cases and contenders of the mask benchmark. Each worker runs in its own process."""

import pathlib
import time

import numpy as np

from .memory import status
from .workers import Worker

HEADS, DEPTH, DOCUMENTS = 8, 64, 64
WINDOW = 512
TYPES = ("f32", "bf16")
# Maximum absolute difference of two results.
TOLERANCE = {"f32": 2e-5, "bf16": 3e-2}


def document_ids(length, count=DOCUMENTS):
    """The document of each token: `count` documents of random lengths, concatenated."""
    random = np.random.default_rng(5)
    cuts = np.sort(random.choice(np.arange(1, length), count - 1, replace=False))
    return np.repeat(np.arange(count, dtype=np.int32), np.diff([0, *cuts, length]))


def library(length):
    """{name: mask} for a sequence of this length, from saccade.masks."""
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
    """Base of the contenders: equal inputs, torch tensors [1, heads, length, head_dim]."""

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
        """Prepares and warms up; (seconds of a call, {name: seconds} of one-time work)."""
        self.notes, self.result = {}, None
        function = self.function(name, length, self.inputs_of(length, type))

        def call():
            self.result = function()

        self.call = call
        return min(self.timed() for _ in range(3)), self.notes

    def sample(self):
        """Every n-th row of the last result, for comparison."""
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
    """Compiled FlexAttention; block mask and compilation are timed separately."""

    name = "flex"

    def function(self, name, length, inputs):
        from torch.nn.attention import flex_attention as flex

        ids = self.torch.from_numpy(document_ids(length))
        visible = {"causal": lambda b, h, i, j: j <= i, "window 512": lambda b, h, i, j: (j <= i) & (i - j < WINDOW),
                "64 documents": lambda b, h, i, j: ids[i] == ids[j]}[name]  # fmt: skip
        make = lambda: flex.create_block_mask(visible, None, None, length, length, device="cpu")
        make()
        with self.outside_timing("block mask"):
            block_mask = make()
        self.torch.compiler.reset()
        compiled = self.torch.compile(flex.flex_attention, dynamic=False, fullgraph=True)
        with self.outside_timing("first call"):
            compiled(*inputs, block_mask=block_mask)
        return lambda: compiled(*inputs, block_mask=block_mask)


class MaskBuilding:
    """Cost of a mask alone: a run-time flag makes every tile empty, so that a call only tests the tiles. head_dim is 1,
    which makes the zero fill of the output negligible."""

    def __init__(self, threads):
        import torch

        torch.set_num_threads(threads)

    def measure(self, name, length):
        """(seconds of a warm call, bytes of a call beyond its inputs and output)."""
        import saccade

        flag = np.zeros((), bool)
        mask = library(length)[name] & (lambda b, h, i, j: flag[()])
        inputs = [np.zeros((1, 1, length, 1), np.float32) for _ in range(3)]
        output = np.zeros_like(inputs[0])
        call = lambda: saccade.attention(*inputs, mask=mask, out=output)
        small = [array[:, :, :64] for array in inputs]
        saccade.attention(*small, mask=mask)
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM to the resident size
        before = status("VmHWM")
        call()
        needed = status("VmHWM") - before
        times = []
        for _ in range(21):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return sorted(times)[len(times) // 2], needed
