"""The search: tile sizes are screened with few calls, and the best are compared with the compiler's in many.

Both programs are called in turn, each time in the other order, so that changes of the machine's speed affect both. The
figure of a case is the median of the ratios of these pairs, and that of a class the geometric mean over its cases.
"""

from __future__ import annotations

import dataclasses
import json
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import saccade
from saccade.tune.shapes import CASES, Case, ShapeClass

ROWS = (48, 96, 144, 192, 288, 384, 576, 768, 1152)
COLUMNS = (64, 128, 256, 512, 1024, 2048)
SCREENING, FINAL = 5, 31  # pairs of calls of a case
FINALISTS = 3
# An entry is at least 1 % faster, with a probability of 97.5 %, and no case is 2 % slower.
MARGIN, LOSS = 1.01, 0.98
TOLERANCES = {"f64": 1e-9, "f32": 1e-4, "f16": 2e-2, "bf16": 2e-2}


@dataclasses.dataclass(frozen=True)
class Tiles:
    """The queries of a task and the keys of a step."""

    rows: int
    cols: int

    def __str__(self) -> str:
        return f"#attn.schedule<rows = {self.rows}, cols = {self.cols}>"


@dataclasses.dataclass(frozen=True)
class Measurement:
    """How much faster tiles are than the compiler's: the median ratio of each case, and the lower bound of the mean."""

    tiles: Tiles
    is_final: bool
    ratios: dict[str, float]
    low: float

    @property
    def mean(self) -> float:
        return float(np.exp(np.mean(np.log(list(self.ratios.values()))))) if self.ratios else 0.0

    @property
    def is_better(self) -> bool:
        return self.is_final and bool(self.ratios) and self.low > MARGIN and min(self.ratios.values()) >= LOSS


@dataclasses.dataclass(frozen=True)
class Result:
    """The outcome for a class. `best` is None if no tiles are better than those of the compiler."""

    shape_class: ShapeClass
    target: str
    default: Tiles
    best: Measurement | None
    measurements: list[Measurement]


def compiled(shape_class: ShapeClass, target: str, tiles: Tiles) -> saccade.Module:
    """The program of a class with tiles from a table, as other programs get them."""
    text = json.dumps({"version": 1, "entries": [entry(shape_class, target, tiles)]})
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(text)
        file.flush()
        module = saccade.compile(shape_class.program(), target=target, schedule_table=file.name)
        assert chosen_tiles(module)[1] == tiles
    return module


def entry(shape_class: ShapeClass, target: str, tiles: Tiles) -> dict[str, Any]:
    """The entry of a table."""
    return {"target": target, "element": shape_class.element, "head_size": shape_class.head_size,
            "value_head_size": shape_class.value_head_size, "rows": tiles.rows, "cols": tiles.cols}  # fmt: skip


def chosen_tiles(module: saccade.Module) -> tuple[str, Tiles]:
    """The target of a program, by its name, and the tiles that its attention has."""
    text = module.ir("schedule")
    tiles = re.search(r"#attn\.schedule<rows = (\d+), cols = (\d+)>", text)
    target = re.search(r'attn\.target = "([^"]+)"', text)
    assert tiles and target, text
    return target[1], Tiles(int(tiles[1]), int(tiles[2]))


def measure(shape_class: ShapeClass, default: saccade.Module, module: saccade.Module, tiles: Tiles,
            cases: Sequence[Case], pairs: int, is_final: bool) -> Measurement:  # fmt: skip
    """Compares two programs of a class on all cases. Tiles that are clearly slower on some are not measured on others.
    Wrong results are no measurement: the ratios are empty."""
    logarithms: dict[str, Any] = {}
    for case in cases:
        operands = shape_class.operands(case)
        functions = [module[case.mask], default[case.mask]]
        results = [function(*operands) for function in functions]
        tolerance = TOLERANCES[shape_class.element]
        if not np.allclose(*(np.asarray(result, np.float64) for result in results), rtol=tolerance, atol=tolerance):
            return Measurement(tiles, is_final, {}, 0.0)
        logarithms[str(case)] = np.log(compare(functions, operands, results, pairs))
        means = [float(np.median(each)) for each in logarithms.values()]
        if not is_final and np.mean(means) < np.log(0.9):
            break
    ratios = {case: float(np.exp(np.median(each))) for case, each in logarithms.items()}
    return Measurement(tiles, is_final, ratios, lower_bound(list(logarithms.values())))


def compare(functions: list[Any], operands: list[Any], outputs: list[Any], pairs: int) -> Any:
    """The ratios of the times of the second function and the first, of pairs of calls in alternating order."""
    ratios = []
    for pair in range(pairs):
        seconds = [0.0, 0.0]
        for which in ((0, 1), (1, 0))[pair % 2]:
            begin = time.perf_counter()
            functions[which](*operands, out=outputs[which])
            seconds[which] = time.perf_counter() - begin
        ratios.append(seconds[1] / seconds[0])
    return np.array(ratios)


def lower_bound(logarithms: list[Any]) -> float:
    """The 2.5 % quantile of the mean of the medians, by 1000 bootstrap samples of the pairs of each case."""
    generator = np.random.default_rng(1)
    medians = [np.median(generator.choice(each, (1000, len(each))), axis=1) for each in logarithms]
    return float(np.exp(np.quantile(np.mean(medians, axis=0), 0.025)))


def tune(shape_class: ShapeClass, target: str = "host", *, cases: Sequence[Case] = CASES,
         tiles: Sequence[Tiles] | None = None, known: Sequence[Measurement] = (),
         report: Callable[[Measurement, int, int], None] = lambda *_: None) -> Result:  # fmt: skip
    """Searches tiles that are faster than those of the compiler for a class.

    Args:
        shape_class: element type and head sizes.
        target: a CPU target that this machine runs.
        cases: sizes and masks on which the tiles are compared.
        tiles: the tiles to try; by default a grid of rows and columns.
        known: measurements of this class, which are not repeated.
        report: called with each measurement, its number and the number of all.
    """
    default = saccade.compile(shape_class.program(), target=target)
    name, chosen = chosen_tiles(default)
    measured = {(each.tiles, each.is_final): each for each in known}
    grid = [Tiles(rows, cols) for rows in ROWS for cols in COLUMNS] if tiles is None else tiles
    todo = [each for each in grid if each != chosen]
    count, total = 0, len(todo) + min(FINALISTS, len(todo))

    def get(each: Tiles, is_final: bool) -> Measurement:
        nonlocal count
        count += 1
        if (each, is_final) not in measured:
            module = compiled(shape_class, name, each)
            pairs = FINAL if is_final else SCREENING
            measured[each, is_final] = measure(shape_class, default, module, each, cases, pairs, is_final)
        report(measured[each, is_final], count, total)
        return measured[each, is_final]

    screened = [get(each, False) for each in todo]
    complete = [each for each in screened if len(each.ratios) == len(cases)]
    first = sorted(complete, key=lambda each: each.mean, reverse=True)[:FINALISTS]
    finals = [get(each.tiles, True) for each in first]
    best = max((each for each in finals if each.is_better), key=lambda each: each.mean, default=None)
    return Result(shape_class, name, chosen, best, [*screened, *finals])
