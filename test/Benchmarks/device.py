# REQUIRES: numpy
# UNSUPPORTED: asan, tsan
# RUN: rm -rf %t && mkdir %t
# RUN: %python %s %src %build %t
"""The bundle of ./dev device runs without the repository, on the CUDA driver double.

Everything passes there. A hang and a fault of a kernel cost only their check and row, wrong results are reported, Ctrl-C
keeps what was measured, and what cannot be done on a machine is said.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

SOURCE, BUILD, OUT = map(pathlib.Path, sys.argv[1:])
DRIVER = BUILD / "test/Support/FakeCUDA/libcuda.so.1"
INPUTS = pathlib.Path(__file__).parent / "Inputs"
HOPPER = "capability=90 shared=232448"
QUICK = ["--rounds=2", "--seconds=0.01"]


def start(folder, double, *options, bundle="bundle", driver=DRIVER, tools=False, **environment):
    path = f"{INPUTS / 'tools'}:{os.environ['PATH']}" if tools else os.environ["PATH"]
    command = [sys.executable, OUT / bundle / "device.py", "--out", OUT / folder, *QUICK, *options]
    command += ["--driver", driver] if driver else []
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, "SACCADE_DOUBLE": double, "PATH": path, **environment})


def run(folder, code, *arguments, **more):
    """The output of a run, which has to end with this exit code."""
    process = start(folder, *arguments, **more)
    output, _ = process.communicate()
    assert process.returncode == code, f"exit code {process.returncode}, expected {code}:\n{output}"
    return output


def expect(text, *patterns):
    for pattern in patterns:
        assert re.search(pattern, text, re.M), f"no {pattern!r} in:\n{text}"


def test_everything():
    output = run("all", 1, HOPPER, tools=True)
    # The stand-in for compute-sanitizer finds races in the kernels of documents; everything else passes.
    expect(output, "^a simulated GPU .compute capability 9.0.*kernels for sm_80, sm_90a",
           r"^ok   sm_80: bf16_d64_documents .*: output \d", "^ok   sm_90a: bf16_d64_documents .*: output",
           r"^\*\*\d+ of \d+ checks pass, 2 failed or lost\*\*; 7 rows timed",
           "^- sm_90a: racecheck, documents, sm_90a: RACECHECK SUMMARY: 2 hazards",
           r"^\| head sizes 192, 256 \| 1 of 1, 0\.\d+ \| 1 of 1, 0\.", r"^\| tallies \| 1 of 1, [\d.]+ \|  \|",
           r"^\| 16-bit GEMM \| 1 of 1", r"^\| instructions \|  \|  \| 6 of 6",
           r"^- copy: [\d.e-]+ TB/s, cuMemcpyDtoD",
           r"^\| problem \| unit \| sm_80 \| sm_90a \| sm_80, contiguous \| sm_90a, contiguous \| of the ceiling \| calls / graph \| error \|",
           r"^\| bf16 d64 causal 1x2x140 \| TFLOP/s \| [\d.e-]+ \| [\d.e-]+ \|",
           r"^\| bf16 d64 full pages of 16 1x2\(1\)x1x64 \| TB/s \| [\d.e-]+ \|",
           r"sm_80, tasks of 64 rows \| [\d.e-]+ \|",
           r"sm_80, steps of 32 keys \| [\d.e-]+ \|", r"sm_90a, odd addresses \| [\d.e-]+ \|",
           r"causal 1x2x140, sm_90a \| attend_attention \| 1,234.50 us \| 240 register/thread",
           "^- no PyTorch: the ceiling of GEMM and PyTorch's kernels; FlexAttention", "^Time: checks ")
    for name in ("data movement", "integers", "conversions", "rounded arithmetic", "approximate functions", "mma"):
        expect(output, rf"^ok   instructions, {name}: (\d+) of \1 as simulated")
    expect((OUT / "all/instructions.csv").read_text(), "^group,instruction,worst,allowed,unit",
           '^integers,"add.s32 %d, %a, %b",0,0,different bits',
           "^mma,mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 of integers,0,0,different bits",
           r"^mma,mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32,[\d.]+,22,eps")
    expect((OUT / "all/device.csv").read_text(), r"^rows,bf16 d64 causal 1x2x140,sm_90a,[\d.]+,[\d.e-]+,TFLOP/s,[\d.]+,\d")
    raw = json.loads((OUT / "all/device.json").read_text())
    assert all(row["errors"]["sm_90a"] < 1e-2 for row in raw["rows"] if "sm_90a" in row["errors"]
               and row["errors"]["sm_90a"] is not None), raw["rows"]


def test_peers():
    """Rows and the GEMM with a stand-in for PyTorch."""
    output = run("peers", 0, HOPPER, "--groups=rows,flex", driver=None, PYTHONPATH=str(INPUTS / "peers"),
                 LD_LIBRARY_PATH=str(DRIVER.parent))
    expect(output, "; PyTorch stand-in .CUDA 13.0, cuDNN 1., Python", r"^- GEMM: [\d.e-]+ TFLOP/s, 128³ in bf16 by PyTorch",
           r"^\| problem \| unit \| sm_80 \| sm_90a \| sm_80, contiguous \| sm_90a, contiguous \| torch flash \| torch linear \| ours / best peer \| of the",
           # Gradients and projections are compared with the peer.
           r"^\| bf16 d64 causal gradient 1x1x40 \|.* 2.0e-03 \|$", r"^\| bf16 linear 40x40x64 \|.* 2.0e-03 \|$",
           r"^- torch cudnn: No available kernel. \(bf16 d64 causal 1x2x140, ", "^- flex: .*flex_attention.* .bf16 d64 documents",
           "^Nothing was left out")


def test_refused_counters():
    output = run("refused", 0, HOPPER, "--groups=counters", "--only=d64 causal", tools=True, NCU_REFUSES="1")
    expect(output, "^- ncu: ERROR== ERR_NVGPUCTRPERM - The user does not have permission: counters, bf16 d64 causal 1x2x140, sm_80$",
           "^- ncu gave nothing before: bf16 d64 causal 1x2x140, sm_90a; bf16 d64 causal gradient 1x1x40, sm_80")


def test_losses():
    """A hang of a check, a hang of a contender and a fault that the driver does not recover from, in three processes."""
    check = start("hang", f"{HOPPER} hang=documents_attention_sm_90a", "--groups=checks", "--limit=30", "--only=bf16_d64")
    row = start("hang-row", f"{HOPPER} hang=d64_causal_attention_sm_90a", "--groups=rows,lengths", "--limit=15")
    fault = run("fault", 1, f"{HOPPER} fault=causal_gradient", "--groups=rows")
    expect(fault, r"^\*\*0 of 1 checks pass, 1 failed or lost\*\*; 3 rows timed",
           "^- row bf16 d64 causal gradient 1x1x40, setup: .*LAUNCH_FAILED",
           r"^\| bf16 d64 causal gradient 1x1x40 \| not timed, see Failures",
           r"^\| bf16 linear 40x40x64 \| TFLOP/s \| [\d.e-]+")
    output, _ = check.communicate()
    assert check.returncode == 1, output
    expect(output, r"^\*\*(\d+) of \d+ checks pass, 1 failed or lost\*\*",
           "^- sm_90a: bf16_d64_documents 1x1x70x70: killed at its limit of 30 s",
           r"^\| documents \| 1 of 1, [\d.]+ \| \*\*0 of 1\*\* \|", r"^\| sinks \| 1 of 1, [\d.]+ \| 1 of 1, ")
    output, _ = row.communicate()
    assert row.returncode == 1, output
    # The row is timed again without the contender, whose library later rows leave out.
    expect(output, "^- row bf16 d64 causal 1x2x140, sm_90a: killed at its limit of 30 s",
           r"^\| bf16 d64 causal 1x2x140 \| TFLOP/s \| [\d.e-]+ \|",
           "^- sm_90a: not run: its library was lost in an earlier row .bf16 d64 causal 1x1x300.")


def test_wrong_results():
    shutil.copytree(OUT / "bundle", OUT / "wrong")
    for name, size in (("case-3-output-expected.bin", 64), ("instructions-conversions.bin", 2048)):
        with open(OUT / "wrong" / name, "r+b") as file:
            file.write(bytes(size))
    output = run("wrong-out", 1, "capability=80", "--groups=checks", bundle="wrong")
    expect(output, "^ok   sm_80: bf16_d64_documents", "^FAIL sm_80: bf16_d64_full_softcap 1x2.1.x37x50: output",
           "^FAIL instructions, conversions: 50 of 51 as simulated; cvt.rzi.s32.f32 %d, %a: error",
           "checks pass, 2 failed or lost", r"^\| soft-cap, ALiBi \| \*\*0 of 1\*\*",
           "^- this GPU has compute capability 8.0, not 9.0: sm_90a")


def test_time_and_interruption():
    output = run("late", 0, HOPPER, "--minutes=0.05", "--groups=checks")
    expect(output, r"^\*\*(\d+ of \d+ checks pass|no checks run)\*\*", "^- no time left: .*instructions, mma")
    process = start("stopped", HOPPER)
    while not (OUT / "stopped/device.md").exists() or "of 1, " not in (OUT / "stopped/device.md").read_text():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    report = (OUT / "stopped/device.md").read_text()
    expect(report, r"minutes used; stopped after \d+ s", r"^\| forward bf16 d64 \| 1 of 1", "^- stopped before: ")


def test_errors():
    expect(run("none", 4, "cuInit=100"), "^device.py: no usable GPU: cuInit returned CUDA_ERROR_NO_DEVICE")
    expect(run("none", 4, "", driver=OUT / "nowhere.so"), "^device.py: no usable GPU: .*nowhere.so")
    expect(run("none", 4, "capability=75"), "no usable GPU: sm_80: this GPU has compute capability 7.5, below 8.0; sm_90a: ")
    expect(run("none", 2, "", "--only=nothing"), "nothing to run in the groups .* whose name contains 'nothing'")
    expect(run("none", 2, "", "--groups=row"), "--groups: found 'row', expected some of checks,rows,")


bundled = subprocess.run([sys.executable, SOURCE / "benchmarks/device/bundle.py", "--build", BUILD, "--out", OUT / "bundle",
                          "--tiny"], capture_output=True, text=True)
assert bundled.returncode == 0, bundled.stderr
expect(bundled.stdout, r"bundle: \d+ libraries, 9 checks, 8 benchmark rows, [\d.]+ MiB")
for name, test in list(globals().items()):
    if name.startswith("test_"):
        begin = time.monotonic()
        test()
        print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)
