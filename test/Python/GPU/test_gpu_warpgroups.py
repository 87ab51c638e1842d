"""Programs for sm_90a are called with tensors by DLPack on a fake GPU of compute capability 9.0 (test/Support/FakeCUDA):
which kernels run, constants that bulk copies read, and the counter of work items."""

import ctypes

import gpu_arrays
import numpy as np
import pytest
from gpu_arrays import Array, asarray
from programs import refused

import saccade

LAUNCH, TAKE = "cuLaunchKernel", "cuMemAllocFromPoolAsync"


@pytest.fixture(scope="module")
def loaded(build):
    return gpu_arrays.start(build)


@pytest.fixture
def double(loaded):
    """The fake driver of a machine with one H100, with an empty log."""
    loaded.set(devices=1, capability=90, shared=232448, memory=1 << 30)
    loaded.log()
    return loaded


def test_warpgroups_compute_what_bulk_copies_can_read(double):
    rng = np.random.default_rng(3)
    large = [rng.standard_normal((1, 2, rows, 64)).astype(np.float16) for rows in (40, 70, 70)]
    wide = [x.astype(np.float64) for x in large]
    powers = np.exp(wide[0] @ wide[1].swapaxes(2, 3) / 8)
    reference = powers @ wide[2] / powers.sum(-1, keepdims=True)
    shifted = asarray(np.concatenate([[0], large[1].ravel()]).astype(np.float16))
    later = Array(shifted.memory, np.float16, large[1].shape, offset=2)
    for key, suffix in ((asarray(large[1]), "_sm_90a"), (later, "")):
        double.log()
        result = saccade.attention(asarray(large[0]), key, asarray(large[2]), target="sm_90a")
        log = double.log()
        kernels = [detail.split()[0] for name, detail in log if name == LAUNCH]
        assert any(name.endswith(f"_attention{suffix}") for name in kernels), kernels
        assert np.abs(result.get() - reference).max() < 2e-3
    saccade.cache_clear()


def test_bulk_copies_read_constants_and_repeated_tensors(double):
    """Weights of the program, whose address is looked up once, and operands that strides of 0 repeat."""
    rng = np.random.default_rng(6)
    x, w, y = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((2, 40, 64), (64, 128), (2, 64, 128)))
    matmul = """linalg.batch_matmul ins(%{0}, %{1} : tensor<?x?x64xf16>, tensor<?x64x128xf16>) outs(%init : tensor<?x?x128xf32>)
                -> tensor<?x?x128xf32>"""
    text = """
      func.func @{name}(%x: tensor<?x?x64xf16>{more}) -> tensor<?x?x128xf32> {{
        %c0 = arith.constant 0 : index
        %c1 = arith.constant 1 : index
        %zero = arith.constant 0.0 : f32
        %b = tensor.dim %x, %c0 : tensor<?x?x64xf16>
        %m = tensor.dim %x, %c1 : tensor<?x?x64xf16>
        %empty = tensor.empty(%b, %m) : tensor<?x?x128xf32>
        %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?x128xf32>) -> tensor<?x?x128xf32>
        {weights}
        %sum = {matmul}
        return %sum : tensor<?x?x128xf32>
      }}"""
    constant = f'%w = arith.constant dense<"0x{w.tobytes().hex()}"> : tensor<64x128xf16>'
    product = """linalg.generic {indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (k, n)>,
            affine_map<(b, m, n, k) -> (b, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
          ins(%x, %w : tensor<?x?x64xf16>, tensor<64x128xf16>) outs(%init : tensor<?x?x128xf32>) {
        ^bb0(%p: f16, %q: f16, %s: f32):
          %pw = arith.extf %p : f16 to f32
          %qw = arith.extf %q : f16 to f32
          %pq = arith.mulf %pw, %qw : f32
          %r = arith.addf %s, %pq : f32
          linalg.yield %r : f32
        } -> tensor<?x?x128xf32>"""
    of_constant = saccade.compile(text.format(name="f", more="", weights=constant, matmul=product), target="sm_90a").f
    of_batch = saccade.compile(text.format(name="g", more=", %w: tensor<?x64x128xf16>", weights="", matmul=matmul.format("x", "w")),
                               target="sm_90a").g
    on_gpu, weights, batch = asarray(x), asarray(w), asarray(y)
    double.log()
    for _ in range(2):
        assert (of_constant(on_gpu).get() == x.astype(np.float32) @ w).all()
    log = double.log()
    assert len(double.called("cuModuleGetGlobal", log)) == 1
    assert {detail.split()[0] for name, detail in log if name == LAUNCH} == {"f_matmul_sm_90a"}
    repeated = Array(weights.memory, np.float16, (2, 64, 128), strides=[0, 128, 1])
    row = Array(on_gpu.memory, np.float16, (2, 40, 64), strides=[0, 64, 1])
    for rows, columns, expected in ((on_gpu, repeated, x.astype(np.float32) @ w), (row, batch, x[0].astype(np.float32) @ y),
                                    (row, repeated, np.stack([x[0].astype(np.float32) @ w] * 2))):
        assert (of_batch(rows, columns).get() == expected).all()
    assert {detail.split()[0] for name, detail in double.log() if name == LAUNCH} == {"g_matmul_sm_90a"}
    saccade.cache_clear()


