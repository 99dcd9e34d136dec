"""Which stores are left to the rejoin: of a counter, to a cell that does not move and that nobody reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memopt.ir.parse import parse_region
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Cell, Region, Rejoin
from memopt.lifting.scop.progress_cells import progress_cells

_NEST = """region 0x401000
  r10 = s64 r10
  rdi = s64 rdi
  R = (rdi) / 1
  array A0: i32 at {base}, strides (4)
  array A1: f64 at rdi, strides (800, 8)
  {store}
  S1[i<R, j<100] at (0, 1, 0): A1[i, j] = add(A1[i, j], A1[i, j])
"""
_STORE = "S0[i<R]: A0[{cell}] = i32(2*i + r10)"


def nest(store: str = _STORE.format(cell=2), base: str = "4096") -> Region:
    return parse_region(_NEST.format(store=store, base=base))


def rejoins(region: Region, moving: frozenset[str] = frozenset({"r10"})) -> tuple[Rejoin, ...]:
    scop, made = progress_cells(region.scop, moving)
    assert scop.statements == tuple(s for s in region.scop.statements if not made or s.write.array == "A1")
    return made


@pytest.mark.parametrize(("base", "cell"), [("4096", Cell("", 4104, 4)), ("rbx - 16", Cell("rbx", -8, 4)),
                                            ("m[rsp + 80]:64 + 8", Cell("m[rsp + 80]:64", 16, 4))])
def test_a_counter_is_stored_last(base: str, cell: Cell) -> None:
    made, = rejoins(nest(base=base))
    assert made.location == cell
    assert made.value.evaluate({"r10": 100, "H": 7}) == 2 * 6 + 100  # of the last iteration that has run


@pytest.mark.parametrize("region", [
    pytest.param(nest(_STORE.format(cell="i")), id="the cell moves"),
    pytest.param(nest("S0[i<R]: A0[2] = A1[i, 0]"), id="data"),
    pytest.param(nest("S0[i<R, j<100]: A0[2] = i32(i)"), id="in the innermost loop"),
    pytest.param(nest("S0[i<R, i - 2 >= 0]: A0[2] = i32(i)", base="rsp + 8"), id="a variable of its own"),
])
def test_other_stores_stay(region: Region) -> None:
    assert rejoins(region) == ()


@pytest.mark.parametrize("region", [
    pytest.param(nest("S0[i<R, i - 2 >= 0]: A0[2] = i32(i)"), id="not in every iteration"),
    pytest.param(nest("S0[i<R, i - 2 >= 0]: A0[2] = add.i32(A0[2], 0x1)"), id="counts not in every iteration"),
    pytest.param(nest("S0[i<R]: A0[2] = add.i32(A0[2], 0x1)\n  S2[i<R] at (0, 2): A0[2] = i32(i)"),
                 id="counts, and stores"),
    pytest.param(nest("S0[i<R, j<100]: A0[2] = i32(i)\n  S2[i<R, j<100, k<7] at (0, 2, 0, 0): A1[i, k] = A1[i, j]"),
                 id="in the second of three loops"),
    pytest.param(nest(_STORE.format(cell=2) + "\n  S2[i<R]: A0[3] = i32(i)"), id="two cells"),
    pytest.param(nest(_STORE.format(cell=2) + "\n  S2[i<R] at (0, 2): A1[i, 0] = i32tof64(A0[2])"),
                 id="it is read"),
    pytest.param(nest(base="r10"), id="the base moves"),
    pytest.param(nest(base="2*rbx"), id="the address is no sum"),
])
def test_a_counter_that_would_be_ahead_of_its_rows_is_refused(region: Region) -> None:
    with pytest.raises(Rejected) as refused:
        rejoins(region)
    assert refused.value.reason is Reason.NO_SCHEDULE


def test_of_two_stores_to_one_cell_the_later_counts() -> None:
    """As a sequence counter does: odd while rows change, even afterwards."""
    later = "\n  S2[i<R] at (0, 2): A0[2] = i32(3*i)"
    region = nest(_STORE.format(cell=2) + later)
    scop, made = progress_cells(region.scop, ())
    assert [s.name for s in scop.statements] == ["S1"]
    assert [r.value.evaluate({"H": 5, "r10": 0}) for r in made] == [12]


@pytest.mark.parametrize(("stores", "value"), [
    ("S0[i<R]: A0[2] = add.i32(A0[2], 0x1)", 7),
    ("S0[i<R]: A0[2] = add.i32(0x3, A0[2])", 21),
    ("S0[i<R]: A0[2] = add.i32(A0[2], 0xffffffff)", -7),
    ("S0[i<R]: A0[2] = add.i32(A0[2], 0x1)\n  S2[i<R] at (0, 2): A0[2] = add.i32(A0[2], 0x4)", 35),
])
def test_counting_is_added_last(stores: str, value: int) -> None:
    made, = rejoins(nest(stores))
    assert (made.location, made.added, made.value.evaluate({"H": 7})) == (Cell("", 4104, 4), True, value)


@pytest.mark.parametrize("stores", [
    "S0[i<R]: A0[2] = add.i32(A0[2], A0[2])",
    "S0[i<R]: A0[2] = mul.i32(A0[2], 0x3)",
    "S0[i<R]: A0[2] = add.i32(A0[3], 0x1)",
])
def test_other_arithmetic_stays(stores: str) -> None:
    assert rejoins(nest(stores)) == ()


def test_a_loop_that_does_nothing_else_stays() -> None:
    region = nest()
    alone = replace(region.scop, statements=region.scop.statements[:1])
    assert progress_cells(alone, ()) == (alone, ())
