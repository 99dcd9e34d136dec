"""An entry as it may be at another size, supposed from one entry that was seen.

Example: at the header of a product of 1500 x 1500 doubles, r11 is 1500, r9 is 1499, rsi is 12000, and rdi is 12000
bytes behind r10. At another size r11 may be 1601; then r9 is 1600, rsi is 12808, and rdi is 12808 bytes behind r10.

In: the live-in values of an entry (``Sample``), and which of them are addresses, of the program or others. Out: the
values of an entry that nobody has seen. Lifting takes it like a second size from a training: what differs becomes a
parameter, where that is possible, and how one value follows from another becomes a guard. So a supposition that is
wrong makes a version that serves fewer sizes, never a wrong one. It is for files, where one training stands for all
sizes to come; a running process shows the others by itself.

A value is supposed to follow from a smaller one if it is a multiple of it by the size of an element, plus a few
elements, signs aside; the others differ independently. Of two addresses, their distance is what follows; of the others,
those in the program stay.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from memopt.ir.region import Sample
from memopt.lifting.execution.parameters import LOW_BYTE, PARAMETER

_LEAST_SIZE, _MOST_SIZE = 16, 1 << 31  # smaller numbers are seldom sizes
_TIMES = (1, 2, 4, 8, 16)  # bytes of an element
_FEW = 4  # elements by which a size differs from another: n - 1, n + 2
_STEPS = (101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179)  # none follows from another
_APART = 64  # bytes


def other_size(seen: Sample, is_address: Callable[[int], bool], in_program: Callable[[int], bool]) -> dict[str, int]:
    """``seen`` at another size. Registers that hold small numbers, and the stack pointer, stay."""
    own = {s: v for s, v in seen.items() if not s.startswith((PARAMETER, LOW_BYTE))}
    sizes = {s: abs(v) for s, v in own.items() if _LEAST_SIZE <= abs(v) < _MOST_SIZE and not is_address(v)}
    grown = dict[int, int]()
    steps = itertools.cycle(_STEPS)
    for value in sorted(set(sizes.values())):
        followed = _followed(value, grown)
        grown[value] = value + next(steps) if followed is None else followed
    moved = dict(_moved({v for s, v in own.items() if is_address(v) and s not in ("rsp", "rip")}, grown, in_program))
    supposed = {s: (grown[v] if v > 0 else -grown[-v]) if s in sizes else moved.get(v, v) for s, v in own.items()}
    return {s: _derived(s, supposed) for s in seen}


def _followed(value: int, grown: dict[int, int]) -> int | None:
    """``value`` at the other size, where it follows from one that is in ``grown``, the nearest first."""
    for size in reversed(grown):
        for times in _TIMES:
            rest = value - times * size
            if abs(rest) <= _FEW * times:
                return times * grown[size] + rest
    return None


def _moved(addresses: set[int], grown: dict[int, int], stays: Callable[[int], bool]) -> Iterator[tuple[int, int]]:
    """Each address, and where it lies at the other size: as far from the one before as follows from a size."""
    before, place = 0, 0
    steps = itertools.cycle(_STEPS)
    for address in sorted(addresses):
        followed = _followed(address - before, grown)
        if followed is not None:
            place += followed
        else:
            place = address if stays(address) else address + _APART * next(steps)
        before = address
        yield address, place


def _derived(symbol: str, values: dict[str, int]) -> int:
    """The value of ``symbol``: a register or cell, the low byte of one, or the parameter that either becomes."""
    name = symbol.removeprefix(PARAMETER)
    if name.startswith(LOW_BYTE):
        return ((values[name.removeprefix(LOW_BYTE)] + 128) & 0xFF) - 128
    return values[name]
