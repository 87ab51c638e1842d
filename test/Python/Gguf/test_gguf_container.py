"""The reader of GGUF files against that of the package gguf, and files that are truncated, damaged or hostile."""

import pathlib
import random
import re
import resource
import struct

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

import gguf_models
from saccade.gguf import Container, FileError
from saccade.gguf.elements import ELEMENTS

torch = pytest.importorskip("torch")


def header(tensors=0, pairs=0, version=3):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs)


def text(value):
    return struct.pack("<Q", len(value)) + value


def pair(key, kind, value):
    return text(key) + struct.pack("<I", kind) + value


def described(name, extents, kind=0, offset=0):
    return text(name) + struct.pack(f"<I{len(extents)}QIQ", len(extents), *extents, kind, offset)


@pytest.fixture
def refused(tmp_path):
    """A function that reads bytes as a file and returns the message that it is refused with."""
    def check(data):
        path = tmp_path / "x.gguf"
        path.write_bytes(data)
        with pytest.raises(FileError) as error:
            Container(path)
        assert re.match(re.escape(f"{path}: offset ") + r"\d+: ", str(error.value))
        return str(error.value).removeprefix(f"{path}: ")
    return check


def test_element_types_are_those_of_the_package():
    kinds = set(Kind) - {Kind.Q8_1}  # no file has it, and the package has 40 bytes in place of ggml's 36
    sizes = {ELEMENTS[kind].name: (ELEMENTS[kind].block, ELEMENTS[kind].size) for kind in map(int, kinds)}
    assert sizes == {kind.name: gguf.GGML_QUANT_SIZES[kind] for kind in kinds}


