"""A profile as a table, as JSON and as a trace."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from saccade._library import PHASES

if TYPE_CHECKING:
    from saccade.profiling.record import Profile, Row

_MEBI = 1 << 20


_NO_CALL = ("no call was seen: PyTorch's own attention is timed under saccade.torch.enabled() only; calls of "
            'saccade.attention, the drop-in functions, attn_implementation="saccade" and compiled programs are timed '
            "everywhere")


def table_of(record: Profile) -> str:
    """The table of a profile."""
    rows = record.rows
    calls, spent = sum(row.calls for row in rows), sum(row.seconds for row in rows)
    lines = [f"profile: {calls} calls in {spent * 1e3:.3f} ms of {record.seconds * 1e3:.3f} ms"]
    lines += _of_compilations(record)
    if record.peak_memory is not None and record.memory is not None:
        lines.append(f"memory: +{record.peak_memory / _MEBI:.1f} MiB at the peak, on {record.memory / _MEBI:.1f} MiB "
                     "(resident memory of the process)")
    if record.counts:
        lines.append("counters: " + ", ".join(f"{count:.4g} {name}" for name, count in record.counts.items()))
    elif record.counts_refusal:
        lines.append(f"counters: none, {record.counts_refusal}")
    lines += [f"machine: {each.peak * 1e-9:.1f} GFLOP/s in {each.dtype}, reads of {each.read_rate * 1e-9:.1f} GB/s, "
              f"{each.threads} threads" for each in record.machines.values()]
    if rows:
        lines += _aligned([_HEADER, *(_cells(record, row) for row in rows)])
        lines += _of_tasks(record, spent)
    else:
        lines.append(_NO_CALL)
    return "\n".join(lines)


def _of_tasks(record: Profile, spent: float) -> list[str]:
    """The tasks with their shares of the latencies."""
    tasks = record.tasks
    if not tasks:
        return []
    lines = [(f"{task.seconds / spent:.1%}", f"{task.seconds * 1e3:.3f}", str(task.launches),
              f"{task.seconds / task.launches * 1e6:.2f}", task.name) for task in tasks]  # fmt: skip
    return _aligned([("share", "ms", "launches", "us a launch", "task"), *lines])


def _of_compilations(record: Profile) -> list[str]:
    events = [event for event in record.events if event.kind == "compilation"]
    if not events:
        return []
    spent = sum(event.end - event.start for event in events) * 1e-6
    made = sum(event.details["origin"] == "compiled" for event in events)
    phases = {name: sum(event.details.get(name, 0) for event in events) * 1e3 for name in PHASES}
    of_phases = ", ".join(f"{name} {spent:.1f}" for name, spent in phases.items())
    return [f"compilation: {spent:.1f} ms ({of_phases}) for {len(events)} programs, {made} compiled and "
            f"{len(events) - made} from a cache; no part of the latencies"]


_HEADER = ("calls", "p50 ms", "p90 ms", "p99 ms", "tokens/s", "GFLOP", "dense", "GFLOP/s", "MB", "FLOP/byte", "of roof",
           "call")  # fmt: skip


def _cells(record: Profile, row: Row) -> tuple[str, ...]:
    place = f"({row.place})" if row.place else ""
    done, call = row.work, " ".join(filter(None, (row.function, row.operands, row.module, place)))
    numbers = [None if done is None else row.tokens_per_second, None if done is None else done.flops * 1e-9,
               None if done is None else done.dense_flops * 1e-9, _scaled(row.flops_per_second, 1e-9),
               None if done is None else done.bytes * 1e-6, row.intensity]
    share = share_of_roof(record, row)
    return (str(row.calls), *(f"{row.percentile(p) * 1e3:.4f}" for p in (50, 90, 99)),
            *("-" if number is None else f"{number:.4g}" for number in numbers),
            "-" if share is None else f"{share:.0%}", call)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _aligned(cells: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*cells)]
    return ["  ".join([text.rjust(width) for text, width in zip(line[:-1], widths)] + [line[-1]]) for line in cells]


def share_of_roof(record: Profile, row: Row) -> float | None:
    """The speed of a row over what its intensity permits on this machine; None if it is not measured."""
    measured, speed, intensity = record.machines.get(row.dtype), row.flops_per_second, row.intensity
    if measured is None or speed is None or not intensity:
        return None
    return speed / measured.roof(intensity)


def numbers_of(record: Profile) -> dict[str, Any]:
    """All numbers of a profile."""
    rows = [{
        "function": row.function, "module": row.module, "place": row.place, "operands": row.operands,
        "calls": row.calls, "seconds": row.seconds,
        "latency": {f"p{percent}": row.percentile(percent) for percent in (0, 50, 90, 99, 100)},
        **({} if row.work is None else row.work._asdict()),
        "tokens_per_second": row.tokens_per_second, "flops_per_second": row.flops_per_second,
        "flops_per_byte": row.intensity, "share_of_roof": share_of_roof(record, row),
        "tasks": [task._asdict() for task in row.tasks],
    } for row in record.rows]  # fmt: skip
    compilations = [{"functions": event.name, "seconds": (event.end - event.start) * 1e-9, **event.details}
                    for event in record.events if event.kind == "compilation"]
    return {"seconds": record.seconds, "rows": rows, "compilations": compilations, "memory": record.memory,
            "peak_memory": record.peak_memory, "counts": record.counts, "counts_refusal": record.counts_refusal,
            "machines": {name: each._asdict() for name, each in record.machines.items()}}  # fmt: skip


def trace_of(record: Profile) -> dict[str, Any]:
    """The events of a profile in the Trace Event Format: complete events, in microseconds."""
    events = [{"name": event.name, "cat": event.kind, "ph": "X", "ts": event.start * 1e-3,
               "dur": (event.end - event.start) * 1e-3, "pid": os.getpid(), "tid": event.thread, "args": event.details}
              for event in record.events]  # fmt: skip
    events += [{"name": launch.name, "cat": "task", "ph": "X", "ts": launch.start * 1e-3,
                "dur": (launch.end - launch.start) * 1e-3, "pid": os.getpid(), "tid": thread}
               for launch, thread in record.launches]  # fmt: skip
    return {"traceEvents": events, "displayTimeUnit": "ms"}
