"""Writers of observed steps and events, for `saccade.observe(writers=[...])`: JSON lines, CSV and TensorBoard."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
from typing import TYPE_CHECKING, Any

import numpy

from saccade.observe.record import STATISTICS, Event, to_number

if TYPE_CHECKING:
    from saccade.observe.session import Step

Path = str | os.PathLike[str]


class JsonLines:
    """Appends a line for each step, {"step", "layers", "entropy": [[x per head] per layer], ...}, and one for each
    event, {"event": {"step", "kind", "layer", ...}}. A line is in the file when the step ends."""

    def __init__(self, path: Path):
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115  # until close

    def step(self, step: Step) -> None:
        """Writes a step."""
        numbers = {name: [[to_number(x) for x in heads] for heads in layers]
                   for name, layers in step.statistics.items()}
        self._write({"step": step.number, "layers": list(map(str, step.layers)), **numbers})

    def event(self, event: Event) -> None:
        """Writes an event."""
        self._write({"event": dataclasses.asdict(event)})

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class Csv:
    """Appends a row for each step, layer and head. A new file begins with the names of the columns. Events are not
    written."""

    def __init__(self, path: Path):
        self._file = open(path, "a", encoding="utf-8", newline="")  # noqa: SIM115  # until close
        self._rows = csv.writer(self._file, lineterminator="\n")
        if not self._file.tell():
            self._rows.writerow(["step", "layer", "head", *STATISTICS])

    def step(self, step: Step) -> None:
        """Writes the rows of a step."""
        for index, layer in enumerate(step.layers):
            for head in range(layer.heads):
                numbers = [f"{step.statistics[name][index][head]:.7g}" for name in STATISTICS]
                self._rows.writerow([step.number, str(layer), head, *numbers])
        self._file.flush()

    def event(self, event: Event) -> None:
        """Writes nothing."""

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class TensorBoard:
    """Writes a scalar for each statistic and layer, the mean over its heads (of `max` the maximum), a histogram of its
    heads, and events as text."""

    def __init__(self, writer: Any):
        """`writer` is a `torch.utils.tensorboard.SummaryWriter`, which the caller closes, or the folder of a new
        one."""
        self._is_own = isinstance(writer, (str, os.PathLike))
        if self._is_own:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise ImportError("saccade.observe.writers.TensorBoard requires the package tensorboard: "
                                  "pip install saccade[observe]") from error
            writer = SummaryWriter(os.fspath(writer))
        self._writer = writer

    def step(self, step: Step) -> None:
        """Writes a step."""
        for name, layers in step.statistics.items():
            for layer, heads in zip(step.layers, layers):
                number = heads.max() if name == "max" else heads.mean()
                self._writer.add_scalar(f"attention/{name}/{layer}", float(number), step.number)
                if numpy.isfinite(heads).all():
                    self._writer.add_histogram(f"attention/{name} of heads/{layer}", heads, step.number)

    def event(self, event: Event) -> None:
        """Writes an event."""
        self._writer.add_text(f"attention/{event.kind}", event.message, event.step)

    def close(self) -> None:
        """Closes a writer of its own, and flushes the caller's."""
        (self._writer.close if self._is_own else self._writer.flush)()
