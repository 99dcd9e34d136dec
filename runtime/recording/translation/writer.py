"""Writes code from front to back at a known address; labels may be used before they are placed."""

from __future__ import annotations

from memopt.ir.reasons import VerifyError
from runtime.recording.translation.encode import JRCXZ, JUMP, relative


class Writer:
    """Code in the making. ``labels``: addresses by name. ``finish`` fills in the labels that were used before they were
    placed.
    """

    def __init__(self, address: int) -> None:
        self._start = address
        self._code = bytearray()
        self.labels: dict[object, int] = {}
        self._open: list[tuple[int, int, object]] = []  # where a distance stands, its size, its label

    @property
    def here(self) -> int:
        """The address of the next byte."""
        return self._start + len(self._code)

    def __call__(self, *pieces: bytes) -> None:
        for piece in pieces:
            self._code += piece

    def place(self, label: object) -> None:
        """Places a label here. Raises VerifyError if it is placed already."""
        if label in self.labels:
            raise VerifyError(f"{label} is placed twice")
        self.labels[label] = self.here

    def to(self, opcode: bytes, target: int) -> None:
        """Writes ``opcode`` with a 32-bit distance to the address ``target``."""
        self._code += relative(opcode, self.here, target)

    def to_label(self, opcode: bytes, label: object) -> None:
        """Writes ``opcode`` with a 32-bit distance to a label."""
        self._code += opcode
        self._open.append((len(self._code), 4, label))
        self._code += bytes(4)

    def jump(self, label: object) -> None:
        """Writes a jump to a label."""
        self.to_label(JUMP, label)

    def if_zero(self, label: object, opcode: int = JRCXZ) -> None:
        """Writes a jump with an 8-bit distance, which tests rcx (jrcxz, or another ``opcode``), to a label near by."""
        self._code.append(opcode)
        self._open.append((len(self._code), 1, label))
        self._code.append(0)

    def finish(self) -> bytes:
        """The bytes. Raises VerifyError if a label is out of reach."""
        for offset, size, label in self._open:
            distance = self.labels[label] - (self._start + offset + size)
            if not -(1 << 8 * size - 1) <= distance < 1 << 8 * size - 1:
                raise VerifyError(f"{label} is out of reach of {self._start + offset:#x}")
            self._code[offset:offset + size] = distance.to_bytes(size, "little", signed=True)
        return bytes(self._code)
