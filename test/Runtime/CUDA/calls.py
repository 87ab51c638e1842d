# REQUIRES: numpy
# RUN: %python %s %S/Inputs %t %build
"""Calls shared libraries with kernels on a fake GPU: results, streams, captures, architectures and module loading."""

import ctypes
import pathlib
import shutil
import sys
import threading

import tvm_ffi

sys.path.insert(0, sys.argv[1])
from gpu import CUDA, Double, Problem, compile_artifact, expect, finish, load

inputs, folder = map(pathlib.Path, sys.argv[1:3])
double = Double(sys.argv[3])
LAUNCH, LOAD, FIND = "cuLaunchKernel", "cuModuleLoadDataEx", "cuModuleGetFunction"
# Functions that synchronise with the GPU.
SLOW = {"cuCtxSynchronize", "cuStreamSynchronize", "cuMemAlloc", "cuMemFree", "cuMemcpyHtoD", "cuMemcpyDtoH"}


def results(library):
    """Results of several shapes are right, and kernels are loaded once."""
    for seed, (queries, keys) in enumerate([(37, 50), (1, 7), (130, 66)]):
        problem = Problem(double, seed, queries, keys)
        double.log()
        message, log = problem.attend(library), double.log()
        expect(message is None, message)
        problem.check(f"{queries} queries")
        expect(len(double.called(LAUNCH, log)) == 1, f"one kernel a call, found {log}")
        first = seed == 0
        # One query and many queries use different kernels.
        expect(len(double.called(FIND, log)) == (seed < 2), f"{FIND} in the first call of a kernel only, found {log}")
        retained = double.called("cuDevicePrimaryCtxRetain", log)
        expect(len(retained) == first, f"the context is entered in the first call only, found {log}")
        # The cubin is tried first if ptxas made one; the fake driver refuses it.
        loaded = [image for image in double.called(LOAD, log) if image != "cubin"]
        expect(loaded == ["ptx sm_80"] * first, f"kernels are loaded in the first call only, found {log}")
        expect(not SLOW & {name for name, _ in log}, f"a call waits for nothing, found {log}")
        expect(len(double.called("cuCtxPushCurrent", log)) == len(double.called("cuCtxPopCurrent", log)) == 1,
               f"the context is left as it was, found {log}")


def empty(library):
    """No keys, and no queries; the data of an empty tensor is NULL, as in PyTorch."""
    for queries, keys in ((5, 0), (0, 7)):
        problem = Problem(double, queries=queries, keys=keys)
        for tensor in problem.inputs + [problem.output, problem.lse]:
            if 0 in tensor.shape[:tensor.ndim]:
                tensor.data = None
        message = problem.attend(library)
        expect(message is None, f"{queries} queries, {keys} keys: {message}")
        if queries:
            found, lse = double.get(problem.output, "f2"), double.get(problem.lse, "f4")
            expect((found == 0).all() and (lse == -float("inf")).all(), f"rows without keys are 0 and -inf, found {found}")


def streams(library):
    """The stream of a thread, TVM-FFI's stream, and the default stream."""
    problem = Problem(double)

    def streams_of_call():
        double.log()
        message = problem.twice(library)
        expect(message is None, message)
        log = double.log()
        return {word for _, detail in log for word in detail.split() if word.startswith("stream=")}, log

    found, log = streams_of_call()
    expect(found == {"stream=0"}, f"the default stream, found {found}")
    taken, given = double.called("cuMemAllocFromPoolAsync", log), double.called("cuMemFreeAsync", log)
    # Both attentions also allocate split-KV states, which are empty here.
    expect(len(taken) == len(given) == 7, f"memory for what is in between comes and goes, found {log}")

    library.saccade_set_stream(ctypes.c_void_p(0x70))
    expect(streams_of_call()[0] == {"stream=112"}, "the stream that this thread has set")
    others = []
    thread = threading.Thread(target=lambda: others.append(streams_of_call()[0]))
    thread.start()
    thread.join()
    expect(others == [{"stream=0"}], f"another thread's stays, found {others}")
    library.saccade_set_stream(None)

    runtime = ctypes.CDLL(str(tvm_ffi.libinfo.find_libtvm_ffi()))
    before = ctypes.c_void_p()
    runtime.TVMFFIEnvSetStream(CUDA, 0, ctypes.c_void_p(0x80), ctypes.byref(before))
    expect(streams_of_call()[0] == {"stream=128"}, "TVM-FFI's stream")
    library.saccade_set_stream(ctypes.c_void_p(0x70))
    expect(streams_of_call()[0] == {"stream=112"}, "one's own before TVM-FFI's")
    library.saccade_set_stream(None)
    runtime.TVMFFIEnvSetStream(CUDA, 0, before, None)


