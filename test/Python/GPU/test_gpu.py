"""Programs for a GPU are called with tensors by DLPack, on the caller's stream. They run on a fake GPU
(test/Support/FakeCUDA), which executes the kernels on the simulator and logs the calls of the driver."""

import gc
import pickle
import threading
import types

import gpu_arrays
import numpy as np
import programs
import pytest
from gpu_arrays import CUDA, Array, OldArray, asarray
from programs import expected_attention, refused

import saccade
from saccade import _gpu

LAUNCH, LOAD, TAKE = "cuLaunchKernel", "cuModuleLoadDataEx", "cuMemAllocFromPoolAsync"
# Functions that wait for the GPU or allocate outside of the order of a stream.
SLOW = {"cuCtxSynchronize", "cuStreamSynchronize", "cuMemAlloc", "cuMemFree", "cuMemcpyHtoD", "cuMemcpyDtoH"}
random = np.random.default_rng(3)
q, k, v = random.standard_normal((3, 2, 3, 7, 16)).astype(np.float32)
expected = expected_attention(q, k, v)


@pytest.fixture(scope="module")
def loaded(build):
    return gpu_arrays.start(build)


@pytest.fixture
def double(loaded):
    """The fake driver of a machine with one sm_80, with an empty log."""
    loaded.set(devices=1, capability=80, memory=1 << 30, cuLaunchKernel=0)
    loaded.log()
    yield loaded
    loaded.set(devices=1, capability=80, memory=1 << 30, cuLaunchKernel=0)


@pytest.fixture
def tensors(double):
    """q, k and v on the GPU."""
    return [asarray(x) for x in (q, k, v)]


@pytest.fixture(scope="module")
def attend():
    return saccade.compile(programs.attention(), target="sm_80").attend


def moved(x, device):
    """The same memory, said to be on another device."""
    return Array(x.memory, x.dtype, x.shape, device=device)


def streams_of(double):
    """The streams of the launches and allocations since the last log."""
    return {word for name, detail in double.log() if name in (LAUNCH, TAKE)
            for word in detail.split() if word.startswith("stream=")}  # fmt: skip


# --- results ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "cuda", "cuda:0"])
def test_a_result_is_a_tensor_of_the_caller_s_library(double, tensors, target):
    attend = saccade.compile(programs.attention(), target=target).attend
    result = attend(*tensors)
    assert type(result) is Array
    assert attend.device == "cuda"
    assert np.abs(result.get() - expected).max() < 1e-5


def test_half_precision_runs_on_tensor_cores(double):
    module = saccade.compile(programs.attention("f16"), target="sm_80")
    result = module.attend(*[asarray(x.astype(np.float16)) for x in (q, k, v)])
    assert result.dtype == np.float16
    assert np.abs(result.get() - expected).max() < 2e-3
    assert "mma.sync" in module.ir("ptx")
    assert "kernel family sm_80" in module.explain()


def test_constants_are_loaded_with_the_kernels(double):
    numbers = np.arange(40, dtype=np.float32) ** 2
    shift = saccade.compile(f"""
        func.func @shift(%x: tensor<40xf32>) -> tensor<40xf32> {{
          %table = arith.constant dense<{numbers.tolist()}> : tensor<40xf32>
          %y = arith.addf %x, %table : tensor<40xf32>
          return %y : tensor<40xf32>
        }}""", target="sm_80").shift
    x = asarray(np.ones(40, np.float32))
    for _ in range(2):
        assert (shift(x).get() == numbers + 1).all()
    log = double.log()
    assert len(double.called(LOAD, log)) == 1 and not double.called(TAKE, log)


def test_results_go_to_the_tensors_of_the_caller(double, tensors, attend):
    into, out = gpu_arrays.empty(q.shape), gpu_arrays.empty(q.shape)
    attend.into(*tensors, into)
    assert attend(*tensors, out=out) is out
    assert (into.get() == out.get()).all()
    assert np.abs(out.get() - expected).max() < 1e-5


def test_strides_and_offsets_are_those_of_the_memory(double, tensors, attend):
    transposed = asarray(q.transpose(3, 2, 1, 0))
    strided = Array(transposed.memory, q.dtype, q.shape, strides=[1, 2, 6, 42])
    shifted = asarray(np.concatenate([[np.nan], k.ravel()]).astype(np.float32))
    later = Array(shifted.memory, k.dtype, k.shape, offset=4)
    assert np.abs(attend(strided, later, tensors[2]).get() - expected).max() < 1e-5


