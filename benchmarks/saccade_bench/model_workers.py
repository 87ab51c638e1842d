"""Contenders of the model benchmark: Saccade from a shared library, ONNX Runtime, OpenVINO, PyTorch eager and compiled."""

import re

import numpy as np

from . import problems
from .artifact import Program
from .model_peers import onnx_model, torch_model
from .model_text import MODELS
from .peaks import Machine
from .workers import Timed

ENTRY = "main"


class Kind:
    """The attributes of a kind that `Program` requires."""

    def __init__(self, type):
        self.type = type


class ModelWorker(Timed):
    """Base of the contenders: `bind` returns a call without arguments and a function that returns its float64 result."""

    def prepack(self, name, type):
        """Makes the input and weights, binds and warms up; seconds of one call."""
        self.model, self.type = MODELS[name], type
        random = np.random.default_rng(5)
        x = random.standard_normal((self.model.batch, self.model.sequence, self.model.width), np.float32)
        self.call, self.result = self.bind(x, self.model.weights())
        return self.fastest(2)

    def timed_run(self):
        """Seconds of a call."""
        return self.fastest(2)

    def output(self):
        return self.result()


def signature(header, function):
    """[(name, is_result, static shape, element type)] of a function in a C header; empty if it has no such function."""
    found = re.search(rf"^/\* {function}\n(.*?)^ \*/", header, re.M | re.S)
    lines = re.findall(r"^ \*   (\w+) +(input|result) +tensor<(.*)x(\w+)>$", found[1] if found else "", re.M)
    return [(name, role == "result", [int(n) for n in shape.split("x") if n != "?"], element)
            for name, role, shape, element in lines]  # fmt: skip


class Ours(ModelWorker):
    """A shared library with its header. Its prepack function, if any, runs in `prepack`, as the packing of the peers
    does."""

    def __init__(self, library, threads):
        self.library = library

    def bind(self, x, weights):
        def stored(array):
            made = problems.aligned_empty(array.shape, problems.NUMPY_TYPES[self.type])
            made[...] = problems.to_bf16(array) if self.type == "bf16" else array
            return made

        output = stored(np.zeros_like(x))
        self.known = {"x": stored(x), **{name: stored(array) for name, array in weights.items()}}
        header, kind = self.library.with_suffix(".h").read_text(), Kind(self.type)
        if values := signature(header, f"{ENTRY}__prepack"):
            made = [(name, problems.aligned_empty(shape, problems.NUMPY_TYPES[element]))
                    for name, is_result, shape, element in values if is_result]  # fmt: skip
            given = [self.known[name] for name, is_result, *_ in values if not is_result]
            Program(self.library, kind, f"{ENTRY}__prepack").bind(given, *(array for _, array in made))()
            self.known.update(made)
        inputs = [self.known[name] for name, is_result, *_ in signature(header, ENTRY) if not is_result]
        call = Program(self.library, kind, ENTRY).bind(inputs, output)
        return call, lambda: problems.to_float64(output)


class Torch(ModelWorker):
    """PyTorch eager, or torch.compile for a static shape."""

    def __init__(self, is_compiled, threads):
        import torch

        torch.set_num_threads(threads)
        self.torch, self.is_compiled = torch, is_compiled

    def bind(self, x, weights):
        torch = self.torch
        run = torch_model(self.model, weights, self.type)
        x = torch.from_numpy(x).to({"f32": torch.float32, "bf16": torch.bfloat16}[self.type])
        if self.is_compiled:
            torch._inductor.config.freezing = True  # treats weights as constants, which inductor may pack
            run = torch.compile(run, dynamic=False, fullgraph=True)
        result = None

        def call():
            nonlocal result
            with torch.inference_mode():
                result = run(x)

        return call, lambda: result.double().numpy()


class OnnxRuntime(ModelWorker):
    def __init__(self, threads):
        import onnxruntime

        self.runtime, self.options = onnxruntime, onnxruntime.SessionOptions()
        self.options.intra_op_num_threads = threads
        self.options.add_session_config_entry("session.force_spinning_stop", "1")

    def bind(self, x, weights):
        model = onnx_model(self.model, weights)
        session = self.runtime.InferenceSession(model, self.options, providers=["CPUExecutionProvider"])
        value = self.runtime.OrtValue.ortvalue_from_numpy
        result = value(np.zeros_like(x))
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", value(x))
        binding.bind_ortvalue_output(session.get_outputs()[0].name, result)
        return (lambda: session.run_with_iobinding(binding)), (lambda: result.numpy().astype(np.float64))


class OpenVINO(ModelWorker):
    """The model in f32 or, if the processor has instructions for it, with bf16 inside."""

    def __init__(self, threads):
        import openvino

        self.runtime, self.options = openvino, {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}

    def bind(self, x, weights):
        core = self.runtime.Core()
        options = {**self.options, "INFERENCE_PRECISION_HINT": self.type}
        compiled = core.compile_model(core.read_model(onnx_model(self.model, weights)), "CPU", options)
        request, result = compiled.create_infer_request(), np.zeros_like(x)
        request.set_input_tensor(self.runtime.Tensor(x, shared_memory=True))
        request.set_output_tensor(self.runtime.Tensor(result, shared_memory=True))
        return request.infer, lambda: result.astype(np.float64)


class PeakWorker:
    """Measures the FLOP peak in the same rounds."""

    def __init__(self, library, threads):
        self.machine = Machine(library, threads)

    def timed_run(self, type):
        return self.machine.peak(type, seconds=0.1)
