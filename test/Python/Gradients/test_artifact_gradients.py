"""One shared library with the forward and the gradient function for CPU targets and GPU architectures. GPU calls run on the
fake GPU of test/Support/FakeCUDA."""

import subprocess

import gpu_arrays
import numpy as np
import pytest

import saccade

PROGRAM = """
func.func @attend(%q: tensor<?x?x16xf32>, %k: tensor<?x?x16xf32>, %v: tensor<?x?x8xf32>, %slope: tensor<?xf32>)
    -> tensor<?x?x8xf32> attributes {attn.gradient} {
  %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] captures(%slope : tensor<?xf32>)
    mask causal<bottom_right>
    score(%s, %b, %h, %i, %j, %sl) {
      %m = tensor.extract %sl[%h] : tensor<?xf32>
      %d = arith.subi %j, %i : index
      %d32 = arith.index_cast %d : index to i32
      %df = arith.sitofp %d32 : i32 to f32
      %bias = arith.mulf %m, %df : f32
      %r = arith.addf %s, %bias : f32
      attn.yield %r : f32
    } : (tensor<?x?x16xf32>, tensor<?x?x16xf32>, tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  return %o : tensor<?x?x8xf32>
}
"""
random = np.random.default_rng(3)
q, k, v, do = (random.standard_normal(shape, np.float32) for shape in [(4, 37, 16), (2, 50, 16), (2, 50, 8), (4, 37, 8)])
slope = np.linspace(0.1, 0.4, 4, dtype=np.float32)


def _expected():
    """The output, the log-sum-exp and the gradients in float64."""
    q64, k64, v64, do64 = (x.astype(np.float64) for x in (q, np.repeat(k, 2, 0), np.repeat(v, 2, 0), do))
    distance = np.arange(50) - np.arange(37)[:, None]
    scores = q64 @ k64.transpose(0, 2, 1) / 4 + slope[:, None, None] * distance
    scores = np.where(distance <= 50 - 37, scores, -np.inf)
    lse = np.log(np.exp(scores).sum(-1))
    p = np.exp(scores - lse[..., None])
    o = p @ v64
    ds = p * (do64 @ v64.transpose(0, 2, 1) - (do64 * o).sum(-1, keepdims=True))
    pairs = [(ds.transpose(0, 2, 1) @ q64 / 4), p.transpose(0, 2, 1) @ do64]
    dk, dv = (x.reshape(2, 2, *x.shape[1:]).sum(1) for x in pairs)
    return o, lse, (ds @ k64 / 4, dk, dv, (ds * distance).sum((1, 2)))


o, lse, gradients = _expected()
LEVELS, GPUS = ("portable", "v3", "v4"), ("sm_75", "sm_80")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gradients")
    (folder / "attend.mlir").write_text(PROGRAM)
    subprocess.run(["saccade-compile", folder / "attend.mlir", "--emit=so", "-o", folder / "attend.so",
                    f"--target={','.join(LEVELS + GPUS)}"], check=True, stderr=subprocess.PIPE)  # fmt: skip
    return folder / "attend.so"


def check(library, move, read):
    """Calls forward and backward."""
    found = library.attend(*map(move, (q, k, v, slope)))
    found = found if isinstance(found, tuple) else (found,)
    np.testing.assert_allclose(read(found[0]), o, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(read(found[1]), lse, rtol=1e-4, atol=1e-5)
    results = library.attend_gradient(*map(move, (q, k, v, slope)), *found, move(do))
    for result, expected in zip(results, gradients, strict=True):
        np.testing.assert_allclose(read(result), expected, rtol=1e-3, atol=1e-4)


def test_every_cpu_level(path):
    library = saccade.load(path)
    assert list(library) == ["attend", "attend_gradient"] and library.targets == (*reversed(LEVELS), *GPUS)
    highest = library.target
    try:
        for level in LEVELS[: LEVELS.index(highest) + 1]:
            library.set_cpu_limit(level)
            assert library.attend_gradient.target == level
            check(library, np.asarray, np.asarray)
    finally:
        library.set_cpu_limit(None)


@pytest.fixture
def double(build):
    driver = gpu_arrays.start(build)
    yield driver
    driver.set(devices=1, capability=80)


@pytest.mark.parametrize("capability", [75, 80])
def test_every_gpu_architecture(path, double, tmp_path, capability):
    double.set(devices=1, capability=capability)
    library = tmp_path / "attend.so"  # one that has loaded no kernels for another architecture
    library.write_bytes(path.read_bytes())
    double.log()
    check(saccade.load(library), gpu_arrays.asarray, gpu_arrays.asnumpy)
    log = double.log()
    # The fake driver refuses the machine code of ptxas.
    assert {image for image in double.called("cuModuleLoadDataEx", log) if image != "cubin"} == {f"ptx sm_{capability}"}
    assert any("attend_gradient" in detail for detail in double.called("cuLaunchKernel", log))
