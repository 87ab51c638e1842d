"""Exported programs of PyTorch are read without computing anything. What is wrong with one is reported with node,
operator and line of Python."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("torch")

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import saccade
import saccade.torch
from saccade._command import write_program
from saccade.torch import ExportError, load, read
from saccade.torch.operators import is_known

HERE = os.path.abspath(__file__)
torch.manual_seed(0)
x = torch.randn(2, 3)


def any_size():
    """Two open extents; arguments that are given the same pair have equal extents."""
    return {0: torch.export.Dim("n"), 1: torch.export.Dim("m")}


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


class Named(torch.nn.Module):
    def forward(self, x, y):
        return x + y


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


class Refusing(TorchDispatchMode):
    """Fails where any op runs."""

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        raise AssertionError(f"the reader computes {op}")


def export(module, *inputs, **options):
    return torch.export.export(module.eval(), inputs, **options)


def refused(words, call, error=(ExportError, saccade.CompileError)):
    with pytest.raises(error) as raised:
        call()
    for word in words:
        assert word in str(raised.value)


@pytest.fixture(scope="module")
def exported():
    torch.manual_seed(0)
    dynamic = ({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}, None)
    return export(Small(), torch.randn(2, 3, 16), torch.tensor([1, 4]), dynamic_shapes=dynamic)


@pytest.fixture(scope="module")
def program(exported):
    return read(exported, "small.pt2")


# --- What is written.


@pytest.mark.parametrize("part", [
    pytest.param("%inner_weight: tensor<16x16xf32> {attn.constant}", id="parameter"),
    pytest.param("%table: tensor<9x16xbf16> {attn.constant}", id="buffer"),
    pytest.param("dense<[0x3FC00000, 0x80000000, 0x000116C2]> : tensor<3xf32>", id="small buffer"),
    pytest.param("dense<0x3E800000> : tensor<f32>", id="constant"),
    pytest.param('arguments = ["input", "weight", "bias"]', id="arguments"),
    pytest.param('arguments = ["self", "indices", "indices", "indices"]', id="list"),
    pytest.param('"torch.NoValue"()', id="missing tensor"),
    pytest.param(f'"{HERE}":', id="location"),
    pytest.param("%x: tensor<?x?x16xf32> {attn.dim_names = [", id="names of extents"),
])  # fmt: skip
def test_program_has(program, part):
    assert part in program.text


def test_inputs_and_weights_have_the_names_of_the_module(program):
    assert [value.name for value in program.inputs] == ["x", "rows"]
    assert sorted(value.name for value, _ in program.weights) == ["inner.bias", "inner.weight", "table"]


def test_weights_are_not_copied(program, exported):
    weights = {value.name: weight for value, weight in program.weights}
    assert weights["inner.weight"].tensor.data_ptr() == exported.state_dict["inner.weight"].data_ptr()


def test_equal_extents_have_one_name():
    sizes = any_size()
    text = read(export(Named(), torch.ones(2, 3), torch.ones(2, 3), dynamic_shapes=(sizes, sizes))).text
    names = [line.split("]")[0] for line in text.split("attn.dim_names = [")[1:]]
    assert len(names) == 2
    assert names[0] == names[1]
    assert len(set(names[0].split(", "))) == 2


def test_reader_computes_nothing(exported):
    functional = exported.run_decompositions({})
    for parameter in functional.state_dict.values():
        parameter.requires_grad_(False)
    with Refusing():
        assert read(functional).text
        with pytest.raises(AssertionError, match="the reader computes"):
            torch.ones(2) + 1


class WithModes(torch.nn.Module):
    """The export has a higher-order op for each mode, which calls a subgraph."""

    def forward(self, x):
        with torch.no_grad():
            y = x * 2
        with torch.enable_grad():
            return y + 1


def test_higher_order_ops_are_decomposed():
    exported = torch.export.export(WithModes(), (x,))
    assert any(node.op == "get_attr" for node in exported.graph.nodes)
    torch.testing.assert_close(saccade.torch.compile(exported)(x), x * 2 + 1)


class Activations(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.mish(x) + torch.nn.functional.gelu(x, approximate="tanh")


def test_operators_that_the_compiler_lacks_are_decomposed():
    exported = torch.export.export(Activations(), (x,))
    assert {is_known(node.target) for node in exported.graph.nodes if node.op == "call_function"} == {True, False}
    torch.testing.assert_close(saccade.torch.compile(exported)(x), Activations()(x), rtol=1e-5, atol=1e-5)


# --- What is refused.


@pytest.mark.parametrize(("words", "module", "inputs"), [
    pytest.param(["mutates 'calls'"], Counting, (x,), id="mutation"),
    pytest.param(["complex64", "not supported"], Named, (x.to(torch.complex64), x), id="complex"),
    pytest.param(["uint8", "not supported"], Named, (x.to(torch.uint8), x), id="uint8"),
    pytest.param(["index_put", "a mask selects"], Choosing, (x[:1], x[:1] > 0), id="index_put"),
    pytest.param(["dropout", "eval()"], lambda: torch.nn.Dropout().train(), (x,), id="dropout"),
])  # fmt: skip
def test_unsupported_module_is_refused(words, module, inputs):
    refused(words, lambda: saccade.torch.compile(module(), inputs))


def test_unknown_operator_is_refused_at_its_line():
    lines = pathlib.Path(HERE).read_text().splitlines()
    line = 1 + next(i for i, each in enumerate(lines) if "bessel_j0" in each)
    refused([f"{HERE}:{line}:", "torch.aten.special_bessel_j0 'special_bessel_j0'", "not supported"],
            lambda: saccade.torch.compile(Unknown(), (x,)))  # fmt: skip


class UnknownInside(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Unknown()

    def forward(self, x):
        return self.inner(x) + 1


def test_unknown_operator_is_refused_at_the_line_of_the_innermost_module():
    program = read(torch.export.export(UnknownInside(), (x,)))
    (line,) = [line for line in program.text.splitlines() if "bessel" in line]
    number = int(re.search(rf'"{re.escape(HERE)}":(\d+):0', line)[1])
    assert "bessel_j0" in pathlib.Path(HERE).read_text().splitlines()[number - 1]


def test_thing_that_is_no_module_is_refused(exported):
    refused(["Module or an ExportedProgram"], lambda: saccade.torch.compile(lambda y: y, (x,)), TypeError)
    refused(["has its arguments"], lambda: saccade.torch.compile(exported, (x,)), TypeError)
    refused(["expected a torch.export.ExportedProgram"], lambda: read(Named()), TypeError)


# --- Calls: trees, numbers and types are those of the export, extents those of one another.


@pytest.fixture(scope="module")
def fixed():
    return saccade.torch.compile(Fixed(), (x,), {"scale": 3, "mask": None})


@pytest.fixture(scope="module")
def added():
    sizes = any_size()
    return saccade.torch.compile(export(Named(), x, x, dynamic_shapes=(sizes, sizes)))


@pytest.fixture(scope="module")
def hidden():
    length = torch.export.Dim("length", min=2)
    # The example is one tensor twice; the arguments are two.
    q = torch.randn(2, 3, 5, 8)
    return saccade.torch.compile(Hidden(), (q, q, torch.ones(2, 5, dtype=torch.bool)),
                                 dynamic_shapes=({2: length}, {2: length}, {1: length}))  # fmt: skip


def test_result_has_the_tree_of_the_export(fixed):
    given = fixed(x, mask=None, scale=3)
    assert list(given) == ["y", "mask"]
    assert given["mask"] is None
    assert torch.equal(given["y"], x * 3)


def test_other_numbers_and_trees_than_exported_are_refused(fixed):
    refused(["expected 3 as exported"], lambda: fixed(x, scale=2, mask=None), TypeError)
    refused(["found the arguments 1 positional, scale=, expected 1 positional and 2 by name: x, scale=, mask="], lambda: fixed(x, scale=3), TypeError)
    refused(["args[0] is a tuple of 2, expected a tensor (x)"], lambda: fixed((x, x), scale=3, mask=None), TypeError)


class Returning(torch.nn.Module):
    def forward(self, x):
        return {"a": (3, x + 1), "b": [None, 2.5, x * 2], "c": "text", "d": True}


def test_results_that_are_no_tensors_are_those_of_the_export():
    found = saccade.torch.compile(Returning(), (x,))(2 * x)
    assert {**found, "a": found["a"][0], "b": found["b"][:2]} == {"a": 3, "b": [None, 2.5], "c": "text", "d": True}
    assert torch.equal(found["a"][1], 2 * x + 1)
    assert torch.equal(found["b"][2], 4 * x)


def test_open_extents_take_another_size(added):
    assert torch.equal(added(torch.ones(4, 5), torch.ones(4, 5)), torch.full((4, 5), 2.0))


def test_unequal_extents_and_other_types_are_refused(added):
    refused(["has another extent in dimension 1"], lambda: added(torch.ones(4, 5), torch.ones(4, 6)), ValueError)
    refused(["found element type f64"], lambda: added(torch.ones(4, 5), torch.ones(4, 5, dtype=torch.float64)),
            TypeError)  # fmt: skip


def test_one_example_for_two_arguments_does_not_join_them(hidden):
    keys, sees = torch.randn(2, 3, 7, 8), torch.ones(2, 7, dtype=torch.bool)
    assert torch.allclose(hidden(keys, keys + 1, sees), Hidden()(keys, keys + 1, sees), atol=1e-5)


def test_extents_equal_in_the_export_must_be_equal_in_calls(hidden):
    keys = torch.randn(2, 3, 7, 8)
    refused(["argument 'sees' has another extent in dimension 1", "found 8, expected 7"],
            lambda: hidden(keys, keys, torch.ones(2, 8, dtype=torch.bool)), ValueError)  # fmt: skip


def test_two_modules_of_one_program_keep_their_own_weights():
    # Weights may be transposed and of any strides.
    first, second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    second.weight = torch.nn.Parameter(torch.randn(3, 6)[:, ::2].T)
    compiled = [saccade.torch.compile(each, (x,)) for each in (first, second)]
    for found, expected in zip(compiled, (first, second)):
        assert torch.allclose(found(x), expected(x), atol=1e-6)


# --- The command.


@pytest.fixture
def saved(exported, tmp_path):
    path = tmp_path / "small.pt2"
    torch.export.save(exported, path)
    return path


def test_command_writes_the_program_and_its_weights(exported, saved, tmp_path):
    done = subprocess.run([sys.executable, "-m", "saccade.torch", saved, "-o", tmp_path / "small.mlir"],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "torch.aten.linear" in (tmp_path / "small.mlir").read_text()
    weight = exported.state_dict["inner.weight"].detach().numpy()
    assert np.array_equal(np.load(tmp_path / "small.inner_weight.npy"), weight)
    assert np.load(tmp_path / "small.table.npy").dtype == np.uint16


@pytest.mark.parametrize(("code", "source", "target"), [
    pytest.param(1, "cut.pt2", "none.mlir", id="cut"), pytest.param(3, "gone.pt2", "none.mlir", id="gone"),
    pytest.param(3, "small.pt2", "no/folder.mlir", id="no folder"),
])  # fmt: skip
def test_command_that_fails_leaves_nothing(saved, tmp_path, monkeypatch, code, source, target):
    (tmp_path / "cut.pt2").write_bytes(saved.read_bytes()[:1000])
    before = sorted(os.listdir(tmp_path))
    monkeypatch.setattr(sys, "argv", ["torch", str(tmp_path / source), "-o", str(tmp_path / target)])
    assert write_program("saccade.torch", "a model", lambda path: read(load(path), path), ExportError) == code
    assert sorted(os.listdir(tmp_path)) == before, "something half written was left"
