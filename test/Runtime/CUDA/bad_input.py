# REQUIRES: numpy
# RUN: %python %s %S/Inputs %t %build
"""Errors of a GPU become messages with advice, and later calls succeed."""

import ctypes
import pathlib
import shutil
import subprocess
import sys

import numpy as np

sys.path.insert(0, sys.argv[1])
from gpu import Double, Problem, changed, compile_artifact, describe, expect, finish, load, plain_call

inputs, folder = map(pathlib.Path, sys.argv[1:3])


def says(message, *words):
    for word in words:
        expect(message is not None and word in message, f"'{word}' in '{message}'")


def without_driver(artifact):
    """In a separate process, which has no fake driver."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        program = (f"import sys; sys.path.insert(0, {sys.argv[1]!r})\n"
                   "import ctypes, numpy as np\n"
                   "from gpu import describe, plain_call\n"
                   f"library = ctypes.CDLL({str(artifact)!r})\n"
                   "q, o = (describe(4096, np.dtype('f2'), (1, 1, 8, 64)) for _ in range(2))\n"
                   "o.data = 1 << 20\n"
                   "print(plain_call(library, 'twice', q, q, q, o))\n")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        expect(done.returncode == 0, done.stderr)
        says(done.stdout, "twice: requires an NVIDIA GPU, but this machine has no driver", "libcuda.so.1",
             "install it, or compile for the CPU")


def drivers(artifact):
    """Drivers that are too old or fail to initialise; each call tries again."""
    double = Double(sys.argv[3])
    library, problem = load(artifact, folder, "drivers"), Problem(double)
    double.set(version=11040)
    says(problem.attend(library), "attend: the NVIDIA driver is for CUDA 11.4, expected one for CUDA 12.0 or newer",
         "update")
    double.set(version=13000, cuInit=100)
    says(problem.attend(library), "the NVIDIA driver finds no GPU (CUDA_ERROR_NO_DEVICE", "nvidia-smi")
    double.set(cuInit=999)
    says(problem.attend(library), "the NVIDIA driver does not start (CUDA_ERROR_UNKNOWN")
    double.set(cuInit=0)
    return double


def tensors(double, artifact):
    """Tensors on a wrong device or at an invalid address."""
    library, problem = load(artifact, folder, "tensors"), Problem(double)
    q, k, v = problem.inputs

    def call(*arguments):
        return plain_call(library, "attend", *arguments)

    on_cpu = changed(k, device_type=1)
    says(call(q, on_cpu, v, problem.output, problem.lse), "attend: argument 'k'", "on cpu, expected cuda:0")
    everything = [changed(tensor, device_type=1) for tensor in (q, k, v, problem.output, problem.lse)]
    says(call(*everything), "attend: argument 'q'", "on cpu, expected cuda:0")
    elsewhere = changed(problem.lse, device_id=1)
    says(call(q, k, v, problem.output, elsewhere), "attend: result", "on cuda:1, expected cuda:0")
    for tensor in everything:
        tensor.device_type, tensor.device_id = 2, 1
    says(call(*everything), "a tensor is on cuda:1, but the NVIDIA driver reports 1 GPU")
    host = changed(k, device_type=3)
    says(call(q, host, v, problem.output, problem.lse), "on cuda_host:0, expected cuda:0")

    odd = changed(k, data=k.data + 1)
    says(call(q, odd, v, problem.output, problem.lse), "the data address is not a multiple of the element size, 2 bytes")
    nothing = changed(k, data=None)
    says(call(q, nothing, v, problem.output, problem.lse), "is NULL")
    says(call(q, k, v, q, problem.lse), "attend: result 'output'", "overlaps with argument 'q'")

    # Alignment to the element size suffices: kernels test the alignment for vector loads at run time.
    shifted = np.zeros(problem.arrays[1].size + 1, np.float16)
    shifted[1:] = problem.arrays[1].ravel()
    memory = double.put(shifted)
    k = describe(memory.data + 2, np.dtype("f2"), problem.arrays[1].shape)
    expect(call(q, k, v, problem.output, problem.lse) is None, "keys at an odd element")
    problem.check("keys at an odd element")


def machine(double, artifact):
    """Missing features of the GPU and errors of the driver."""
    problem = Problem(double)

    def fresh(name, function="attend", **settings):
        library = load(artifact, folder, name)
        double.set(**settings)
        return getattr(problem, function)(library)

    says(fresh("shared", shared=1024), "attend: kernel '", "bytes of shared memory per CTA, but cuda:0 has 1024",
         "compile with --target for this GPU's architecture")
    double.set(shared=166912)
    says(fresh("old", capability=75), "attend: compiled for sm_80, but cuda:0 is sm_75: compile with --target=sm_75")
    double.set(capability=80)
    says(fresh("too-new", cuModuleLoadDataEx=222), "cannot compile the kernels (it is too old for their PTX)",
         "update it, or compile with ptxas and --target=sm_80")
    for capability, end in ((86, "--target=sm_80"), (75, "sm_75"), (100, "too old for their PTX): update it"),
                            (120, "too old for their PTX): update it")):
        message = fresh(f"too-new-{capability}", capability=capability)
        # Kernels for sm_80 do not run on sm_75.
        expect(message.endswith(end), f"sm_{capability}: {message}")
    double.set(capability=80)
    says(fresh("no-compiler", cuModuleLoadDataEx=221), "its PTX compiler is not installed", "--target=sm_80")
    says(fresh("invalid", cuModuleLoadDataEx=1), "loading the kernels", "CUDA_ERROR_INVALID_VALUE")
    double.set(cuModuleLoadDataEx=0)
    says(fresh("missing", cuModuleGetFunction=500), "looking up kernel '", "CUDA_ERROR_NOT_FOUND")
    double.set(cuModuleGetFunction=0)
    says(fresh("sticky", cuLaunchKernel=700), "launching kernel '", "CUDA_ERROR_ILLEGAL_ADDRESS")
    double.set(cuLaunchKernel=0)

    before = double.library.double_allocations()
    for settings, words in (({"cuMemAllocFromPoolAsync": 2}, "bytes: free memory or reduce the batch size"),
                            ({"cuMemAllocFromPoolAsync": 1}, "allocating GPU memory"),
                            ({"cuLaunchKernel": 700}, "launching kernel '")):
        says(fresh(f"memory-{words[:5]}", "twice", **settings), "twice: ", words)
        double.set(cuMemAllocFromPoolAsync=0, cuLaunchKernel=0)
        expect(double.library.double_allocations() == before, f"{words}: what the call took is released")
    expect(fresh("after-all", "attend") is None, "afterwards all is well")
    problem.check("afterwards")


shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
artifact = folder / "chain.so"
compile_artifact(inputs / "chain.mlir", artifact, "--target=sm_80")
without_driver(artifact)
double = drivers(artifact)
tensors(double, artifact)
machine(double, artifact)
sys.exit(finish())
