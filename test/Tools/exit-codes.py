# RUN: %python %s %S/Inputs %t
"""Every tool ends with the documented exit code and a message, and never by a signal."""
import os
import re
import stat
import struct
import subprocess
import sys

inputs, scratch = sys.argv[1:3]
os.makedirs(scratch, exist_ok=True)
attention = os.path.join(inputs, "attention.mlir")
two = os.path.join(inputs, "two-entries.mlir")
heads = os.path.join(inputs, "wrong-heads.mlir")


def path(name):
    return os.path.join(scratch, name)


def write(name, data):
    with open(path(name), "wb") as file:
        file.write(data)
    return path(name)


def npy(descr, shape, data):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


failures = 0


def expect(code, words, *command):
    """Runs a command and compares its exit code; `words` must occur in its output."""
    global failures
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    text = done.stdout + done.stderr
    if done.returncode != code or words not in text:
        failures += 1
        print(f"FAILED: {' '.join(command)}\n  exit code {done.returncode}, expected {code} with {words!r}\n{text}")


def check(good, message):
    global failures
    if not good:
        failures += 1
        print("FAILED:", message)


run, compile, opt = "saccade-run", "saccade-compile", "saccade-opt"
three = ["--arg=2x5x64:f32:1", "--arg=2x6x64:f32:2", "--arg=2x6x64:f32:3"]

# 0: done
expect(0, "agrees", run, attention, *three, "--check")
expect(0, "GFLOP/s", run, attention, *three, "--time")
expect(0, "tokens/s", run, attention, *three, "--time", "--threads=1")
timed = subprocess.run([run, attention, *three, "--time"], capture_output=True, text=True).stdout
peak = re.search(r"^memory +([0-9.]+) MiB peak", timed, re.M)
check(peak and float(peak[1]) > 1, f"the peak memory is that of a process, in\n{timed}")
expect(0, "Usage:", run, "--help")
expect(0, "Saccade", run, "--version")
expect(0, "[2.5, 2.5, 2.5]", run, two, "--entry=fill_with", "--arg=3", "--arg=2.5")
whole = write("whole.npy", npy("<f4", "(3,)", struct.pack("<3f", 1, 2, 3)))
expect(0, "[2, 4, 6]", run, two, "--entry=double", f"--arg={whole}")
wide = write("wide.npy", npy("<f8", "(3,)", struct.pack("<3d", 1, 2, 3)))
expect(0, "[2, 4, 6]", run, two, "--entry=double", f"--arg={wide}:f32")
expect(0, "", run, two, "--entry=double", f"--arg={whole}", f"--out={path('result.npy')}")
with open(path("result.npy"), "rb") as file:
    if file.read()[-12:] != struct.pack("<3f", 2, 4, 6):
        failures += 1
        print("FAILED: result.npy does not hold the result")

# NumPy has no types for index and bf16.
places = write("places.mlir", b"func.func @f(%x: tensor<3xindex>, %y: tensor<1xbf16>) -> (tensor<3xindex>, tensor<1xbf16>) {\n"
               b"return %x, %y : tensor<3xindex>, tensor<1xbf16> }")
long = write("long.npy", npy("<i8", "(3,)", struct.pack("<3q", 1, -2, 3)))
half = write("half.npy", npy("<V2", "(1,)", b"\xc0\x3f"))
expect(0, "[1, -2, 3]", run, places, f"--arg={long}", f"--arg={half}:bf16")
expect(0, "[1.5]", run, places, f"--arg={long}", f"--arg={half}:bf16")
expect(1, "contains 16-bit data; append ':bf16' to convert it to bf16", run, places, f"--arg={long}", f"--arg={half}")
expect(1, "contains 16-bit data; append ':f32' to convert it to f32", run, two, "--entry=double", f"--arg={half}")
expect(1, "contains i64; append ':f32' to convert it to f32", run, two, "--entry=double", f"--arg={long}")
expect(0, "10 threads", run, two, "--entry=double", "--arg=3:f32", "--time", "--threads=10")

