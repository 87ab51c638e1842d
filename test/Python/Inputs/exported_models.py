"""Small models of `transformers` with random weights, exported by PyTorch and run through `saccade.onnx`."""

import contextlib
import io
import os
import tempfile

import numpy as np
import torch
from small_models import MODELS, inputs_of

import saccade
from saccade.onnx import backend, read


class First(torch.nn.Module):
    """The first output of a model that takes its inputs by name."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs):
        return self.model(**dict(zip(self.names, inputs)), return_dict=False)[0]


def check(name, attention, dynamic, raised):
    """Exports a model, with PyTorch's `attention` (eager, sdpa), all lengths and batches open where `dynamic`; it must
    agree with PyTorch, and `raised` attentions must have been found in it."""
    given = inputs_of(name, 2, 12)
    model = MODELS[name]().eval()
    model.set_attn_implementation(attention)
    model = First(model, list(given))
    shapes = None
    if dynamic:
        any_size = torch.export.Dim.DYNAMIC
        shapes = (tuple(dict.fromkeys(range(2 if each.dim() == 2 else 1), any_size) for each in given.values()),)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        path = os.path.join(folder, f"{name}.onnx")
        torch.onnx.export(model, tuple(given.values()), path, dynamo=True, dynamic_shapes=shapes, verbose=False)
        program = read(path)
    compiled = backend.Model(program)
    found = saccade.compile(program.text).ir("transforms").count("= attn.attention")
    assert found == raised, f"{name}: found {found} attentions, expected {raised}"
    for batch, length in ((2, 12), (3, 29)) if dynamic else ((2, 12),):
        given = tuple(inputs_of(name, batch, length).values())
        with torch.no_grad():
            expected = model(*given).numpy()
        (result,) = compiled.run([each.numpy() for each in given])
        error = np.linalg.norm(result - expected) / np.linalg.norm(expected)
        assert error <= 1e-5, f"{name} {attention}, batch {batch}, length {length}: differs by {error:.2g}"
    print(f"{name} {attention} {'any size' if dynamic else 'one size'}: {found} attentions, differs by {error:.2g}")
