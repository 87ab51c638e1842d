"""One shared library with code for every CPU target and for GPUs is called from C, C++, NumPy, PyTorch and JAX, and
loaded by `saccade.load`. GPU calls run on the fake GPU of test/Support/FakeCUDA."""

import ctypes
import pathlib
import pickle
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "Tools" / "Inputs"
sys.path.insert(0, str(TOOLS))
import gpu_arrays
import programs
from artifact import attention, plain_call

import saccade


def refused(exception, words, call, *arguments, **named):
    """Asserts that a call raises exactly `exception`, with `words` in its message."""
    programs.refused(exception, [words], call, *arguments, **named)


LEVELS = ("portable", "v3", "v3-int8", "v4", "v4-bf16", "v4-amx")
GPUS = ("sm_75", "sm_80")
random = np.random.default_rng(11)
q, k, v = (random.standard_normal(shape, np.float32) for shape in [(2, 4, 37, 16), (2, 2, 50, 16), (2, 2, 50, 8)])
SCALE, LENGTH = 0.25, 45
expected, expected_lse = attention(q, k, v, SCALE, LENGTH)


def emit(folder, name, *options):
    """Compiles artifact.mlir to a library in a folder of its own, with its header."""
    path = folder / name / "artifact.so"
    path.parent.mkdir()
    subprocess.run(["saccade-compile", TOOLS / "artifact.mlir", "--emit=so", "-o", path, *options], check=True,
                   stderr=subprocess.PIPE)  # fmt: skip
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("artifact")


@pytest.fixture(scope="module")
def path(folder):
    """The library with all targets, which all tests load."""
    return emit(folder, "every", f"--target={','.join(LEVELS + GPUS)}")


@pytest.fixture
def every(path):
    loaded = saccade.load(path)
    yield loaded
    loaded.set_cpu_limit(None)


@pytest.fixture(scope="module")
def host(folder):
    """A library for the highest CPU target of this machine alone, as the compiler detects it."""
    return saccade.load(emit(folder, "host", "--target=host"))


@pytest.fixture(scope="module")
def highest(host):
    return host.targets[0]


def check(o, lse=None):
    np.testing.assert_allclose(np.asarray(o), expected, rtol=1e-5, atol=1e-6)
    if lse is not None:
        np.testing.assert_allclose(np.asarray(lse), expected_lse, rtol=1e-5, atol=1e-6)


# --- targets ----------------------------------------------------------------------------------------------------------


def test_targets_are_listed_and_the_highest_is_chosen(every, highest):
    assert every.targets == (*reversed(LEVELS), *GPUS)
    assert every.target == every.attend.target == highest


def test_results_of_each_level_are_bitwise_those_of_a_library_for_it_alone(folder, every, host, highest):
    import ml_dtypes

    half = [random.standard_normal((rows, 8)).astype(ml_dtypes.bfloat16) for rows in (21, 30, 30)]
    x = random.standard_normal(100)
    for level in LEVELS[: LEVELS.index(highest) + 1]:
        alone = host if level == highest else saccade.load(emit(folder, level, f"--target={level}"))
        every.set_cpu_limit(level)
        if level == "v3-int8" and alone.target is None:
            continue  # a higher target does not have its instruction
        assert every.target == alone.target == level and alone.targets == (level,)
        found, single = ([*each.attend(q, k, v, SCALE, LENGTH), each.attend_bf16(*half), each.exponential(x)]
                         for each in (every, alone))  # fmt: skip
        assert [a.tobytes() for a in found] == [b.tobytes() for b in single], level
        check(*found[:2])


def test_the_next_lower_target_is_chosen_if_one_is_missing(folder, highest):
    some = saccade.load(emit(folder, "some", "--target=v4-bf16,portable"))
    some.set_cpu_limit("v4")
    try:
        assert some.target == "portable"
        check(*some.attend(q, k, v, SCALE, LENGTH))
    finally:
        some.set_cpu_limit(None)
    assert some.target == ("v4-bf16" if highest in ("v4-bf16", "v4-amx") else "portable")


def test_a_library_without_code_for_the_processor_refuses_calls(host, highest):
    if highest == "portable":
        pytest.skip("every target of this machine is within the limit")
    only = host
    only.set_cpu_limit("portable")
    try:
        assert only.target is None
        message = f"attend: compiled for target {highest}, calls are limited to portable"
        refused(NotImplementedError, message, only.attend, q, k, v, SCALE, LENGTH)
        refused(NotImplementedError, message, only.attend.result_shapes, q, k, v, SCALE, LENGTH)
    finally:
        only.set_cpu_limit(None)
    check(*only.attend(q, k, v, SCALE, LENGTH))


def test_an_unknown_limit_is_refused(every):
    refused(ValueError, "found 'avx', expected one of portable, v3, v4, v4-bf16, v4-amx, v3-int8", every.set_cpu_limit, "avx")


