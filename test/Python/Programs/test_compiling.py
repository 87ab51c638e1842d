"""`saccade.compile` takes text, bytes and paths, says what it does not take, and compiles a program once."""

import copy
import pathlib
import pickle
import subprocess

import numpy as np
import programs
import pytest
from programs import refused

import saccade

TEXT = programs.attention()
TENSOR = "tensor<?x?x?x16xf32>"
SIGNATURE = f"first(q: {TENSOR}, k: {TENSOR}, v: {TENSOR}) -> {TENSOR}"
q, k, v = np.random.default_rng(1).standard_normal((3, 2, 3, 7, 16)).astype(np.float32)


@pytest.fixture(scope="module")
def expected():
    result = saccade.compile(TEXT).attend(q, k, v)
    assert np.abs(result - programs.expected_attention(q, k, v)).max() < 1e-5
    return result


# --- what a program may come as


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "attend.mlir"
    path.write_text(TEXT)
    return path


@pytest.fixture
def bytecode(file):
    path = file.with_suffix(".mlirbc")
    subprocess.run(["saccade-opt", file, "--emit-bytecode", "-o", path], check=True)
    assert path.read_bytes()[:4] == b"ML\xefR"
    return path


@pytest.mark.parametrize(
    "program", [TEXT.replace("\n", " "), TEXT.encode(), bytearray(TEXT.encode())], ids=["line", "bytes", "bytearray"]
)
def test_text_of_any_type_is_compiled(expected, program):
    assert np.array_equal(saccade.compile(program).attend(q, k, v), expected)


@pytest.mark.parametrize("form", [str, pathlib.Path])
def test_a_path_is_read(expected, file, form):
    assert np.array_equal(saccade.compile(form(file)).attend(q, k, v), expected)


def test_bytecode_is_compiled(expected, bytecode):
    assert np.array_equal(saccade.compile(bytecode).attend(q, k, v), expected)
    assert np.array_equal(saccade.compile(bytecode.read_bytes()).attend(q, k, v), expected)


def test_a_file_that_does_not_exist_is_refused():
    words = ["nowhere.mlir", 'without "func.func" is interpreted as a path']
    refused(FileNotFoundError, words, saccade.compile, "nowhere.mlir")
    refused(FileNotFoundError, ["func.func"], saccade.compile, pathlib.Path("func.func"))


@pytest.mark.parametrize("empty", ["", b"", "  ", "\n", bytearray()], ids=repr)
def test_an_empty_program_is_refused(empty):
    refused(ValueError, ["program is empty"], saccade.compile, empty)


def test_a_list_is_no_program():
    refused(TypeError, ["program is a list", "expected MLIR as text or bytes, or a path"], saccade.compile, [TEXT])


# --- a module


@pytest.fixture(scope="module")
def module():
    return saccade.compile(programs.attention(name="first") + programs.attention("f64", "second"), target="portable")


def test_a_module_is_a_mapping_of_functions(module):
    assert list(module) == list(module.functions) == ["first", "second"]
    assert len(module) == 2
    assert "first" in module
    assert module["second"] is module.second
    assert "second" in dir(module)


def test_a_module_says_what_it_is(module):
    assert module.target == "portable"
    assert repr(module).startswith("<saccade.Module '<program>' for portable")
    assert SIGNATURE in repr(module)


def test_a_function_has_a_signature(module):
    assert module.first.signature == SIGNATURE
    assert SIGNATURE in repr(module.first)
    query, *_ = module.first.inputs
    assert query == ("q", TENSOR, "float32", (None, None, None, 16), None)
    assert module.second.results[0].dtype == "float64"


def test_several_results_have_names_in_a_signature():
    program = saccade.compile("""
        func.func @f(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>) -> (tensor<?x16xf32>, tensor<?xf32>) {
          %o, %lse = attn.attention %q[s,d], %k[s,d], %k[s,d] lse
            : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> (tensor<?x16xf32>, tensor<?xf32>)
          return %o, %lse : tensor<?x16xf32>, tensor<?xf32>
        }""")
    assert program.f.signature.endswith(" -> (output: tensor<?x16xf32>, lse: tensor<?xf32>)")


def test_a_missing_function_is_refused(module):
    refused(AttributeError, ["no public function 'third'", "it has: first, second"], getattr, module, "third")
    refused(KeyError, ["no public function 'third'", "it has: first, second"], lambda: module["third"])