def test_dlpack_before_version_1_is_accepted(double, attend):
    old = [asarray(x, OldArray) for x in (q, k, v)]
    for _ in range(2):
        assert np.abs(attend(*old).get() - expected).max() < 1e-5


def test_tensors_of_the_second_gpu_run_there(double, tensors, attend):
    double.set(devices=2)
    second = [moved(x, (CUDA, 1)) for x in tensors]
    for call in (attend, saccade.attention):
        double.log()
        result = call(*second)
        assert result.device == 1
        assert np.abs(result.get() - expected).max() < 1e-5
        assert len(double.called(LOAD)) == 1  # in the context of this GPU


def test_scalars_and_several_results(double):
    capped = saccade.compile(programs.capped, target="sm_80").capped
    one = [x[0, 0] for x in (q, k, v)]
    output, lse = capped(*map(asarray, one), n=5, cap=2.0, strict=True)
    for found, reference in zip((output, lse), programs.expected_capped(*one, 5, 2.0, True)):
        np.testing.assert_allclose(found.get(), reference, atol=1e-5)


def test_empty_tensors(double, attend):
    none = asarray(q[:, :, :0])
    none.memory = 0
    assert attend(none, *[asarray(x) for x in (k, v)]).shape == (2, 3, 0, 16)
    assert (attend(asarray(q), none, none).get() == 0).all()


def test_bound_tensors_stay_alive(double, tensors, attend):
    bound = attend.bind(k=tensors[1], v=tensors[2])
    assert gpu_arrays.live_capsules() == 2
    assert np.abs(bound(tensors[0]).get() - expected).max() < 1e-5
    assert np.abs(bound(tensors[0], stream=7).get() - expected).max() < 1e-5
    assert streams_of(double) == {"stream=0", "stream=7"}
    del bound
    gc.collect()
    assert gpu_arrays.live_capsules() == 0


def test_capsules_are_released_after_calls_and_errors(double, tensors, attend):
    attend(*tensors)
    refused(TypeError, ["3 dimensions"], attend, *tensors[:2], asarray(v[0]))
    refused(TypeError, ["on cpu"], attend, *tensors[:2], v)
    saccade.attention(*tensors, return_lse=True)
    assert gpu_arrays.live_capsules() == 0


def test_an_unpickled_function_runs_on_the_gpu(double, tensors, attend):
    assert np.abs(pickle.loads(pickle.dumps(attend))(*tensors).get() - expected).max() < 1e-5


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stream", "number"), [
    (None, 0), (0, 0), (1, 1), (112, 112), (types.SimpleNamespace(cuda_stream=113), 113),
    (types.SimpleNamespace(ptr=114), 114), (types.SimpleNamespace(__cuda_stream__=lambda: (0, 115)), 115),
    (types.SimpleNamespace(__cuda_stream__=(0, 116)), 116),
])  # fmt: skip
def test_a_call_runs_on_the_stream_of_its_argument(double, tensors, attend, stream, number):
    result = attend(*tensors, stream=stream)
    assert streams_of(double) == {f"stream={number}"}
    saccade.attention(*tensors, stream=stream, causal="top_left")
    assert streams_of(double) == {f"stream={number}"}
    # The libraries of the tensors order their own work before it; DLPack's number of the default stream is 1.
    assert [*tensors[0].streams, *result.streams] == [number or 1] * 3


def test_a_stream_is_that_of_the_tensors_by_default(double, tensors, attend):
    class Array(gpu_arrays.Array):
        def __tvm_ffi_env_stream__(self):
            return 0x120

    ours = [Array(x.memory, x.dtype, x.shape) for x in tensors]
    out = gpu_arrays.empty(q.shape)
    attend(*ours, out=out)
    assert streams_of(double) == {"stream=288"}
    saccade.attention(*ours, out=out)
    assert streams_of(double) == {"stream=288"}
    attend(*ours, out=out, stream=0)
    assert streams_of(double) == {"stream=0"}


def test_a_call_without_tensors_is_on_the_stream_of_the_bound_ones(double, tensors, attend):
    class Array(gpu_arrays.Array):
        def __tvm_ffi_env_stream__(self):
            return 0x120

    bound = attend.bind(**dict(zip("qkv", [Array(x.memory, x.dtype, x.shape) for x in tensors])))
    double.log()
    out = gpu_arrays.empty(q.shape)
    bound(out=out)
    assert streams_of(double) == {"stream=288"}
    assert np.abs(out.get() - expected).max() < 1e-5


