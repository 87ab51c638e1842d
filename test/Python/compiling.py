"""`saccade.compile` takes text, bytes and paths, says what it does not take, and compiles a program once.

REQUIRES: numpy
UNSUPPORTED: asan, tsan
RUN: rm -rf %t && mkdir %t
RUN: %python %s %S/Inputs %src %t
"""

import copy
import pathlib
import pickle
import subprocess
import sys
import warnings

sys.path.append(sys.argv[1])
source, folder = map(pathlib.Path, sys.argv[2:])

import numpy as np
import programs
from programs import refused

import saccade

# --- what a program may come as: text, bytes, a path as a string or not, bytecode
text = programs.attention()
q, k, v = np.random.default_rng(1).standard_normal((3, 2, 3, 7, 16)).astype(np.float32)
expected = saccade.compile(text).attend(q, k, v)
assert np.abs(expected - programs.expected_attention(q, k, v)).max() < 1e-5

file = folder / "attend.mlir"
file.write_text(text)
bytecode = folder / "attend.mlirbc"
subprocess.run(["saccade-opt", file, "--emit-bytecode", "-o", bytecode], check=True)
assert bytecode.read_bytes()[:4] == b"ML\xefR"
line = text.replace("\n", " ")
assert "\n" not in line
for program in (line, text.encode(), str(file), file, bytecode, bytecode.read_bytes(), bytearray(text.encode())):
    assert np.array_equal(saccade.compile(program).attend(q, k, v), expected), program

refused(FileNotFoundError, ["nowhere.mlir", 'without "func.func" is interpreted as a path'], saccade.compile, "nowhere.mlir")
refused(FileNotFoundError, ["func.func"], saccade.compile, pathlib.Path("func.func"))
for empty in ("", b"", "  ", "\n", bytearray()):
    refused(ValueError, ["program is empty"], saccade.compile, empty)
refused(TypeError, ["program is a list", "expected MLIR as text or bytes, or a path"], saccade.compile, [text])

# --- a module
module = saccade.compile(programs.attention(name="first") + programs.attention("f64", "second"), target="portable")
assert list(module) == list(module.functions) == ["first", "second"] and len(module) == 2 and "first" in module
assert module["second"] is module.second and "second" in dir(module) and module.target == "portable"
tensor = "tensor<?x?x?x16xf32>"
signature = f"first(q: {tensor}, k: {tensor}, v: {tensor}) -> {tensor}"
assert module.first.signature == signature and signature in repr(module.first) and signature in repr(module)
assert repr(module).startswith("<saccade.Module '<program>' for portable")
query, *_ = module.first.inputs
assert query == ("q", tensor, "float32", (None, None, None, 16)), query
assert module.second.results[0].dtype == "float64"
refused(AttributeError, ["no public function 'third'", "it has: first, second"], getattr, module, "third")
refused(KeyError, ["no public function 'third'", "it has: first, second"], lambda: module["third"])
for twin in (pickle.loads(pickle.dumps(module)), copy.deepcopy(module)):
    assert np.array_equal(twin.first(q, k, v), module.first(q, k, v))
first, second = pickle.loads(pickle.dumps((module.first, module.second)))
assert first.signature == signature and second.name == "second" and np.array_equal(first(q, k, v), module.first(q, k, v))
assert copy.deepcopy({"f": module.first})["f"] is copy.copy(module.first) is module.first

# Functions outlive their module, and give its code back when they go.
function = saccade.compile(text).attend
del module, twin
saccade.cache_clear()
assert np.array_equal(function(q, k, v), expected)

# --- stages
module = saccade.compile(text)
assert "attn.attention" in module.ir("transforms") and "attn.accumulate" in module.ir("tiling")
assert "define" in module.ir("llvm") and ".text" in module.ir("asm")
refused(ValueError, ["no stage 'middle'", "transforms", "llvm", "asm"], module.ir, "middle")

# --- reports
report = module.explain()
assert report.startswith("attention in 'attend'") and "kernel family" in report and "--explain-size=" in report, report
report = module.explain("attend", b=1, h=2, q=32, k=48)
assert "tiles: 1 of" in report and "pairs: 1,536" in report, report
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    assert "attend" in module.explain("attend", b=1, h=2, q=32, k=48, nothing=1)
refused(KeyError, ["no public function 'another'", "it has: attend"], lambda: module.explain("another", q=32))
assert ["no attention uses the size 'attend:nothing'"] == [str(warning.message) for warning in said], said
alone = """
func.func @weights(%s: tensor<?x?xf32>, %e: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %p = linalg.softmax dimension(1) ins(%s : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %p : tensor<?x?xf32>
}
"""
reason = "not raised to attention: its weights are not used by a P·V matmul, but by 'func.return'"
with warnings.catch_warnings():
    warnings.simplefilter("error")
    report = saccade.compile(alone).explain()
