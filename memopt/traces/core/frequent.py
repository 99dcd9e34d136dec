"""Heavy hitters: the most frequent of many values, counted in a few places.

The algorithm is that of Misra and Gries, Finding repeated elements, 1982.

If there are no more different values than places, the counts are exact. Otherwise each count is too low by at most the
number of all values divided by the number of places plus one; none is too high.
"""

from __future__ import annotations

from memopt.traces.core.compiler import kernel
from memopt.traces.core.tables import Array


@kernel()
def _add_in_free(rows, first, end, value, times):
    for place in range(first, end, 2):
        if rows[place + 1] == 0:
            rows[place], rows[place + 1] = value, times
            return


@kernel(forceinline=True)
def count_value(rows, first, end, value, times):
    """Counts ``value`` ``times`` times. ``rows`` from ``first`` to ``end``: pairs of value and count."""
    free = -1
    for place in range(first, end, 2):
        if rows[place + 1] == 0:
            free = place
        elif rows[place] == value:
            rows[place + 1] += times
            return
    if free >= 0:
        rows[free], rows[free + 1] = value, times
        return
    least = times
    for place in range(first, end, 2):
        least = min(least, rows[place + 1])
    for place in range(first, end, 2):
        rows[place + 1] -= least
    if times > least:
        _add_in_free(rows, first, end, value, times - least)


def counted(row: Array) -> dict[int, int]:
    """The counts by value, out of a row of pairs of value and count."""
    return {value: count for value, count in zip(row[::2].tolist(), row[1::2].tolist(), strict=True) if count}
