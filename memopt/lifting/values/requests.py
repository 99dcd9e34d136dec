"""Why an attempt at lifting starts again, with one more fact (memopt.lifting.execution.assumptions)."""

from __future__ import annotations

from dataclasses import dataclass

from memopt.ir.linear import Linear


@dataclass
class AssumeEqual(Exception):
    """Start again knowing that ``linear`` (over live-in symbols) equals its captured value; best solved for one of
    ``unknowns``. ``symbolic``: one that is not a number will do as a parameter (memopt.lifting.execution.parameters);
    ``factor``: it has to be a number."""

    linear: Linear
    unknowns: frozenset[str] = frozenset()
    symbolic: bool = False
    factor: bool = False


@dataclass
class AssumeAll(Exception):
    """Start again knowing all of these: each attempt costs as much as the next."""

    needs: tuple[AssumeEqual, ...]


@dataclass
class SplitPaths(Exception):
    """Start again with the branch at ``address`` going different ways in different iterations, in a more general sense
    than before and at least in that of ``least`` (memopt.lifting.execution.assumptions)."""

    address: int
    least: int = 1


@dataclass
class MaskOperands(Exception):
    """Start again with the floating-point operations on the ways of the branch at ``address`` done in every iteration,
    on ones where the way is not gone."""

    address: int


@dataclass
class DeferExtension(Exception):
    """Start again with the widenings of the instructions at ``addresses`` left to those who need their number."""

    addresses: frozenset[int]


@dataclass
class InlineLoop(Exception):
    """Start again with the loop at ``header`` run through as a part of the loop around it: it never goes round."""

    header: int


@dataclass
class NotAParameter(Exception):
    """Start again with ``symbol`` as no parameter: it advances with the patched loop."""

    symbol: str


@dataclass
class AssumeInvariantLane(Exception):
    """Start again knowing that vector lanes hold these numbers, to which each iteration sets them."""

    lanes: dict[str, int]


@dataclass
class AssumeRowTable(Exception):
    """Start again with what the instruction at ``address`` loads as words of a table around ``place``
    (memopt.lifting.execution.row_tables)."""

    address: int
    place: int


@dataclass
class KeepLiveOut(Exception):
    """Start again knowing that what these registers carry is used after the loop: what they hold is computed too."""

    locations: frozenset[str]


class KeepOperandOrder(Exception):
    """Describe the loop again with operands in the order of the machine code (memopt.lifting.reroll.operand_order)."""


class ExpressByTrips(Exception):
    """Start again with the exit test's counter expressed by the iterations that remain
    (memopt.lifting.execution.entry_invariants)."""


@dataclass
class PromoteCell(Exception):
    """Start again with the memory cell at ``address`` (over live-in symbols) as a live-in of ``width`` bits."""

    address: Linear
    width: int


@dataclass
class TreatAsData(Exception):
    """Start again with the cell at ``address``, as captured, as data: the loop stores to it."""

    address: int
