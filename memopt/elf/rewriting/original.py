"""The code of a rewritten file as it was: what ``exec``, ``attach`` and ``profile`` look at.

Example: the file has a jump at the header of the loop at 0x1190. Its code is read with the five bytes that stood there,
so the loop is found as before, and it counts as settled: it has a version already. A hot address in the version's code
belongs to the loop's function.

In: an image. Out: an ``Original``; None where memopt has not rewritten the file, or its record cannot be read: its code
is then taken as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from memopt.elf.image import PT_LOAD, ElfError, Image
from memopt.elf.rewriting.record import (
    HEADER_SIZE,
    Record,
    VersionRecord,
    printable,
    record_of,
    segment_start,
)


@dataclass(frozen=True, slots=True)
class Original:
    """``bias``: what to add to a link-time address. All addresses that go in or out are live ones.

    ``added``: the new segment up to the end of the last version's code.
    """

    record: Record
    bias: int
    added: range

    @property
    def headers(self) -> frozenset[int]:
        """The headers of the loops that have versions in the file, and all other places of patches."""
        patched = {p.address for p in self.record.patches} | {v.header for v in self.record.versions}
        return frozenset(address + self.bias for address in patched)

    def restored(self, start: int, code: bytes) -> bytes:
        """``code``, read from ``start`` on, with the original's bytes where there are patches."""
        for patch in self.record.patches:
            low = max(start, patch.address + self.bias)
            high = min(start + len(code), patch.address + self.bias + len(patch.original))
            if low < high:
                skipped = low - patch.address - self.bias
                code = code[:low - start] + patch.original[skipped:skipped + high - low] + code[high - start:]
        return code

    def version_at(self, address: int) -> VersionRecord | None:
        """The version whose code is at ``address``."""
        at = address - self.bias
        return next((v for v in self.record.versions if v.code[0] <= at < v.code[1]), None)


def symbol_name(version: VersionRecord) -> str:
    """The name of a version's code, for symbol tables and profiles."""
    return f"memopt:{printable(version.function) or hex(version.header)}"


def original_of(image: Image, bias: int = 0) -> Original | None:
    """What ``image``, loaded with ``bias``, was before memopt rewrote it."""
    try:
        record, start = record_of(image), segment_start(image)
    except ElfError:
        return None
    if record is None or start is None:
        return None
    first = next((s.address for s in image.segments if s.kind == PT_LOAD and s.offset == start), None)
    if first is None:
        return None
    end = max((v.code[1] for v in record.versions), default=first + HEADER_SIZE)
    return Original(record, bias, range(first + bias, end + bias))
