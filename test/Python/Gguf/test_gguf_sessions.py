"""Sessions of a model of a GGUF file, the command, and libraries that it compiles."""

import os
import subprocess
import sys

import numpy as np
import pytest
from programs import refused

import gguf_models
import saccade
import saccade.gguf
from saccade.gguf.sampling import Sampler

torch = pytest.importorskip("torch")
TOKENS = np.random.default_rng(1).integers(0, 96, 80).tolist()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    gguf_models.save(path, "qwen2", gguf_models.make("qwen2"))
    return path


@pytest.fixture(scope="module")
def model(path):
    return saccade.gguf.load(path)


@pytest.fixture(scope="module")
def library(path):
    """What the command compiles."""
    done = command(path, "-o", path.with_suffix(".so"))
    assert done.returncode == 0, done.stderr
    return path.with_suffix(".so")


def command(*arguments):
    return subprocess.run([sys.executable, "-m", "saccade.gguf", *map(str, arguments)], capture_output=True, text=True)


def test_the_end_of_the_context_is_named(model, path):
    session = model.session(context=20)
    expected = model.session().logits(TOKENS[:20])
    session.prefill(TOKENS[:15])
    for call in (session.prefill, session.logits, lambda tokens: next(session.generate(tokens, 1))):
        assert str(refused(ValueError, [], call, TOKENS[15:21])) == (
            "the context is full: found 15 tokens and 6 new ones, expected at most 20; the model was trained for 256, "
            "which Model.session(context=256) allows")
    assert session.length == 15
    assert abs(session.prefill(TOKENS[15:20]) - expected[19]).max() < 1e-5
    with pytest.raises(ValueError, match="the context is full: found 20 tokens and 1 new one, expected at most 20"):
        session.decode(3)
    # Generation ends where the context does: the prompt has 18 tokens, two more fit, and a last one is drawn.
    assert len(list(model.session(context=20).generate(TOKENS[:18], 50, stop=()))) == 3
    for context in (0, 257):
        with pytest.raises(ValueError, match=f"context is {context}, expected 1 to 256, for which .* was trained"):
            model.session(context)


def test_the_program_itself_refuses_rows_that_do_not_fit(model):
    sizes = model.settings
    caches = [np.zeros((1, sizes.kv_heads, 8, sizes.head_dim), np.float32) for _ in range(2 * sizes.layers)]

    def number(value):
        return np.array([value], np.int32)

    with pytest.raises(ValueError, match="cache is full: end of the new rows: found 9, expected at most 8"):
        model.function(np.array([TOKENS[:4]], np.int32), number(5), number(4), np.array([[3]], np.int32), *caches)
    # Tokens and rows out of range read the nearest ones, never other memory.
    wild = [np.array([[-5, 1 << 30]], np.int32), np.array([[-7, 1 << 30]], np.int32)]
    tame = [np.array([[0, 95]], np.int32), np.array([[0, 1]], np.int32)]
    found, expected = (model.function(tokens, number(0), number(2), rows, *caches)[-1].copy() for tokens, rows in (wild, tame))
    assert np.array_equal(found, expected)


def test_rewind_forgets_tokens(model):
    session = model.session()
    expected = session.logits(TOKENS[:30])
    for length in (12, 0, 0):
        session.rewind(length)
        assert session.length == length
        assert abs(session.prefill(TOKENS[length:30]) - expected[29]).max() < 1e-5
    for length in (31, -1):
        with pytest.raises(ValueError, match=f"length is {length}, expected 0 to 30"):
            session.rewind(length)


def test_prompts_of_several_chunks(model, monkeypatch):
    expected = model.session().logits(TOKENS)
    monkeypatch.setattr(saccade.gguf.model, "CHUNK", 16)
    for count in (15, 16, 17, 32, 80):
        assert abs(model.session().prefill(TOKENS[:count]) - expected[count - 1]).max() < 1e-5
        assert abs(model.session().logits(TOKENS[:count]) - expected[:count]).max() < 1e-5


def test_tokens_are_checked(model, path):
    session = model.session()
    for tokens, message in (([], "there are no tokens, expected at least 1"),
                            ([1, 96], f"token 1 is 96, expected 0 to 95: the vocabulary of {path}"),
                            ([-1], f"token 0 is -1, expected 0 to 95: the vocabulary of {path}")):
        assert str(refused(ValueError, [], session.prefill, tokens)) == message
    with pytest.raises(TypeError, match=r"a token is 1\.5, expected an integer"):
        session.prefill([1.5])
    assert session.length == 0
    assert session.prefill(np.array(TOKENS[:3])).shape == session.prefill(torch.tensor(TOKENS[:3])).shape == (96,)