def test_tensors_and_metadata_are_those_of_the_package(tmp_path):
    path = tmp_path / "all.gguf"
    out, rng = gguf.GGUFWriter(path, "llama"), np.random.default_rng(0)
    for key, value in {"a.int": -5, "a.text": "Größe", "a.flag": True, "a.float": 0.25, "a.list": [3, 4, 5],
                       "a.texts": ["x", "", "yz"], "a.floats": [0.5, -2.0]}.items():
        out.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    numbers = rng.standard_normal((6, 512), dtype=np.float32)
    for kind in (Kind.F32, Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q4_1, Kind.Q8_0, Kind.Q5_0):
        out.add_tensor(f"{kind.name}.weight", gguf.quantize(numbers, kind), raw_dtype=kind)
    for kind in (Kind.Q4_K, Kind.Q6_K):
        size = gguf.GGML_QUANT_SIZES[kind][1]
        out.add_tensor(f"{kind.name}.weight", rng.integers(0, 256, (6, 2 * size), np.uint8), raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    ours, theirs = Container(path), gguf.GGUFReader(path)
    assert ours.metadata["a.int"] == -5 and ours.metadata["a.text"] == "Größe" and ours.metadata["a.flag"] is True
    assert ours.numbers(ours.metadata["a.list"]) == (3, 4, 5) and ours.numbers(ours.metadata["a.floats"]) == (0.5, -2.0)
    assert ours.metadata["a.texts"].length == 3 and ours.numbers(ours.metadata["a.texts"]) is None
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        own = ours.tensors[tensor.name]
        assert own.shape == tuple(tensor.shape[::-1]) and own.offset == tensor.data_offset
        array = ours.array(own)
        assert array.tobytes() == tensor.data.tobytes() and not array.flags.writeable
    assert np.array_equal(ours.array(ours.tensors["F32.weight"]), numbers)
    assert ours.array(ours.tensors["Q6_K.weight"]).shape == (6, 2, 210)
    assert ours.elements()["Q4_0"] == 1


def test_version_2_is_read(tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(header(1, 1, 2) + pair(b"k", 4, struct.pack("<I", 7)) + described(b"t", [2]) + bytes(64))
    file = Container(path)
    assert file.metadata == {"k": 7} and file.array(file.tensors["t"]).tolist() == [0, 0]


def test_damage_is_named_with_its_offset(refused):
    assert refused(b"") == "offset 0: this is no GGUF file: it does not begin with 'GGUF'"
    assert refused(b"PK\3\4" + bytes(99)).startswith("offset 0: this is no GGUF file")
    assert refused(b"GGUF") == "offset 4: the file ends within the version: found 0 bytes, expected 4"
    assert refused(header(version=1)) == "offset 4: found version 1 of the format, expected 2 or 3"
    assert "is of the other byte order, expected little-endian" in refused(b"GGUF" + struct.pack(">IQQ", 3, 0, 0))
    assert refused(header(tensors=1 << 62)) == f"offset 8: {1 << 62} tensors do not fit into the 8 bytes that are left"
    assert refused(header(pairs=1 << 40)).startswith(f"offset 16: {1 << 40} metadata keys do not fit")
    assert "a metadata key is not UTF-8" in refused(header(pairs=1) + pair(b"\xff", 0, b"\0"))
    assert "the metadata key 'k' is there twice" in refused(header(pairs=2) + pair(b"k", 0, b"\0") * 2)
    assert "the value of 'k' has the unknown type 13" in refused(header(pairs=1) + pair(b"k", 13, b"\0"))
    assert "the file ends within a metadata key: found 5 bytes" in refused(
        header(pairs=1) + struct.pack("<Q", 1 << 60) + b"\0" * 5)


def test_arrays_that_do_not_fit(refused):
    def array(kind, count, data=b""):
        return header(pairs=1) + pair(b"k", 9, struct.pack("<IQ", kind, count) + data)

    for kind in (0, 8, 9, 12):
        assert f"{1 << 58} elements of 'k' do not fit into" in refused(array(kind, 1 << 58, bytes(64)))
    assert "has elements of the unknown type 99" in refused(array(99, 1, bytes(64)))
    assert "has arrays nested more than 4 deep" in refused(array(9, 1, struct.pack("<IQ", 9, 1) * 9 + bytes(64)))


def test_tensors_that_do_not_fit(refused):
    def tensor(extents, **options):
        return header(tensors=1) + described(b"t", extents, **options) + bytes(128)

    assert "the file ends within 't'" in refused(tensor([1 << 40, 1 << 40]))
    assert "the file ends within 't'" in refused(tensor([(1 << 64) - 1] * 4))
    assert "the file ends within 't'" in refused(tensor([4], offset=1 << 62))
    assert "'t' is at 4 in the data, expected a multiple of 32" in refused(tensor([4], offset=4))
    assert "'t' has 5 dimensions, expected at most 4" in refused(tensor([1] * 5))
    assert "'t' has rows of 33 elements, expected a multiple of 32 for Q4_0" in refused(tensor([33], kind=2))
    assert "1 of 1 tensors have the unknown element type 200, the first is 't'" in refused(tensor([4], kind=200))
    twice = header(tensors=2) + described(b"t", [4]) * 2 + bytes(128)
    assert "the tensor 't' is there twice" in refused(twice)
    for value in (0, 4, 48, 1 << 31):
        alignment = pair(b"general.alignment", 4, struct.pack("<I", value))
        assert "expected a power of two from 8 on" in refused(header(1, 1) + alignment + described(b"t", [4]) + bytes(128)) \
            or value == 1 << 31


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    gguf_models.save(path, "llama", gguf_models.make("llama"))
    return path.read_bytes()


def test_every_truncation_is_refused(whole, refused):
    data = whole.index(b"token_embd.weight")
    for end in [*range(0, data + 200, 7), *range(data + 200, len(whole), 9973)]:
        refused(whole[:end])


def test_random_damage_is_refused_or_read(whole, tmp_path):
    """Any change of the description is either refused or leaves tensors that are within the file."""
    path, random_numbers = tmp_path / "x.gguf", random.Random(5)
    end = whole.index(b"blk.1.ffn_down") + 64
    before, outcomes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, {True: 0, False: 0}
    for _ in range(1500):
        changed = bytearray(whole)
        for _ in range(random_numbers.choice((1, 1, 3))):
            place = random_numbers.randrange(4, end)
            changed[place] = random_numbers.choice((0, 1, 255, 128, random_numbers.randrange(256)))
        path.write_bytes(changed)
        try:
            file = Container(path)
        except FileError as error:
            assert str(error).startswith(f"{path}: offset ")
            outcomes[False] += 1
            continue
        outcomes[True] += 1
        for tensor in file.tensors.values():
            assert file.array(tensor).nbytes == tensor.size
    assert min(outcomes.values()) > 100
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        Container(tmp_path / "none.gguf")
    with pytest.raises(IsADirectoryError):
        Container(pathlib.Path(tmp_path))
