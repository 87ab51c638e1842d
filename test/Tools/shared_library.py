# REQUIRES: numpy
# RUN: %python %s %S/Inputs %t %cxx
"""A shared library is called from C, from C++, through ctypes and through TVM-FFI, by processes without LLVM."""

import ctypes
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np

sys.path.insert(0, sys.argv[1])
from artifact import attention, compile_artifact, expect, finish, plain_call, refused, tensor

inputs, folder = map(pathlib.Path, sys.argv[1:3])
rng = np.random.default_rng(5)


def from_c(compiler):
    """A C program that uses the header only, as C99 and as C++."""
    for standard in ("c99", "c++11"):
        language = "c++" if "+" in standard else "c"
        subprocess.run(
            [
                compiler,
                "-x",
                language,
                f"-std={standard}",
                "-pedantic",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-I.",
                inputs / "artifact.c",
                "-L.",
                "-l:artifact.so",
                "-Wl,-rpath,$ORIGIN,--as-needed",
                "-lm",
                "-o",
                "host",
            ],
            cwd=folder,
            check=True,
        )
        subprocess.run([folder / "host"], check=True)
        if language == "c":
            # Everything the process loads, and everything that asks for.
            loaded = subprocess.run(["ldd", folder / "host"], check=True, capture_output=True, text=True).stdout
            names = {line.split()[0].split("/")[-1] for line in loaded.splitlines()}
            allowed = {"linux-vdso.so.1", "ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "artifact.so"}
            expect(names <= allowed, f"C loads only what the C library is made of, found {sorted(names)}")


def through_ctypes(library):
    """Arrays of any layout, through ctypes."""
    q, k, v = (rng.standard_normal(shape, np.float32) for shape in [(2, 4, 5, 16), (2, 2, 9, 16), (2, 2, 9, 8)])
    expected, lse = attention(q, k, v, 0.3, 7)
    layouts = {
        "compact": lambda x: x,
        "transposed": lambda x: np.ascontiguousarray(x.transpose(2, 0, 3, 1)).transpose(1, 3, 0, 2),
        "reversed": lambda x: x[::-1, ::-1, ::-1, ::-1].copy()[::-1, ::-1, ::-1, ::-1],
        "sliced": lambda x: np.pad(x, 1)[1:-1, 1:-1, 1:-1, 1:-1],
    }
    for name, layout in layouts.items():
        o, l = np.full(expected.shape, np.nan, np.float32), np.full(lse.shape, np.nan, np.float32)
        if name != "reversed":
            o, l = layout(o), l
        message = plain_call(library, "attend", *map(layout, (q, k, v)), 0.3, 7, o, l)
        expect(message is None, f"{name}: {message}")
        np.testing.assert_allclose(o, expected, rtol=1e-5, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(l, lse, rtol=1e-5, atol=1e-6, err_msg=name)

    # Keys and values that both batches share (stride 0), with an offset of one element.
    row = np.concatenate([np.zeros(3, np.float32), k[0].ravel()])
    shared, strides = tensor(row), (ctypes.c_int64 * 4)(0, 9 * 16, 16, 1)
    shape = (ctypes.c_int64 * 4)(2, 2, 9, 16)
    shared.ndim, shared.shape, shared.strides, shared.byte_offset = 4, shape, strides, 12
    o, l = np.empty(expected.shape, np.float32), np.empty(lse.shape, np.float32)
    expect(plain_call(library, "attend", q, shared, v, 0.3, 7, o, l) is None, "a broadcast tensor is taken")
    np.testing.assert_allclose(o, attention(q, np.stack([k[0], k[0]]), v, 0.3, 7)[0], rtol=1e-5, atol=1e-6)

    # Empty tensors have no data; rows without keys are 0.
    nothing = np.empty((0, 4, 5, 16), np.float32)
    none = [np.empty((0,) + x.shape[1:], np.float32) for x in (k, v, o, l)]
    expect(plain_call(library, "attend", nothing, *none[:2], 0.3, 7, *none[2:]) is None, "an empty batch is taken")
    expect(plain_call(library, "attend", q, k, v, 0.3, 0, o, l) is None, "no key is a length")
    expect((o == 0).all() and (l == -np.inf).all(), "rows without keys are 0")


def two_at_once():
    """Functions of equal names in two libraries do not conflict in one scope; the libraries share one runtime."""
    other = folder / "other.mlir"
    other.write_text("""func.func @exponential(%x: tensor<?xf64>) -> tensor<?xf64> {
  %y = math.log %x : tensor<?xf64>
  return %y : tensor<?xf64>
}
func.func @attend_bf16(%q: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %o = attn.attention %q[s,d], %q[s,d], %q[s,d] : (tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  return %o : tensor<?x4xf32>
}
""")
    compile_artifact(other, folder / "other.so")
    first = ctypes.CDLL(str(folder / "artifact.so"), mode=ctypes.RTLD_GLOBAL)
    second = ctypes.CDLL(str(folder / "other.so"), mode=ctypes.RTLD_GLOBAL)
    x = np.array([0.5, 1.0, 7.0])
    for library, function in [(first, np.exp), (second, np.log), (first, np.exp)]:
        y = np.empty(3)
        expect(plain_call(library, "exponential", x, y) is None, "both take an f64 tensor")
        np.testing.assert_allclose(y, function(x), rtol=1e-15)
    hooks = [ctypes.c_void_p.in_dll(library, "saccade_runtime_v1") for library in (first, second)]
    expect(ctypes.addressof(hooks[0]) == ctypes.addressof(hooks[1]), "the runtimes share one symbol")
    expect(hooks[0].value, "the first that ran a task serves both")
    for setter, reader, count in [(first, second, 3), (second, first, 1)]:
        setter.saccade_set_threads(count)
        expect(reader.saccade_threads() == count, "both have one number of threads")


def through_tvm_ffi():
    """NumPy arrays through TVM-FFI; errors are Python exceptions that name the function and the argument."""
    import tvm_ffi

    module = tvm_ffi.load_module(str(folder / "artifact.so"))
    q, k, v = (rng.standard_normal(shape, np.float32) for shape in [(1, 2, 30, 16), (1, 1, 40, 16), (1, 1, 40, 8)])
    expected, lse = attention(q, k, v, 1, 40)
    o, l = np.empty(expected.shape, np.float32), np.empty(lse.shape, np.float32)
    expect(module.attend(q, k, v, 1, 40, o, l) is None, "a call returns None")
    np.testing.assert_allclose(o, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(l, lse, rtol=1e-5, atol=1e-6)
    o[:] = 0
    every_other = np.repeat(k, 2, axis=2)[:, :, ::2]
    module.attend(q, every_other, v[:, :, :], 1.0, 40, o, l)
    np.testing.assert_allclose(o, expected, rtol=1e-5, atol=1e-6)

    refused(TypeError, "attend: argument 'k' (tensor<?x?x?x16xf32>): found element type f64, expected f32",
            module.attend, q, k.astype(np.float64), v, 1.0, 40, o, l)
    refused(TypeError, "argument 'v' (tensor<?x?x?x8xf32>): found 3 dimensions, expected 4",
            module.attend, q, k, v[0], 1.0, 40, o, l)
    refused(TypeError, "argument 'keys' (index): found a float", module.attend, q, k, v, 1.0, 40.0, o, l)
    refused(TypeError, "argument 'factor' (f32): found None", module.attend, q, k, v, None, 40, o, l)
    refused(TypeError, "expected 5 inputs and memory for 2 results", module.attend, q, k, v)
    refused(ValueError, "found extent 8 in dimension 3, expected 16", module.attend, q, v, v, 1.0, 40, o, l)
    refused(ValueError, "attend: ", module.attend, q, k, v[:, :, :-1], 1.0, 40, o, l)
    refused(ValueError, "result 'lse' (tensor<?x?x?xf32>): found extent 29 in dimension 2, expected 30",
            module.attend, q, k, v, 1.0, 40, o, l[:, :, 1:])
    refused(ValueError, "overlaps with argument 'q'", module.attend, q, k, v, 1.0, 40, q[:, :, :, :8], l)
    refused(ValueError, "argument 'sizes' (i32): found 4294967296", module.keywords, o[0, 0, :, 0], True, 2**32, 0, l[0, 0])
    module.attend(q, k, v, True, 40, o, l)  # still well after all those


def main():
    if len(sys.argv) > 4:  # TVM-FFI comes first into this process
        through_tvm_ffi()
        through_ctypes(ctypes.CDLL(str(folder / "artifact.so")))
        return finish()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    compile_artifact(inputs / "artifact.mlir", folder / "artifact.so")
    from_c(sys.argv[3])
    through_ctypes(ctypes.CDLL(str(folder / "artifact.so")))
    two_at_once()
    through_tvm_ffi()
    maps = pathlib.Path("/proc/self/maps").read_text()
    expect("artifact.so" in maps and "LLVM" not in maps and "MLIR" not in maps, "this process has no LLVM")
    subprocess.run([sys.executable, *sys.argv, "TVM-FFI first"], check=True, env=os.environ)
    return finish()


sys.exit(main())
