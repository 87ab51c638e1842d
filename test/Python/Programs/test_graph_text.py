"""The parts that all readers of models share: texts of constants and names, weight files, and programs in files."""

import ast
import dataclasses
import io
import os
import pathlib
import re
import stat
import struct

import numpy as np
import pytest

from saccade._graph import ELEMENTS, Program, Tensor, Value, Writer, tensor_type
from saccade._text import Names, Scope, declare, float_attribute, quote

random = np.random.default_rng(5)
SHAPES = [(), (1,), (3,), (0,), (2, 3), (3, 1), (2, 0), (0, 2), (2, 3, 4), (1, 2, 1, 3)]


def drawn(element, shape):
    """A tensor of random bits, with the array of its elements as integers."""
    size = ELEMENTS[element][1]
    bits = random.integers(0, 2 if element == "i1" else 256, (*shape, size), np.uint8)
    return Tensor(element, shape, bits.tobytes()), np.frombuffer(bits.tobytes(), f"<u{size}").reshape(shape)


def nested(text):
    """The elements of the text of a constant, nested as written."""
    if not text:
        return []
    text = re.sub(r"true|false", lambda found: str(found[0] == "true"), text)
    return ast.literal_eval(text)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("element", ELEMENTS)
def test_constants_have_all_bits_of_their_elements(element, shape):
    tensor, bits = drawn(element, shape)
    text, type = re.fullmatch(r"dense<(.*)> : (.*)", tensor.dense()).groups()
    assert type == tensor.type == f"tensor<{''.join(f'{extent}x' for extent in shape)}{element}>"
    found = np.array(nested(text), object)
    if bits.size:
        assert found.shape == shape
        width = 8 * ELEMENTS[element][1]
        assert [int(each) % 2**width for each in found.ravel()] == bits.ravel().tolist()
        hexadecimal = re.findall(r"0x[0-9A-F]+", text)
        assert all(len(each) == 2 + width // 4 for each in hexadecimal)
        assert len(hexadecimal) == (0 if element.startswith("i") else bits.size)


@pytest.mark.parametrize("shape", [*SHAPES, (1,) * 9], ids=str)
@pytest.mark.parametrize("element", ELEMENTS)
def test_weight_files_are_read_by_numpy(element, shape):
    tensor, bits = drawn(element, shape)
    data = tensor.npy()
    found = np.load(io.BytesIO(data))
    assert found.shape == bits.shape
    assert found.dtype == np.dtype(ELEMENTS[element][0])
    assert found.flags.c_contiguous
    assert found.tobytes() == tensor.data
    assert (len(data) - len(tensor.data)) % 64 == 0, "the elements are aligned"


def test_types_have_extents_that_are_open():
    assert tensor_type("f32", ()) == "tensor<f32>"
    assert tensor_type("i1", (2, None, 0)) == "tensor<2x?x0xi1>"


# --- names and literals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [
    ["a", "a", "a", "a_1", "a"], ["a_1", "a", "a"], ["x.y", "x_y", "x/y"], ["1", "_1", "2"], ["", ""], ["arg0", "arg0", "_arg0"],
    ["ä", "ö"], ["a b", "a%b", "a\"b"], ["argument", "arg"],
], ids=str)  # fmt: skip
def test_names_are_valid_and_unique(given):
    names = Names()
    found = [names.unique(each) for each in given]
    assert len(set(found)) == len(given)
    assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", each) for each in found), found
    assert not [each for each in found if each.startswith("arg")], "the printer's own names"
    again = Names()
    assert [again.unique(each) for each in given] == found
    assert Names().unique("weight_1") == "weight_1", "a name that is valid stays"