@pytest.mark.parametrize("twin", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy], ids=["pickle", "deepcopy"])
def test_a_copied_module_computes_the_same(module, twin):
    assert np.array_equal(twin(module).first(q, k, v), module.first(q, k, v))


def test_functions_are_pickled(module):
    first, second = pickle.loads(pickle.dumps((module.first, module.second)))
    assert first.signature == SIGNATURE
    assert second.name == "second"
    assert np.array_equal(first(q, k, v), module.first(q, k, v))


def test_a_copied_function_is_the_same_object(module):
    assert copy.deepcopy({"f": module.first})["f"] is copy.copy(module.first) is module.first


# They give its code back when they go.
def test_functions_outlive_their_module(expected):
    function = saccade.compile(TEXT).attend
    saccade.cache_clear()
    assert np.array_equal(function(q, k, v), expected)


# --- options


def test_insert_after_adds_passes(tmp_path):
    written = tmp_path / "inserted.mlir"
    saccade.compile(TEXT, insert_after=[("transforms", f"attn-write-module{{file={written}}}")])
    assert "attn.attention" in written.read_text()
    saccade.compile(TEXT, insert_before=[("transforms.shapes", f"attn-write-module{{file={written}}}")])
    assert "attn.shapes_of" not in written.read_text()


def test_verify_may_be_off():
    assert saccade.compile(TEXT, verify=False).attend(q, k, v).shape == q.shape


@pytest.mark.parametrize(
    ("exception", "words", "options"),
    [
        (TypeError, ["no option 'linty'", "target", "lint", "verify", "insert_after"], {"linty": True}),
        (ValueError, ["'target'", "riscv", "host", "portable", "v3"], {"target": "riscv"}),
        (ValueError, ["'lint'", "maybe", "true or false"], {"lint": "maybe"}),
        (TypeError, ["option lint is a list", "expected a string, an int or a bool"], {"lint": []}),
        (ValueError, ["insert-after", "middle", "transforms"], {"insert_after": [("middle", "cse")]}),
        *((TypeError, [name, "(point, passes)"], {name: wrong}) for name in ("insert_after", "insert_before")
          for wrong in ("transforms:cse", [("transforms",)], 3, [("transforms", 3)], [None])),
        (ValueError, ["cannot load the plugin 'nowhere.so'", "No such file"], {"load_pass_plugin": "nowhere.so"}),
        (TypeError, ["load_dialect_plugin", "a path or a list of paths"], {"load_dialect_plugin": [3]}),
    ],
    ids=lambda value: repr(value) if isinstance(value, dict) else "",
)  # fmt: skip
def test_wrong_options_are_refused(exception, words, options):
    refused(exception, words, saccade.compile, TEXT, **options)


# --- the cache


@pytest.fixture
def empty_cache():
    saccade.cache_clear()
    assert saccade.cache_info()[:3] == (0, 0, 0)


def test_text_and_bytes_are_one_program(empty_cache):
    saccade.compile(TEXT)
    saccade.compile(TEXT.encode())
    assert saccade.cache_info()[:3] == (1, 1, 1)


def test_another_target_is_another_module(empty_cache):
    saccade.compile(TEXT)
    saccade.compile(TEXT)
    saccade.compile(TEXT, target="portable")
    assert saccade.cache_info()._asdict() == {"hits": 1, "compilations": 2, "modules": 2, "disk_hits": 0,
                                               "disk_misses": 0}  # fmt: skip


def test_another_length_is_not_compiled_again():
    attend = saccade.compile(TEXT).attend
    before = saccade.cache_info().compilations
    for length in range(1, 9):
        attend(q[:1, :2], k[:1, :2, :length], v[:1, :2, :length])
    assert saccade.cache_info().compilations == before


# --- threads


@pytest.fixture
def default_threads():
    saccade.set_num_threads(0)
    yield saccade.num_threads()
    saccade.set_num_threads(0)


def test_the_number_of_threads_may_be_set_and_reset(default_threads):
    saccade.set_num_threads(1)
    assert saccade.num_threads() == 1
    saccade.set_num_threads(0)
    assert saccade.num_threads() == default_threads


def test_a_negative_number_of_threads_is_refused():
    refused(ValueError, ["found -1 threads", "0 (the machine's count)"], saccade.set_num_threads, -1)


@pytest.mark.parametrize("wrong", ["x", None, 1.5])
def test_a_number_of_threads_that_is_no_int_is_refused(wrong):
    refused(TypeError, [f"threads is {wrong!r}", "expected an int"], saccade.set_num_threads, wrong)
