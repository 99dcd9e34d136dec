"""Texts without addresses: ``cmp rdi, 0x7f1200400040`` becomes ``cmp rdi, <memory>``, in each process alike.

In: a text form of a region, a plan or generated code, and where memory is in the process. Out: the text in which every
number that is an address of a named range is written relative to it, and any other address of the process as
``<memory>``. Two texts that are equal then differ in addresses alone, as far as one can see: this decides only what is
looked at. What is right is proved for the region itself.

A number below ``LEAST`` is no address. A size that happens to be an address of the heap is taken for one: then two
different sizes look alike, the code that is generated for them does not, and it is tried.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Sequence

LEAST = 1 << 16  # vm.mmap_min_addr
_FAR = 1 << 32  # below it only programs at fixed addresses are, and sizes
# Names of functions and variables are spelled with their address: ``call 5643ab001136(...)``, ``ready:7f12004005d8``.
_NUMBER = re.compile(r"(?P<bare>(?:(?<=:)|(?<=\bcall )|(?<=\bcheck ))[0-9a-f]{5,16})(?![\w.])"
                     r"|(?<![\w.])(?:0x[0-9a-f]+|\d+)(?![\w.])")
_DIGITS = re.compile(r"[0-9a-f]{5,16}")

Range = tuple[int, int, str, int]
"""Start, end, name and base of a range of addresses; its end counts as one of its addresses. ``name`` is "" where all
addresses of the range are written alike."""


class Addresses:
    """Where memory is in one process. Where ranges overlap or touch, those that were given first count."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        self._named, self._others = list[Range](), list[Range]()
        for found in ranges:
            (self._named if found[2] else self._others).append(found)
        self._others.sort()
        self._starts = [start for start, *_ in self._others]

    def relative(self, text: str) -> str:
        """``text`` without addresses."""
        def shown(found: re.Match[str]) -> str:
            return self._shown(found[0], 16 if found["bare"] or found[0].startswith("0x") else 10)

        return _NUMBER.sub(shown, text)

    def told(self, text: str) -> bool:
        """Whether any digits in ``text`` could still be an address of the process: then it is not for a file."""
        return any(self._shown(digits, base) != digits for digits in _DIGITS.findall(re.sub(r"<file[^>]*>", "", text))
                   for base in ((10, 16) if digits.isdigit() else (16,)) if int(digits, base) >= _FAR)

    def _shown(self, spelled: str, base: int) -> str:
        number = int(spelled, base)
        if number < LEAST or number >= 1 << 64:
            return spelled
        for address in (number, (1 << 64) - number):  # and what is subtracted modulo 2^64
            for start, end, name, base in self._named:
                if start <= address <= end:
                    return f"<{name}{address - base:+#x}>"
            index = bisect.bisect_right(self._starts, address) - 1
            if index >= 0 and address <= self._others[index][1]:
                return "<memory>"
        return spelled


def of_file(mappings: Sequence[tuple[int, int, str]], path: str, bias: int) -> list[Range]:
    """The ranges of a process: those of the file at ``path``, with the memory right behind it (static arrays), relative
    to its link addresses; then all others. ``mappings``: start, end and path of each, in the order of addresses."""
    named, others, before = list[Range](), list[Range](), 0
    for start, end, found in mappings:
        if found == path or (not found and start == before):
            named.append((start, end, "file", bias))
            before = end
        else:
            others.append((start, end, "", 0))
    return [*named, *others]
