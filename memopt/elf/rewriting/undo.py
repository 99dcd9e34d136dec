"""Gives back the original of a rewritten file, from its record.

Example: the bytes that the record lists are put back and the file is cut to its old length; then its SHA-256 is that of
the original. Where the file was changed since it was rewritten (stripped, its search path set), that cannot be: then
only the bytes at the loops' headers go back, and the new code stays in the file, where nothing leads to it.

In: the bytes of the rewritten file. Out: an ``Undone``. Raises ``ElfError`` where memopt has not rewritten the file, or
its record is damaged, or other bytes than those of memopt are at the headers.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from memopt.elf.image import ElfError, Image
from memopt.elf.rewriting.record import Record, record_of


@dataclass(frozen=True, slots=True)
class Undone:
    """``whole``: ``content`` is the original, byte for byte. Else only its code is that of the original."""

    content: bytes
    whole: bool


def undone(content: bytes) -> Undone:
    """The original of the rewritten file ``content``, or that file with the original's code."""
    image = Image.of(content)
    record = record_of(image)
    if record is None:
        raise ElfError("memopt has not rewritten it")
    back = _with_patches_out(image, record, content)
    original = _restored(record, back)
    if hashlib.sha256(original).hexdigest() == record.sha256:
        return Undone(original, whole=True)
    if back == content:
        raise ElfError("its code is the original's already, and the rest was changed since memopt rewrote it")
    return Undone(back, whole=False)


def patched(image: Image, record: Record) -> bool:
    """Whether the patches are in the file. Raises ``ElfError`` where other bytes are at a header."""
    found = {p.address: image.read(image.offset_of(p.address), len(p.new)) for p in record.patches}
    if all(found[p.address] == p.new for p in record.patches):
        return True
    if all(found[p.address] in (p.original, p.new) for p in record.patches):
        return False
    raise ElfError("its code was changed since memopt rewrote it")


def _with_patches_out(image: Image, record: Record, content: bytes) -> bytes:
    patched(image, record)
    back = bytearray(content)
    for patch in record.patches:
        at = image.offset_of(patch.address)
        back[at:at + len(patch.original)] = patch.original
    return bytes(back)


def _restored(record: Record, content: bytes) -> bytes:
    back = bytearray(content[:record.length])
    for change in record.changes:
        back[change.offset:change.offset + len(change.original)] = change.original
    return bytes(back)
