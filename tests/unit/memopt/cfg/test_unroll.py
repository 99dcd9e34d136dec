"""Iterations that exchange registers: as many of them are one as it takes for these to come round."""

from __future__ import annotations

from itertools import pairwise

import pytest

from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Region
from tests.support.lifting import lift_assembly

A, STEPS = 0x10000, 24
BUFFERS = {"rsi": A, "rdi": A + 0x10000, "rbx": A + 0x20000}

# while (r9-- > 0) { for (j < 100) rsi[j] += rdi[j]; exchange; }
SWEEP = """
    t:  xor r8d, r8d
    j:  mov rax, [rsi + r8*8]
        add rax, [rdi + r8*8]
        mov [rsi + r8*8], rax
        add r8, 1
        cmp r8, 100
        jne j
        {exchange}
        sub r9, 1
        jne t
        ret
"""
TWO = "mov rax, rsi; mov rsi, rdi; mov rdi, rax"
THREE = "mov rax, rsi; mov rsi, rdi; mov rdi, rbx; mov rbx, rax"


def _lift(exchange: str, steps: int) -> Region:
    return lift_assembly(SWEEP.format(exchange=exchange), {**BUFFERS, "r9": steps}).region


@pytest.mark.parametrize(("exchange", "period"), [(TWO, 2), (THREE, 3), ("mov rax, rsi", 1)])
@pytest.mark.parametrize("more", [0, 1])
def test_a_round_is_an_iteration(exchange: str, period: int, more: int) -> None:
    """Whatever is left over at the end is no part of it: the division of the trip count says so."""
    region = _lift(exchange, STEPS + more)
    assert region.period == period
    assert len(region.scop.statements) == period
    assert region.trips.divisor == period
    assert (region.trips.numerator.evaluate({"r9": STEPS + more}) // period) == (STEPS + more) // period


def test_each_statement_of_a_round_has_other_buffers() -> None:
    one, two = _lift(TWO, STEPS).scop.statements
    assert (one.write.array, {r.array for r in one.reads} - {one.write.array}) == (
        next(iter({r.array for r in two.reads} - {two.write.array})), {two.write.array})


def test_the_registers_come_back() -> None:
    """They are where they were after every round: nothing of them is restored."""
    assert {str(r.location) for r in _lift(TWO, STEPS).rejoin} == {"r9"}


def test_an_exchange_that_takes_too_long_to_come_round() -> None:
    registers = ("rsi", "rdi", "rbx", "r10", "r11")
    exchange = "; ".join(("mov rax, rsi", *(f"mov {a}, {b}" for a, b in pairwise(registers)),
                          "mov r11, rax"))
    with pytest.raises(Rejected) as refusal:
        _lift(exchange, STEPS)
    assert refusal.value.reason is Reason.DATA_DEPENDENT_ADDRESS
