"""Requests: an attempt at lifting asks the next attempt for one more assumption.

Lifting is speculative. An attempt executes the loop symbolically under some assumptions about the captured program
(memopt.lifting.execution.assumptions). Where it needs one more, it raises a ``Request``; memopt.lifting.lift grants it
and attempts the same loop again.

Example: in ``a[i * n]`` the product is affine only if n is a number. The attempt raises ``AssumeEqual(n)``; n was 1000
when the program was captured; the next attempt reads ``a[i * 1000]``, and the version gets the guard ``n == 1000``.

Each request says what makes it sound: either a guard of the version checks the assumption at every entry, or the next
attempt proves it, or it assumes nothing and only chooses another exact way to model the same code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memopt.ir.linear import Linear
from memopt.ir.region import Trips


class Request(Exception):
    """An assumption that an attempt at lifting asks the next attempt to make. (No subclass is frozen: Python sets the
    traceback of an exception that passes a ``with`` statement.)
    """


@dataclass
class AssumeEqual(Request):
    """Assume that ``linear``, over live-in symbols, has its captured value.

    Example: ``n`` in ``a[i * n]``. Sound: the equation becomes a guard. It is solved for one symbol, if possible for
    one of ``unknowns``. ``symbolic``: a symbol will do, which becomes a parameter where it differs between entries
    (memopt.lifting.execution.parameters). ``factor``: it is multiplied with counters (a stride), so it has to be a
    number, or a parameter that products are made of (``Assumptions.strided``).
    """

    linear: Linear
    unknowns: frozenset[str] = frozenset()
    symbolic: bool = False
    factor: bool = False


@dataclass
class AssumeAll(Request):
    """Assume all of these equations at once: an attempt for each would cost as much as this one.

    Example: ``A`` and ``B`` are the same array at the captured values, and so are ``C`` and ``D``: both distances.
    Sound: as for ``AssumeEqual``.
    """

    needs: tuple[AssumeEqual, ...]


@dataclass
class SplitPaths(Request):
    """Assume nothing about the direction of the branch at ``address``: execute both of its paths and merge them
    (memopt.lifting.execution.merge).

    Example: ``if (j == i) s = 0;`` goes either way, depending on the iteration. Sound: nothing is assumed. The paths
    are merged in a more general way than in the last attempt, at least in way ``least`` (the levels are those of
    ``Assumptions.split``).
    """

    address: int
    least: int = 1


@dataclass
class MaskOperands(Request):
    """Execute the floating-point operations on both paths of the branch at ``address`` in every iteration, with 1.0 for
    the operands on the path that is not taken (memopt.lifting.execution.if_conversion).

    Example: ``if (x[i] > 0) y[i] = 1 / x[i];`` divides by 1.0 where x[i] is not positive. Sound: operations on 1.0
    raise no exception flag, and their results are not selected.
    """

    address: int


@dataclass
class DeferExtension(Request):
    """Do not demand that the values extended to more bits by the instructions at ``addresses`` are in range there;
    demand it at each use that needs the number (memopt.lifting.values.extensions).

    Example: a 32-bit counter that is sign-extended after its last increment, which may overflow, and then is not used.
    Sound: every use that needs the number has the obligation.
    """

    addresses: frozenset[int]


@dataclass
class InlineLoop(Request):
    """Execute the loop at ``header`` as part of an iteration of the loop around it: its back edge is never taken.

    Example: ``do { ... } while (retry)``, where ``retry`` never holds. Sound: that the back edge is not taken becomes
    an obligation, as for every branch that goes one way.
    """

    header: int


@dataclass
class NotAParameter(Request):
    """Do not take ``symbol`` for a parameter: it advances with the patched loop.

    Example: the pointer ``p`` in ``for (...) { ...; p += n; }`` differs at every entry, but is no size. Sound: nothing
    is assumed. All that earlier attempts assumed is dropped.
    """

    symbol: str


@dataclass
class AssumeInvariantLane(Request):
    """Assume that vector lanes ("xmm1.1") hold these 64-bit numbers throughout.

    Example: ``vmovsd xmm1, [rdi]`` clears the upper lane of xmm1, which is zero already. Sound: a guard compares the
    lane at entry, and the next attempt must prove that an iteration leaves the number there.
    """

    lanes: dict[str, int]


@dataclass
class AssumeRowTable(Request):
    """Assume that the instruction at ``address`` loads words of a table of row pointers around ``place``, which are an
    arithmetic progression (memopt.lifting.execution.row_tables).

    Example: ``rows[i][j]`` with ``rows[i] == rows[0] + i * 8000``. Sound: a guard compares every word of the table.
    """

    address: int
    place: int


@dataclass
class KeepLiveOut(Request):
    """Compute what these registers carry from iteration to iteration: the code after the loop reads it.

    Example: a sum that the loop keeps in xmm0 and the caller returns. Sound: nothing is assumed; the version restores
    more registers.
    """

    locations: frozenset[str]


class KeepOperandOrder(Request):
    """Keep the operands of sums and products in the order of the machine code.

    Example: ``a + b`` in one copy of an unrolled statement and ``b + a`` in the next: one order for both needs a guard
    that no NaN is read, which is not worth its time here (memopt.lifting.reroll.operand_order). Sound: nothing is
    assumed.
    """


class ExpressByTrips(Request):
    """Express the exit test's counter by R, the iterations that remain (memopt.lifting.execution.entry_invariants).

    Example: rows of ``n - i`` elements, where i has another value at every entry. Sound: the value follows from R
    exactly.
    """


@dataclass
class RelateToTrips(Request):
    """Relate live-in values that advance with the patched loop to R, the iterations that remain, while the loop is
    executed. ``steps``: location -> what one iteration adds to it.

    Example: ``for (; row != last; row += n, end += n + 1) for (p = row; p != end; p++)``. The way ``end - row`` is
    another one at every entry, but ``end - row + R`` is not. The next attempt assumes this sum wherever it would assume
    ``end - row``, and knows ``row`` as ``last - n * R``. Sound: the equations become guards over R. The guard computes
    R from ``trips``, and the attempt must find that the loop runs R times.
    """

    trips: Trips
    steps: Mapping[str, int | Linear]


@dataclass
class PromoteCell(Request):
    """Take the memory cell at ``address``, over live-in symbols, for a live-in value of ``width`` bits.

    Example: the bound ``*n`` of a loop, where ``n`` does not change. Sound: the cell is read at every entry, and guards
    keep it apart from all that the loop writes.
    """

    address: Linear
    width: int


@dataclass
class TreatAsData(Request):
    """Do not take the cell at ``address``, as captured, for a live-in value: it holds data.

    Example: the loop stores to it, or a guard could not read it safely. Sound: nothing is assumed. All that earlier
    attempts assumed is dropped.
    """

    address: int