def test_generation_stops(model):
    tokens = list(model.generate(TOKENS[:4], 30, stop=()))
    assert len(tokens) == 30 and list(model.generate(TOKENS[:4], 0)) == []
    end = tokens[7]
    assert list(model.generate(TOKENS[:4], 30, stop=[end])) == tokens[: tokens.index(end)]
    assert model.settings.end_token == 95  # what gguf_models.py writes
    for stop, message in ((3, "stop is 3, expected a sequence of tokens"), ("a", "stop is 'a', expected a sequence"),
                          ([1.5], r"a token of stop is 1\.5, expected an integer")):
        with pytest.raises(TypeError, match=message):
            model.generate(TOKENS[:4], 30, stop=stop)


def test_a_text_is_continued(model):
    """Generated tokens are part of the text, however the caller ends the generation."""
    whole = list(model.generate(TOKENS[:4], 12, stop=()))
    session, alone = model.session(), model.session()
    first = list(session.generate(TOKENS[:4], 5, stop=()))
    assert session.length == 4 + 5 and first == whole[:5]
    expected = alone.logits([*TOKENS[:4], *first, 7, 8, 9])
    assert abs(session.logits([7, 8, 9]) - expected[-3:]).max() < 1e-4 * abs(expected).max()
    session.rewind(4 + 5)
    assert abs(session.prefill([7]) - expected[-3]).max() < 1e-4 * abs(expected).max()
    session.rewind(0)
    for n, token in enumerate(session.generate(TOKENS[:4], 12, stop=())):
        if n == 2:
            break
    assert session.length == 4 + 3 and token == whole[2]
    session.rewind(4 + 3)
    found = session.prefill([whole[3]])
    alone.rewind(0)
    assert abs(found - alone.prefill([*TOKENS[:4], *whole[:4]])).max() < 1e-4 * abs(found).max()
    session.rewind(6)
    assert session.length == 6 and list(session.generate([whole[2]], 3, stop=())) == whole[3:6]
    end = next(token for token in whole[2:] if whole.index(token) >= 2)
    session = model.session()
    first = list(session.generate(TOKENS[:4], 12, stop=[end]))
    assert session.length == 4 + len(first) and first == whole[: whole.index(end)]
    assert [*first, end, *session.generate([end], 11 - len(first), stop=())] == whole


def test_sessions_do_not_share_caches(model):
    first, second = model.session(), model.session()
    first.prefill(TOKENS[:20])
    assert abs(second.prefill(TOKENS[40:50]) - model.session().prefill(TOKENS[40:50])).max() == 0
    assert (first.length, second.length) == (20, 10)


def test_draws_follow_the_distribution():
    logits = np.log(np.array([0.1, 0.5, 0.15, 0.25])).astype(np.float32)

    def frequencies(*options):
        sampler = Sampler(*options, seed=3)
        return np.bincount([sampler.draw(logits) for _ in range(8000)], minlength=4) / 8000

    assert abs(frequencies(1.0, None, 1.0) - [0.1, 0.5, 0.15, 0.25]).max() < 0.02
    assert abs(frequencies(1.0, 2, 1.0) - [0, 2 / 3, 0, 1 / 3]).max() < 0.02
    assert abs(frequencies(1.0, None, 0.7) - [0, 2 / 3, 0, 1 / 3]).max() < 0.02
    squares = np.array([0.1, 0.5, 0.15, 0.25]) ** 2
    assert abs(frequencies(0.5, None, 1.0) - squares / squares.sum()).max() < 0.02
    assert Sampler(0.0, None, 1.0, None).draw(logits) == 1
    for options, message in (((-1.0, None, 1.0), "temperature is -1.0"), ((1.0, 0, 1.0), "top_k is 0"),
                             ((1.0, None, 0.0), r"top_p is 0\.0"), ((float("nan"), None, 1.0), "temperature is nan")):
        with pytest.raises(ValueError, match=message):
            Sampler(*options, seed=None)


def test_draws_are_those_of_the_seed(model):
    def drawn(seed):
        return list(model.generate(TOKENS[:4], 20, temperature=1.5, top_k=40, top_p=0.95, seed=seed, stop=()))

    assert drawn(1) == drawn(1) != drawn(2)


