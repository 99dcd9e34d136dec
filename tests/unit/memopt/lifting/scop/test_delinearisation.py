from __future__ import annotations

import itertools
import random

import pytest

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import ElementType
from memopt.lifting.scop.delinearisation import ByteAccess, clusters, delinearise

P, R = Linear.symbol("p"), Linear.symbol("R")


def access(offset: int, strides: dict[str, int], trips: dict[str, int | Linear], element: ElementType = ElementType.F64,
           base: Linear = P, written: bool = False) -> ByteAccess:
    address = base + offset
    for name, stride in strides.items():
        address = address + Linear.symbol(name, stride)
    counts = tuple((n, Linear.of(t) if isinstance(t, int) else t) for n, t in trips.items())
    return ByteAccess(address, counts, element, written)


SAMPLE = {"p": 1 << 20, "q": 1 << 30, "R": 10}


def test_a_matrix_gets_its_rows_back() -> None:
    one = access(0, {"i": 80, "j": 8}, {"i": R, "j": 10})
    (cluster,) = clusters([one], SAMPLE)
    array, found, guards = delinearise(cluster, "A", SAMPLE)
    assert str(array) == "array A: f64 at p, strides (80, 8)"
    assert str(found[one]) == "A[i, j]"
    assert not guards


def test_a_row_as_long_as_the_outer_trip_count_is_guarded() -> None:
    one = access(0, {"j": 80, "i": 8}, {"i": R, "j": 10})
    (cluster,) = clusters([one], SAMPLE)
    array, _, guards = delinearise(cluster, "A", SAMPLE)
    assert array.strides == (80, 8)
    assert [str(g) for g in guards] == ["-R + 10 >= 0"]


def test_rows_that_run_into_each_other_stay_one_dimensional() -> None:
    one = access(0, {"i": 80, "j": 8}, {"i": R, "j": 11})
    (cluster,) = clusters([one], SAMPLE)
    array, found, _ = delinearise(cluster, "A", SAMPLE)
    assert array.strides == (8,)
    assert str(found[one]) == "A[10*i + j]"


def test_a_diagonal_moves_both_subscripts() -> None:
    """The right-looking update of a factorisation, counted from the pivot."""
    i, j = Linear.symbol("i"), Linear.symbol("j")
    rest = {"i": R, "j": R - i - 1, "k": R - i - 1}
    updated = access(888, {"i": 888, "j": 880, "k": 8}, rest, written=True)
    pivot = access(0, {"i": 888}, {"i": R})
    (cluster,) = clusters([updated, pivot], SAMPLE)
    array, found, guards = delinearise(cluster, "A", SAMPLE)
    assert array.strides == (880, 8)
    assert found[updated].subscripts == (i + j + 1, i + Linear.symbol("k") + 1)
    assert found[pivot].subscripts == (i, i)
    assert [str(g) for g in guards] == ["-R + 110 >= 0"]


def test_a_row_that_is_walked_backwards_begins_at_its_other_end() -> None:
    one = access(0, {"i": -80, "j": -8}, {"i": R, "j": Linear.symbol("i")})
    (cluster,) = clusters([one], SAMPLE)
    array, found, guards = delinearise(cluster, "A", SAMPLE)
    assert str(array) == "array A: f64 at p - 72, strides (80, 8)"
    assert str(found[one]) == "A[-i, -j + 9]"
    assert [str(g) for g in guards] == ["-R + 11 >= 0"]


def test_columns_counted_from_the_end_leave_room_for_entries_with_more_to_do() -> None:
    """Captured in the middle of a triangle: the first column in use is one of the last of its row."""
    one = access(0, {"R": -8, "i": 8, "k": 160}, {"i": R, "k": 5})
    (cluster,) = clusters([one], SAMPLE)
    array, found, guards = delinearise(cluster, "A", SAMPLE)
    assert str(array) == "array A: f64 at p - 160, strides (160, 8)"
    assert str(found[one]) == "A[k, -R + i + 20]"
    assert [str(g) for g in guards] == ["-R + 20 >= 0"]


def test_the_split_of_a_diagonal_that_fits_entries_with_more_to_do_is_preferred() -> None:
    i, k = Linear.symbol("i"), Linear.symbol("k")
    one = access(0, {"i": 168, "k": 160}, {"i": R, "k": R - i - 1})
    (cluster,) = clusters([one], SAMPLE)
    array, found, guards = delinearise(cluster, "A", SAMPLE)
    assert array.strides == (160, 8)
    assert found[one].subscripts == (i + k, i)
    assert [str(g) for g in guards] == ["-R + 21 >= 0"]


def test_accesses_are_grouped_by_symbols_and_footprints() -> None:
    near, touching = access(0, {"i": 80}, {"i": R}), access(720, {"j": 8}, {"j": 10})
    far, other = access(4000, {"i": 80}, {"i": R}), access(0, {}, {}, base=Linear.symbol("q"))
    found = clusters([near, touching, far, other], SAMPLE)
    assert sorted(len(c.members) for c in found) == [1, 1, 2]
    whole = next(c for c in found if len(c.members) == 2).interval
    for trips in (2, 10):
        values = SAMPLE | {"R": trips}
        assert whole.low.evaluate(values) <= SAMPLE["p"]
        assert whole.high.evaluate(values) >= SAMPLE["p"] + max(80 * (trips - 1) + 8, 800)


