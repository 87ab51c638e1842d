"""What saccade.jax reads, keeps and refuses: trees of arguments, unused arguments, constants, files, errors.
Importing saccade does not import JAX, and the reader computes nothing.
"""

import functools
import re
import subprocess
import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp
from jax import export
from jax.extend.core import Primitive
from programs import refused

import saccade.jax

X = jnp.arange(12, dtype=jnp.float32).reshape(3, 4)
S = jax.ShapeDtypeStruct
COMMAND = [sys.executable, "-m", "saccade.jax"]


# --- trees ------------------------------------------------------------------------------------------------------------


def trees(p, unread, n):
    return {"a": (p["x"] + n, [p["y"]]), "b": p["x"].sum()}


ARGS = ({"x": X, "y": X > 3}, X[0], 2)


@pytest.fixture(scope="module")
def compiled():
    """`trees`, with one unused argument and one Python scalar."""
    return saccade.jax.compile(trees, *ARGS)


def test_importing_saccade_imports_no_jax():
    script = "import saccade, sys; assert not {'jax', 'jaxlib', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_trees_go_in_and_come_out(compiled):
    found = compiled(*ARGS)
    assert jax.tree.structure(found) == jax.tree.structure(trees(*ARGS))
    jax.tree.map(np.testing.assert_array_equal, found, trees(*ARGS))


def test_description_names_the_function_and_the_paths_of_its_inputs(compiled):
    assert repr(compiled).startswith("<saccade.jax.Compiled main("), compiled
    assert compiled.program.inputs[0].path == "[0][0]['x']", compiled.program.inputs[0]


REFUSED = {
    "other tree": ((ARGS[0],), TypeError, "expected PyTreeDef"),
    "other type": (({"x": X.astype(jnp.int32), "y": X > 3}, X[0], 2), TypeError,
                   "argument [0][0]['x'] is of int32, expected float32"),
    "other shape": (({"x": X[:2], "y": X > 3}, X[0], 2), ValueError, ""),
}  # fmt: skip


@pytest.mark.parametrize(("args", "exception", "message"), REFUSED.values(), ids=REFUSED)
def test_arguments_unlike_the_examples_are_refused(compiled, args, exception, message):
    refused(exception, [message], compiled, *args)


def test_call_inside_of_jit_is_refused(compiled):
    refused(TypeError, ["outside of jit"], jax.jit(compiled), *ARGS)


def test_what_is_no_function_is_refused():
    refused(TypeError, ["found a int, expected a function"], saccade.jax.compile, 3)


def test_unknown_option_is_refused():
    refused(TypeError, ["no option 'speed'"], saccade.jax.compile, trees, *ARGS, speed=True)


@pytest.mark.parametrize("target", ["sm_80", "cuda:0"])
def test_gpu_targets_are_refused(target):
    refused(ValueError, [f"found target='{target}', expected a CPU target"], saccade.jax.compile, trees, *ARGS,
            target=target)  # fmt: skip


# --- what jit has made ------------------------------------------------------------------------------------------------


def test_function_of_jit_is_compiled_whatever_jit_dropped():
    jitted = saccade.jax.compile(jax.jit(trees), *ARGS)
    jax.tree.map(np.testing.assert_array_equal, jitted(*ARGS), trees(*ARGS))


def test_lowered_function_without_all_arguments_is_refused():
    refused(saccade.jax.LoweringError, ["JAX dropped 1 of 4 arguments"], saccade.jax.read, jax.jit(trees).lower(*ARGS))


def test_function_that_is_not_lowered_is_refused():
    refused(TypeError, ["found a function, expected jax.jit(f).lower(...)"], saccade.jax.read, trees)


def test_reader_computes_nothing(monkeypatch):
    constant = np.linspace(0, 1, 100, dtype=np.float32)[:3]
    lowered = jax.jit(lambda x: jnp.tanh(x @ x.T) + constant, keep_unused=True).lower(X)

    def fail(*_, **__):
        raise AssertionError("the reader computes")

    with monkeypatch.context() as patch:
        for module, name in ((jax.stages.Lowered, "compile"), (Primitive, "bind"), (np, "matmul"), (np, "tanh"),
                             (np, "add"), (np, "multiply")):  # fmt: skip
            patch.setattr(module, name, fail)
        text = saccade.jax.read(lowered).text
    assert text.count("stablehlo.tanh") == 1


# --- constants and files ----------------------------------------------------------------------------------------------

