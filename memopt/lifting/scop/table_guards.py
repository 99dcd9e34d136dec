"""Guards on tables of row pointers: the words that the nest loads are the progression that they were when captured.

Example: ``for (i = 0; i < R; i++) for (j = 0; j < i; j++) s += a[i][j];``, whose rows are 8000 bytes apart. The guard
compares the words ``[8*i + rdi: i<R, j<i]`` of the table in rdi: ``a[1]`` up to the last row, but not ``a[0]``, which
no iteration loads.

In: the loads of row pointers (memopt.lifting.execution.row_tables), with the loops and conditions around them. Out: one
``Progression`` for each table and pointer. Sound because every word is one that the original itself loads in this
entry: trip counts and conditions are exact. A load on a condition on data is no such word. It is accepted only where
the nest loads the same words for certain, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from memopt.ir.cells import CellSet
from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Guard, Progression, Relation
from memopt.ir.scop import Dimension, ElementType
from memopt.lifting.execution.executor import OuterLoop
from memopt.lifting.execution.row_tables import WORD, RowLoads
from memopt.lifting.scop.delinearisation import ByteAccess, Cluster

_NAMES = "ijklmn"


def table_guards(outer: OuterLoop, sample: Mapping[str, int]) -> Iterator[Guard]:
    """The guards for the tables of ``outer``. Raises Rejected(DATA_DEPENDENT_ADDRESS) where the nest may load another
    word than those that it loads for certain, or parts of words; NON_AFFINE for pointers with floor divisions."""
    groups: dict[tuple[int, int, int, Linear], list[RowLoads]] = {}
    for each in outer.row_loads:
        load = each.load
        base = _access(each).base()
        if (load.pointer.evaluate({**sample, **{c: 0 for c, _ in each.loops}}) - load.place) % WORD:
            raise Rejected(Reason.DATA_DEPENDENT_ADDRESS, "a load takes parts of two words of a table of row pointers")
        groups.setdefault((load.place, load.first, load.step, Linear(base.terms)), []).append(each)
    for (place, first, step, _), loads in groups.items():
        certain = [each for each in loads if _is_certain(each)]
        for each in loads:
            if not _is_certain(each) and not any(_covers(other, each) for other in certain):
                raise Rejected(Reason.DATA_DEPENDENT_ADDRESS,
                               f"a row pointer is loaded at {each.load.address:#x} on a condition on data")
        cluster = Cluster.of(map(_access, certain), sample)
        yield from (Relation(n, False, "the table of row pointers does not reach further") for n in cluster.needs)
        words = tuple(dict.fromkeys(map(_cells, certain)))
        yield Progression(place, first, step, words, cluster.interval, "rows follow each other as before")


def _is_certain(loads: RowLoads) -> bool:
    return loads.load.certain and all(trips is not None for _, trips in loads.loops)


def _named(loads: RowLoads) -> tuple[dict[str, Linear], tuple[Dimension, ...]]:
    """Dimensions in place of counters: i, j, k, ... from the outermost loop inwards."""
    names = [_NAMES[n] if n < len(_NAMES) else f"d{n}" for n in range(len(loads.loops))]
    values = {c: Linear.symbol(n) for (c, _), n in zip(loads.loops, names, strict=True)}
    return values, tuple(Dimension(n, Linear() if t is None else t.substitute(values))
                         for (_, t), n in zip(loads.loops, names, strict=True))


def _cells(loads: RowLoads) -> CellSet:
    values, dimensions = _named(loads)
    return CellSet(loads.load.pointer.substitute(values), dimensions,
                   tuple(c.substitute(values) for c in dict.fromkeys(loads.load.conditions)))


def _access(loads: RowLoads) -> ByteAccess:
    cells = _cells(loads)
    return ByteAccess(cells.address, tuple((d.name, d.trips) for d in cells.dimensions), ElementType.I64, False,
                      cells.conditions)


def _covers(certain: RowLoads, other: RowLoads) -> bool:
    """Whether ``certain`` loads each word that ``other`` may load: from the same pointer, in the same loops, and under
    no more conditions."""
    mine, its = _cells(certain), _cells(other)
    return (mine.address, mine.dimensions) == (its.address, its.dimensions) and set(mine.conditions) <= set(
        its.conditions)
