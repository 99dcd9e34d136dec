"""Code that is written from front to back at a known address, with names for places that come later."""

from __future__ import annotations

from memopt.ir.reasons import VerifyError
from runtime.recording.translation.encode import JRCXZ, JUMP, relative


class Writer:
    """``labels``: addresses by name. Names used before they are placed are filled in by ``finish``."""

    def __init__(self, address: int) -> None:
        self._start = address
        self._code = bytearray()
        self.labels: dict[object, int] = {}
        self._open: list[tuple[int, int, object]] = []  # offset of a distance, its bytes, what it leads to

    @property
    def here(self) -> int:
        return self._start + len(self._code)

    def __call__(self, *pieces: bytes) -> None:
        for piece in pieces:
            self._code += piece

    def place(self, label: object) -> None:
        if label in self.labels:
            raise VerifyError(f"{label} is placed twice")
        self.labels[label] = self.here

    def to(self, opcode: bytes, target: int) -> None:
        """``opcode`` with a distance of 32 bits to the address ``target``."""
        self._code += relative(opcode, self.here, target)

    def to_label(self, opcode: bytes, label: object) -> None:
        self._code += opcode
        self._open.append((len(self._code), 4, label))
        self._code += bytes(4)

    def jump(self, label: object) -> None:
        self.to_label(JUMP, label)

    def if_zero(self, label: object, opcode: int = JRCXZ) -> None:
        """A jump that tests rcx, to a label near by."""
        self._code.append(opcode)
        self._open.append((len(self._code), 1, label))
        self._code.append(0)

    def finish(self) -> bytes:
        for offset, size, label in self._open:
            distance = self.labels[label] - (self._start + offset + size)
            if not -(1 << 8 * size - 1) <= distance < 1 << 8 * size - 1:
                raise VerifyError(f"{label} is out of reach of {self._start + offset:#x}")
            self._code[offset:offset + size] = distance.to_bytes(size, "little", signed=True)
        return bytes(self._code)
