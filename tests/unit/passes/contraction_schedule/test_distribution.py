"""Loop distribution: one nest for each statement, in order, where no dependence goes backwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Region
from memopt.ir.scop import Scop
from passes.contraction_schedule.distribution import MOST_STATEMENTS, ONCE, distribute, with_unit_loops
from tests.support.enumeration import conflicts, points
from tests.support.nests import region

ACCUMULATES = "add(C[i,j], mul(A[i,k], B[k,j]))"


def nest(*lines: str, extent: int = 9) -> Region:
    return region("\n".join(lines), dict.fromkeys("ABCD", (extent, extent)))


def backwards(scop: Scop) -> Iterator[tuple[str, str]]:
    """The dependences from a later statement to an earlier one, by enumeration."""
    names = [s.name for s in scop.statements]
    for early, _, late, _, _ in conflicts(scop):
        if names.index(early.name) > names.index(late.name):
            yield early.name, late.name


LEGAL = [
    nest("for i < 4", "  for j < 4", "    C[i,j] = mul(C[i,j], D[0,0])",
         "    for k < 4", f"      C[i,j] = {ACCUMULATES}"),
    nest("for i < 4", "  for j < 4", "    D[i,j] = add(D[i,j], A[i,j])",
         "  for j < 4", "    C[i,j] = add(C[i,j], D[i,j])"),
    nest("for i < 4", "  for j < 4", "    C[i,j] = add(C[i,j], D[i+1,j])", "    D[i,j] = add(D[i,j], A[i,j])"),
]
ILLEGAL = [
    nest("for i < 4", "  for j < 4", "    C[i+1,j] = add(C[i+1,j], D[i,j])", "    D[i+1,j] = add(D[i+1,j], C[i,j])"),
    nest("for i < 4", "  for j < 4", "    C[i,j] = add(C[i,j], D[i,j])", "    D[i+1,j] = add(D[i+1,j], A[i,j])"),
    nest("for i < 4", "  for j < 4", "    C[i+1,j] = mul(C[i+1,j], A[i,j])", "    C[i,j] = add(C[i,j], B[i,j])",
         "    C[i+2,j] = add(C[i+2,j], A[i,j])"),
]


@pytest.mark.parametrize("made", LEGAL, ids=range(len(LEGAL)))
def test_a_legal_distribution_has_one_region_for_each_statement(made: Region) -> None:
    assert not list(backwards(made.scop))
    parts = distribute(made)
    assert [[s.name for s in part.scop.statements] for part in parts] == [["S0"], ["S1"]]
    for part, whole in zip(parts, made.scop.statements, strict=True):
        (statement,) = part.scop.statements
        assert part.scop.arrays == made.scop.arrays
        assert part.trips == made.trips
        assert [[p[d.name] for d in whole.dimensions] for p in points(statement)] == [
            list(p.values()) for p in points(whole)]
        assert statement.expression == whole.expression


@pytest.mark.parametrize("made", ILLEGAL, ids=range(len(ILLEGAL)))
def test_a_dependence_of_an_earlier_statement_on_a_later_one_is_refused(made: Region) -> None:
    assert list(backwards(made.scop))
    with pytest.raises(Rejected) as refusal:
        distribute(made)
    assert refusal.value.reason is Reason.NO_SCHEDULE
    early, late = next(backwards(made.scop))
    assert f"{early} to run before {late}" in refusal.value.detail


def test_missing_dimensions_are_loops_of_one_iteration() -> None:
    (column,) = nest("for i < 4", "  for k < 4", "    C[i,0] = add(C[i,0], mul(A[i,k], B[k,0]))").scop.statements
    made = with_unit_loops(column)
    assert [(d.name, d.trips.constant) for d in made.dimensions[2:]] == [("unit1", 1)]
    assert [s.coefficient("unit1") for s in made.write.subscripts] == [0, 1]
    assert made.reads[0] == made.write
    assert made.reads[1:] == column.reads[1:]
    (copy,) = nest("for i < 4", "  for j < 4", "    C[i,j] = add(C[i,j], A[i,j])").scop.statements
    assert with_unit_loops(copy).dimensions[-1].name == ONCE
    assert with_unit_loops(copy).write == copy.write
    assert len(with_unit_loops(copy).position) == 4


def test_too_many_statements_are_refused() -> None:
    body = ["    C[i,j] = add(C[i,j], A[i,j])"] * (MOST_STATEMENTS + 1)
    with pytest.raises(Rejected) as refusal:
        distribute(nest("for i < 4", "  for j < 4", *body))
    assert refusal.value.reason is Reason.NO_PLAN
