"""A roofline plot (Williams et al. 2009) as SVG."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saccade.profiling.machine import Machine
    from saccade.profiling.record import Profile, Row

_WIDTH, _HEIGHT, _MARGIN = 640, 400, 50
_COLORS = ("#00796b", "#c2185b", "#1565c0", "#ef6c00")


class _Axes:
    """Logarithmic axes, FLOP/byte and FLOP/s, in powers of ten."""

    def __init__(self, intensities: list[float], speeds: list[float]):
        self.x0, self.x1 = math.floor(math.log10(min(intensities))), math.ceil(math.log10(max(intensities)))
        self.y0, self.y1 = math.floor(math.log10(min(speeds))), math.ceil(math.log10(max(speeds)))
        self.x1, self.y1 = max(self.x1, self.x0 + 1), max(self.y1, self.y0 + 1)

    def at(self, intensity: float, speed: float) -> tuple[float, float]:
        """The point of the picture."""
        x = (math.log10(intensity) - self.x0) / (self.x1 - self.x0)
        y = (math.log10(speed) - self.y0) / (self.y1 - self.y0)
        return round(_MARGIN + x * (_WIDTH - 2 * _MARGIN), 1), round(_HEIGHT - _MARGIN - y * (_HEIGHT - 2 * _MARGIN), 1)


def svg_of(record: Profile) -> str:
    """The calls of a profile under the roofs of their element types. Raises ValueError if there are none."""
    rows = [row for row in record.rows if row.dtype in record.machines and row.intensity and row.flops_per_second]
    if not rows:
        raise ValueError("the profile has no measured machine or no calls with known work; "
                         "use saccade.profile(roofline=True)")
    machines = list(record.machines.values())
    ridges = [each.peak / each.read_rate for each in machines]
    intensities = [row.intensity or 1 for row in rows] + ridges
    speeds = [row.flops_per_second or 1 for row in rows] + [each.peak for each in machines]
    axes = _Axes([min(intensities), max(intensities) * 4], speeds)
    parts = [*_grid(axes)]
    for each, color in zip(machines, _COLORS * len(machines)):
        parts += _roof(axes, each, color)
        parts += [_dot(axes, row, color) for row in rows if row.dtype == each.dtype]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
            f'font-size="11"><rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>{"".join(parts)}</svg>\n')


def _grid(axes: _Axes) -> list[str]:
    parts = []
    for power in range(axes.x0, axes.x1 + 1):
        x, bottom = axes.at(10.0**power, 10.0**axes.y0)
        parts.append(f'<path d="M{x} {bottom}V{_MARGIN}" stroke="#ddd"/>'
                     f'<text x="{x}" y="{bottom + 14}" text-anchor="middle">{10.0**power:g}</text>')
    for power in range(axes.y0, axes.y1 + 1):
        left, y = axes.at(10.0**axes.x0, 10.0**power)
        parts.append(f'<path d="M{left} {y}H{_WIDTH - _MARGIN}" stroke="#ddd"/>'
                     f'<text x="{left - 4}" y="{y + 4}" text-anchor="end">{10.0**(power - 9):g}</text>')
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 12}" text-anchor="middle">FLOP/byte</text>'
                 f'<text x="12" y="{_MARGIN - 14}">GFLOP/s</text>')
    return parts


def _roof(axes: _Axes, machine: Machine, color: str) -> list[str]:
    ridge = machine.peak / machine.read_rate
    start = max(10.0**axes.x0, 10.0**axes.y0 / machine.read_rate)
    points = [(start, machine.roof(start)), (ridge, machine.peak), (10.0**axes.x1, machine.peak)]
    line = " ".join(f"{x},{y}" for x, y in (axes.at(*point) for point in points))
    x, y = axes.at(*points[-1])
    return [f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.5"/>',
            f'<text x="{x}" y="{y - 6}" text-anchor="end" fill="{color}">{escape(machine.dtype)}: '
            f'{machine.peak * 1e-9:.0f} GFLOP/s, {machine.read_rate * 1e-9:.0f} GB/s</text>']


def _dot(axes: _Axes, row: Row, color: str) -> str:
    x, y = axes.at(row.intensity or 1, row.flops_per_second or 1)
    title = escape(" ".join(filter(None, (row.function, row.operands, row.module, row.place))))
    return f'<circle cx="{x}" cy="{y}" r="4" fill="{color}" fill-opacity="0.7"><title>{title}</title></circle>'
