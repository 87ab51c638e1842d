"""The functions that users of attention write, over torch and over NumPy, agree with a call for every element."""

import functools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from region_reference import BATCHES, HEADS, KEYS, Case, differences, run
from torch.nn.attention.flex_attention import and_masks, or_masks

batches, heads, keys = BATCHES, HEADS, KEYS
random = np.random.default_rng(5)


def catalogue(x, array):
    """(name, score, mask) of each; `x` is torch or np, `array` makes what is captured."""
    log, to_float, to_int = (
        (torch.log, lambda v: v.float(), lambda v: v.to(torch.long)) if x is torch else
        (np.log, lambda v: v.astype(np.float32), lambda v: v.astype(np.int64)))  # fmt: skip
    slopes = array(2.0 ** -np.arange(1, heads + 1).astype(np.float32))
    buckets = array(random.standard_normal((32, heads)).astype(np.float32))
    table = array(random.standard_normal((2 * 4 - 1) ** 2).astype(np.float32))
    relative = array(random.integers(0, 49, (keys, keys)))
    windows = array(np.repeat(np.arange(5), 4).astype(np.int32)[:keys])
    documents = array(np.sort(random.integers(0, 3, keys)).astype(np.int32))
    lengths = array(np.array([keys, 11], np.int32)[:batches])
    offset = array(np.array(4))
    cap = 2.0

    def t5(s, b, h, i, j, bidirectional=True):
        distance, count, bucket = j - i, 32, 0
        if bidirectional:
            count //= 2
            bucket = to_int(distance > 0) * count
            distance = abs(distance)
        exact = count // 2
        # log(0) at 0, of which the integer must not matter.
        far = exact + to_int(log(to_float(distance) / exact) / np.log(128 / exact).item() * (count - exact))
        far = x.minimum(far, x.full_like(far, count - 1))
        return s + buckets[bucket + x.where(distance < exact, distance, far), h]

    def causal(b, h, i, j):
        return i >= j

    def sliding(b, h, i, j):
        return (i - j <= 3) & (i - j >= 0)

    def prefix(b, h, i, j):
        return (j < lengths[b] - 6) | (j <= i)

    def same_document(b, h, i, j):
        return documents[i] == documents[j]

    def scaled_by(s, b, h, i, j, *, factor):
        return s * factor

    masks = [
        ("causal", causal), ("sliding", sliding), ("prefix-LM", prefix), ("documents", same_document),
        ("lengths", lambda b, h, i, j: j < lengths[b]),
        ("offset", lambda b, h, i, j: i + offset >= j),
        ("shifted windows", lambda b, h, i, j: windows[i % 16] == windows[j % 16]),
        ("dilated", lambda b, h, i, j: ((i - j) % 2 == 0) & (abs(i - j) <= 2 * 3)),
        # Neighbourhood of a point in an image of 4 columns, moved inside at its edges.
        ("neighbourhood", lambda b, h, i, j: (abs(x.clip(i // 4, 1, 3) - j // 4) <= 1)
                                             & (abs(x.clip(i % 4, 1, 2) - j % 4) <= 1)),
        ("block diagonal", lambda b, h, i, j: i // 3 == j // 3),
        ("everything", lambda b, h, i, j: True),
    ]  # fmt: skip
    scores = [
        ("ALiBi", lambda s, b, h, i, j: s + slopes[h] * (j - i)),
        ("soft-cap", lambda s, b, h, i, j: cap * x.tanh(s / cap)), ("T5", t5),
        ("T5, one direction", lambda *args: t5(*args, bidirectional=True)),
        ("Swin bias", lambda s, b, h, i, j: s + table[relative[i, j]]),
        ("Swin bias by rows", lambda s, b, h, i, j: s + table[relative[i][j]]),
        ("mask as a score", lambda s, b, h, i, j: x.where(i >= j, s, -1e9)),
        ("partial", functools.partial(scaled_by, factor=0.5)),
    ]  # fmt: skip
    yield from ((name, None, mask) for name, mask in masks)
    yield from ((name, score, causal if name == "ALiBi" else None) for name, score in scores)
    if x is torch:
        yield "and", None, and_masks(causal, same_document)
        yield "or of and", None, or_masks(and_masks(causal, sliding), prefix)


LIBRARIES = {"torch": (torch, torch.tensor, torch.tensor, lambda v: torch.tensor(v, dtype=torch.float32)),
             "numpy": (np, np.array, np.int64, np.float32)}  # fmt: skip
FUNCTIONS = {(library, name): (score, mask) for library, (x, array, *_) in LIBRARIES.items()
             for name, score, mask in catalogue(x, array)}  # fmt: skip


@functools.cache
def cases(library):
    """The cases of a library by name, all of them compiled and run."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = {name: Case(name, *functions) for (x, name), functions in FUNCTIONS.items() if x == library}
    run(list(found.values()))
    return found


@pytest.mark.parametrize(("library", "name"), FUNCTIONS)
def test_regions_are_reusable(library, name):
    case = cases(library)[name]
    assert all(region is None or region.is_reusable for region in (case.score_region, case.mask_region))


@pytest.mark.parametrize(("library", "name"), FUNCTIONS)
def test_compiled_function_agrees_with_calls_for_every_element(library, name):
    with np.errstate(divide="ignore", invalid="ignore"):
        wrong = differences([cases(library)[name]], *LIBRARIES[library][2:])
    assert not wrong, "\n".join(wrong)
