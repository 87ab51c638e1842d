"""Helpers of the tests of shared libraries."""

import ctypes
import subprocess

import numpy as np


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


failures = 0


def expect(holds, what):
    global failures
    if not holds:
        print("does not hold:", what, flush=True)
        failures += 1


def finish():
    return 1 if failures else 0


def refused(kind, words, function, *arguments):
    """Expects that the call raises `kind` with `words` in its message."""
    try:
        function(*arguments)
    except kind as error:
        expect(words in str(error), f"found '{error}', expected '{words}'")
    else:
        expect(False, f"a call that is not accepted: {words}")


def compile_artifact(program, library, *options):
    subprocess.run(["saccade-compile", program, "--emit=so", "-o", library, *options], check=True)


def tensor(array):
    """A DLTensor of an array, which keeps the memory it points to alive."""
    codes = {"i": 0, "u": 1, "f": 2, "b": 6}
    ints = ctypes.c_int64 * max(array.ndim, 1)
    return DLTensor(array.ctypes.data, 1, 0, array.ndim, codes[array.dtype.kind], 8 * array.itemsize, 1,
                    ints(*array.shape), ints(*(stride // array.itemsize for stride in array.strides)), 0)


def plain_call(library, name, *arguments):
    """Calls saccade_<name> through its C wrapper and returns its message."""
    function = getattr(library, "saccade_" + name)
    function.restype = ctypes.c_char_p
    values = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            argument = tensor(argument)
        if isinstance(argument, DLTensor):
            values.append(ctypes.byref(argument))
        else:
            values.append((ctypes.c_double if isinstance(argument, float) else ctypes.c_int64)(argument))
    message = function(*values)
    return message.decode() if message is not None else None


def attention(q, k, v, scale, length):
    """Output and log-sum-exp in float64: causal with bottom-right alignment within `length` keys, grouped heads."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // k.shape[1], axis=1)[:, :, :length] for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) * scale
    queries = q.shape[2]
    scores[..., np.arange(length)[None] > np.arange(queries)[:, None] + length - queries] = -np.inf
    largest = scores.max(axis=-1, keepdims=True, initial=-1e30)
    weights = np.exp(scores - largest)
    sums = weights.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        return weights / np.maximum(sums, 1e-300) @ v, (np.log(sums) + largest)[..., 0]