def test_a_library_gives_the_same_bits(model, path, library):
    """Also without the compiler: a library needs only the file."""
    ours, expected = saccade.gguf.load(path, library=library), model.session().logits(TOKENS)
    assert np.array_equal(ours.session().logits(TOKENS), expected)
    bound = saccade.load(library, weights=path).main
    assert [value.name for value in bound.inputs] == [value.name for value in model.function.inputs]
    with pytest.raises(TypeError, match="options are those of the compiler"):
        saccade.gguf.load(path, library=library, cache="f16")


def test_weights_share_the_memory_of_the_file(path, library):
    """What calls read are pages of the mapped file: a process has no copy of its own. Nothing imports torch."""
    script = f"""
import sys
import saccade.gguf
model = saccade.gguf.load({str(path)!r}, library={str(library)!r})
model.session().prefill([1, 2, 3])
mapped = [line.split()[0].split("-") for line in open("/proc/self/maps") if {str(path)!r} in line and " r--s " in line]
mapped = [range(*(int(end, 16) for end in ends)) for ends in mapped]
bound = [array.__array_interface__["data"] for array in model.function._weights.memory]
assert len(bound) == 27 and all(is_read_only for _, is_read_only in bound)
assert all(any(address in part for part in mapped) for address, _ in bound)
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_library_of_another_model(tmp_path, library):
    other = tmp_path / "other.gguf"
    gguf_models.save(other, "qwen2", gguf_models.make("qwen2", intermediate_size=80))
    with pytest.raises(ValueError, match=r"blk\.0\.ffn_gate\.weight has shape \(80, 64\), expected \(96, 64\)"):
        saccade.gguf.load(other, library=library)


def test_command_describes_a_model(path):
    done = command(path)
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.splitlines() == [
        "qwen2: qwen2, 0.1 M parameters in 0.3 MiB", "27 tensors: 27 F32",
        "2 layers of width 64, 4 heads of 16 (2 of keys and values)", "vocabulary 96, context 256"]


def test_command_compiles_and_generates(model, path, tmp_path):
    out = tmp_path / "model.so"
    done = command(path, "-o", out, "--cache", "f16", "--tokens", "3,4,5", "--count", "20")
    assert done.returncode == 0, done.stderr
    first, *tokens = done.stdout.split()
    assert first == str(out) and "tokens/s of the prompt" in done.stderr
    loaded = saccade.gguf.load(path, library=out)
    expected = list(loaded.generate([3, 4, 5], 20))
    assert list(map(int, tokens)) == expected
    # Messages name the program by the model, not by a folder that no longer exists.
    sizes, number = loaded.settings, lambda value: np.array([value], np.int32)
    caches = [np.zeros((1, sizes.kv_heads, 2, sizes.head_dim), np.float16) for _ in range(2 * sizes.layers)]
    with pytest.raises(ValueError, match=rf"main: {path.name}\.mlir:\d+:\d+: .* cache is full"):
        loaded.function(np.array([[3, 4, 5]], np.int32), number(0), number(3), number(0)[None], *caches)
    done = command(path, "-o", tmp_path / "model.mlir")
    assert done.returncode == 0 and os.listdir(tmp_path) == ["model.so", "model.h", "model.mlir"] or \
        sorted(os.listdir(tmp_path)) == ["model.h", "model.mlir", "model.so"]
    assert (tmp_path / "model.mlir").read_text() == saccade.gguf.write(saccade.gguf.Container(path)).text


def test_benchmark_runs(root, tmp_path):
    done = subprocess.run([sys.executable, root / "benchmarks" / "gguf_models.py", "--quick", "--rounds", "1", "--type",
                           "Q6_K", "--prompt", "9", "--tokens", "3", "--threads", "1"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Q6_K, ") and "\nsaccade " in done.stdout


@pytest.mark.parametrize(("arguments", "code", "message"), [
    (["none.gguf"], 3, "error: none.gguf: No such file or directory"),
    ([__file__], 1, "offset 0: this is no GGUF file"),
    (["{path}", "-o", "model.bin"], 2, "-o model.bin: expected a name that ends in .so or .mlir"),
    (["{path}", "-o", "/none/model.mlir"], 3, "error: /none/model.mlir: No such file or directory"),
    (["{path}", "-o", "/none/model.so"], 3, "error: /none/model.so: No such file or directory"),
    (["{path}", "--tokens", "a"], 2, "--tokens a: expected integers with commas between them"),
    (["{path}", "--cache", "f8"], 2, "invalid choice: 'f8'"),
])
def test_command_line_errors(arguments, code, message, path):
    done = command(*(each.format(path=path) for each in arguments))
    assert done.returncode == code and message in done.stderr and "Traceback" not in done.stderr
