"""Counters that wrap around after their last use: proved without them, refused where somebody looks."""

from __future__ import annotations

import pytest

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Register, Rejoin
from memopt.lifting.values.extensions import DeferredExtension, DeferredExtensions
from tests.support.lifting import lift_assembly

STATE = {"rdi": 0x7000_0000, "rsi": 0x7100_0000, "rcx": 0, "r8": 20, "rbx": 17}


def test_equal_widenings_are_equal_symbols() -> None:
    tool = DeferredExtensions({"n": 5, "c:i": 0})
    number = Linear.symbol("n") - Linear.symbol("c:i")
    symbol = tool.unsigned(number, 32)
    assert tool.unsigned(number, 32) == symbol != tool.unsigned(number + 1, 32)
    assert tool.numbers(symbol * 8 + 4) == number * 8 + 4
    moved = tool.substituted(symbol + 1, {"c:i": Linear.of(2)})
    assert tool.numbers(moved) == Linear.symbol("n") - 1
    assert isinstance(tool.whole(symbol), DeferredExtension)
    assert tool.whole(symbol + 1) is None
    assert tool.advanced(symbol, Linear.of(1)) == tool.unsigned(number + 1, 32)


def test_an_inner_counter_that_ends_below_zero() -> None:
    lifted = lift_assembly("""
    i: mov rdx, r8; shl rdx, 3; imul rdx, rcx; add rdx, rdi; mov eax, 19
    k: movsd [rdx+rax*8], xmm0; sub eax, 1; cmp eax, -1; jne k
       inc rcx; cmp rcx, r8; jne i; ret""", STATE)
    assert str(lifted.outer.node.items[0]).partition("\n")[0].endswith("< 20")


def test_a_counter_of_the_patched_loop_that_ends_below_zero() -> None:
    """ebx is -1 in the last iteration, where rbx is 2**32 - 1: the inner loop that uses it does not run there."""
    code = """
    i: movsd [rsi+rcx*8], xmm0; mov edx, ebx; cmp ecx, 17; jg 1f
       lea rdx, [rdi+rdx*8]; mov rax, rdi
    k: movsd [rax], xmm1; add rax, 8; cmp rax, rdx; jle k
    1: sub ebx, 1; add ecx, 1; cmp ecx, 20; jne i; ret"""
    region = lift_assembly(code, STATE).region
    assert Rejoin(Register("rbx"), Linear.symbol("rbx") - Linear.symbol("H"), 4) in region.rejoin


def test_a_wrapped_counter_in_an_address_is_refused() -> None:
    with pytest.raises(Rejected) as refused:
        lift_assembly("i: mov eax, ebx; movsd [rdi+rax*8], xmm0; sub ebx, 1; inc rcx; cmp rcx, 20; jne i; ret",
                      STATE)
    assert refused.value.reason is Reason.UNPROVED
