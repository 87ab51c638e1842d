"""Expects that programs for a GPU compile on this machine, and that calls, and the target "cuda", are refused with the
words of the argument."""

import ctypes
import sys

import numpy as np
import programs
from gpu_arrays import Array
from programs import refused

import saccade

words = [sys.argv[1]]
if words == ["no driver"]:
    try:
        ctypes.CDLL("libcuda.so.1")
        sys.exit()  # this machine has one
    except OSError:
        pass
q = np.zeros((1, 1, 2, 16), np.float32)
attend = saccade.compile(programs.attention(), target="sm_80").attend
tensors = [Array(0x1000 * (i + 1), q.dtype, q.shape) for i in range(4)]
for _ in range(2):
    refused(NotImplementedError, words, attend, *tensors[:3], out=tensors[3])
    refused(NotImplementedError, words, saccade.compile, programs.attention(), target="cuda")
    refused(NotImplementedError, words, saccade.attention, *tensors[:3], out=tensors[3])
    refused(TypeError, ["q is on cpu, expected cuda"], attend, q, q, q)
assert saccade.attention(q, q, q).shape == q.shape
