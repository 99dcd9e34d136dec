"""Reads callgrind's files: instructions by calling context.

Example: with ``--separate-callers`` a function has a name for each context, ``inner'outer'main``; the lines below it
are its own costs, but for the line behind each ``calls=``, which has those of a callee.

In: a file made with ``--dump-instr=yes --compress-pos=no``. Out: ``Dump``.

Source: the Valgrind manual, section "Callgrind Format Specification".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

NO_FILE = "???"  # what callgrind calls the file of code that it does not know
_NAMED = re.compile(r"\((\d+)\)(?: (.*))?")


@dataclass(frozen=True, slots=True)
class Dump:
    """The costs by context; the file of each context's function, and an address in it."""

    own: Counter[str] = field(default_factory=Counter)
    places: dict[str, tuple[str, int]] = field(default_factory=dict)

    @staticmethod
    def read(path: Path) -> Dump:
        """The costs in a file."""
        dump = Dump()
        names: dict[str, dict[str, str]] = {"ob": {}, "fn": {}}
        file = context = ""
        of_callee = False
        with open(path) as lines:
            for line in lines:
                if line.startswith("0x"):
                    if not of_callee:
                        address, _, cost = line.split()
                        dump.own[context] += int(cost)
                        dump.places.setdefault(context, (file, int(address, 16)))
                    of_callee = False
                    continue
                key, _, value = line.rstrip("\n").partition("=")
                of_callee = key == "calls"
                if key in ("ob", "cob"):
                    expanded = _expanded(names["ob"], value)
                    file = expanded if key == "ob" else file
                elif key in ("fn", "cfn"):
                    expanded = _expanded(names["fn"], value)
                    context = expanded if key == "fn" else context
        return dump


def callers(context: str) -> Iterator[str]:
    """A context, that of its caller, and so on."""
    while context:
        yield context
        context = context.partition("'")[2]


def _expanded(known: dict[str, str], value: str) -> str:
    """The name for which ``(7) name`` stands, or later ``(7)``."""
    found = _NAMED.fullmatch(value)
    if found is None:
        return value
    if found[2]:
        known[found[1]] = found[2]
    return known[found[1]]
