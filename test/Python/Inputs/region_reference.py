"""Runs traced functions as programs, and calls the same functions element by element.

The values of a program's attention are the identity, so that its result is the softmax itself; with the log-sum-exp,
scores and masks can be read off it. All functions of a batch are one program: `saccade-run` starts once.
"""

import pathlib
import subprocess
import tempfile

import numpy as np

from saccade.regions import trace

# Batches, heads, keys: more keys than a vector has lanes.
BATCHES, HEADS, KEYS = 2, 3, 19
# Static numbers of queries, so that a case compiles one variant: split-KV or the ordinary one.
QUERIES = (5, 9)


def shape(queries):
    """The extents of b, h, i and j."""
    return BATCHES, HEADS, queries, KEYS

DEPTH = 4


class Case:
    """One call: functions or None, the precision, and the number of queries, one of QUERIES."""

    def __init__(self, name, score=None, mask=None, precision="f32", queries=None):
        self.name, self.score, self.mask, self.precision = name, score, mask, precision
        self.queries = queries or QUERIES[sum(name.encode()) % 2]
        self.score_region = score and trace(score, "score", precision)
        self.mask_region = mask and trace(mask, "mask", precision)

    @property
    def captures(self):
        return [*(self.score_region.captures if self.score else ()), *(self.mask_region.captures if self.mask else ())]

    def attention(self, number):
        """The text of the op with results %o<number> and %l<number>, and the arguments it reads."""
        regions = [region for region in (self.score_region, self.mask_region) if region]
        types = [kind for region in regions for kind in region.capture_types]
        names = [f"%a{number}_{i}" for i in range(len(types))]
        inner = [f"%c{i}" for i in range(len(types))]
        clauses = [f"captures({', '.join(names)} : {', '.join(types)})"] if names else []
        before = 0
        for role, region in (("score", self.score_region), ("mask", self.mask_region)):
            if region:
                arguments = ["%s"] * (role == "score") + ["%b", "%h", "%i", "%j"]
                mine = inner[before: before + len(region.captures)]
                before += len(mine)
                body = region.body(arguments, mine, "      ")
                listed = ", ".join(arguments + inner).replace("%s", f"%s: {self.precision}")
                clauses.append(f"{role}({listed}) {{\n{body}\n    }}")
        kind = self.precision
        text = (f"  %o{number}, %l{number} = attn.attention %q{self.queries}_{kind}[b,h,s,d], %k_{kind}[b,h,s,d], %v_{kind}[b,h,s,d]\n"
                f"    {' '.join(clauses)} lse\n    : ({', '.join(operands(kind, self.queries))}) -> ({', '.join(results(kind, self.queries))})")
        return text, list(zip(names, types))


def operands(kind, queries):
    return [f"tensor<?x?x{queries}x{DEPTH}x{kind}>", f"tensor<?x?x?x{DEPTH}x{kind}>", f"tensor<?x?x?x{KEYS}x{kind}>"]


def results(kind, queries):
    return [f"tensor<?x?x{queries}x{KEYS}x{kind}>", f"tensor<?x?x{queries}x{kind}>"]


def program(cases):
    """A module whose function @all gives the result and the log-sum-exp of each case."""
    parameters = []
    for kind in ("f32", "f64"):
        parameters += [(f"%q{queries}_{kind}", operands(kind, queries)[0]) for queries in QUERIES]
        parameters += [(f"%{name}_{kind}", type) for name, type in zip("kv", operands(kind, 0)[1:])]
    body, returned, types = [], [], []
    for number, case in enumerate(cases):
        text, read = case.attention(number)
        body.append(text)
        parameters += read
        returned += [f"%o{number}", f"%l{number}"]
        types += results(case.precision, case.queries)
    return (f"func.func @all({', '.join(f'{name}: {type}' for name, type in parameters)}) -> ({', '.join(types)}) {{\n"
            + "\n".join(body) + f"\n  return {', '.join(returned)} : {', '.join(types)}\n}}\n")