def captures(artifact):
    """Under capture, neither the first call nor later ones synchronise or allocate outside of the stream order."""
    library, problem = load(artifact, folder, "captured"), Problem(double)
    library.saccade_set_stream(ctypes.c_void_p(0x90))
    double.library.double_capture(ctypes.c_void_p(0x90), 1)
    try:
        for call in ("first", "second"):
            double.log()
            for function in (problem.attend, problem.twice):
                message = function(library)
                expect(message is None, f"{call} call under capture: {message}")
            log = double.log()
            expect(len(double.called(LAUNCH, log)) == 3, f"three kernels are recorded, found {log}")
            expect(not SLOW & {name for name, _ in log}, f"{call} call under capture: {log}")
        # The fake driver detects calls that break the capture.
        expect(double.library.cuCtxSynchronize() == 900, "the double refuses what breaks a capture")
        library.saccade_set_stream(ctypes.c_void_p(0xA0))
        message = problem.attend(library)
        expect(message and "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" in message, f"another stream: {message}")
    finally:
        double.library.double_capture(None, 0)
        double.set(capability=80)


def loads(problem, artifact, expected, name, **settings):
    """Calls a new copy of a library on a machine with these settings, which loads the PTX for `expected`."""
    library = load(artifact, folder, name)
    double.set(**settings)
    double.log()
    message, log = problem.attend(library), double.log()
    expect(message is None, message)
    expect(double.called(LOAD, log)[-1] == f"ptx {expected}", f"{name}: {expected}, found {log}")
    problem.check(name)


def architectures():
    """Loads the newest architecture that the GPU supports."""
    artifact = folder / "several.so"
    compile_artifact(inputs / "chain.mlir", artifact, "--target=sm_75,sm_80")
    problem = Problem(double)
    for capability, expected in ((75, "sm_75"), (80, "sm_80"), (86, "sm_80"), (120, "sm_80")):
        loads(problem, artifact, expected, f"on sm_{capability}", capability=capability)
    library = load(artifact, folder, "on-70")
    double.set(capability=70)
    message = problem.attend(library)
    expected = "attend: compiled for sm_75, sm_80, but cuda:0 is sm_70, which runs no target of the compiler"
    expect(message == expected, f"an older GPU: {message}")
    double.set(capability=80)


def warpgroups():
    """Kernels for sm_90a need a driver for CUDA 12.9; an older one gets those for sm_80, or a message."""
    artifact = folder / "warpgroups.so"
    compile_artifact(inputs / "chain.mlir", artifact, "--target=sm_80,sm_90a")
    problem = Problem(double)
    for version, expected in ((12040, "sm_80"), (12080, "sm_80"), (12090, "sm_90a"), (13000, "sm_90a")):
        loads(problem, artifact, expected, f"CUDA {version}", capability=90, version=version)
    alone = folder / "alone.so"
    compile_artifact(inputs / "chain.mlir", alone, "--target=sm_90a")
    double.set(version=12040)
    double.log()
    message, log = problem.attend(load(alone, folder, "alone-12040")), double.log()
    expect(message == "attend: the kernels for sm_90a require an NVIDIA driver for CUDA 12.9, found one for CUDA 12.4: "
                      "update it, or compile with --target=sm_80", f"an old driver: {message}")
    expect(set(double.called(LOAD, log)) <= {"cubin"}, f"the driver's compiler is not called, found {log}")
    double.set(version=13000)
    expect(problem.attend(load(alone, folder, "alone-13000")) is None, "a new driver")
    double.set(capability=89)
    message = problem.attend(load(alone, folder, "alone-89"))
    expect(message == "attend: compiled for sm_90a, but cuda:0 is sm_89: compile with --target=sm_80", message)
    double.set(capability=80)


shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
artifact = folder / "chain.so"
compile_artifact(inputs / "chain.mlir", artifact, "--target=sm_80")
library = ctypes.CDLL(str(artifact))
results(library)
empty(library)
streams(library)
captures(artifact)
architectures()
warpgroups()
sys.exit(finish())
