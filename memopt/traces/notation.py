"""Text notation of access patterns, and its inverse, which expands the text to the exact addresses.

    8x67            67 accesses of 8 bytes, each directly behind the one before
    [ID4]           the pattern that is defined elsewhere as number 4
    (+248+P)*34     34 times P, each beginning 248 bytes behind the end of what came before
    [P,(+248+P)*34] P, then 34 more of it
    [P,+16+Q]       P, then Q, which begins 16 bytes behind the end of P

In: the patterns of ``patterns.py``, by number. Out: their text, an affine form in loop counters, or addresses. The
notation is that of Matsubara and Sato, figures 2 and 3.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence

import numpy

from memopt.traces.core.tables import Array
from memopt.traces.patterns import Kind, Pattern

_TOKEN = re.compile(r"\[ID(\d+)\]|(\d+)x(\d+)|([+-]\d+)\+|(\[)|(\])|(\()|\)\*(\d+)|(,)")


def written(patterns: Sequence[Pattern], number: int, name: Callable[[int], str] | None = None) -> str:
    """The text of the pattern ``number``. Inner patterns are referred to by ``name``; without it as ``[ID4]``."""
    named = name or "[ID{}]".format
    links: list[str] = []
    while (pattern := patterns[number]).kind is Kind.PAIR:
        links.append(f"{pattern.offset:+}+{named(pattern.times)}")
        number = pattern.first
    if links:
        return f"[{','.join([named(number), *reversed(links)])}]"
    if pattern.kind is Kind.DATUM:
        return f"{pattern.first}x{pattern.times}"
    return f"[{named(pattern.first)},({pattern.offset:+}+{named(pattern.first)})*{pattern.times}]"


def needed(patterns: Sequence[Pattern], numbers: set[int]) -> set[int]:
    """The patterns ``numbers`` and all that they are made of, directly or indirectly."""
    found, rest = set(numbers), list(numbers)
    while rest:
        pattern = patterns[rest.pop()]
        inner = {Kind.DATUM: (), Kind.RUN: (pattern.first,), Kind.PAIR: (pattern.first, pattern.times)}[pattern.kind]
        for number in inner:
            if number not in found:
                found.add(number)
                rest.append(number)
    return found


def affine(patterns: Sequence[Pattern], number: int) -> str | None:
    """The affine form of a pattern, such as ``516 i0 + 4 i1, i0 < 35, i1 < 67``: bytes from the first address on, in
    loop counters from the outermost to the innermost. None if the pattern contains a pair, which has no such form.
    """
    loops: list[tuple[int, int]] = []
    while (pattern := patterns[number]).kind is Kind.RUN:
        number = pattern.first
        loops.append((patterns[number].span + pattern.offset, pattern.times + 1))
    if pattern.kind is Kind.PAIR:
        return None
    if pattern.times > 1:
        loops.append((pattern.first, pattern.times))
    form = " + ".join(f"{stride} i{at}" for at, (stride, _) in enumerate(loops)) or "0"
    return ", ".join([form, *(f"i{at} < {count}" for at, (_, count) in enumerate(loops))])


def expanded(text: str, definitions: Mapping[int, str], address: int = 0, most: int = sys.maxsize) -> Array:
    """The addresses that ``text`` stands for, in order, beginning with ``address``: the first ``most`` of them.

    ``definitions``: the text of each pattern that is referred to by number. Raises ``ValueError`` if a text is no
    pattern, ``KeyError`` for a number without definition.
    """
    known: dict[int, tuple[Array, int]] = {}
    addresses, _ = _Reader(text, definitions, known, most).all()
    return addresses + address


class _Reader:
    """Parser of one text. Its methods return the addresses of a pattern, beginning with 0 and at most ``most`` of them,
    and its span in bytes.
    """

    def __init__(self, text: str, definitions: Mapping[int, str], known: dict[int, tuple[Array, int]], most: int
                 ) -> None:
        self._definitions, self._known, self._most = definitions, known, most
        self._tokens: list[re.Match[str]] = []
        at = 0
        while at < len(text):
            token = _TOKEN.match(text, at)
            if token is None:
                raise ValueError(f"this is no part of a pattern: {text[at:at + 20]!r}")
            self._tokens.append(token)
            at = token.end()
        self._tokens.reverse()

    def all(self) -> tuple[Array, int]:
        found = self._one()
        if self._tokens:
            raise ValueError(f"the pattern should end before {self._tokens[-1][0]!r}")
        return found

    def _next(self) -> re.Match[str]:
        if not self._tokens:
            raise ValueError("the pattern ends too early")
        return self._tokens.pop()

    def _one(self) -> tuple[Array, int]:
        token = self._next()
        if token[1]:
            number = int(token[1])
            if number not in self._known:
                self._known[number] = _Reader(
                    self._definitions[number], self._definitions, self._known, self._most).all()
            return self._known[number]
        if token[2]:
            size, times = int(token[2]), int(token[3])
            return size * numpy.arange(min(times, self._most), dtype=numpy.int64), size * times
        if not token[5]:
            raise ValueError(f"a pattern should begin at {token[0]!r}")
        parts, span = [], 0
        found, width = self._one()
        parts.append(found)
        span += width
        while (token := self._next())[9]:
            more, span = self._link(span)
            parts += more
        if not token[6]:
            raise ValueError(f"a comma or the end of a list should stand at {token[0]!r}")
        return numpy.concatenate(parts)[:self._most], span

    def _link(self, span: int) -> tuple[list[Array], int]:
        """Reads the part behind a comma. Returns its addresses, and the span up to its end."""
        token = self._next()
        many = bool(token[7])
        if many:
            token = self._next()
        if not token[4]:
            raise ValueError(f"an offset should stand at {token[0]!r}")
        offset = int(token[4])
        found, width = self._one()
        times = 1
        if many:
            token = self._next()
            if not token[8]:
                raise ValueError(f"a number of times should stand at {token[0]!r}")
            times = int(token[8])
        shown = min(times, -(-self._most // len(found)))
        starts = span + offset + (width + offset) * numpy.arange(shown, dtype=numpy.int64)
        return [(starts[:, None] + found).ravel()], span + times * (width + offset)