assert f"softmax at <program>:3:8: {reason}" in report and report.count("not raised") == 1, report
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    saccade.compile(alone, remarks=True)
assert len(said) == 1 and reason in str(said[0].message), said
refused(ValueError, ["size 'q=-1' is negative"], module.explain, q=-1)
refused(TypeError, ["size q is 'many', expected an int"], module.explain, q="many")

# --- options
renamed = folder / "inserted.mlir"
saccade.compile(text, insert_after=[("transforms", f"attn-write-module{{file={renamed}}}")])
assert "attn.attention" in renamed.read_text()
assert saccade.compile(text, verify=False).attend(q, k, v).shape == q.shape
refused(TypeError, ["no option 'linty'", "target", "lint", "verify", "insert_after"], saccade.compile, text, linty=True)
refused(ValueError, ["'target'", "riscv", "host", "portable", "v3"], saccade.compile, text, target="riscv")
refused(ValueError, ["'lint'", "maybe", "true or false"], saccade.compile, text, lint="maybe")
refused(TypeError, ["option lint is a list", "a string, a number or True or False"], saccade.compile, text, lint=[])
refused(ValueError, ["insert-after", "middle", "transforms"], saccade.compile, text, insert_after=[("middle", "cse")])
for wrong in ("transforms:cse", [("transforms",)], 3, [("transforms", 3)], [None]):
    refused(TypeError, ["insert_after", "(stage, passes)"], saccade.compile, text, insert_after=wrong)

# --- what the compiler says
wrong = (source / "test" / "Tools" / "Inputs" / "wrong-heads.mlir").read_text()
said = ["<program>:2:8: error: ", "query has 7 heads, expected a multiple of the 2 KV heads"]
error = refused(saccade.CompileError, said, saccade.compile, wrong)
assert isinstance(error, ValueError)
(diagnostic, *_) = error.diagnostics
assert diagnostic[:4] == ("error", "<program>", 2, 8) and "query has 7 heads" in diagnostic.message, diagnostic
assert diagnostic.text.splitlines()[2].strip() == "^" and diagnostic.text in str(error)
again = pickle.loads(pickle.dumps(error))
assert str(again) == str(error) and again.diagnostics == error.diagnostics
file.write_text("func.func @attend(%q: tensor<")
error = refused(saccade.CompileError, [f"{file}:1:"], saccade.compile, file)
assert error.diagnostics[0].file == str(file)
refused(saccade.CompileError, ["error"], saccade.compile, bytes(range(256)) * 8)

lintable = (source / "test" / "Tools" / "Inputs" / "wrong-scale.mlir").read_text()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    saccade.compile(lintable)
    assert not caught, caught
    saccade.compile(lintable, lint=True)
assert len(caught) == 1 and caught[0].category is saccade.Warning and caught[0].filename == __file__, caught
assert "warning: scale is 1/√512" in str(caught[0].message), caught[0]

# --- the cache
saccade.cache_clear()
assert saccade.cache_info() == (0, 0, 0)
saccade.compile(text)
saccade.compile(text.encode())
assert saccade.cache_info() == (1, 1, 1), saccade.cache_info()
saccade.compile(text, target="portable")
assert saccade.cache_info()._asdict() == {"hits": 1, "compilations": 2, "modules": 2}
attend = saccade.compile(text).attend
for length in range(1, 9):
    attend(q[:1, :2], k[:1, :2, :length], v[:1, :2, :length])
assert saccade.cache_info().compilations == 2, "another length was compiled again"

# --- threads
before = saccade.num_threads()
saccade.set_num_threads(1)
assert saccade.num_threads() == 1
saccade.set_num_threads(0)
assert saccade.num_threads() == before
refused(ValueError, ["found -1 threads", "0 (the machine's count)"], saccade.set_num_threads, -1)
for wrong in ("x", None, 1.5):
    refused(TypeError, [f"threads is {wrong!r}", "expected an int"], saccade.set_num_threads, wrong)
