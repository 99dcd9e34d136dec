"""A profile as text: the tree of functions and loops, with the share of each.

In: the tree of a profile (``memopt.store.tree``). Out: one line for each frame: a bar, its share with and without the
frames below it, its name, how often it was entered.
"""

from __future__ import annotations

from collections.abc import Iterator

from memopt.store.tree import Frame

_BAR = 20


def lines(root: Frame, unit: str, least: float) -> Iterator[str]:
    """The lines of the tree. ``unit``: "seconds" or "instructions". Frames below ``least`` percent are left out."""
    yield f"{root.name}: {amount(root.total, unit)}"
    yield f"{'':{_BAR}}   total     own"
    threads = len(root.below)
    shift = 1 if threads > 1 else 2
    for depth, frame in root.walk():
        if depth < shift or not root.total or 100 * frame.total < least * root.total:
            continue
        share = frame.total / root.total
        bar = "#" * round(_BAR * share)
        yield (f"{bar:{_BAR}}  {100 * share:5.1f} % {100 * frame.own / root.total:5.1f} %  "
               f"{'  ' * (depth - shift)}{frame.name}{_rounds(frame)}")


def amount(value: float, unit: str) -> str:
    """``value`` with its unit: "1,234 instructions" or "1.23 s"."""
    return f"{value:,.0f} instructions" if unit == "instructions" else f"{value:.2f} s"


def _rounds(frame: Frame) -> str:
    if frame.entries is None:
        return ""
    entered = f"{frame.entries:,} time{'' if frame.entries == 1 else 's'}"
    if frame.kind != "loop":
        return f"  ({entered})"
    mean = frame.iterations / frame.entries if frame.iterations is not None and frame.entries else frame.iterations or 0
    return f"  ({entered}, {mean:,.6g} iterations each)" if frame.entries else f"  ({mean:,.6g} iterations)"
