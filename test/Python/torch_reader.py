"""Exported programs of PyTorch are read without computing anything; what is wrong with one is said with node, operator
and line of Python.

REQUIRES: torch
UNSUPPORTED: asan, tsan
RUN: rm -rf %t && mkdir %t
RUN: %python %s %t
"""

import os
import pathlib
import subprocess
import sys

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import saccade
import saccade.torch
from saccade._command import write_program
from saccade.torch import ExportError, load, read

FOLDER = pathlib.Path(sys.argv[1])
torch.manual_seed(0)


class Small(torch.nn.Module):
    """One of each: a parameter, buffers small and large, a constant, a size, a list with a missing tensor."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(16, 16)
        self.register_buffer("limit", torch.tensor([1.5, -0.0, 1e-40]))
        self.register_buffer("table", torch.randn(9, 16).bfloat16())

    def forward(self, x, rows):
        y = self.inner(x)[:, :, rows] + self.table[:1, rows].float() + self.limit.sum() + torch.tensor(0.25)
        return y.view(x.shape[0] * x.shape[1], -1), x


def export(module, *inputs, **options):
    return torch.export.export(module.eval(), inputs, **options)


dynamic = ({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}, None)
exported = export(Small(), torch.randn(2, 3, 16), torch.tensor([1, 4]), dynamic_shapes=dynamic)

# --- what is written -------------------------------------------------------------------------------------------------

program = read(exported, "small.pt2")
for part in ("%inner_weight: tensor<16x16xf32> {attn.constant}", "%table: tensor<9x16xbf16> {attn.constant}",
             "dense<[0x3FC00000, 0x80000000, 0x000116C2]> : tensor<3xf32>", "dense<0x3E800000> : tensor<f32>",
             'arguments = ["input", "weight", "bias"]', 'arguments = ["self", "indices", "indices", "indices"]',
             '"torch.NoValue"()', f'"{os.path.abspath(__file__)}":', "%x: tensor<?x?x16xf32> {attn.dim_names = ["):
    assert part in program.text, (part, program.text)
assert [value.name for value in program.inputs] == ["x", "rows"]
assert sorted(value.name for value, _ in program.weights) == ["inner.bias", "inner.weight", "table"]
weights = {value.name: weight for value, weight in program.weights}
assert weights["inner.weight"].tensor.data_ptr() == exported.state_dict["inner.weight"].data_ptr(), "a weight is copied"


class Named(torch.nn.Module):
    def forward(self, x, y):
        return x + y


any_size = {0: torch.export.Dim("n"), 1: torch.export.Dim("m")}
text = read(export(Named(), torch.ones(2, 3), torch.ones(2, 3), dynamic_shapes=(any_size, any_size))).text
names = [line.split("]")[0] for line in text.split("attn.dim_names = [")[1:]]
assert len(names) == 2 and names[0] == names[1] and len(set(names[0].split(", "))) == 2, names

# --- nothing is computed ---------------------------------------------------------------------------------------------


class Refusing(TorchDispatchMode):
    """Fails where any op runs."""

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        raise AssertionError(f"the reader computes {op}")


functional = exported.run_decompositions({})
for parameter in functional.state_dict.values():
    parameter.requires_grad_(False)
with Refusing():
    assert read(functional).text
    try:
        torch.ones(2) + 1
    except AssertionError:
        pass
    else:
        raise AssertionError("the mode that refuses ops does not")

# --- what is refused -------------------------------------------------------------------------------------------------


def refused(words, call, error=(ExportError, saccade.CompileError)):
    try:
        call()
    except error as raised:
        for word in words:
            assert word in str(raised), (word, str(raised))
        return
    raise AssertionError(f"not refused: {words}")


class Unknown(torch.nn.Module):
    def forward(self, x):
        return torch.special.bessel_j0(x)


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x + self.calls


class Hidden(torch.nn.Module):
    """Attention with a mask."""

    def forward(self, queries: torch.Tensor, keys: torch.Tensor, sees: torch.Tensor) -> torch.Tensor:
        """Keys are values, too."""
        scores = (queries @ keys.mT).masked_fill(~sees[:, None, None], float("-inf"))
        return scores.softmax(-1) @ keys


class Fixed(torch.nn.Module):
    def forward(self, x, *, scale=2, mask=None):
        return {"y": x * scale, "mask": mask}


class Choosing(torch.nn.Module):
    def forward(self, x, choice):
        return x[choice] if False else x.masked_fill(choice, 0).index_put((choice,), x[0])


here = os.path.abspath(__file__)
x = torch.randn(2, 3)
line = 1 + next(i for i, each in enumerate(open(__file__)) if "bessel_j0" in each)
refused([f"{here}:{line}:", "torch.aten.special_bessel_j0 'special_bessel_j0'", "not supported"],
        lambda: saccade.torch.compile(Unknown(), (x,)))
refused(["mutates 'calls'"], lambda: saccade.torch.compile(Counting(), (x,)))
refused(["complex64", "not supported"], lambda: saccade.torch.compile(Named(), (x.to(torch.complex64), x)))
refused(["uint8", "not supported"], lambda: saccade.torch.compile(Named(), (x.to(torch.uint8), x)))
refused(["index_put", "one mask"], lambda: saccade.torch.compile(Choosing(), (x[:1], x[:1] > 0)))
refused(["dropout", "eval()"], lambda: saccade.torch.compile(torch.nn.Dropout().train(), (x,)))
refused(["Module or an ExportedProgram"], lambda: saccade.torch.compile(lambda y: y, (x,)), TypeError)
refused(["has its arguments"], lambda: saccade.torch.compile(exported, (x,)), TypeError)
refused(["expected a torch.export.ExportedProgram"], lambda: read(Named()), TypeError)

# Calls: trees, numbers and types are those of the export, extents those of one another.
fixed = saccade.torch.compile(Fixed(), (x,), {"scale": 3, "mask": None})
given = fixed(x, mask=None, scale=3)
assert list(given) == ["y", "mask"] and given["mask"] is None and torch.equal(given["y"], x * 3)
refused(["expected 3 as exported"], lambda: fixed(x, scale=2, mask=None), TypeError)
refused(["found the arguments scale, expected scale, mask"], lambda: fixed(x, scale=3), TypeError)
refused(["tree"], lambda: fixed((x, x), scale=3, mask=None), TypeError)
added = saccade.torch.compile(export(Named(), x, x, dynamic_shapes=(any_size, any_size)))
assert torch.equal(added(torch.ones(4, 5), torch.ones(4, 5)), torch.full((4, 5), 2.0))
refused(["has another extent in dimension 1"], lambda: added(torch.ones(4, 5), torch.ones(4, 6)), ValueError)
refused(["found element type f64"], lambda: added(torch.ones(4, 5), torch.ones(4, 5, dtype=torch.float64)), TypeError)

any_length = torch.export.Dim("length", min=2)
# Extents that are equal in the export are so in calls, whatever reads them.
hidden = saccade.torch.compile(Hidden(), (q := torch.randn(2, 3, 5, 8), q, torch.ones(2, 5, dtype=torch.bool)),
                               dynamic_shapes=({2: any_length}, {2: any_length}, {1: any_length}))
keys, sees = torch.randn(2, 3, 7, 8), torch.ones(2, 7, dtype=torch.bool)
# The example was one tensor twice: the arguments are two.
assert torch.allclose(hidden(keys, keys + 1, sees), Hidden()(keys, keys + 1, sees), atol=1e-5)
refused(["argument 'sees' has another extent in dimension 1", "found 8, expected 7"],
        lambda: hidden(keys, keys, torch.ones(2, 8, dtype=torch.bool)), ValueError)

# Two modules of one program have their own weights, which may be shared, transposed and of any strides.
first, second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
second.weight = torch.nn.Parameter(torch.randn(3, 6)[:, ::2].T)
compiled = [saccade.torch.compile(each, (x,)) for each in (first, second)]
for mine, theirs in zip(compiled, (first, second)):
    assert torch.allclose(mine(x), theirs(x), atol=1e-6)

# --- the command -----------------------------------------------------------------------------------------------------


torch.export.save(exported, FOLDER / "small.pt2")
ran = subprocess.run([sys.executable, "-m", "saccade.torch", FOLDER / "small.pt2", "-o", FOLDER / "small.mlir"],
                     capture_output=True, text=True)
assert ran.returncode == 0, ran.stderr
assert "torch.aten.linear" in (FOLDER / "small.mlir").read_text()
assert np.array_equal(np.load(FOLDER / "small.inner_weight.npy"), exported.state_dict["inner.weight"].detach().numpy())
assert np.load(FOLDER / "small.table.npy").dtype == np.uint16
(FOLDER / "cut.pt2").write_bytes((FOLDER / "small.pt2").read_bytes()[:1000])
before = sorted(os.listdir(FOLDER))
for code, *arguments in [(1, "cut.pt2", "-o", "none.mlir"), (3, "gone.pt2", "-o", "none.mlir"),
                         (3, "small.pt2", "-o", "no/folder.mlir")]:
    sys.argv = ["torch", *(argument if argument == "-o" else str(FOLDER / argument) for argument in arguments)]
    assert write_program("saccade.torch", "a model", lambda path: read(load(path), path), ExportError) == code, arguments
assert sorted(os.listdir(FOLDER)) == before, "something half written was left"