TABLE = np.random.default_rng(0).standard_normal((40, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def exported():
    n, = export.symbolic_shape("n")
    function = jax.jit(lambda x: jnp.tanh(x) @ TABLE)
    return export.export(function, platforms=["cpu"])(S((n, 40), jnp.float32)).serialize()


def test_large_constants_are_arrays_beside_the_program():
    short = jnp.asarray(TABLE, jnp.bfloat16)
    whole = saccade.jax.compile(lambda i: (jnp.asarray(TABLE)[i], short[i], jnp.arange(3.0) * 2), jnp.asarray([1, 39]))
    assert [c.shape for c in whole.program.constants] == [(40, 4)] * 2
    assert "attn.constant" in whole.program.text
    for got, expected in zip(whole(jnp.asarray([1, 39])), (TABLE[[1, 39]], short[jnp.asarray([1, 39])], [0, 2, 4])):
        np.testing.assert_array_equal(np.float32(got), np.float32(expected))


def calling(constant, *called):
    """A function of its own in the program, with a large constant, that calls others."""
    def body(x):
        y = (x @ constant)[:, :4] + constant[0, 4:8]
        return functools.reduce(lambda sum, function: sum + function(sum), called, y)

    return jax.jit(body)


@pytest.mark.parametrize("seed", range(2))
def test_constants_are_those_of_their_function_however_often_it_is_called(seed):
    draw = np.random.default_rng(seed)
    constants = iter(draw.uniform(-0.3, 0.3, (7, 4, 40)).astype(np.float32))
    once, twice, both, inner = (calling(next(constants)) for _ in range(4))
    others = [once, twice, twice, both, calling(next(constants), both, inner), calling(next(constants), inner)]
    order = draw.permutation(len(others))
    whole = lambda x: sum(others[i](x + i) for i in order)
    compiled = saccade.jax.compile(whole, X)
    assert compiled.program.constants
    np.testing.assert_allclose(compiled(X), whole(X), rtol=1e-4, atol=1e-4)


def test_command_writes_the_program_of_an_export_and_its_constants(exported, tmp_path):
    (tmp_path / "f.jax").write_bytes(exported)
    done = subprocess.run([*COMMAND, tmp_path / "f.jax", "-o", tmp_path / "f.mlir"], capture_output=True, text=True)
    assert done.returncode == 0, done
    assert done.stdout.split() == [str(tmp_path / "f.constant_0.npy"), str(tmp_path / "f.mlir")]
    y = np.random.default_rng(1).standard_normal((5, 40)).astype(np.float32)
    given = saccade.compile(tmp_path / "f.mlir").main(y, np.load(tmp_path / "f.constant_0.npy"))
    np.testing.assert_allclose(given, np.tanh(y) @ TABLE, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["empty", "other", "cut"])
def test_file_that_is_no_export_is_refused_and_nothing_is_written(name, exported, tmp_path):
    data = {"empty": b"", "other": b"MLIR" * 9, "cut": exported[:900]}[name]
    (tmp_path / name).write_bytes(data)
    done = subprocess.run([*COMMAND, tmp_path / name, "-o", tmp_path / "no.mlir"], capture_output=True, text=True)
    assert done.returncode == 1, done
    assert "not an exported JAX function" in done.stderr
    assert not list(tmp_path.glob("no*"))


def test_file_that_does_not_exist_gives_code_3(tmp_path):
    done = subprocess.run([*COMMAND, tmp_path / "none", "-o", tmp_path / "no.mlir"], capture_output=True)
    assert done.returncode == 3, done


def test_export_for_another_processor_is_refused():
    refused(saccade.jax.LoweringError, ["lowered for tpu, expected cpu alone"], saccade.jax.read,
            export.export(jax.jit(jnp.sin), platforms=["tpu"])(X))


def test_example_of_the_documentation_runs(root):
    page = (root / "docs/guides/jax.md").read_text()
    exec(re.search(r"```python\n(.*?)```", page, re.S)[1], {})


# --- what is not supported --------------------------------------------------------------------------------------------

UNSUPPORTED = {
    "fft": (lambda x: jnp.fft.fft(x).real, "complex<f32>"),
    "sort": (lambda x: jnp.sort(x), "stablehlo.sort"),
    "unsigned": (lambda x: x.astype(jnp.uint32) + 1, "test_jax_reader.py"),  # the line of Python it comes from
    "open loop": (lambda x: jax.lax.while_loop(lambda c: c.sum() < 100, lambda c: c * 2, x),
                  "the trip count must be constant"),
    "complex": (lambda x: (x + 1j).real, "complex<f32>"),
}  # fmt: skip


@pytest.mark.parametrize(("function", "message"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_what_is_not_supported_is_named(function, message):
    refused(saccade.CompileError, [message], saccade.jax.compile, function, X)


# --- open extents -----------------------------------------------------------------------------------------------------

ONES = [jnp.ones((8, 4)), jnp.ones(4), jnp.ones(5)]


@pytest.fixture(scope="module")
def related():
    """A function of 2n, n and n + 1 rows, whose symbols alone say so."""
    n, twice, more = export.symbolic_shape("n, 2*n, n+1", scope=export.SymbolicScope())
    return saccade.jax.compile(lambda x, y, z: x[:x.shape[0] // 2] + y.sum() + z[0], S((twice, 4), jnp.float32),
                               S((n,), jnp.float32), S((more,), jnp.float32))


def test_open_extents_are_as_the_function_was_lowered_for(related):
    for _ in range(2):
        np.testing.assert_array_equal(related(*ONES), np.full((4, 4), 6))


MISMATCHED = {
    "odd": ([jnp.ones((7, 4)), *ONES[1:]], "Division had remainder 1"),
    "third": ([*ONES[:2], jnp.ones(7)],
              "Found inconsistency between dimension size args[2].shape[0] (= 7)"),
    "second": ([ONES[0], jnp.ones(3), ONES[2]], "Found inconsistency between dimension size"),
    "none": ([jnp.ones((0, 4)), jnp.ones(0), jnp.ones(1)], "Expected value >= 1 for dimension variable 'n'"),
}


@pytest.mark.parametrize(("args", "message"), MISMATCHED.values(), ids=MISMATCHED)
def test_extents_that_do_not_fit_are_refused(related, args, message):
    refused(ValueError, [message], related, *args)