def test_literals_have_all_bytes():
    every = bytes(range(256))
    text = quote(every)
    assert text[0] == text[-1] == '"'
    assert re.fullmatch(r'([ !#-\[\]-~]|\\[0-9A-F]{2})*', text[1:-1])
    found = re.sub(r"\\([0-9A-F]{2})", lambda byte: chr(int(byte[1], 16)), text[1:-1]).encode("latin-1")
    assert found == every
    assert quote("a") == '"a"'
    assert quote("é") == quote("é".encode())


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, 0.1, 1e-45, 3e38, float("inf"), float("-inf"), float("nan")])
def test_float_attributes_have_all_bits(value):
    bits, type = re.fullmatch(r"0x([0-9A-F]{8}) : (\w+)", float_attribute(value)).groups()
    assert type == "f32"
    assert bytes.fromhex(bits) == struct.pack(">f", value)


def test_extents_are_named_where_one_has_a_name():
    assert declare("x", "tensor<?x2xf32>", ["n", ""]) == '%x: tensor<?x2xf32> {attn.dim_names = ["n", ""]}'
    assert declare("x", "tensor<?xf32>", [""]) == declare("x", "tensor<?xf32>", []) == "%x: tensor<?xf32>"


def test_a_name_is_found_in_every_enclosing_scope():
    scopes = [Scope()]
    for _ in range(3):
        scopes.append(Scope(scopes[-1]))
    for i, scope in enumerate(scopes):
        scope.values.update({"own": (f"%{i}", "t"), f"of{i}": (f"%of{i}", "t")})
    for i, scope in enumerate(scopes):
        assert scope.find("own") == (f"%{i}", "t")
        found = [scope.find(f"of{n}") for n in range(4)]
        assert found == [(f"%of{n}", "t") if n <= i else None for n in range(4)]


# --- programs ---------------------------------------------------------------------------------------------------------


def test_ops_are_numbered_and_placed():
    writer = Writer("model.onnx")
    assert writer.emit("a.b", [("%x", "f32"), ("%y", "i1")], ["f32"], " {z}", "n") == "%0"
    assert writer.emit("a.c", [], ["f32", "i1"]) == "%1"
    assert writer.emit("a.d", [("%1#1", "i1")], [], place=("f.py", 7)) == "%2"
    assert writer.lines == [
        '%0 = "a.b"(%x, %y) {z} : (f32, i1) -> (f32) loc("n"("model.onnx":1:0))',
        '%1:2 = "a.c"() : () -> (f32, i1) loc("a.c"("model.onnx":2:0))',
        '"a.d"(%1#1) : (i1) -> () loc("a.d"("f.py":7:0))',
    ]


class Weight:
    def __init__(self, data):
        self.data = data

    def npy(self):
        if isinstance(self.data, Exception):
            raise self.data
        return self.data


def program(*weights):
    values = [Value(f"w{i}", f"w_{i}", "f32", (1,)) for i in range(len(weights))]
    return Program("text", [], list(zip(values, map(Weight, weights))), [])


@pytest.mark.parametrize(("name", "stem"), [("a.mlir", "a"), ("a.b.mlir", "a.b"), ("a.txt", "a.txt"), ("a.mlir.x", "a.mlir.x"), ("amlir", "amlir")])
def test_files_of_a_program(tmp_path, name, stem):
    path = tmp_path / "v1.0" / name
    path.parent.mkdir()
    files = program(b"one", b"two").write(path)
    assert files == [f"{path.parent}/{stem}.w_0.npy", f"{path.parent}/{stem}.w_1.npy", str(path)]
    assert [pathlib.Path(file).read_bytes() for file in files] == [b"one", b"two", b"text"]
    assert sorted(os.listdir(path.parent)) == sorted(map(os.path.basename, files))
    assert {stat.S_IMODE(os.stat(file).st_mode) for file in files} == {0o644}


def test_a_program_is_written_into_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert program(b"one").write("a.mlir") == ["a.w_0.npy", "a.mlir"]


def test_an_error_leaves_the_files_as_they_were(tmp_path):
    path = tmp_path / "a.mlir"
    program(b"one", b"two").write(path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    for error in (ValueError("no"), OSError("full")):
        with pytest.raises(type(error)):
            program(b"changed", error).write(path)
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    with pytest.raises(OSError, match="missing"):
        program(b"one").write(tmp_path / "missing" / "a.mlir")


def test_values_do_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Value("w", "w", "f32", (1,)).name = "x"
