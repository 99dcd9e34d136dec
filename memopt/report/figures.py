"""Drawings of the page, as SVG: curves on logarithmic axes with a line for each cache size, and a cloud of dots.

In: numbers. Out: the text of an ``<svg>`` element of fixed size.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

_WIDTH, _HEIGHT, _LEFT, _BELOW, _ABOVE = 420, 190, 62, 24, 8
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def curves(points: Sequence[tuple[float, float, float]], caches: Sequence[tuple[str, int]]) -> str:
    """Two working-set curves on logarithmic axes. ``points``: (iterations, bytes of lines, bytes of pages), all above
    0. ``caches``: (name, bytes), each drawn as a horizontal line."""
    across = _Axis([x for x, _, _ in points], _LEFT, _WIDTH - 8)
    sizes = [*(y for point in points for y in point[1:]), *(size for _, size in caches)]
    upwards = _Axis(sizes, _HEIGHT - _BELOW, _ABOVE)
    parts = []
    for name, size in caches:
        y = upwards.at(size)
        parts.append(f"<line class=cache x1={_LEFT} x2={_WIDTH} y1={y:.0f} y2={y:.0f} />"
                     f"<text x={_WIDTH - 4} y={y - 2:.0f} text-anchor=end>{html.escape(name)}</text>")
    for column, kind in ((1, "lines"), (2, "pages")):
        path = " ".join(f"{across.at(point[0]):.1f},{upwards.at(point[column]):.1f}" for point in points)
        parts.append(f"<polyline class={kind} points='{path}' />")
    for value, anchor in ((points[0][0], "start"), (points[-1][0], "end")):
        parts.append(f"<text x={across.at(value):.0f} y={_HEIGHT - 8} text-anchor={anchor}>{value:,.0f}</text>")
    for value in (min(y for _, y, _ in points), max(y for _, _, y in points)):
        parts.append(f"<text x={_LEFT - 4} y={upwards.at(value) + 4:.0f} text-anchor=end>{_bytes(value)}</text>")
    return _drawn(parts)


def dots(heights: Sequence[int]) -> str:
    """A dot for each of ``heights``, from left to right. A height is an address, in bytes above the lowest one. Dots
    on the same pixel are drawn once."""
    last, highest = max(1, len(heights) - 1), max(1, *heights)
    across, upwards = (_WIDTH - _LEFT - 8) / last, (_HEIGHT - _BELOW - _ABOVE) / highest
    places = sorted({(round(_LEFT + across * at), round(_HEIGHT - _BELOW - upwards * height))
                     for at, height in enumerate(heights)})
    columns: list[list[int]] = []  # x, first y, last y
    for x, y in places:
        if columns and columns[-1][0] == x and columns[-1][2] == y - 1:
            columns[-1][2] = y
        else:
            columns.append([x, y, y])
    marks = "".join(f"M{x} {first}v{end - first + 1}" for x, first, end in columns)
    return _drawn([f"<path class=dots d='{marks}' />",
                   f"<text x={_LEFT - 4} y={_ABOVE + 8} text-anchor=end>{_bytes(highest)}</text>",
                   f"<text x={_WIDTH - 8} y={_HEIGHT - 8} text-anchor=end>{last:,}</text>"])


class _Axis:
    """A logarithmic axis for ``values``, from pixel ``first`` to pixel ``last``."""

    def __init__(self, values: Sequence[float], first: float, last: float) -> None:
        self._low, self._high = math.log2(min(values)), math.log2(max(values))
        self._first, self._last = first, last

    def at(self, value: float) -> float:
        """The pixel of ``value``."""
        part = (math.log2(value) - self._low) / (self._high - self._low) if self._high > self._low else 0.5
        return self._first + (self._last - self._first) * part


def _drawn(parts: Sequence[str]) -> str:
    return f"<svg width={_WIDTH} height={_HEIGHT}>{''.join(parts)}</svg>"


def _bytes(value: float) -> str:
    unit = min(int(math.log2(value)) // 10, len(_UNITS) - 1) if value >= 1 else 0
    return f"{value / 1024 ** unit:.3g} {_UNITS[unit]}"
