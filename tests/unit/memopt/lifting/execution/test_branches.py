"""Where a condition holds, as cases that exclude each other."""

from __future__ import annotations

import itertools

import pytest

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.lifting.execution.branches import MOST_WAYS, Branches
from memopt.lifting.values.algebra import Algebra
from memopt.lifting.values.values import Atom, Carried, Formula, Opaque, constant, either, negate
from tests.support.lifting import lift_assembly

H, J, P = Linear.symbol("c:i"), Linear.symbol("c:j"), Linear.symbol("p")


def exits() -> Branches:
    return Branches(Algebra({"c:i": 0, "c:j": 0, "p": 5}, lambda event: P, lambda *_: constant(0, 1)))


def at_least(linear: Linear) -> Formula:
    return Atom(linear, False)


def test_cases_exclude_each_other_and_are_all_there_is() -> None:
    formula = either(at_least(H - 3), negate(either(at_least(J - 2), at_least(H + J - 4))))
    holds, fails = exits().ways(formula, True), exits().ways(negate(formula), True)
    for i, j in itertools.product(range(7), repeat=2):
        values = {"c:i": i, "c:j": j}
        true = i >= 3 or not (j >= 2 or i + j >= 4)
        assert [all(c.evaluate(values) >= 0 for c in case) for case in holds].count(True) == int(true)
        assert [all(c.evaluate(values) >= 0 for c in case) for case in fails].count(True) == int(not true)


def test_what_does_not_change_is_decided_and_guarded() -> None:
    tool = exits()
    assert tool.ways(either(at_least(-P + 4), at_least(H - 3)), False) == [(H - 3,)]
    assert [o.linear for o in tool.algebra.obligations] == [P - 5, P - 5]


def test_too_many_cases_end_the_lift() -> None:
    """Each pair of arrays that may overlap is two comparisons in the test before vector code."""
    formula: Formula = False
    for number in range(30):
        apart = either(at_least(H * (number + 2) - J), at_least(J * (number + 2) - H - number))
        formula = either(formula, negate(apart))
    with pytest.raises(Rejected) as refused:
        exits().ways(formula, True)
    assert refused.value.reason is Reason.NO_PLAN
    assert MOST_WAYS < 100


def test_a_condition_that_is_no_comparison_of_counters_has_no_cases() -> None:
    for formula in (Opaque(Carried("entry", "rax")), negate(Opaque(Carried("entry", "rax")))):
        with pytest.raises(Rejected) as refused:
            exits().ways(formula, True)
        assert refused.value.reason is Reason.DATA_DEPENDENT_BRANCH


CELLS = """cell: movsd xmm0, [rsi + rdx*8]
                mulsd xmm0, xmm1
                movsd [rsi + rdx*8], xmm0
                add rdx, 1
                cmp r9d, edx
                jg cell"""  # of a row, up to r9


def test_the_smaller_of_two_bounds_is_compared_at_half_its_width() -> None:
    """A loop blocked by hand: what a conditional move left, widened, is narrowed again by each test; the branch that
    is split is the move itself."""
    scop = lift_assembly(f"""
        block:  lea r9d, [r12 + 48]
                cmp r9d, eax
                cmovg r9d, eax
                mov rsi, rdi
                xor ecx, ecx
        row:    cmp r9d, r12d
                jle next
                mov rdx, r12
        {CELLS}
        next:   add rsi, 1000
                add ecx, 1
                cmp ecx, 20
                jne row
                add r12, 48
                cmp eax, r12d
                jg block
                ret
    """, {"r12": 0, "rax": 101, "rdi": 0x100000}).region.scop
    columns = {"i<R, j<20, k<48*R - 48*i - 43, -48*R + 48*i + 90 >= 0", "i<R, l<20, m<48, 48*R - 48*i - 91 >= 0"}
    assert {str(s).split("[")[1].split("]")[0] for s in scop.statements} == columns


def test_loops_under_the_ways_of_two_branches_have_names_of_their_own() -> None:
    """Blocked by hand in both directions: the second way of one branch and the first of the other, and the other way
    round. What is known of the ranges of one is not true of the other."""
    lifted = lift_assembly(f"""
        block:  lea r9d, [r12 + 48]
                cmp r9d, eax
                cmovg r9d, eax
                xor ebp, ebp
        other:  lea r10d, [rbp + 30]
                cmp r10d, ebx
                cmovg r10d, ebx
                mov rsi, rdi
                mov rcx, rbp
        row:    cmp r10d, ecx
                jle rows
                mov rdx, r12
        {CELLS}
                add rsi, 1000
                add ecx, 1
                jmp row
        rows:   add rbp, 30
                cmp ebx, ebp
                jg other
                add r12, 48
                cmp eax, r12d
                jg block
                ret
    """, {"r12": 0, "rax": 101, "rbx": 100, "rdi": 0x100000})
    counters = [line.split()[1] for line in str(lifted.statements).splitlines() if line.lstrip().startswith("for")]
    assert len(counters) == 11
    assert len(set(counters)) == len(counters)