@pytest.mark.parametrize(("targets", "words"), [
    ("v3,v3", "names two targets for the same processors: v3 and v3"),
    ("sm_80,v4,sm_80", "names two targets for the same processors: sm_80 and sm_80"),
    ("v3,sm_99", "target 'sm_99' is not supported"),
    ("v3,", "target '' is not supported"),
])  # fmt: skip
def test_wrong_lists_of_targets_are_refused(tmp_path, targets, words):
    done = subprocess.run(["saccade-compile", TOOLS / "artifact.mlir", "--emit=so", "-o", tmp_path / "x.so",
                           f"--target={targets}"], capture_output=True, text=True)  # fmt: skip
    assert done.returncode in (2, 4) and words in done.stderr, done
    assert not list(tmp_path.iterdir())


# --- hosts ------------------------------------------------------------------------------------------------------------


# `./dev wheel --check` runs the tests on a system without a compiler.
requires_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")


@requires_compiler
def test_c_and_cpp_link_the_library(path, build, root):
    cache = (build / "CMakeCache.txt").read_text()
    compiler = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", cache, re.M)[1]
    warnings = ["-pedantic", "-Wall", "-Wextra", "-Werror"]
    link = ["-L.", "-l:artifact.so", "-Wl,-rpath,$ORIGIN", "-lm", "-o", "host"]
    for options in (["-x", "c", "-std=c99", TOOLS / "artifact.c"],
                    ["-std=c++20", f"-I{root / 'include'}", TOOLS / "artifact.cpp"]):  # fmt: skip
        subprocess.run([compiler, *warnings, "-I.", *options, *link], cwd=path.parent, check=True)
        subprocess.run([path.parent / "host", path], check=True)


def test_ctypes(path):
    o, lse = np.empty(expected.shape, np.float32), np.empty(expected_lse.shape, np.float32)
    assert plain_call(ctypes.CDLL(str(path)), "attend", q, k, v, SCALE, LENGTH, o, lse) is None
    check(o, lse)


def test_tvm_ffi_takes_arrays_of_numpy_pytorch_and_jax(path):
    import tvm_ffi

    attend = tvm_ffi.load_module(str(path)).attend
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    for convert in (np.asarray, torch.from_numpy, jax.numpy.asarray):
        o, lse = np.empty(expected.shape, np.float32), np.empty(expected_lse.shape, np.float32)
        attend(*map(convert, (q, k, v)), SCALE, LENGTH, o, lse)
        check(o, lse)


def test_loaded_functions_take_numpy_and_pytorch(every):
    torch = pytest.importorskip("torch")
    check(*every.attend(q, k, v, SCALE, LENGTH))
    check(*every["attend"](q, v=v, k=k, factor=SCALE, keys=LENGTH))
    inputs = [torch.from_numpy(x) for x in (q, k, v)]
    o, lse = every.attend(*inputs, SCALE, LENGTH)
    assert type(o) is type(lse) is torch.Tensor
    check(o, lse)
    out = torch.empty(expected.shape), torch.empty(expected_lse.shape)
    assert every.attend(*inputs, SCALE, LENGTH, out=out) is out
    check(*out)
    every.attend.into(q, k, v, SCALE, LENGTH, *map(np.asarray, out))
    assert every.attend.result_shapes(*inputs, SCALE, LENGTH) == (expected.shape, expected_lse.shape)
    x = torch.ones(3)
    assert every.keywords(x, True, 2, 0).tolist() == [5, 5, 5] and every.keywords(x, False, 2, 0).tolist() == [1, 1, 1]


def test_loaded_functions_describe_themselves(every):
    assert list(every) == ["attend", "attend_bf16", "exponential", "keywords"] and len(every) == 4
    assert every.attend.signature.startswith("attend(q: tensor<?x?x?x16xf32>, ")
    assert every.attend.inputs[3] == saccade.Value("factor", "f32", "float32", None)
    assert every.attend.results[1].shape == (None, None, None)
    assert "keywords" in dir(every) and "nothing" not in every and "for v4-amx, v4-bf16" in repr(every)
    refused(KeyError, "has no function 'nothing'; it has: attend", lambda: every["nothing"])
    refused(AttributeError, "has no function 'nothing'", lambda: every.nothing)
    assert pickle.loads(pickle.dumps(every.attend)).signature == every.attend.signature
    assert list(pickle.loads(pickle.dumps(every))) == list(every)


def test_mistakes_are_the_exceptions_of_a_function(every):
    attend = every.attend
    refused(TypeError, "argument 'k' (tensor<?x?x?x16xf32>): found element type f64, expected f32", attend, q, k.astype(float), v, SCALE, LENGTH)
    refused(ValueError, "found extent 8 in dimension 3, expected 16", attend, q, v, v, SCALE, LENGTH)
    refused(TypeError, "missing: keys", attend, q, k, v, SCALE)
    refused(TypeError, "expected an integer", attend, q, k, v, SCALE, 1.5)
    refused(TypeError, "stream=3, expected None", lambda: attend(q, k, v, SCALE, LENGTH, stream=3))
    refused(TypeError, "has no argument 'keys_'", lambda: attend.bind(keys_=k))