def test_the_counter_of_work_items_is_cleared_for_each_launch(double):
    """Of four items for two multiprocessors two are taken from a counter, also by each launch of a graph."""
    rng = np.random.default_rng(4)
    arrays = [rng.standard_normal((1, 4, 40, 64)).astype(np.float16) for _ in range(3)]
    inputs, stream = [asarray(x) for x in arrays], 0x90

    def attend(out):
        double.log()
        saccade.attention(*inputs, out=out, target="sm_90a", stream=stream)
        log = double.log()
        assert double.called("cuMemsetD32Async", log) == [f"stream={stream}"]
        assert len(double.called(TAKE, log)) == len(double.called("cuMemFreeAsync", log)) > 0

    once, replayed = (gpu_arrays.empty(arrays[0].shape, np.float16) for _ in range(2))
    attend(once)
    driver, graph, executable = double.library, ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuStreamBeginCapture_v2(ctypes.c_void_p(stream), 2) == 0
    attend(replayed)
    assert driver.cuStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(graph)) == 0
    assert driver.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_uint64()) == 0
    for _ in range(2):
        zeros = np.zeros(arrays[0].shape, np.float16)
        assert driver.cuMemcpyHtoD_v2(ctypes.c_uint64(replayed.memory), zeros.ctypes.data_as(ctypes.c_void_p), zeros.nbytes) == 0
        assert driver.cuGraphLaunch(executable, ctypes.c_void_p(stream)) == 0
        assert (replayed.get() == once.get()).all()
    saccade.cache_clear()


def test_a_constant_that_the_driver_does_not_find(double):
    multiply = saccade.compile("""
      func.func @multiply(%x: tensor<128x64xf16>) -> tensor<128x128xf32> {
        %w = arith.constant dense<0.5> : tensor<64x128xf16>
        %zero = arith.constant dense<0.0> : tensor<128x128xf32>
        %y = linalg.matmul ins(%x, %w : tensor<128x64xf16>, tensor<64x128xf16>) outs(%zero : tensor<128x128xf32>) -> tensor<128x128xf32>
        return %y : tensor<128x128xf32>
      }""", target="sm_90a").multiply
    x = asarray(np.ones((128, 64), np.float16))
    double.set(cuModuleGetGlobal=500)
    refused(RuntimeError, ["looking up constant '", "CUDA_ERROR_NOT_FOUND"], multiply, x)
    double.set(cuModuleGetGlobal=0)
    assert (multiply(x).get() == 32).all()
