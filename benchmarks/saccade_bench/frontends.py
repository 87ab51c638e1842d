"""Imports PyTorch models through each frontend: a frontend has the program text, its export time and `compile`."""

import contextlib
import io
import pathlib
import time
import warnings

import numpy as np
import torch


def to_numpy(tensor):
    """The tensor as an array; bfloat16 as ml_dtypes.bfloat16."""
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


class Onnx:
    """`torch.onnx.export`, read by `saccade.onnx`."""

    def __init__(self, model, inputs, folder):
        """Exports a model for these inputs to `folder`."""
        from saccade.onnx import read

        path = pathlib.Path(folder, "model.onnx")
        start = time.perf_counter()
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            torch.onnx.export(model, inputs, path, dynamo=True, verbose=False)
        self.seconds = time.perf_counter() - start
        self._program = read(path)
        self.text = self._program.text

    def compile(self):
        """A function from the inputs to the first output, an array."""
        from saccade.onnx import backend

        compiled = backend.Model(self._program)
        return lambda inputs: np.asarray(compiled.run([to_numpy(each) for each in inputs])[0])


class Torch:
    """`torch.export.export`, read by `saccade.torch`."""

    def __init__(self, model, inputs, folder):
        """Exports a model for these inputs."""
        from saccade.torch import read

        start = time.perf_counter()
        with torch.no_grad():
            exported = torch.export.export(model, inputs, strict=False)
        self.seconds = time.perf_counter() - start
        self._program = read(exported, "model")
        self.text = self._program.text

    def compile(self):
        """A function from the inputs to the first output, an array."""
        from saccade.torch import Compiled

        compiled = Compiled(self._program)
        return lambda inputs: compiled(*inputs).float().numpy()


FRONTENDS = {"onnx": Onnx, "torch": Torch}
