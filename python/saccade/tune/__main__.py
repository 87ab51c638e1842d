"""Measures tile sizes of attention and writes a table of the better ones: python -m saccade.tune CLASS... -o TABLE.json

A table is read by `--schedule-table=TABLE.json` of the tools and by `schedule_table=` of `saccade.compile`. An
interrupted run continues: measurements are kept in TABLE.json.progress until all classes are done. Exit codes: 0
success; 1 a class cannot be compiled; 2 usage; 3 a file cannot be read or written; 130 interrupted.
"""

from __future__ import annotations

import argparse
import dataclasses
import errno
import json
import os
import re
import sys
from typing import Any

import saccade
from saccade import _files
from saccade.tune.search import Measurement, Result, Tiles, entry, tune
from saccade.tune.shapes import CASES, Case, ShapeClass


def _row_of(line: str) -> dict[str, Any] | None:
    """The row that a line of a file of measurements has; None for a part of one."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError:
        return None
    return row if isinstance(row, dict) and {"class", "settings", "measurement"} <= row.keys() else None


class Progress:
    """Measurements in a file, one in a line, and a bar on a terminal."""

    def __init__(self, path: str, settings: str):
        self.path, self.settings, self.known = path, settings, list[dict[str, Any]]()
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                rows = list(filter(None, map(_row_of, file)))
            self.known = [row for row in rows if row["settings"] == settings]

    def of(self, shape_class: ShapeClass) -> list[Measurement]:
        rows = (row["measurement"] for row in self.known if row["class"] == str(shape_class))
        return [Measurement(**{**row, "tiles": Tiles(**row["tiles"])}) for row in rows]

    def add(self, shape_class: ShapeClass, measurement: Measurement) -> None:
        row = {"class": str(shape_class), "settings": self.settings, "measurement": dataclasses.asdict(measurement)}
        if row in self.known:
            return
        self.known.append(row)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write("\n" + json.dumps(row) + "\n")  # apart from a part of a line of an interrupted run

    def finish(self) -> None:
        if os.path.exists(self.path):
            os.remove(self.path)


def show(shape_class: ShapeClass, measurement: Measurement, number: int, count: int) -> None:
    """A line for a measurement: on a terminal, a bar that the next one overwrites."""
    tiles = measurement.tiles
    mean = f"{measurement.mean:.3f}x" if measurement.ratios else "wrong results"
    step = "compared" if measurement.is_final else "screened"
    text = f"{shape_class} {number}/{count} {step} {tiles.rows} rows, {tiles.cols} keys: {mean}"
    if not sys.stderr.isatty():
        print(text, file=sys.stderr)
        return
    filled = 24 * number // count
    end = "\n" if number == count else ""
    print(f"\r\033[K[{'#' * filled}{'.' * (24 - filled)}] {text}", end=end, file=sys.stderr, flush=True)


def entry_of(result: Result) -> dict[str, Any] | None:
    if result.best is None:
        return None
    best = result.best
    return {**entry(result.shape_class, result.target, best.tiles), "speedup": round(best.mean, 4),
            "at_least": round(best.low, 4)}  # fmt: skip


def read_entries(path: str) -> list[dict[str, Any]]:
    """The entries of a table, none if there is no file yet. Raises ValueError if it is no table."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        try:
            entries = json.load(file)["entries"]
            for each in entries:
                each["target"], each["element"], each["head_size"], each["value_head_size"]
        except (json.JSONDecodeError, RecursionError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is no table of schedules: {error}") from None
    return list(entries)


def _tiles_of(text: str) -> Tiles:
    found = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if not found:
        raise ValueError(f"'{text}' of --tiles is no pair of sizes, expected ROWSxKEYS, such as 288x128")
    return Tiles(int(found[1]), int(found[2]))


def write_table(path: str, results: list[Result]) -> None:
    """Replaces the entries of the classes of the results; a class whose default is the best has none."""
    entries = read_entries(path)
    for result in results:
        kind = result.shape_class
        key = (result.target, kind.element, kind.head_size, kind.value_head_size)
        entries = [each for each in entries
                   if (each["target"], each["element"], each["head_size"], each["value_head_size"]) != key]  # fmt: skip
        if (row := entry_of(result)) is not None:
            entries.append(row)
    lines = ",\n  ".join(json.dumps(each) for each in entries)
    _files.write(path, f'{{"version": 1, "entries": [\n  {lines}\n]}}\n')


def table_of(results: list[Result]) -> str:
    """The results as text: a row for each class, and one for each case of better tiles."""
    lines = [f"{'class':16} {'target':10} {'default':>12} {'best':>12} {'faster':>8} {'at least':>9}"]
    for result in results:
        default = f"{result.default.rows}x{result.default.cols}"
        best = result.best
        if best is None:
            tried = [each for each in result.measurements if each.is_final and each.ratios]
            nearest = max((each.mean for each in tried), default=0.0)
            lines.append(f"{result.shape_class!s:16} {result.target:10} {default:>12} {'default':>12} "
                         f"{'':8} {'':9} nearest other: {nearest:.3f}x")  # fmt: skip
            continue
        tiles = f"{best.tiles.rows}x{best.tiles.cols}"
        lines.append(f"{result.shape_class!s:16} {result.target:10} {default:>12} {tiles:>12} {best.mean:7.3f}x "
                     f"{best.low:8.3f}x")  # fmt: skip
        lines += [f"  {case:50} {ratio:7.3f}x" for case, ratio in best.ratios.items()]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="saccade-tune", description="Measures tile sizes of attention and writes a table of the better ones.")
    parser.add_argument("classes", nargs="+", metavar="CLASS",
                        help="ELEMENT:HEAD_SIZE[:VALUE_HEAD_SIZE], such as f32:64")  # fmt: skip
    parser.add_argument("-o", dest="output", required=True, metavar="TABLE.json",
                        help="the table; entries of other classes in it are kept")  # fmt: skip
    parser.add_argument("--target", default="host", help="a CPU target that this machine runs (default: host)")
    parser.add_argument("--case", action="append", metavar="MASK:BxHxQxK",
                        help="sizes to measure instead of the default ones: full:1x8x512x512; repeatable")  # fmt: skip
    parser.add_argument("--tiles", action="append", metavar="ROWSxKEYS",
                        help="tiles to try instead of a grid of 54; repeatable")  # fmt: skip
    options = parser.parse_args()
    try:
        classes = [ShapeClass.parse(text) for text in options.classes]
        cases = tuple(Case.parse(text) for text in options.case) if options.case else CASES
        tiles = [_tiles_of(text) for text in options.tiles] if options.tiles else None
    except (ValueError, TypeError) as error:
        parser.error(str(error))
    settings = f"{options.target} {saccade.num_threads()} {' '.join(map(str, cases))}"
    results = []
    try:
        if os.path.isdir(options.output):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), options.output)
        read_entries(options.output)  # an error before measuring
        progress = Progress(options.output + ".progress", settings)
        for kind in classes:

            def report(measurement: Measurement, number: int, count: int, kind: ShapeClass = kind) -> None:
                progress.add(kind, measurement)
                show(kind, measurement, number, count)

            known = progress.of(kind)
            results.append(tune(kind, options.target, cases=cases, tiles=tiles, known=known, report=report))
        write_table(options.output, results)
        progress.finish()
    except KeyboardInterrupt:
        print(f"\ninterrupted; the same command continues with {options.output}.progress", file=sys.stderr)
        return 130
    except (saccade.CompileError, NotImplementedError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error.filename or options.output}: {error.strerror}", file=sys.stderr)
        return 3
    print(table_of(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
