"""Kinds of surroundings by name, as in tests/programs/surroundings: what each needs, and its two numbers.

Example: ``Kind("entering", lambda choose: (choose.randrange(8), 900))``: a timer whose handler runs the nest, too; the
first number tells about its stack and its signal, the second is its period in microseconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

Numbers = Callable[[random.Random], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Kind:
    """``needs``: forms of the nest: "progress", "stop", "mark", "plug-in". ``last``: nothing can act behind it.
    ``early``: it also does something before the nest is replaced. ``parts``: the nest is to pass over pages."""

    name: str
    numbers: Numbers
    needs: tuple[str, ...] = ()
    last: bool = False
    early: bool = False
    parts: bool = False


def _timer(choose: random.Random) -> tuple[int, int]:
    return choose.randrange(8), choose.choice((150, 400, 900, 2500))


KINDS = (
    Kind("threads", lambda c: (c.choice((1, 2, 3)), c.choice((40, 200)))),
    Kind("staggered", lambda c: (c.choice((50, 300, 1500)), c.choice((8, 20)))),
    Kind("neighbours", lambda c: (0, c.choice((100, 400)))),
    Kind("taker", lambda c: (0, c.choice((60, 200))), ("progress",)),
    Kind("sleeper", lambda c: (0, c.choice((40, 200))), early=True),
    Kind("cancelled", lambda c: (c.choice((200, 1500)), 12)),
    Kind("counter", _timer),
    Kind("ticking", _timer, early=True),
    Kind("entering", _timer),
    Kind("looking", _timer, ("progress",)),
    Kind("stopping", lambda c: (c.choice((37, 211, 733)), 30), ("stop",)),
    Kind("leaving", lambda c: (c.choice((41, 199, 677)), 30)),
    Kind("splitting", lambda c: (c.choice((43, 187)), 12)),
    Kind("switching", lambda c: (0, c.choice((300, 1000, 3000)))),
    Kind("halting", lambda c: (c.choice((500, 4000)), 12)),
    Kind("passed", lambda c: (c.randrange(4), 4), early=True, parts=True),
    Kind("moved", lambda c: (c.randrange(2), 6)),
    Kind("replaced", lambda c: (c.randrange(2), 3)),
    Kind("reserved", lambda c: (0, 4)),
    Kind("mappings", lambda c: (c.choice((100, 1000, 3000)), 30), early=True),
    Kind("exchanged", lambda c: (c.choice((3, 30, 300)), c.choice((4, 10))), ("plug-in",)),
    Kind("exchanging", lambda c: (c.choice((3, 30)), c.choice((500, 1500, 3000, 6000))), ("plug-in",), early=True),
    Kind("patched", lambda c: (c.choice((1, 5, 1000, -7)), 6), ("mark",)),
    Kind("forked", lambda c: (c.choice((1, 3)), 4)),
    Kind("spawned", lambda c: (c.randrange(2), 6)),
    Kind("executed", lambda c: (0, 2)),
    Kind("executed", lambda c: (1, 1), last=True),
    Kind("holding", lambda c: (0, 60), early=True),
    Kind("seccomp", lambda c: (c.randrange(2), 100), last=True),
    Kind("seccomp-later", lambda c: (c.randrange(2), c.randrange(300, 4000, 50)), last=True, early=True),
    Kind("time-stamps", lambda c: (0, 60)),
    Kind("limits", lambda c: (c.randrange(6), 30)),
    Kind("limited", lambda c: (c.choice((0, 1, 2, 5)), 30), early=True),
)
NAMES = tuple(dict.fromkeys(k.name for k in KINDS))
EARLY_REFUSED = frozenset({"seccomp-later", "limited"})  # memopt may have to leave the nest alone from the start
