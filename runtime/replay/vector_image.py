"""The vector state of a snapshot as the XSAVE area of this machine, and back.

Example: the upper half of ymm3 stands at offset 576 + 3 * 16 on every machine, that of zmm3 where CPUID says.

In: a ``VectorState``, the XSAVE area of a thread in its standard form. Out: the area with that state; the state of an
area. Source: Intel SDM 1, 13.4 and 13.5. Raises ``SnapshotError`` where the machine has no room for what is not zero.
"""

from __future__ import annotations

import functools

from memopt.machine.cpuid import cpuid
from memopt.snapshots.form import MASKS, VECTOR_BYTES, VECTORS, X87_BYTES, SnapshotError, VectorState
from memopt.x86.frame import XMM_OFFSET, YMM_OFFSET

_MXCSR, _BITMAP = 24, 512
_LEGACY_BITS = 0b11  # x87 and SSE
_YMM, _MASK, _UPPER, _HIGH = 2, 5, 6, 7  # state components: ymm0-15 above, k0-7, zmm0-15 above, zmm16-31


@functools.cache
def _offset(component: int) -> int:
    """Where a state component stands in the standard form; 0 where the machine lacks it."""
    return YMM_OFFSET if component == _YMM else cpuid(0xD, component).ebx


def _places(number: int) -> tuple[tuple[int, int, int, int], ...]:
    """The parts of vector register ``number``: (component, offset in the area, from byte, to byte of the register).
    Component 1 is SSE. The offset is 0 where the machine lacks the component."""
    if number >= 16:
        start = _offset(_HIGH)
        return ((_HIGH, start and start + VECTOR_BYTES * (number - 16), 0, 64),)
    upper = _offset(_UPPER)
    return ((1, XMM_OFFSET + 16 * number, 0, 16), (_YMM, _offset(_YMM) + 16 * number, 16, 32),
            (_UPPER, upper and upper + 32 * number, 32, 64))


def state_of(area: bytes) -> VectorState:
    """The state in an XSAVE area."""
    present = int.from_bytes(area[_BITMAP:_BITMAP + 8], "little")
    vectors = []
    for number in range(VECTORS):
        value = bytearray(VECTOR_BYTES)
        for component, at, low, high in _places(number):
            if at and present >> component & 1:
                value[low:high] = area[at:at + high - low].ljust(high - low, b"\0")
        vectors.append(bytes(value))
    start = _offset(_MASK) if present >> _MASK & 1 else 0
    masks = tuple(int.from_bytes(area[start + 8 * n:start + 8 * n + 8], "little") if start else 0 for n in range(MASKS))
    x87 = area[:_MXCSR] + bytes(8) + area[_MXCSR + 8:X87_BYTES]
    return VectorState(int.from_bytes(area[_MXCSR:_MXCSR + 4], "little"), x87, tuple(vectors), masks)


def image_of(state: VectorState, area: bytes) -> bytes:
    """``area``, of a thread of this machine, with ``state``. Raises ``SnapshotError``."""
    found, present = bytearray(area), _LEGACY_BITS
    found[:_MXCSR] = state.x87[:_MXCSR]
    found[_MXCSR:_MXCSR + 4] = state.mxcsr.to_bytes(4, "little")
    found[_MXCSR + 8:X87_BYTES] = state.x87[_MXCSR + 8:]
    parts = [(component, at, value[low:high]) for number, value in enumerate(state.vectors)
             for component, at, low, high in _places(number)]
    start = _offset(_MASK)
    parts += [(_MASK, start and start + 8 * n, mask.to_bytes(8, "little")) for n, mask in enumerate(state.masks)]
    for component, at, value in parts:
        if at and at + len(value) <= len(found):
            found[at:at + len(value)] = value
            present |= 1 << component
        elif any(value):
            raise SnapshotError("it needs vector registers that this machine lacks")
    found[_BITMAP:_BITMAP + 8] = present.to_bytes(8, "little")
    return bytes(found)
