"""Loop trees: the loops and stores of a nest, names of loops, and substitution in all that a nest holds."""

from __future__ import annotations

from memopt.ir.linear import Linear
from memopt.lifting.values.loop_tree import (
    CarriedValue,
    Guarded,
    LoadEvent,
    LoopNode,
    Read,
    StoreEvent,
    bounds,
    loop_name,
    loops_of,
    rewritten,
    stores_of,
)
from memopt.lifting.values.values import Integer, Loaded, Node, Substitution, Value

H, J, N, P = Linear.symbol("c:i"), Linear.symbol("c:j"), Linear.symbol("n"), Linear.symbol("p")


def number(linear: Linear) -> Value:
    return Integer(linear, 64)


FIRST, SECOND, THIRD = (StoreEvent(P + offset, Loaded(1, 64), 64, 0) for offset in (0, 8, 16))
INNER = LoopNode("c:j", N - H, (LoadEvent(1, P + J * 8, 64, 0), Guarded((N - 3,), (SECOND,))), address=0x20)
LAST = LoopNode("c:k", None, (), address=0x30)
OUTER = LoopNode("c:i", N, (FIRST, Guarded((H - 1, N - H), (INNER, THIRD)), LAST), address=0x10)


def test_outer_loops_come_first() -> None:
    assert [loop.counter for loop in loops_of((FIRST, Guarded((H,), (OUTER,))))] == ["c:i", "c:j", "c:k"]
    assert list(loops_of(OUTER.items)) == [INNER, LAST]


def test_stores_come_in_textual_order() -> None:
    assert list(stores_of((OUTER,))) == [FIRST, SECOND, THIRD]


def test_the_name_of_a_loop_is_its_counter_without_the_prefix() -> None:
    assert [loop_name(loop) for loop in loops_of((OUTER,))] == ["i", "j", "k"]


def test_bounds_are_all_trip_counts_and_conditions() -> None:
    assert bounds(OUTER) == {N, H - 1, N - H, N - 3}
    assert bounds(FIRST) == frozenset()


def test_a_substitution_reaches_everything_that_a_nest_holds() -> None:
    def nest(n: Linear) -> LoopNode:
        sums = Node("fadd", (number(n), Loaded(1, 64)), 64)
        store = StoreEvent(P + n * 8, number(n + 1), 64, 4, (sums,))
        items = LoadEvent(1, P + n, 64, 0), Guarded((n - 3,), (store, LoopNode("c:j", n + H, ())))
        return LoopNode("c:i", n, items, (CarriedValue("rax", number(n), number(n * 2)),), (("rcx", number(n - 1)),),
                        0x10, (number(n * 5),), ((number(n * 7), (n - 9,)),))

    before = nest(N)
    assert rewritten(before, Substitution({"n": Linear.of(4)})) == nest(Linear.of(4))
    assert rewritten(before, Substitution({"c:i": N})) != before  # the inner loop's trip count
    assert rewritten(before, Substitution({"m": N})) == before
    assert rewritten(LAST, Substitution({"n": P})) == LAST


def test_a_read_is_certain_outside_of_a_loop_only_if_it_is_in_the_first_iteration() -> None:
    read = Read(P, 64, (H + N - 2,))
    assert read.within("c:i", None) == Read(P, 64, (N - 2,))
    late = Read(P, 64, (H + N - 2,), late=True)
    assert late.within("c:i", None) is None
    assert late.within("c:i", N) == Read(P, 64, (N - 1, N - 2))