def to_numpy(x):
    """An array as saccade-run reads it, and its type in the file name."""
    if isinstance(x, (np.ndarray, int, float)):
        return np.asarray(x), ""
    x = x.detach()
    if str(x.dtype) == "torch.bfloat16":
        return x.float().numpy(), ":bf16"
    return x.numpy(), ""


def inputs(queries):
    """Query, key and value in float64; the first two are exact in float32."""
    random = np.random.default_rng(3)
    key = random.standard_normal((BATCHES, HEADS, KEYS, DEPTH)).astype(np.float32)
    query = random.standard_normal((BATCHES, HEADS, queries, DEPTH)).astype(np.float32)
    value = np.broadcast_to(np.eye(KEYS), (BATCHES, HEADS, KEYS, KEYS))
    return query.astype(np.float64), key.astype(np.float64), value


_results = {}  # by text and captured numbers: both tracers give the same text for many functions


def run(cases):
    """(softmax, log-sum-exp) of every case by the compiled program."""
    keys = [(case.attention(0)[0], *[to_numpy(capture)[0].tobytes() for capture in case.captures]) for case in cases]
    new = {key: case for key, case in zip(keys, cases) if key not in _results}
    _results.update(zip(new, compile_and_run(list(new.values())) if new else ()))
    return [_results[key] for key in keys]


def compile_and_run(cases):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "all.mlir").write_text(program(cases))
        line = ["saccade-run", str(folder / "all.mlir"), "--entry=all"]

        def add(array, kind=""):
            file = folder / f"{len(line)}.npy"
            array = np.array(array)  # a copy in C order, with 0 dimensions where it had none
            if array.dtype == np.uint8:
                array = array.view(np.int8)
            np.save(file, array)
            line.append(f"--arg={file}{kind}")

        for dtype in (np.float32, np.float64):
            for array in (*(inputs(queries)[0] for queries in QUERIES), *inputs(QUERIES[0])[1:]):
                add(array.astype(dtype))
        for case in cases:
            for capture in case.captures:
                if isinstance(capture, (int, float)):
                    line.append(f"--arg={capture!r}")
                else:
                    add(*to_numpy(capture))
        outs = [folder / f"out{i}.npy" for i in range(2 * len(cases))]
        done = subprocess.run([*line, *[f"--out={out}" for out in outs]], capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(f"saccade-run gave {done.returncode}\n{done.stderr[:4000]}")
        return list(zip(*[iter([np.load(out).astype(np.float64) for out in outs])] * 2))


def by_element(case, make_index, make_score):
    """(softmax, log-sum-exp) by calling the functions for every element. `make_index` and `make_score` make their
    arguments from Python numbers."""
    query, key, _ = inputs(case.queries)
    scores = np.einsum("bhid,bhjd->bhij", query, key) / np.sqrt(DEPTH)
    for b, h, i, j in np.ndindex(scores.shape):
        position = [make_index(x) for x in (b, h, i, j)]
        value = scores[b, h, i, j]
        if case.score:
            value = float(case.score(make_score(value), *position))
        if case.mask and not bool(case.mask(*position)):
            value = -np.inf
        scores[b, h, i, j] = value
    largest = scores.max(-1, keepdims=True)
    shift = np.where(np.isfinite(largest), largest, 0)
    exponentials = np.exp(scores - shift)
    total = exponentials.sum(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(total > 0, exponentials / total, 0), (np.log(total) + shift)[..., 0]


def differences(cases, make_index, make_score, tolerance=2e-5):
    """The names of the cases whose program gives something else than its functions, each with how much."""
    wrong = []
    for case, (softmax, lse) in zip(cases, run(cases)):
        expected, wanted_lse = by_element(case, make_index, make_score)
        limit = tolerance if case.precision == "f32" else tolerance / 10
        error = np.abs(softmax - expected).max()
        with np.errstate(invalid="ignore"):
            far = ~((np.abs(lse - wanted_lse) <= limit * (1 + np.abs(wanted_lse))) | (lse == wanted_lse))  # also NaN
        if not error <= limit or not np.array_equal(softmax == 0, expected < 1e-37) and case.mask or far.any():
            wrong.append(f"{case.name}: softmax differs by {error:.3g}, log-sum-exp at {int(far.sum())} places")
    return wrong
