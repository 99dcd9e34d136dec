"""Rows of the call frame table: where the caller's registers are while a function is at some instruction.

Example: behind ``push rbx; sub rsp, 16`` the row says that the canonical frame address (CFA) is rsp + 32, that the
return address is at CFA - 8 and the caller's rbx at CFA - 16.

In: an image, a link-time address. Out: the ``UnwindRow`` there, from the instructions of its frame description entry
in ``.eh_frame`` (DWARF 4, 6.4; Linux Standard Base Core, "Exception Frames"). None where there is no such entry, or it
has something unusual: rows only help debuggers and profilers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

from memopt.elf.image import ElfError, Image
from memopt.elf.unwind import description_at

RBP, RSP, RETURN_ADDRESS = 6, 7, 16  # DWARF numbers (AMD64 supplement, figure 3.36)
_PCREL_SIGNED_4 = 0x1B
_MOST_BYTES = 1 << 16  # of one entry
_MOST_STATES = 64
_DEREFERENCE, _PLUS = 0x06, 0x23  # DW_OP_deref, DW_OP_plus_uconst
_BASED_ON_RBP = 0x76  # DW_OP_breg6

Kind = Literal["offset", "val_offset", "register", "expression", "val_expression", "same", "undefined"]


@dataclass(frozen=True, slots=True)
class Rule:
    """Where a caller's register is. ``value``: for ``offset`` and ``val_offset`` what to add to the CFA, for
    ``register`` its number. ``expression``: DWARF code."""

    kind: Kind
    value: int = 0
    expression: bytes = b""


@dataclass(frozen=True, slots=True)
class UnwindRow:
    """What holds from link address ``start`` on. The CFA is ``register`` + ``offset``; or, if ``expression`` is not
    empty, its value. ``saved``: rules by DWARF number, sorted; other registers are as at the function's entry."""

    start: int
    register: int
    offset: int
    expression: bytes
    saved: tuple[tuple[int, Rule], ...]


@dataclass(frozen=True, slots=True)
class UnwindRows:
    """The rows of the code in ``[start, end)``, sorted; the first begins at ``start``."""

    start: int
    end: int
    rows: tuple[UnwindRow, ...]


def row_at(image: Image, address: int) -> UnwindRow | None:
    """The row that holds at link-time ``address``."""
    try:
        description = description_at(image, address)
        return None if description is None else _Entry(image, description).row(address)
    except (ElfError, struct.error, IndexError):
        return None


def in_frame(row: UnwindRow, start: int, slots: dict[int, int]) -> UnwindRow:
    """``row`` for code that holds the address of its own frame in rbp, from ``start`` on.

    ``slots``: offsets in that frame at which the values of registers at the header are kept, by DWARF number; rbp must
    be among them if the CFA is counted from it. Registers that the row finds elsewhere stay there.
    """
    saved = {number: Rule("expression", expression=_based_on_rbp(at)) for number, at in slots.items()}
    saved.update(row.saved)
    if row.expression or row.register != RBP:
        return UnwindRow(start, row.register, row.offset, row.expression, tuple(sorted(saved.items())))
    cfa = _based_on_rbp(slots[RBP]) + bytes((_DEREFERENCE, _PLUS)) + uleb128(row.offset)
    return UnwindRow(start, 0, 0, cfa, tuple(sorted(saved.items())))


def _based_on_rbp(offset: int) -> bytes:
    return bytes((_BASED_ON_RBP,)) + sleb128(offset)


def uleb128(value: int) -> bytes:
    """``value`` >= 0 in DWARF's variable length."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def sleb128(value: int) -> bytes:
    """``value`` in DWARF's variable length, signed."""
    out = bytearray()
    while not -64 <= value < 64:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value & 0x7F))