def test_loading_needs_no_compiler(run_script, path):
    run_script("artifact_process.py", path)


def test_two_libraries_the_jit_and_pytorch_share_one_pool(run_script, path, folder, build):
    pytest.importorskip("torch")
    other = shutil.copy(path, folder / "other.so")
    for order in ("jit first", "libraries first", "torch first"):
        run_script("artifact_threads_process.py", path, other, order)


# --- GPUs -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def double(build):
    """The fake driver of a machine with one sm_80."""
    driver = gpu_arrays.start(build)
    driver.set(devices=1, capability=80)
    driver.log()
    yield driver
    driver.set(devices=1, capability=80)


def test_the_device_of_the_tensors_chooses_the_code(every, double):
    on_gpu = [gpu_arrays.asarray(x) for x in (q, k, v)]
    o, lse = every.attend(*on_gpu, SCALE, LENGTH)
    launches = double.called("cuLaunchKernel")
    assert len(launches) == 1 and type(o) is gpu_arrays.Array
    np.testing.assert_allclose(gpu_arrays.asnumpy(o), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gpu_arrays.asnumpy(lse), expected_lse, rtol=1e-4, atol=1e-5)
    check(*every.attend(q, k, v, SCALE, LENGTH))
    assert not double.called("cuLaunchKernel")
    assert every.attend.result_shapes(*on_gpu, SCALE, LENGTH) == (expected.shape, expected_lse.shape)


def test_tensors_of_two_devices_are_refused(every, path, double):
    on_gpu = gpu_arrays.asarray(q)
    refused(TypeError, "k is on cpu, expected cuda", every.attend, on_gpu, k, v, SCALE, LENGTH)
    # The library itself checks it too.
    from gpu import describe

    o, lse = np.empty(expected.shape, np.float32), np.empty(expected_lse.shape, np.float32)
    tensor = describe(on_gpu.memory, q.dtype, q.shape)
    message = plain_call(ctypes.CDLL(str(path)), "attend", tensor, k, v, SCALE, LENGTH, o, lse)
    assert message == "attend: argument 'k' (tensor<?x?x?x16xf32>): on cpu, expected cuda:0"


def test_a_gpu_without_code_for_it_is_refused(path, folder, double):
    double.set(capability=70)
    loaded = saccade.load(shutil.copy(path, folder / "unused.so"))  # has loaded no kernels yet
    inputs = [gpu_arrays.asarray(x) for x in (q, k, v)]
    refused(NotImplementedError, "compiled for sm_75, sm_80, but cuda:0 is sm_70", loaded.attend, *inputs, SCALE, LENGTH)
    check(*loaded.attend(q, k, v, SCALE, LENGTH))


# --- files ------------------------------------------------------------------------------------------------------------


@requires_compiler
def test_foreign_files_are_refused(tmp_path, path, build):
    def load(content, words):
        (tmp_path / "x.so").write_bytes(content)
        refused(ValueError, words, saccade.load, tmp_path / "x.so")

    load(b"", "no ELF file")
    load(b"#!/bin/sh\n", "no ELF file")
    load(b"\x7fELF", "an incomplete ELF file of 4 bytes")
    content = path.read_bytes()
    load(content[:18] + b"\xb7" + content[19:], "a shared library for AArch64, expected one for x86-64, the architecture of this machine")
    load(content[:18] + b"\xf3" + content[19:], "no shared library for x86-64")  # RISC-V
    refused(FileNotFoundError, "nowhere.so", saccade.load, tmp_path / "nowhere.so")
    refused(IsADirectoryError, "", saccade.load, tmp_path)
    # A library whose constructor would end this process.
    source = tmp_path / "other.c"
    source.write_text("#include <stdlib.h>\n__attribute__((constructor)) static void end(void) { _Exit(9); }\n")
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", tmp_path / "other.so"], check=True)
    load((tmp_path / "other.so").read_bytes(), "a shared library of another compiler")


def test_incomplete_and_changed_files_are_refused(tmp_path, path):
    content, target = path.read_bytes(), tmp_path / "x.so"
    for length in (*range(1, 1000, 111), *range(1000, len(content), len(content) // 50), len(content) - 1):
        target.write_bytes(content[:length])
        refused(ValueError, "x.so", saccade.load, target)
    target.write_bytes(content + b"\0")
    refused(ValueError, "it is incomplete or was changed", saccade.load, target)
    places = [*range(0, 1024, 37), *np.random.default_rng(5).integers(0, len(content), 200)]
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        target.write_bytes(changed)
        # A header that says something else may make it a foreign or an incomplete file.
        refused(ValueError, "x.so", saccade.load, target)


def test_a_library_of_another_version_is_refused(tmp_path, path):
    content, target = bytearray(path.read_bytes()), tmp_path / "x.so"
    content[content.index(b"Saccade\0\1\0\0\0") + 12] += 1  # the version of the tables
    target.write_bytes(content)
    refused(ValueError, r"compiled for version 1.6 of the runtime, expected 1.5: compile it again", saccade.load, target)
