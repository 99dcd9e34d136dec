"""What an attempt at lifting asks for becomes an assumption of the next one."""

from __future__ import annotations

import pytest

from memopt.ir.linear import Linear
from memopt.ir.reasons import Rejected
from memopt.ir.region import Trips
from memopt.ir.scop import TRIPS
from memopt.lifting.execution.assumptions import GENERAL, Assumptions
from memopt.lifting.values import requests
from memopt.lifting.values.budget import Budget
from memopt.lifting.values.requests import (
    AssumeAll,
    AssumeEqual,
    AssumeInvariantLane,
    DeferExtension,
    ExpressByTrips,
    InlineLoop,
    KeepLiveOut,
    KeepOperandOrder,
    MaskOperands,
    NotAParameter,
    PromoteCell,
    RelateToTrips,
    Request,
    SplitPaths,
    TreatAsData,
)

REGISTERS = {**dict.fromkeys(GENERAL, 0), "rax": 40, "rsp": 1000}


def assumptions(**others: object) -> Assumptions:
    return Assumptions(REGISTERS, lambda address, bits: 7, **others)  # type: ignore[arg-type]


def test_a_stride_of_another_size_starts_with_nothing() -> None:
    """What was asked for beside it is over cells that the new assumptions do not have."""
    first = assumptions(earlier=({"rax": 41},), calls=True)
    cell = first.add_cell(Linear.symbol("rsp") - 8, 64)
    needs = (AssumeEqual(Linear.symbol("rax"), factor=True), AssumeEqual(Linear.symbol(cell), factor=True))
    again = first.granting(AssumeAll(needs))
    assert not again.equations
    assert not again.cells
    assert not again.earlier
    assert again.calls, "what lies below rsp is still nothing to rely on"


def test_equations_that_follow_from_others_are_no_more() -> None:
    rax, rbx = Linear.symbol("rax"), Linear.symbol("rbx")
    after = assumptions().granting(AssumeAll((AssumeEqual(rax - rbx), AssumeEqual(rbx), AssumeEqual(rax))))
    assert len(after.equations) == 2
    assert after.symbol("rax") == Linear.of(40)


def test_a_cell_that_the_loop_stores_to_is_data() -> None:
    again = assumptions(calls=True, eager=True)
    for request in (PromoteCell(Linear.symbol("rax"), 64), TreatAsData(40), NotAParameter("rbx"), TreatAsData(48)):
        again = again.granting(request)
    assert again.written == {40, 48}
    assert again.moving == {"rbx"}
    assert not again.cells
    assert again.calls
    assert again.eager


def test_a_frame_pointer_stays_one() -> None:
    again = assumptions().in_frame().granting(TreatAsData(40))
    assert again.framed
    assert again.symbol("rbp") == Linear.symbol("rsp") - 1000
    assert len(again.equations) == 1


def test_an_attempt_that_is_not_eager_says_where_one_would_have_gone_on() -> None:
    first = assumptions()
    assert not first.granting(NotAParameter("rbx")).eagerly(0x40)
    assert first.hints.declined == {0x40}, "whoever began with these assumptions gets to know"
    eager = assumptions(eager=True)
    assert eager.eagerly(0x40)
    assert not eager.hints.declined


def test_paths_are_merged_in_a_more_general_way_each_time() -> None:
    once = assumptions().granting(SplitPaths(0x40))
    assert once.split == {0x40: 1}
    assert once.granting(SplitPaths(0x40)).granting(SplitPaths(0x50, 3)).split == {0x40: 2, 0x50: 3}


@pytest.mark.parametrize(("request_", "field", "value"), [
    (MaskOperands(0x40), "masked", {0x40}), (DeferExtension(frozenset({0x40})), "deferred", {0x40}),
    (InlineLoop(0x40), "inlined", {0x40}), (AssumeInvariantLane({"xmm0.1": 5}), "lanes", {"xmm0.1": 5}),
    (KeepLiveOut(frozenset({"xmm0.0"})), "kept", {"xmm0.0"}), (KeepOperandOrder(), "ordered", True),
    (ExpressByTrips(), "by_trips", True),
])
def test_what_is_asked_for_is_assumed(request_: Request, field: str, value: object) -> None:
    first = assumptions()
    assert getattr(first.granting(request_), field) == value
    assert not getattr(first, field), "assumptions of an attempt do not change"


def test_equations_that_advance_are_related_to_the_iterations_that_remain() -> None:
    """rax rises by 8 where rcx rises by 2 up to rbx: rax - rdx == 40 becomes rax - rdx + 8 R == 40 + 8 * 5."""
    rax, rbx, rcx, rdx, trips = (Linear.symbol(s) for s in ("rax", "rbx", "rcx", "rdx", TRIPS))
    registers = {**REGISTERS, "rbx": 110, "rcx": 100}
    first = Assumptions(registers, lambda address, bits: 7).granting(AssumeEqual(rax - rdx)).granting(
        AssumeEqual(rbx))
    after = first.granting(RelateToTrips(Trips(rbx - rcx, 2), {"rax": 8, "rcx": 2}))
    assert after.samples()[TRIPS] == 5
    assert after.equations == ((rax - rdx + trips * 8, 80), (rbx, 110))
    assert after.symbol("rcx") == -trips * 2 + 110
    assert after.granting(AssumeEqual(rax - rdx - rcx * 4)).equations == after.equations, "it follows"
    with pytest.raises(Rejected, match="trip count"):
        after.granting(AssumeEqual(rcx))


def test_every_request_says_what_makes_it_sound() -> None:
    kinds = [k for k in vars(requests).values() if isinstance(k, type) and issubclass(k, Request) and k is not Request]
    assert len(kinds) == 15
    assert all("Example:" in (k.__doc__ or "") and "Sound:" in (k.__doc__ or "") for k in kinds)


def test_a_budget_is_checked() -> None:
    Budget().check()
    with pytest.raises(Rejected, match="too long"):
        Budget(lambda: False).check()
