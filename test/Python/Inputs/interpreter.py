"""Programs of frontends evaluated by the reference interpreter, without code generation (test/Support/Interpreter)."""

import ctypes
import functools
import os
import pathlib

import ml_dtypes
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[3]
TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "i1": np.bool_,
         "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}  # fmt: skip


class Refused(Exception):
    """The program was refused; the message has the diagnostics."""


class _Argument(ctypes.Structure):
    _fields_ = [("rank", ctypes.c_int64), ("extents", ctypes.POINTER(ctypes.c_int64)), ("elements", ctypes.c_void_p)]


@functools.cache
def _library():
    build = pathlib.Path(os.environ.get("SACCADE_BUILD", ROOT / "build" / "dev"))
    path = build / "test" / "Support" / "libSaccadeInterpreter.so"
    if not path.exists() and "SACCADE_CHECKS_WHEEL" in os.environ:  # `./dev wheel --check`
        import pytest

        pytest.skip("the interpreter links LLVM, which this system has not")
    library = ctypes.CDLL(str(path))
    pointer, size, text, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_int64
    for name, result, arguments in [
        ("interpret", pointer, [text, size, ctypes.POINTER(_Argument), size]),
        ("outcome_free", None, [pointer]), ("outcome_message", text, [pointer]), ("outcome_size", size, [pointer]),
        ("outcome_type", text, [pointer, size]), ("outcome_rank", number, [pointer, size]),
        ("outcome_extents", ctypes.POINTER(number), [pointer, size]), ("outcome_elements", pointer, [pointer, size]),
    ]:  # fmt: skip
        function = getattr(library, f"saccade_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def interpret(text: str, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The results of the only public function of a program. Raises Refused."""
    library, kept, arguments = _library(), [], []
    for each in inputs:
        is_real = each.dtype.kind == "f" or each.dtype == ml_dtypes.bfloat16
        wide = np.ascontiguousarray(each, np.float64 if is_real else np.int64)
        kept += [wide, (ctypes.c_int64 * each.ndim)(*each.shape)]
        arguments.append(_Argument(each.ndim, kept[-1], wide.ctypes.data))
    source = text.encode()
    outcome = library.saccade_interpret(source, len(source), (_Argument * len(arguments))(*arguments), len(arguments))
    try:
        if message := library.saccade_outcome_message(outcome):
            raise Refused(message.decode())
        return [_result(library, outcome, i) for i in range(library.saccade_outcome_size(outcome))]
    finally:
        library.saccade_outcome_free(outcome)


def _result(library, outcome, i):
    dtype = np.dtype(TYPES[library.saccade_outcome_type(outcome, i).decode()])
    shape = library.saccade_outcome_extents(outcome, i)[: library.saccade_outcome_rank(outcome, i)]
    count = int(np.prod(shape, dtype=np.int64))
    wide = np.zeros(count, np.int64 if dtype.kind in "ib" else np.float64)
    if count:
        ctypes.memmove(wide.ctypes.data, library.saccade_outcome_elements(outcome, i), 8 * count)
    return wide.astype(dtype).reshape(shape)


_TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-5, "float64": 1e-10}


def difference(found: np.ndarray, expected: np.ndarray) -> str:
    """How a result differs from the expected one; empty if they agree."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return f"found {found.dtype}{list(found.shape)}, expected {expected.dtype}{list(expected.shape)}"
    if expected.dtype.kind in "iub":
        return "" if np.array_equal(found, expected) else f"found {found.tolist()}, expected {expected.tolist()}"
    limit = _TOLERANCE[expected.dtype.name]
    x, y = found.astype(np.float64), expected.astype(np.float64)
    if np.allclose(x, y, rtol=limit, atol=limit, equal_nan=True):
        return ""
    return f"found {x.tolist()}, expected {y.tolist()}"
