# REQUIRES: qemu, numpy
# RUN: rm -rf %t && mkdir %t
# RUN: saccade-compile %src/test/Tools/Inputs/attention.mlir --emit=so --target=portable,v3,v4 -o %t/all.so
# RUN: saccade-compile %src/test/Tools/Inputs/attention.mlir --emit=so --target=v3,v4 -o %t/new.so
# RUN: qemu-x86_64 -cpu max,-avx512f %python %s %t v3 v3
# RUN: qemu-x86_64 -cpu max,-avx2 %python %s %t portable None
"""On emulated processors without AVX-512 and without AVX2: the target of compiled programs, and of libraries with and
without code for every processor."""

import pathlib
import sys

import numpy as np

import saccade

folder, best, best_of_new = sys.argv[1:]
module = saccade.compile("""func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {
  %sum = arith.addf %x, %x : tensor<?xf32>
  return %sum : tensor<?xf32>
}""")
x = np.arange(9, dtype=np.float32)
np.testing.assert_array_equal(module.f(x), x + x)
text = module.ir("asm")
assert ("ymm" in text) == (best == "v3") and "zmm" not in text, text
for target in ("v3", "v3-int8", "v4", "v4-bf16", "v4-amx"):
    if target == best:
        continue
    try:
        saccade.compile("func.func @f() { return }", target=target)
    except NotImplementedError as error:
        assert f"this machine cannot run code for target '{target}'" in str(error)
    else:
        raise AssertionError(f"{target} was not refused")

q = np.random.default_rng(1).standard_normal((2, 5, 64), dtype=np.float32)
weights = np.exp(np.einsum("hsd,htd->hst", q, q) / 8)
expected = np.einsum("hst,htd->hsd", weights / weights.sum(-1, keepdims=True), q)
for name, target in (("all", best), ("new", best_of_new)):
    library = saccade.load(pathlib.Path(folder, f"{name}.so"))
    assert str(library.target) == target, (name, library.target)
    if library.target:
        np.testing.assert_allclose(library.attend(q, q, q), expected, rtol=1e-4, atol=1e-5)
        continue
    try:
        library.attend(q, q, q)
    except NotImplementedError as error:
        assert "compiled for target v3" in str(error), error
    else:
        raise AssertionError("a call without code for the processor was not refused")
