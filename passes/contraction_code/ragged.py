"""Ragged register tiles: the results that exist are copied to a full tile in scratch memory, and back.

Example: of an 8 x 24 tile only 3 x 10 results exist. Rows 3 to 7 of the copy repeat row 2, columns 10 to 23 repeat
column 9; 3 x 10 results are copied back.

Sound: panels are padded the same way (``packing_code``), so every lane of the full tile repeats the operations of a
lane that exists. Values pass through general-purpose registers, which raise no exception flags and keep signalling
NaNs.
"""

from __future__ import annotations

from memopt.ir.frozen import dataclass
from memopt.x86.instructions import Mem
from passes.vector.emitter import Emitter, Value, register_of

ROWS = "rdx"  # rows that exist, at least 1; clobbered
COLUMNS = "rbx"  # columns that exist, at least 1
RESULT = "rdi"  # address of the first result


@dataclass(frozen=True, slots=True)
class RaggedTile:
    """Generates the copies of a ragged tile."""

    scratch: int  # address of the full tile, row after row
    row_count: int
    column_count: int
    element: int  # bytes of an element
    row_stride: Value  # bytes between rows of the original results
    column_stride: Value  # bytes between columns of the original results
    # A full tile with the results as they were: only those that have changed are copied back. None: all are.
    before: Mem | None = None

    @property
    def row_bytes(self) -> int:
        """Bytes between rows of the full tile."""
        return self.column_count * self.element

    def copy_in(self, emitter: Emitter) -> None:
        """Fills the full tile. Leaves ``scratch`` in rdi; clobbers rax, rcx, rdx and r8 - r12."""
        row, column, same_row, same_column = map(emitter.fresh, ("in_row", "in_column", "same_row", "same_column"))
        emitter.op("mov", "r8", RESULT)
        emitter.load_address(RESULT, self.scratch)
        emitter.op("mov", "r9", RESULT)
        emitter.op("lea", "r12", Mem(RESULT, displacement=self.row_count * self.row_bytes))
        emitter.place(row)
        emitter.op("mov", "r10", "r8")
        emitter.op("lea", "r11", Mem("r9", displacement=self.row_bytes))
        emitter.op("mov", "rcx", COLUMNS)
        emitter.place(column)
        self._copy(emitter, "r9", "r10")
        emitter.op("add", "r9", self.element)
        emitter.op("sub", "rcx", 1)
        emitter.jump(same_column, "le")
        emitter.add("r10", self.column_stride, "rax")
        emitter.place(same_column)
        emitter.op("cmp", "r9", "r11")
        emitter.jump(column, "b")
        emitter.op("sub", ROWS, 1)
        emitter.jump(same_row, "le")
        emitter.add("r8", self.row_stride, "rax")
        emitter.place(same_row)
        emitter.op("cmp", "r9", "r12")
        emitter.jump(row, "b")

    def copy_out(self, emitter: Emitter) -> None:
        """Copies the rows and columns that exist back to rdi; clobbers rax, rcx, rdx, rdi and r8 - r12."""
        row, column = map(emitter.fresh, ("out_row", "out_column"))
        emitter.load_address("r8", self.scratch)
        if self.before is not None:
            emitter.op("lea", "r12", self.before)
        emitter.place(row)
        emitter.op("mov", "r9", "r8")
        if self.before is not None:
            emitter.op("mov", "r11", "r12")
        emitter.op("mov", "r10", RESULT)
        emitter.op("mov", "rcx", COLUMNS)
        emitter.place(column)
        same = None if self.before is None else emitter.fresh("same_result")
        if same is not None:
            value = register_of(self.element, "rax").name
            emitter.op("mov", value, Mem("r9", size=self.element))
            emitter.op("cmp", value, Mem("r11", size=self.element))
            emitter.op("lea", "r11", Mem("r11", displacement=self.element))
            emitter.jump(same, "e")
        self._copy(emitter, "r10", "r9")
        if same is not None:
            emitter.place(same)
        emitter.op("add", "r9", self.element)
        emitter.add("r10", self.column_stride, "rax")
        emitter.op("sub", "rcx", 1)
        emitter.jump(column, "ne")
        emitter.op("add", "r8", self.row_bytes)
        if self.before is not None:
            emitter.op("add", "r12", self.row_bytes)
        emitter.add(RESULT, self.row_stride, "rax")
        emitter.op("sub", ROWS, 1)
        emitter.jump(row, "ne")

    def _copy(self, emitter: Emitter, target: str, source: str) -> None:
        value = register_of(self.element, "rax").name
        emitter.op("mov", value, Mem(source, size=self.element))
        emitter.op("mov", Mem(target, size=self.element), value)
