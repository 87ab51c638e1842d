"""Our side: a program with sizes known at run time only, compiled once for all cases of its kind, and called."""

import ctypes
import pathlib
import re
import subprocess
import time

ENTRY = "attention"
MASKS = {"full": "", "causal": "mask causal<top_left> "}


class BuildFailed(RuntimeError):
    """A tool refused; the message is what it said."""


def source(kind):
    """The program of a kind: batch, heads and length are all `?`."""
    tensor = f"tensor<?x?x?x{kind.depth}x{kind.type}>"
    return f"""func.func @{ENTRY}(%q: {tensor}, %k: {tensor}, %v: {tensor}) -> {tensor} {{
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] {MASKS[kind.mask]}: ({tensor}, {tensor}, {tensor}) -> {tensor}
  return %o : {tensor}
}}
"""


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise BuildFailed(f"{pathlib.Path(command[0]).name} ended with {done.returncode}:\n{done.stderr.strip()}")


def toolchain(build):
    """The C++ compiler that made the build tree, and its flags for shared libraries."""
    cache = (build / "CMakeCache.txt").read_text()
    found = lambda name: re.search(rf"^{name}:\w+=(.*)$", cache, re.M)
    return [found("CMAKE_CXX_COMPILER")[1], *found("CMAKE_SHARED_LINKER_FLAGS")[1].split()]


class Artifact:
    """The shared library of one kind in `folder`, compiled by the tools of the build tree `build`."""

    def __init__(self, kind, build, folder, target="host"):
        folder.mkdir(parents=True, exist_ok=True)
        self.kind = kind
        self.program = folder / f"{kind}.mlir"
        self.library = folder / f"{kind}.so"
        self.program.write_text(source(kind))
        code = folder / f"{kind}.o"
        start = time.perf_counter()
        run([build / "bin" / "saccade-compile", self.program, f"--target={target}", "--emit=obj", "-o", code])
        self.seconds = time.perf_counter() - start
        # All of the runtime, not just what the code calls: the harness sets the number of threads.
        runtime = build / "lib" / "libSaccadeRuntime.a"
        run([*toolchain(build), "-shared", "-o", self.library, code, "-Wl,--whole-archive", runtime,
             "-Wl,--no-whole-archive", "-pthread"])


def descriptor(array):
    """{allocated, aligned, offset, sizes[rank], strides[rank]}, as MLIR passes a memref; strides count elements."""
    address, strides = array.ctypes.data, [stride // array.itemsize for stride in array.strides]
    words = [address, address, 0, *array.shape, *strides]
    return (ctypes.c_int64 * len(words))(*words)


class Program:
    """A loaded library."""

    def __init__(self, library, threads):
        self.library = ctypes.CDLL(str(library))
        self.entry = getattr(self.library, f"saccade_call_{ENTRY}")
        self.entry.restype = ctypes.c_char_p
        self.shapes = getattr(self.library, f"saccade_shapes_{ENTRY}")
        self.shapes.restype = ctypes.c_char_p
        self.library.saccade_set_threads(ctypes.c_int32(threads))

    def bind(self, inputs, output):
        """A function without arguments that computes `output` of `inputs`; both must outlive it. The shapes are checked
        here, once."""
        descriptors = [descriptor(array) for array in (*inputs, output)]
        arguments = (ctypes.c_void_p * len(descriptors))(*(ctypes.addressof(each) for each in descriptors))
        sizes = (ctypes.c_int64 * max(2, output.ndim))()
        message = self.shapes(arguments, sizes)
        if message is not None:
            raise ValueError(f"{message.decode()}: found {sizes[0]}, wanted {sizes[1]}")
        if tuple(sizes) != output.shape:
            raise ValueError(f"the result has shape {tuple(sizes)}, memory is given for {output.shape}")
        call = self.entry

        def bound(_keep=descriptors):
            message = call(arguments)
            if message is not None:
                raise MemoryError(message.decode())

        return bound
