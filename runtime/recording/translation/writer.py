"""Writes code from front to back at a known address; labels may be used before they are placed."""

from __future__ import annotations

from memopt.ir.reasons import VerifyError
from runtime.recording.translation.encode import JRCXZ, JUMP, relative
from runtime.recording.translation.relocated import Moved
from runtime.recording.translation.relocations import Of


class Writer:
    """Code in the making. ``labels``: addresses by name. ``finish`` fills in the labels that were used before they were
    placed.
    """

    def __init__(self, address: int) -> None:
        self._start = address
        self._code = bytearray()
        self.labels: dict[object, int] = {}
        self._open: list[tuple[int, int, object]] = []  # where a distance stands, its size, its label
        self.marks: list[tuple[int, Of]] = []  # offsets of words that depend on where things lie

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

    def to(self, opcode: bytes, target: int, kind: Of = Of.DISTANCE_TO_ROUTINE) -> None:
        """Writes ``opcode`` with a 32-bit distance to the address ``target``, a routine unless ``kind`` is another."""
        self._code += relative(opcode, self.here, target)
        self.marks.append((len(self._code) - 4, kind))

    def to_original(self, opcode: bytes, target: int) -> None:
        """Writes ``opcode`` with a 32-bit distance to an original address."""
        self.to(opcode, target, Of.DISTANCE_TO_ORIGINAL)

    def moved(self, instruction: Moved) -> None:
        """Writes an instruction of the program that has been moved here."""
        if instruction.distance is not None:
            self.marks.append((len(self._code) + instruction.distance, Of.DISTANCE_TO_ORIGINAL))
        self._code += instruction.code

    def word(self, value: int, kind: Of) -> None:
        """Writes an address, or minus an address, in 64 bits."""
        self.marks.append((len(self._code), kind))
        self._code += (value % (1 << 64)).to_bytes(8, "little")

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
