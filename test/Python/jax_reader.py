"""What saccade.jax reads, keeps and refuses: trees of arguments, arguments that nobody reads, constants, files, errors.
Importing saccade imports no JAX, and the reader computes nothing.

REQUIRES: numpy, jax
RUN: rm -rf %t && mkdir %t
RUN: %python %s %t %src/docs/guides/jax.md
"""

import pathlib
import re
import subprocess
import sys

script = "import saccade, sys; assert not {'jax', 'jaxlib', 'numpy'} & set(sys.modules)"
subprocess.run([sys.executable, "-c", script], check=True)

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.extend.core import Primitive

import saccade.jax

folder = pathlib.Path(sys.argv[1])
X = jnp.arange(12, dtype=jnp.float32).reshape(3, 4)
S = jax.ShapeDtypeStruct


def refuses(kind, part, call, *args, **named):
    try:
        call(*args, **named)
    except kind as error:
        assert part in str(error), f"{error}\nwanted '{part}'"
        return
    raise AssertionError(f"nothing was refused, expected '{part}'")


# Trees go in and come out; what nobody reads is an argument all the same; numbers of Python have the type they had.
def trees(p, unread, n):
    return {"a": (p["x"] + n, [p["y"]]), "b": p["x"].sum()}


args = ({"x": X, "y": X > 3}, X[0], 2)
f = saccade.jax.compile(trees, *args)
found = f(*args)
assert jax.tree.structure(found) == jax.tree.structure(trees(*args))
jax.tree.map(np.testing.assert_array_equal, found, trees(*args))
assert repr(f).startswith("<saccade.jax.Compiled main("), f
assert f.program.inputs[0].path == "[0][0]['x']", f.program.inputs[0]
refuses(TypeError, "expected PyTreeDef", f, args[0])
refuses(TypeError, "argument [0][0]['x'] is of int32, expected float32", f, {"x": X.astype(jnp.int32), "y": X > 3}, X[0],
        2)
refuses(ValueError, "", f, {"x": X[:2], "y": X > 3}, X[0], 2)
refuses(TypeError, "outside of jit", jax.jit(f), *args)
refuses(TypeError, "found a int, expected a function", saccade.jax.compile, 3)

# What jit has made is taken, too, whatever it dropped.
jitted = saccade.jax.compile(jax.jit(trees), *args)
jax.tree.map(np.testing.assert_array_equal, jitted(*args), trees(*args))
refuses(saccade.jax.LoweringError, "JAX dropped 1 of 4 arguments", saccade.jax.read, jax.jit(trees).lower(*args))
refuses(TypeError, "found a function, expected jax.jit(f).lower(...)", saccade.jax.read, trees)

# Large constants are arrays beside the program.
table = np.random.default_rng(0).standard_normal((40, 4)).astype(np.float32)
short = jnp.asarray(table, jnp.bfloat16)
whole = saccade.jax.compile(lambda i: (jnp.asarray(table)[i], short[i], jnp.arange(3.0) * 2), jnp.asarray([1, 39]))
assert [c.shape for c in whole.program.constants] == [(40, 4)] * 2 and "attn.constant" in whole.program.text
for got, expected in zip(whole(jnp.asarray([1, 39])), (table[[1, 39]], short[jnp.asarray([1, 39])], [0, 2, 4])):
    np.testing.assert_array_equal(np.float32(got), np.float32(expected))