# 1: the input was refused
expect(1, "expected a multiple", run, heads, "--arg=7x5x64:f32", "--arg=2x5x64:f32")
expect(1, "error", run, write("broken.mlir", b"func.func @f(%a: tensor<"))
expect(1, "error", compile, write("noise.mlir", bytes(range(256)) * 8), "-o", path("x.o"))
expect(1, "value has another length than key: found 7, expected 6", run, attention, three[0], three[1], "--arg=2x7x64:f32")
expect(1, "argument 'q' (tensor<?x?x64xf32>): found extent 63 in dimension 2, expected 64", run, attention, "--arg=2x5x63:f32", *three[1:])
expect(1, "argument 'q' (tensor<?x?x64xf32>): found 1 dimension, expected 3", run, attention, "--arg=5:f32", *three[1:])
expect(1, "has element type f64, expected f32", run, attention, "--arg=2x5x64:f64", *three[1:])
expect(1, "append ':f32'", run, two, "--entry=double", f"--arg={wide}")
many = ["--arg=1000000x1:f32", "--arg=1x1000000:f32", "--arg=1000000x1:f32"]
expect(1, "main: out of memory", run, os.path.join(inputs, "outer-product.mlir"), *many)
expect(1, "result 'result' (tensor<?xf32>): dimension 0 has the negative extent -3", run, two, "--entry=fill_with", "--arg=-3", "--arg=2")
grouped = write("heads.mlir", b"""func.func @f(%q: tensor<?x?x8xf32>, %k: tensor<?x?x8xf32>) -> tensor<?x?x8xf32> {
  %o = attn.attention %q[h,s,d], %k[h,s,d], %k[h,s,d]
      : (tensor<?x?x8xf32>, tensor<?x?x8xf32>, tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  return %o : tensor<?x?x8xf32>
}""")
expect(1, "KV heads: found 3, expected a multiple of 2", run, grouped, "--arg=3x5x8:f32", "--arg=2x5x8:f32")
nested = write("nested.mlir", b"module @inside { func.func @f() { return } }\nfunc.func @g() { return }")
expect(1, "a module inside a module is not supported", compile, nested, "-o", path("x.o"))
expect(1, "calls 'f' recursively", compile, write("loop.mlir", b"func.func @f() { call @f() : () -> () return }"), "-o", path("x.o"))

# A warning only.
expect(0, "has no public function", compile, write("nothing.mlir", b""), "-o", path("x.o"))

# 2: usage
expect(2, "unknown option '--tim'; did you mean '--time'?", run, attention, "--tim")
expect(2, "argument 'k' (tensor<?x?x64xf32>) is missing", run, attention, three[0])
expect(2, "takes 3 arguments", run, attention, *three, "--arg=1:f32")
expect(2, "fill_with(n: index, value: f32) -> (result: tensor<?xf32>)", run, two, "--entry=triple", "--arg=3:f32")
expect(2, "several entries", run, two, "--arg=3:f32")
expect(2, "is not a number", run, two, "--entry=fill_with", "--arg=3", "--arg=much")
expect(2, "neither FILE.npy", run, attention, "--arg=2xax64:f32", *three[1:])
for text, words in (("3:f32:1:2", "has too many parts"), ("3:f32:=x", "'x' is not a number"), ("3:f32:x", "'x' is not a seed"),
                    ("3:f33", "'f33' is not an element type"), ("-3:f32", "neither FILE.npy")):
    expect(2, words, run, two, "--entry=double", f"--arg={text}")
expect(2, "threads", run, two, "--entry=double", "--arg=3:f32", "--threads=x")
expect(2, "no input", compile)
expect(2, "unknown stage 'nowhere'", compile, attention, "--stop-after=nowhere")
expect(2, "an object needs a file", compile, attention)
expect(2, "expected mlir, llvm, asm, obj, so, header, ptx or cubin", compile, attention, "--emit=exe")

# 2: an output that is an input, also through another path, a hard link or a symbolic link
with open(two, "rb") as file:
    program = file.read()
mine = write("mine.mlir", program)
for name in ("mine-hard", "mine-soft"):
    if os.path.lexists(path(name)):
        os.remove(path(name))
os.link(mine, path("mine-hard"))
os.symlink("mine.mlir", path("mine-soft"))
for other in (mine, os.path.join(scratch, ".", "mine.mlir"), path("mine-hard"), path("mine-soft")):
    same = f"output '{other}' and input '{mine}' are the same file"
    expect(2, same, compile, mine, "--emit=mlir", "-o", other)
    expect(2, same, compile, mine, "--emit=so", "-o", path("mine.so"), f"--header={other}")
    expect(2, same, run, mine, "--entry=double", f"--arg={whole}", f"--out={other}")
    expect(2, f"output '{mine}' and input '{other}' are the same file", compile, other, "--emit=header", "-o", mine)
expect(2, "are the same file", run, two, "--entry=double", f"--arg={wide}:f32", f"--out={wide}")
with open(mine) as standard_input:
    done = subprocess.run([compile, "-", "--emit=mlir", "-o", mine], stdin=standard_input, stderr=subprocess.PIPE, text=True)
check(done.returncode == 2 and "are the same file" in done.stderr, f"standard input as output: {done}")
with open(mine, "rb") as file:
    check(file.read() == program, "an input was overwritten")
# A copy is another file, and a device may be both.
expect(0, "", compile, write("copy.mlir", program), "--emit=mlir", "-o", path("mine-copy.mlir"))
expect(0, "has no public function", compile, "/dev/null", "--emit=mlir", "-o", "/dev/null")

