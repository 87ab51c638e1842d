# REQUIRES: numpy, ml_dtypes
# RUN: rm -rf %t && mkdir %t
# RUN: saccade-compile %src/test/Execution/bf16-pairs.mlir --emit=so --target=v4-bf16,v4-amx -o %t/two.so
# RUN: saccade-compile %src/test/Execution/bf16-pairs.mlir --emit=so --target=v4-amx -o %t/one.so
# RUN: saccade-compile %src/test/Execution/bf16-pairs.mlir --emit=so --target=portable -o %t/portable.so
# RUN: %python %s %t early && %python %s %t late
"""Tile registers need a permission of Linux, which makes alternate signal stacks of 8 KiB too small. A call that may use
them requests it. Linux refuses it to a process with such a stack, and calls then run the code of the target below."""

import ctypes
import pathlib
import sys

import ml_dtypes
import numpy as np

import saccade


class Stack(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]


def set_small_stack():
    """Whether the system accepts a stack of 8 KiB."""
    return ctypes.CDLL(None).sigaltstack(ctypes.byref(Stack(ctypes.addressof(memory), 0, len(memory))), None) == 0


folder, order = pathlib.Path(sys.argv[1]), sys.argv[2]
memory = ctypes.create_string_buffer(8192)
q, k = (np.ones((rows, 16), ml_dtypes.bfloat16) for rows in (5, 9))
has_tiles = "amx_bf16" in pathlib.Path("/proc/cpuinfo").read_text()


def load(name):
    return saccade.load(folder / f"{name}.so")


if order == "early":
    assert set_small_stack()
    two = load("two")
    assert two.target != "v4-amx"
    if has_tiles:
        try:
            load("one").a_sharp_row_is_its_value(q, k, k)
        except NotImplementedError as error:
            assert "an alternate signal stack may be too small" in str(error), error
        else:
            raise AssertionError("not refused")
else:
    # Code without tile registers does not ask.
    load("portable").a_sharp_row_is_its_value(q, k, k)
    saccade.compile("func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> { return %x : tensor<?xf32> }", target="portable")
    assert set_small_stack()
    assert ctypes.CDLL(None).sigaltstack(ctypes.byref(Stack(None, 2, 0)), None) == 0  # SS_DISABLE
    two = load("two")
    assert not has_tiles or two.target == "v4-amx"
if two.target:
    np.testing.assert_array_equal(np.asarray(two.a_sharp_row_is_its_value(q, k, k), "f4"), 1)
