"""A snapshot of no program, with something in each part of the form."""

from __future__ import annotations

from memopt.snapshots.form import (
    MASKS,
    PAGE,
    REGISTERS,
    VECTOR_BYTES,
    VECTORS,
    X87_BYTES,
    MappedRange,
    Nest,
    Pages,
    Snapshot,
    Symbols,
    VectorState,
)

_CODE = bytes(range(256)) * 32
SNAPSHOT = Snapshot(
    Nest("multiply", "prog", 0x401040, 0x1000, (0x401000, 0x403000), (0x401020, 0x401200), (0x4010F0,), 96),
    {name: number << 40 | 7 for number, name in enumerate(REGISTERS)},
    VectorState(0x1FA0, bytes(range(X87_BYTES)), tuple(bytes([n]) * VECTOR_BYTES for n in range(VECTORS)),
                tuple(range(MASKS))),
    (MappedRange(0x401000, 0x403000, "r-x", False, "prog"),
     MappedRange(0x7F0000000000, 0x7F0000001000, "rw-", True, "")),
    (Pages(0x401000, _CODE), Pages(0x7F0000000000, b"\x01" * PAGE)),
    Symbols({0x404018: "exp"}, {0x401200: "helper"}, ("libm.so.6:exp",)), ("nest\nplan",), "asked for",
    ("arguments and environment",), "0.1.0")
