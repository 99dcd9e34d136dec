"""What an attempt at lifting asks for, put into the facts of the next one."""

from __future__ import annotations

from memopt.ir.linear import Linear
from memopt.lifting.execution.assumptions import GENERAL, Assumptions
from memopt.lifting.lift import _specialised
from memopt.lifting.values.requests import AssumeEqual

REGISTERS = {**dict.fromkeys(GENERAL, 0), "rax": 40, "rsp": 1000}


def test_a_stride_of_another_size_starts_with_nothing() -> None:
    """What was asked for beside it is over cells that the new facts do not have."""
    facts = Assumptions(REGISTERS, lambda address, bits: 7, earlier=({"rax": 41},), calls=True)
    cell = facts.add_cell(Linear.symbol("rsp") - 8, 64)
    needs = (AssumeEqual(Linear.symbol("rax"), factor=True), AssumeEqual(Linear.symbol(cell), factor=True))
    again = _specialised(facts, needs)
    assert not again.equations
    assert not again.earlier
    assert again.calls, "what lies below rsp is still nothing to rely on"


def test_equations_that_follow_from_others_are_no_more() -> None:
    facts = Assumptions(REGISTERS, lambda address, bits: 7)
    rax, rbx = Linear.symbol("rax"), Linear.symbol("rbx")
    after = _specialised(facts, (AssumeEqual(rax - rbx), AssumeEqual(rbx), AssumeEqual(rax)))
    assert len(after.equations) == 2


def test_a_cell_that_the_loop_stores_to_is_data() -> None:
    facts = Assumptions(REGISTERS, lambda address, bits: 7, calls=True, eager=True)
    facts.add_cell(Linear.symbol("rax"), 64)
    again = facts.stored(40).moved("rbx").stored(48)
    assert again.written == {40, 48}
    assert again.moving == {"rbx"}
    assert not again.cells
    assert again.calls
    assert again.eager


def test_an_attempt_that_is_not_eager_says_where_one_would_have_gone_on() -> None:
    facts = Assumptions(REGISTERS, lambda address, bits: 7)
    again = facts.moved("rbx")
    assert not again.eagerly(0x40)
    assert facts.declined == {0x40}, "whoever began with these facts gets to know"
    eager = Assumptions(REGISTERS, lambda address, bits: 7, eager=True)
    assert eager.eagerly(0x40)
    assert not eager.declined