@pytest.mark.parametrize("accesses", [
    [access(0, {"j": 8}, {"j": 10}), access(4, {"j": 8}, {"j": 10})],
    [access(0, {"j": 8}, {"j": 10}), access(0, {"j": 8}, {"j": 10}, ElementType.F32)],
    [access(0, {"j": 12}, {"j": 10})],
])
def test_elements_that_share_bytes_are_refused(accesses: list[ByteAccess]) -> None:
    (cluster,) = clusters(accesses, SAMPLE)
    with pytest.raises(Rejected) as refused:
        delinearise(cluster, "A", SAMPLE)
    assert refused.value.reason is Reason.NON_AFFINE


@pytest.mark.parametrize("seed", range(120))
def test_subscripts_name_the_same_cells_as_addresses(seed: int) -> None:
    """Every instance of every access: the address comes back, and equal cells are equal subscripts."""
    source = random.Random(seed)
    trips: dict[str, int | Linear] = {"i": R, "j": source.randrange(1, 7), "k": source.randrange(1, 7)}
    rows = source.choice((6, 7, 8, 12))
    steps = (0, 8, 16, 8 * rows, 8 * rows + 8, 8 * rows - 8, -8, -8 * rows, 24)
    accesses = [access(8 * source.randrange(0, 20), {n: source.choice(steps) for n in trips}, trips,
                       written=source.random() < 0.5) for _ in range(source.randrange(1, 4))]
    for cluster in clusters(accesses, SAMPLE):
        array, found, guards = delinearise(cluster, "A", SAMPLE)
        seen: dict[tuple[int, ...], int] = {}
        for member in cluster.members:
            counts = [t.evaluate(SAMPLE) for _, t in member.trips]
            for point in itertools.product(*map(range, counts)):
                values = SAMPLE | {n: v for (n, _), v in zip(member.trips, point, strict=True)}
                cell = tuple(s.evaluate(values) for s in found[member].subscripts)
                address = array.base.evaluate(values) + sum(a * b for a, b in zip(array.strides, cell, strict=True))
                assert address == member.address.evaluate(values)
                assert seen.setdefault(cell, address) == address
                assert cluster.low.evaluate(values) <= address <= cluster.high.evaluate(values) - 8
        assert len(set(seen.values())) == len(seen)
        assert all(g.expression.evaluate(SAMPLE) >= 0 for g in guards)


def test_a_triangle_that_grows_from_the_end_reaches_no_further_than_it_does() -> None:
    """The inner loop of a backward substitution by columns: it grows while R rows are left of 40."""
    column = access(0, {"i": -328, "j": 320}, {"i": R, "j": -R + Linear.symbol("i") + 40})
    pivot = access(-320, {"i": -328}, {"i": R})
    (cluster,) = clusters([column, pivot], SAMPLE)
    assert not cluster.needs or all(n.evaluate({"R": r}) >= 0 for n in cluster.needs for r in range(2, 40))
    for r in range(2, 40):
        cells = [-328 * i + 320 * j for i in range(r) for j in range(40 - r + i)] + [-320 - 328 * i for i in range(r)]
        values = SAMPLE | {"R": r}
        assert cluster.low.evaluate(values) == SAMPLE["p"] + min(cells)
        assert cluster.high.evaluate(values) == SAMPLE["p"] + max(cells) + 8


def test_a_triangle_whose_first_rows_are_empty_at_first_is_bounded_for_its_last_iterations_too() -> None:
    """Row i ends with the diagonal, 21 - R + i behind its start; what comes before it begins where rows do. While
    none of the 20 has begun the part before the diagonal starts a row further on, which later it does not."""
    i, k = Linear.symbol("i"), Linear.symbol("k")
    before = access(0, {"i": 384, "j": 8}, {"i": R, "j": -R + i + 20})
    diagonal = ByteAccess(before.address.without("j") + i * 8 - R * 8 + 160, (("i", R), ("k", R - i)),
                          ElementType.F64, False, (-R + i + k * 2 + 1, R - i - k * 2 - 1))
    for captured in (20, 11):
        (cluster,) = clusters([before, diagonal], SAMPLE | {"R": captured})
        assert not any(n.evaluate({"R": r}) < 0 for n in cluster.needs for r in range(2, captured + 1))
        for r in range(2, 21):
            values = SAMPLE | {"R": r}
            if all(n.evaluate(values) >= 0 for n in cluster.needs):
                assert cluster.low.evaluate(values) <= SAMPLE["p"] + (8 * (20 - r) if r == 20 else 0)
                assert cluster.high.evaluate(values) >= SAMPLE["p"] + 384 * (r - 1) + 8 * 19 + 8