# 3: a file could not be read or written
expect(3, "cannot read", run, path("nowhere.mlir"))
expect(3, "nowhere.npy", run, two, "--entry=double", f"--arg={path('nowhere.npy')}")
truncated = write("truncated.npy", npy("<f4", "(3,)", b"12345678"))
expect(3, "8 bytes of data, expected 12", run, two, "--entry=double", f"--arg={truncated}")
expect(3, "magic", run, two, "--entry=double", f"--arg={write('noise.npy', bytes(100))}")
expect(3, "cannot write", run, two, "--entry=double", f"--arg={whole}", f"--out={path('no/such/folder.npy')}")
expect(3, "plugin", compile, attention, f"--load-pass-plugin={path('nowhere.so')}", "-o", path("x.o"))
expect(3, "cannot write '/dev/full': No space left", compile, attention, "-o", "/dev/full")
expect(3, "cannot write '/dev/full': No space left", run, two, "--entry=double", f"--arg={whole}", "--out=/dev/full")
expect(3, "cannot write", compile, attention, "-o", scratch)
for command in ([compile, attention, "--emit=mlir"], [run, "--help"], [run, two, "--entry=double", f"--arg={whole}"]):
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    check(done.returncode == 3 and "No space left" in done.stderr, f"{command} > /dev/full: {done}")

# Devices, pipes and links are written through, not replaced.
check(not os.path.isfile("/dev/full"), "/dev/full is a regular file now")
for command in ([compile, attention, "--emit=mlir", "-o"], [run, two, "--entry=double", f"--arg={whole}", "--out"]):
    subprocess.run([*command, path("plain")], check=True)
    with open(path("plain"), "rb") as file:
        expected = file.read()
    for name in ("pipe", "link", "target", "new-link", "new-target"):
        if os.path.lexists(path(name)):
            os.remove(path(name))
    os.mkfifo(path("pipe"))
    with open(path("read"), "wb") as file:  # a pipe would fill up before the reader is waited for
        reader = subprocess.Popen(["cat", path("pipe")], stdout=file)
    subprocess.run([*command, path("pipe")], check=True)
    isPipe = stat.S_ISFIFO(os.stat(path("pipe")).st_mode)
    check(isPipe, f"{command}: the pipe is gone")
    if not isPipe:
        reader.kill()
    reader.wait()
    with open(path("read"), "rb") as file:
        check(file.read() == expected, f"{command}: the pipe's reader got something else")
    write("target", b"old")
    os.symlink("target", path("link"))
    os.symlink("new-target", path("new-link"))
    for name, target in (("link", "target"), ("new-link", "new-target")):
        subprocess.run([*command, path(name)], check=True)
        check(os.path.islink(path(name)), f"{command}: {name} is no link any more")
        with open(path(target), "rb") as file:
            check(file.read() == expected, f"{command}: {target} holds something else")
    check(not [name for name in os.listdir(scratch) if ".temp-" in name], f"{command}: temporary files are left")

# 4: target not supported
expect(4, "expected one of host, portable, v3, v3-int8, v4, v4-bf16", run, attention, *three, "--target=sm_42")
expect(4, "not supported", compile, attention, "--target=riscv", "-o", path("x.o"))

# A program that is not ptxas, whether or not it fails.
gpu = ("--target=sm_80", "--emit=cubin", "-o", path("x.cubin"))
expect(4, "'/bin/false' is not NVIDIA's assembler: '--version' ended with exit code 1", compile, attention, *gpu, "--ptxas=/bin/false")
expect(4, "'/bin/true' is not NVIDIA's assembler: '--version' ended with exit code 0 and printed", compile, attention, *gpu,
       "--ptxas=/bin/true")
if not os.path.exists("/dev/nvidiactl"):
    expect(4, "no NVIDIA driver", run, attention, *three, "--device=cuda")

# 6: a NaN was found
expect(6, "argument 'q' has a NaN or infinity", run, attention, "--arg=2x5x64:f32:=nan", *three[1:], "--find-nan")
expect(0, "no NaN or infinity is made", run, attention, *three, "--find-nan")

# The message names the valid values of an option.
for option, words in (("--arithmetic=exact", "'exact' is not rounded or hardware"), ("--multiprocessors=0", "'0' is not a number of at least 1"),
                      ("--threads=-1", "'-1' is not a number of at least 0"), ("--guard=both", "'both' is not end, begin or off"),
                      ("--check=some", "'some' is not full")):
    expect(2, words, run, attention, *three, option)
expect(2, "gives 1 result, but --out is given 2 times", run, attention, *three, "--out=a.npy", "--out=b.npy")

sys.exit(1 if failures else 0)