class _Bytes:
    """Reads values one after the other. Raises ``ElfError`` at the end."""

    def __init__(self, content: bytes) -> None:
        self._content, self.at = content, 0

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self._content):
            raise ElfError("its unwind tables are cut off")
        self.at += size
        return self._content[self.at - size:self.at]

    def number(self, form: str) -> int:
        value: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return value

    def uleb128(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.number("<B")
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return value
        raise ElfError("a number in its unwind tables is malformed")

    def sleb128(self) -> int:
        start = self.at
        value = self.uleb128()
        bits = 7 * (self.at - start)
        return value - (1 << bits) if value >> bits - 1 else value

    def text(self) -> str:
        end = self._content.find(b"\0", self.at)
        return self.take((end if end >= 0 else len(self._content)) - self.at + 1)[:-1].decode("latin-1")

    def __bool__(self) -> bool:
        return self.at < len(self._content)


def _entry_bytes(image: Image, at: int) -> bytes:
    """The bytes of the entry at file offset ``at``, behind its length."""
    length: int = struct.unpack("<I", image.read(at, 4))[0]
    if not 0 < length <= _MOST_BYTES:
        raise ElfError("its unwind tables are malformed")
    return image.read(at + 4, length)


class _Entry:
    """A frame description entry with its common information entry."""

    def __init__(self, image: Image, description: int) -> None:
        at = image.offset_of(description)
        content = _Bytes(_entry_bytes(image, at))
        common = _Bytes(_entry_bytes(image, at + 4 - content.number("<i")))
        if common.take(4) != bytes(4) or common.number("<B") not in (1, 3):
            raise ElfError("its unwind tables are of an unknown version")
        augmentation = common.text()
        self.code_alignment, self.data_alignment = common.uleb128(), common.sleb128()
        common.uleb128()  # the column of the return address
        if augmentation not in ("zR", "zPLR", "zRS", "zPLRS", "zPR", "zLR"):
            raise ElfError("its unwind tables have an unknown form")
        if _code_encoding(augmentation[1:], _Bytes(common.take(common.uleb128()))) != _PCREL_SIGNED_4:
            raise ElfError("its unwind tables have an unknown encoding")
        self._initial = common
        self.start = description + 8 + content.number("<i")
        self.end = self.start + content.number("<I")
        content.take(content.uleb128())
        self._instructions = content

    def row(self, address: int) -> UnwindRow | None:
        if not self.start <= address < self.end:
            return None
        machine = _Machine(self)
        machine.run(self._initial, address)
        machine.initial = dict(machine.saved)
        machine.run(self._instructions, address)
        return UnwindRow(machine.location, machine.register, machine.offset, machine.expression,
                         tuple(sorted(machine.saved.items())))


def _code_encoding(letters: str, augmentation: _Bytes) -> int:
    """The encoding of code pointers, in the augmentation data of a common information entry."""
    for letter in letters:
        if letter == "R":
            return augmentation.number("<B")
        encoding = augmentation.number("<B") if letter in "PL" else 0
        if letter == "P":
            augmentation.take({2: 2, 3: 4, 4: 8}.get(encoding & 7, 8))
    return 0


class _Machine:
    """Executes call frame instructions (DWARF 4, 6.4.2 and 7.23)."""

    def __init__(self, entry: _Entry) -> None:
        self._code_alignment, self._data_alignment = entry.code_alignment, entry.data_alignment
        self.location = entry.start
        self.register = self.offset = 0
        self.expression = b""
        self.saved: dict[int, Rule] = {}
        self.initial: dict[int, Rule] = {}
        self._states: list[tuple[int, int, bytes, dict[int, Rule]]] = []

    def run(self, code: _Bytes, until: int) -> None:
        """Executes ``code`` up to the row that holds at ``until``."""
        while code:
            operation = code.number("<B")
            distance = self._advance(operation, code)
            if distance is None:
                self._do(operation, code)
            elif self.location + distance > until:
                return
            else:
                self.location += distance

    def _advance(self, operation: int, code: _Bytes) -> int | None:
        """By how much the location grows; None for other instructions."""
        if operation >> 6 == 1:
            return (operation & 0x3F) * self._code_alignment
        form = {0x02: "<B", 0x03: "<H", 0x04: "<I"}.get(operation)
        return code.number(form) * self._code_alignment if form else None

    def _do(self, operation: int, code: _Bytes) -> None:
        if operation >> 6 == 2:
            self.saved[operation & 0x3F] = Rule("offset", code.uleb128() * self._data_alignment)
        elif operation >> 6 == 3:
            self._restore(operation & 0x3F)
        elif 0x0A <= operation <= 0x0B:
            self._remember_or_return(remember=operation == 0x0A)
        elif operation in (0x0C, 0x0D, 0x0E, 0x0F, 0x12, 0x13):
            self._define(operation, code)
        elif operation == 0x2E:  # DW_CFA_GNU_args_size
            code.uleb128()
        elif operation:  # 0 is DW_CFA_nop
            self._save(operation, code)

    def _restore(self, number: int) -> None:
        self.saved.pop(number, None)
        if number in self.initial:
            self.saved[number] = self.initial[number]

    def _remember_or_return(self, *, remember: bool) -> None:
        if not remember:
            self.register, self.offset, self.expression, saved = self._states.pop()
            self.saved = dict(saved)
        elif len(self._states) < _MOST_STATES:
            self._states.append((self.register, self.offset, self.expression, dict(self.saved)))
        else:
            raise ElfError("its unwind tables are malformed")

    def _define(self, operation: int, code: _Bytes) -> None:
        """Instructions that define the CFA."""
        if operation == 0x0F:
            self.expression = code.take(code.uleb128())
            return
        self.expression = b""
        if operation in (0x0C, 0x0D, 0x12):
            self.register = code.uleb128()
        if operation in (0x0C, 0x0E):
            self.offset = code.uleb128()
        elif operation in (0x12, 0x13):
            self.offset = code.sleb128() * self._data_alignment

    def _save(self, operation: int, code: _Bytes) -> None:
        """Instructions that give a register a rule."""
        number = code.uleb128()
        match operation:
            case 0x05:
                rule = Rule("offset", code.uleb128() * self._data_alignment)
            case 0x11:
                rule = Rule("offset", code.sleb128() * self._data_alignment)
            case 0x14:
                rule = Rule("val_offset", code.uleb128() * self._data_alignment)
            case 0x15:
                rule = Rule("val_offset", code.sleb128() * self._data_alignment)
            case 0x09:
                rule = Rule("register", code.uleb128())
            case 0x10:
                rule = Rule("expression", expression=code.take(code.uleb128()))
            case 0x16:
                rule = Rule("val_expression", expression=code.take(code.uleb128()))
            case 0x06:
                self._restore(number)
                return
            case 0x07:
                rule = Rule("undefined")
            case 0x08:
                rule = Rule("same")
            case _:
                raise ElfError("its unwind tables have an unknown instruction")
        self.saved[number] = rule