# Files: an export, its program, its constants; nothing half written.
n, = export.symbolic_shape("n")
exported = export.export(jax.jit(lambda x: jnp.tanh(x) @ table), platforms=["cpu"])(S((n, 40), jnp.float32))
(folder / "f.jax").write_bytes(exported.serialize())
command = [sys.executable, "-m", "saccade.jax"]
done = subprocess.run([*command, folder / "f.jax", "-o", folder / "f.mlir"], capture_output=True, text=True)
assert done.returncode == 0 and done.stdout.split() == [str(folder / "f.constant_0.npy"), str(folder / "f.mlir")], done
y = np.random.default_rng(1).standard_normal((5, 40)).astype(np.float32)
given = saccade.compile(folder / "f.mlir").main(y, np.load(folder / "f.constant_0.npy"))
np.testing.assert_allclose(given, np.tanh(y) @ table, rtol=1e-5, atol=1e-5)
for name, data in {"empty": b"", "other": b"MLIR" * 9, "cut": exported.serialize()[:900]}.items():
    (folder / name).write_bytes(data)
    done = subprocess.run([*command, folder / name, "-o", folder / "no.mlir"], capture_output=True, text=True)
    assert done.returncode == 1 and "not an exported JAX function" in done.stderr, (name, done)
    assert not list(folder.glob("no*")), name
assert subprocess.run([*command, folder / "none", "-o", folder / "no.mlir"], capture_output=True).returncode == 3
refuses(saccade.jax.LoweringError, "lowered for tpu, expected cpu alone", saccade.jax.read,
        export.export(jax.jit(jnp.sin), platforms=["tpu"])(X))

# The page's example runs.
page = pathlib.Path(sys.argv[2]).read_text()
exec(re.search(r"```python\n(.*?)```", page, re.S)[1], {})

# What is not supported is named, with the line of Python that it comes from.
refuses(saccade.CompileError, "complex<f32>", saccade.jax.compile, lambda x: jnp.fft.fft(x).real, X)
refuses(saccade.CompileError, "stablehlo.sort", saccade.jax.compile, lambda x: jnp.sort(x), X)
refuses(saccade.CompileError, "jax_reader.py", saccade.jax.compile, lambda x: x.astype(jnp.uint32) + 1, X)
refuses(saccade.CompileError, "the trip count must be constant", saccade.jax.compile,
        lambda x: jax.lax.while_loop(lambda c: c.sum() < 100, lambda c: c * 2, x), X)

refuses(saccade.CompileError, "complex<f32>", saccade.jax.compile, lambda x: (x + 1j).real, X)

# Open extents are as the function was lowered for, also where only their symbols say so.
scope = export.SymbolicScope()
n, twice, more = export.symbolic_shape("n, 2*n, n+1", scope=scope)
hanging = saccade.jax.compile(lambda x, y, z: x[:x.shape[0] // 2] + y.sum() + z[0], S((twice, 4), jnp.float32),
                              S((n,), jnp.float32), S((more,), jnp.float32))
ones = [jnp.ones((8, 4)), jnp.ones(4), jnp.ones(5)]
for _ in range(2):
    np.testing.assert_array_equal(hanging(*ones), np.full((4, 4), 6))
refuses(ValueError, "Division had remainder 1", hanging, jnp.ones((7, 4)), *ones[1:])
refuses(ValueError, "Found inconsistency between dimension size args[2].shape[0] (= 7)", hanging, *ones[:2],
        jnp.ones(7))
refuses(ValueError, "Found inconsistency between dimension size", hanging, ones[0], jnp.ones(3), ones[2])
refuses(ValueError, "Expected value >= 1 for dimension variable 'n'", hanging, jnp.ones((0, 4)), jnp.ones(0),
        jnp.ones(1))

# Options are those of saccade.compile; a program is read without computing.
refuses(TypeError, "no option 'speed'", saccade.jax.compile, trees, *args, speed=True)
lowered = jax.jit(lambda x: jnp.tanh(x @ x.T) + np.linspace(0, 1, 100, dtype=np.float32)[:3], keep_unused=True).lower(X)


def fail(*_, **__):
    raise AssertionError("the reader computes")


for module, name in ((jax.stages.Lowered, "compile"), (Primitive, "bind"), (np, "matmul"), (np, "tanh"), (np, "add"),
                     (np, "multiply")):
    setattr(module, name, fail)
assert saccade.jax.read(lowered).text.count("stablehlo.tanh") == 1
print("all is read and refused")
