"""Packed constants read as one: only cells that hold the same, lie together and do not change."""

from __future__ import annotations

from dataclasses import dataclass, field

from memopt.ir.linear import Linear
from memopt.ir.scop import Apply, ElementType, Read
from memopt.lifting.demotion.aliasing import Aliasing
from memopt.lifting.demotion.statements import CellStatement, StatementLoop
from memopt.lifting.reroll.splat_constants import Cell, unify_splats

H, A, T = Linear.symbol("c:i"), Linear.symbol("a"), Linear.of(4096)
SAMPLE = {"a": 100000, "R": 4}


@dataclass
class Memory:
    """Eight bytes for each address; what is not listed cannot be looked at."""

    held: dict[int, int]
    equal: list[tuple[int, int]] = field(default_factory=list)

    def bits(self, cell: Cell) -> int | None:
        return self.held.get(cell[0].evaluate(SAMPLE))

    def same_cells(self, one: Cell, two: Cell) -> None:
        self.equal.append((one[0].evaluate(SAMPLE), two[0].evaluate(SAMPLE)))


def scaled(write: Linear, constant: Linear) -> CellStatement:
    return CellStatement(write, (A + H * 16, constant), Apply("mul", (Read(0), Read(1))), ElementType.F64, 0)


def constants(memory: Memory, *items: CellStatement) -> list[int]:
    """Where the constants of ``items`` are read from."""
    loop = StatementLoop("c:i", Linear.symbol("R"), items)
    found = unify_splats(loop, Aliasing({"c:i": Linear.symbol("R") - 1}, SAMPLE), memory)
    return [s.reads[1].evaluate({**SAMPLE, "c:i": 0}) for s in found.items if isinstance(s, CellStatement)]


def test_both_lanes_read_the_first_cell() -> None:
    memory = Memory({4096: 7, 4104: 7})
    assert constants(memory, scaled(A + H * 16, T), scaled(A + H * 16 + 8, T + 8)) == [4096, 4096]
    assert memory.equal == [(4096, 4104)]


def test_other_contents_and_cells_far_away_stay() -> None:
    for second, held in ((8, {4096: 7, 4104: 8}), (512, {4096: 7, 4608: 7}), (8, {4096: 7})):
        memory = Memory(held)
        assert constants(memory, scaled(A + H * 16, T), scaled(A + H * 16 + 8, T + second)) == [4096, 4096 + second]
        assert not memory.equal


def test_a_cell_that_is_written_or_part_of_an_array_stays() -> None:
    for write in (T + 8, T + H * 8):
        memory = Memory({4096: 7, 4104: 7})
        assert constants(memory, scaled(A + H * 16, T), scaled(write, T + 8)) == [4096, 4104]
        assert not memory.equal


def test_a_cell_that_moves_is_no_constant() -> None:
    memory = Memory({4096: 7, 4104: 7})
    assert constants(memory, scaled(A + H * 16, T + H * 16), scaled(A + H * 16 + 8, T + H * 16 + 8)) == [4096, 4104]
    assert not memory.equal