def test_threads_call_on_their_own_streams(double, tensors, attend):
    barrier, failures = threading.Barrier(4), []

    def run(stream):
        barrier.wait()
        for _ in range(4):
            result = attend(*tensors, stream=stream)
            if {*result.streams} != {stream} or np.abs(result.get() - expected).max() >= 1e-5:
                failures.append(stream)

    threads = [threading.Thread(target=run, args=[stream]) for stream in (11, 12, 13, 14)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    launches = [detail.split()[-1] for name, detail in double.log() if name == LAUNCH]
    assert sorted(launches) == [f"stream={stream}" for stream in (11, 12, 13, 14) for _ in range(4)]


@pytest.fixture
def capture(double):
    """Captures stream 0x90 while the test runs."""
    double.library.double_capture(0x90, 1)
    yield
    double.library.double_capture(None, 0)


def test_calls_are_captured_into_a_graph(double, tensors, capture):
    queries, kv, out = tensors
    attend = saccade.compile(programs.attention(name="captured"), target="sm_80").captured
    for call in (lambda: attend(queries, kv, kv, out=out, stream=0x90),
                 lambda: saccade.attention(queries, kv, kv, out=out, stream=0x90, window=5)):
        for _ in range(2):
            double.log()
            call()
            log = double.log()
            assert sum(name == LAUNCH for name, _ in log) >= 1
            assert not SLOW & {name for name, _ in log}
    refused(RuntimeError, ["CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"], attend, queries, kv, kv, out=out, stream=0xA0)


def test_a_program_that_is_destroyed_during_a_capture_does_not_end_it(double, tensors):
    empty = asarray(q[:, :, :0])
    module = saccade.compile(programs.attention(name="destroyed"), target="sm_80")
    result = module.destroyed(empty, *tensors[1:])  # allocates a placeholder
    before = double.library.double_allocations()
    double.library.double_capture(0x90, 1)
    try:
        double.log()
        del module
        saccade.cache_clear()
        gc.collect()
        names = [name for name, _ in double.log()]
    finally:
        double.library.double_capture(None, 0)
    assert "cuModuleUnload" in names
    assert double.library.double_allocations() < before
    assert result.shape == empty.shape


# --- attention --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("capability", "target"), [(75, "sm_75"), (86, "sm_80"), (90, "sm_80"), (100, "sm_80")])
def test_attention_is_compiled_for_the_gpu_of_its_tensors(double, tensors, capability, target):
    saccade.cache_clear()
    double.set(capability=capability)
    result = saccade.attention(*tensors)
    assert type(result) is Array
    assert np.abs(result.get() - expected).max() < 1e-5
    assert double.called(LOAD) == [f"ptx {target}"]
    saccade.attention(*tensors, target="sm_75", scale=0.5)
    assert double.called(LOAD) == ["ptx sm_75"]
    saccade.cache_clear()


def test_attention_with_options_and_several_results(double, tensors):
    lengths, sink = asarray(np.array([3, 7], np.int32)), asarray(np.array([0.5, -1, 2], np.float32))
    out = gpu_arrays.empty(q.shape), gpu_arrays.empty(q.shape[:3])
    found = saccade.attention(*tensors, kv_len=lengths, sink=sink, return_lse=True, out=out)
    assert found == out
    scores = np.where(np.arange(7) < np.array([3, 7])[:, None, None, None], q.astype(float) @ k.swapaxes(2, 3) / 4, -np.inf)
    total = np.exp(scores).sum(-1) + np.exp([0.5, -1, 2])[:, None]
    np.testing.assert_allclose(out[0].get(), np.exp(scores) @ v / total[..., None], atol=1e-5)
    np.testing.assert_allclose(out[1].get(), np.log(total), atol=1e-5)
    output, maximum, place = saccade.attention(*tensors, return_max=True, score=lambda s, b, h, i, j: s - (i - j) * (i - j))
    scores = q.astype(float) @ k.swapaxes(2, 3) / 4 - (np.arange(7)[:, None] - np.arange(7)) ** 2
    np.testing.assert_allclose(maximum.get(), scores.max(-1), atol=1e-5)
    assert (place.get() == scores.argmax(-1)).all()
    assert output.shape == q.shape


def test_values_of_another_width_and_layout(double):
    narrow = random.standard_normal((2, 7, 3, 4)).astype(np.float32)
    arrays = [asarray(np.ascontiguousarray(x.swapaxes(1, 2))) for x in (q, k)]
    result = saccade.attention(*arrays, asarray(narrow), layout="bshd")
    np.testing.assert_allclose(result.get(), expected_attention(q, k, narrow.swapaxes(1, 2)).swapaxes(1, 2), atol=1e-5)


# --- errors -----------------------------------------------------------------------------------------------------------


def test_tensors_on_other_devices_are_refused(double, tensors, attend):
    host = saccade.compile(programs.attention()).attend
    refused(TypeError, ["k is on cpu, expected cuda"], attend, tensors[0], k, tensors[2])
    refused(TypeError, ["k is on cuda:0, expected cpu"], host, q, tensors[1], v)
    refused(TypeError, ["'v' (tensor<?x?x?x16xf32>): on cuda:1, expected cuda:0"], attend, *tensors[:2],
            moved(tensors[2], (CUDA, 1)))  # fmt: skip
    refused(TypeError, ["v is on cuda_host:0, expected cuda"], attend, *tensors[:2], moved(tensors[2], (3, 0)))
    refused(TypeError, ["v is on cuda_managed:0, expected cuda"], attend, *tensors[:2], moved(tensors[2], (13, 0)))
    refused(TypeError, ["out is on cpu, expected cuda"], attend, *tensors, out=q)
    refused(ValueError, ["a tensor is on cuda:1, but the NVIDIA driver reports 1 GPU"], attend,
            *[moved(x, (CUDA, 1)) for x in tensors])  # fmt: skip


def test_tensors_of_attention_on_other_devices_are_refused(double, tensors):
    one, table = (CUDA, 1), np.ones(7, np.float32)
    for given, words in (((tensors[0], k, tensors[2]), "k is on cpu, expected cuda"),
                         ((q, tensors[1], v), "k is on cuda:0, expected cpu"),
                         ((*tensors[:2], moved(tensors[2], one)), "v: on cuda:1, expected cuda:0")):  # fmt: skip
        refused(TypeError, [words], saccade.attention, *given)
    refused(TypeError, ["q is on cuda:0, expected cpu: target is 'v3'"], saccade.attention, *tensors, target="v3")
    refused(TypeError, ["q is on cpu, expected cuda: target is 'sm_80'"], saccade.attention, q, k, v, target="sm_80")
    refused(TypeError, ["kv_len is on cpu"], saccade.attention, *tensors, kv_len=np.array([1, 2]))
    refused(TypeError, ["out is on cpu"], saccade.attention, *tensors, out=q)
    refused(TypeError, ["table", "is on cpu, expected cuda"], saccade.attention, *tensors,
            score=lambda s, b, h, i, j: s + table[j])  # fmt: skip
    refused(ValueError, ["target 'cuda:1': refers to cuda:1, but the NVIDIA driver reports 1 GPU"], saccade.attention,
            *[moved(x, one) for x in tensors])  # fmt: skip


def test_other_arguments_are_refused_as_on_the_cpu(double, tensors, attend):
    frozen = Array(tensors[0].memory, q.dtype, q.shape, is_read_only=True)
    refused(TypeError, ["found element type f16, expected f32"], attend, *tensors[:2], asarray(v.astype(np.float16)))
    refused(ValueError, ["found 3, expected 2"], attend, *tensors[:2], asarray(np.repeat(v, 2, 0)[:3]))
    refused(TypeError, ["k is None, expected a tensor on cuda"], attend, tensors[0], None, tensors[2])
    refused(TypeError, ["k is a int, expected a tensor on cuda"], attend, tensors[0], 3, tensors[2])
    refused(ValueError, ["overlaps with argument 'q'"], attend, *tensors, out=tensors[0])
    refused(ValueError, ["not a multiple of the element size"], attend, *tensors[:2],
            Array(tensors[2].memory, v.dtype, v.shape, offset=2))  # fmt: skip
    refused(ValueError, ["is NULL"], attend, *tensors[:2], Array(0, v.dtype, v.shape))
    refused(TypeError, ["found 12 dimensions, expected 4"], attend, *tensors[:2], Array(4096, v.dtype, [1] * 12))
    refused(ValueError, ["read-only"], attend, *tensors[:2], tensors[2], out=frozen)
    refused(ValueError, ["out is a read-only"], saccade.attention, *tensors, out=frozen)
    refused(ValueError, ["v has head count 1, expected 3"], saccade.attention, *tensors[:2], asarray(v[:, :1]))


@pytest.mark.parametrize(("stream", "exception", "words"), [
    ("x", TypeError, "stream is 'x', expected a CUDA stream"), (True, TypeError, "stream is True"),
    (-1, ValueError, "stream is -1"), (types.SimpleNamespace(ptr="a"), TypeError, "expected a CUDA stream"),
])  # fmt: skip
def test_other_streams_are_refused(double, tensors, attend, stream, exception, words):
    refused(exception, [words], attend, *tensors, stream=stream)
    refused(exception, [words], saccade.attention, *tensors, stream=stream)


def test_a_program_for_the_cpu_has_no_stream():
    refused(TypeError, ["attend has stream=0, expected None"], saccade.compile(programs.attention()).attend, q, k, v, stream=0)
    refused(TypeError, ["stream is 0, expected None: q is not on a GPU"], saccade.attention, q, k, v, stream=0)


def test_a_library_that_cannot_allocate_needs_out(double, tensors, attend):
    class Bare:
        def __init__(self, array):
            self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

    bare, out = [Bare(x) for x in tensors], gpu_arrays.empty(q.shape)
    refused(TypeError, ["no function 'empty' to allocate a result with: pass out="], attend, *bare)
    attend(*bare, out=out)
    assert np.abs(out.get() - expected).max() < 1e-5


def test_an_element_type_that_the_library_lacks_needs_out(double):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    attend = saccade.compile(programs.attention("bf16"), target="sm_80").attend
    tensors = [asarray(x.astype(bfloat16)) for x in (q, k, v)]
    out = asarray(np.zeros(q.shape, bfloat16))
    for call in (attend, saccade.attention):
        refused(TypeError, ["gpu_arrays has no element type bfloat16", "pass out="], call, *tensors)
        assert call(*tensors, out=out) is out
        assert np.abs(out.get().astype(np.float32) - expected).max() < 2e-2


def test_a_producer_that_fails_is_named(double, tensors, attend):
    class Failing(Array):
        def __dlpack__(self, **options):
            raise BufferError("it is in use")

    class Strange(Array):
        def __dlpack__(self, **options):
            return 3

    for kind, words in ((Failing, "hands out no memory by DLPack: it is in use"), (Strange, "no unused DLPack capsule")):
        refused(TypeError, ["k is a", words], attend, tensors[0], kind(0, q.dtype, q.shape), tensors[2])


def test_errors_of_the_driver(double, tensors, attend):
    attend(*tensors)
    result = gpu_arrays.empty(q.shape)
    double.set(memory=0)
    refused(MemoryError, ["cuda:0 cannot allocate"], attend, *tensors, out=result)
    double.set(memory=1 << 30, cuLaunchKernel=719)
    refused(RuntimeError, ["launching kernel", "CUDA_ERROR_LAUNCH_FAILED"], attend, *tensors, out=result)
    double.set(cuLaunchKernel=0, capability=70)
    words = ["target 'cuda': cuda:0 is sm_70, expected one that runs sm_75"]
    refused(NotImplementedError, words, saccade.compile, programs.attention(), target="cuda")


@pytest.mark.parametrize(("target", "words"), [
    ("sm_99", "expected one of host, portable, v3"), ("cuda:x", "cuda, or cuda:N for the GPU N"),
    ("cuda:-1", "sm_75, sm_80, sm_90a, cuda"), ("sm_75,sm_80", "expected one of"), ("cuda:5", "refers to cuda:5"),
])  # fmt: skip
def test_other_targets_are_refused(double, target, words):
    refused(ValueError, [words], saccade.compile, programs.attention(), target=target)


def test_programs_that_no_gpu_runs_are_refused(double):
    refused(saccade.CompileError, ["not supported on GPUs"], saccade.compile, programs.filled, target="sm_80")
    words = ["option 'prepack' has the value 'true': expected false for target 'sm_80'"]
    refused(ValueError, words, saccade.compile, programs.attention(), target="sm_80", prepack=True)


def test_without_a_driver_or_a_gpu(run_script, build):
    run_script("gpu_missing_process.py", "no driver")
    libraries = str(build / "test" / "Support" / "FakeCUDA")
    run_script("gpu_missing_process.py", "finds no GPU", LD_LIBRARY_PATH=libraries, SACCADE_DOUBLE="devices=0")
    run_script("gpu_missing_process.py", "is for CUDA 11.4", LD_LIBRARY_PATH=libraries, SACCADE_DOUBLE="version=11040")


DEVICES = {1: "cpu", 2: "cuda:3", 3: "cuda_host:3", 4: "opencl:3", 7: "vulkan:3", 8: "metal:3", 10: "rocm:3", 13: "cuda_managed:3",
           14: "DLPack device 14:3"}  # fmt: skip


@pytest.mark.parametrize(("number", "name"), DEVICES.items())
def test_devices_have_names_by_their_number_in_dlpack(number, name):
    assert _gpu.device_name((number, 3)) == name
