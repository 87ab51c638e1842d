"""Handwritten kernels for fixed shapes, from a folder outside the repository, as a reference for attainable speed.

The folder has the modules final (prefill), decode and gemm. Each builds a library for a shape, whose `run` takes the
addresses of the inputs and the output.
"""

import ctypes
import os
import shutil
import subprocess
import sys

import numpy as np

from . import problems
from .workers import Worker

PREFILL = {"32x12x196x64 full": "a", "16x12x512x64 full": "b", "1x8x8192x64 causal": "c",
           "1x32(8)x2048x128 causal": "d"}
DECODE = ("8x32(8)x1x4096x128 full",)
GEMM = ("6272x768x768 gemm", "6272x768x3072 gemm", "6272x3072x768 gemm")


def shape_of(case):
    return str(case).removesuffix(f" {case.type}")


class HandwrittenKernels(Worker):
    name = "handwritten"

    @staticmethod
    def supports(case):
        return case.type in ("f32", "bf16") and shape_of(case) in (*PREFILL, *DECODE, *GEMM)

    def __init__(self, folder, scratch, threads):
        sys.path.insert(0, str(folder))
        os.environ["OUT"] = str(scratch)
        # clang has no omp.h here, so that of gcc is copied; other headers of gcc must not be found.
        headers = scratch / "include"
        headers.mkdir(parents=True, exist_ok=True)
        found = subprocess.run(["gcc", "-print-file-name=include/omp.h"], capture_output=True, text=True, check=True)
        shutil.copy(found.stdout.strip(), headers)
        os.environ["CPATH"] = str(headers)
        self.threads = ctypes.c_int(threads)

    def bind(self, case, inputs):
        output = problems.make_output(case)
        with self.outside_timing("compilation"):
            if case.kind.operation == "gemm":
                library, inputs, sizes = self.gemm(case, *inputs)
                arrays = [*inputs[:2], output, inputs[2]]
            else:
                library = self.decode(case) if case.is_decode else self.prefill(case)
                arrays, sizes = [*inputs, output], ()
        addresses = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
        numbers = [ctypes.c_long(size) for size in sizes]
        return (lambda _keep=arrays: library.run(*addresses, *numbers, self.threads)), lambda: output

    def prefill(self, case):
        import final

        letter, is_bf16 = PREFILL[shape_of(case)], case.type == "bf16"
        return final.kernel(letter, is_bf16, **final.BEST[letter, int(is_bf16)])[0]

    def decode(self, case):
        import decode

        is_bf16 = case.type == "bf16"
        text = decode.dmodule(is_bf16, KB=1024, PD=8, deg=3 if is_bf16 else 5)
        options = [f"-DES={2 if is_bf16 else 4}", "-mavx512f"]
        return ctypes.CDLL(decode.build(text, f"decode-{case.type}", decode.OUT + "ddrv.c", options, mode="llc")[0])

    def gemm(self, case, lhs, rhs, bias):
        import gemm

        library = gemm.gkernel(bf=case.type == "bf16", apack="direct", pfa=0, NC=768, KC=case.inner)
        width, pair = 16 * library.c.NV, 2 if case.type == "bf16" else 1
        panels = rhs.reshape(case.inner // pair, pair, case.columns // width, width).transpose(2, 0, 3, 1)
        packed = problems.aligned_empty(panels.shape, rhs.dtype)
        packed[...] = panels
        wide = problems.to_float64(bias).astype(np.float32)
        return library, (lhs, packed, wide), (case.outer, case.columns, case.inner)
