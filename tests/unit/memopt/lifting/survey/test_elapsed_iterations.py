"""How many iterations are over, from what registers hold now and the code in front of the loop."""

from __future__ import annotations

import pytest

from memopt.cfg.flowgraph import discover
from memopt.lifting.execution.assumptions import GENERAL
from memopt.lifting.survey.elapsed_iterations import elapsed_iterations
from tests.support.binaries import assemble
from tests.support.lifting import TEXT, code_of

_ROWS = "i: add rax, 8; mov [rdi], rax; add rdi, 24; dec r9d; cmp rdi, rdx; jne i; ret"
_STEPS = {"rax": 8, "rdi": 24, "r9": -1}


def over(before: str, now: dict[str, int], loop: str = _ROWS) -> int | None:
    """Registers that ``now`` does not name hold numbers of their own."""
    code = assemble(f".intel_syntax noprefix\n{before}\n{loop}\n")
    whole = code_of(discover(lambda address, size: code[address - TEXT:address - TEXT + size], TEXT,
                             (TEXT, TEXT + len(code))))
    held = {name: 0x10_0000_0000 * (n + 1) for n, name in enumerate(GENERAL)} | now
    outermost = max(whole.forest.loops, key=lambda loop: loop.header)
    return elapsed_iterations(whole.graph, whole.lift, outermost, _STEPS, held)


@pytest.mark.parametrize(("before", "now"), [
    ("xor eax, eax", {"rax": 56}),
    ("mov eax, -8", {"rax": (1 << 32) + 48}),
    ("mov rax, -8", {"rax": 48}),
    ("mov r9d, 100", {"r9": 93}),
    ("lea rdx, [rdi + 2400]", {"rdi": 0x1000 + 7 * 24, "rdx": 0x1000 + 2400}),
    ("lea rcx, [rsi + 96]; mov rdi, rsi; lea rdx, [rcx + rcx]",
     {"rdi": 0x300 + 7 * 24, "rsi": 0x300, "rcx": 0x360, "rdx": 0x6C0}),
    ("imul rax, rbx, 24; shl rbx, 3; sub rax, rbx; sub rax, rbx; sub rax, rbx", {"rax": 56}),
    ("k: dec rcx; jne k; mov eax, 16", {"rax": 72}),
    ("mov eax, 16; t: test r8, r8; jg i; dec r11; jne t; ret", {"rax": 72}),
    ("mov r9d, 100; t: mov eax, 16; cmp r8d, r10d; jle w; jmp i; w: nop; v: dec r11; jg v; jne t; ret",
     {"rax": 72, "r9": 93}),
])
def test_they_follow_from_numbers_and_from_what_does_not_change(before: str, now: dict[str, int]) -> None:
    assert over(before, now) == 7


@pytest.mark.parametrize(("before", "now"), [
    ("mov rdi, rsi; xor eax, eax", {"rdi": 0x300 + 7 * 24, "rsi": 0x300, "rax": 48}),  # they contradict each other
    ("mov eax, 8", {"rax": 0}),  # it would have gone backwards
    ("mov rdi, rsi", {"rdi": 0x300 + 25, "rsi": 0x300}),
    ("mov rdi, rsi; test rsi, rsi; je i; mov rdi, rsi", {"rdi": 0x300 + 7 * 24, "rsi": 0x300}),  # two ways
    ("mov rax, [rsi]", {"rax": 56}),
    ("xor eax, eax; call f; jmp i; f: ret", {"rax": 56}),
    ("mov eax, 24; and rax, rbx", {"rax": 56}),
    ("mov eax, ebx", {"rax": 56, "rbx": 0}),  # only the lower half
    ("cmp rcx, 3; ja i; jmp [rcx*8 + 0x500000]", {"rax": 56}),
    ("mov eax, 16; t: test r8, r8; jg i; inc r8; add rax, 8; jmp t", {"rax": 72}),  # it changes
    ("mov eax, 16; t: test r8, r8; jg i; call f; add rax, 8; jmp t; f: ret", {"rax": 72}),
    ("mov eax, 16; t: cmp [rbx], r8; jg i; add rax, 8; jmp t", {"rax": 72}),  # others may write there
    ("mov eax, 16; test rbx, rbx; je w; t: test r8, r8; jg i; w: add rax, 8; jmp t", {"rax": 72}),  # from elsewhere
])
def test_nothing_is_known_where_they_do_not(before: str, now: dict[str, int]) -> None:
    assert over(before, now) is None


def test_what_the_loop_writes_says_nothing() -> None:
    loop = "i: mov rsi, rdi; add rdi, 24; call f; cmp rdi, rdx; jne i; ret; f: ret"
    assert over("mov rdi, rsi", {"rdi": 0x300 + 7 * 24, "rsi": 0x300 + 6 * 24}, loop) is None
    assert over("mov rdi, rbx", {"rdi": 0x300 + 7 * 24, "rbx": 0x300}, loop) is None  # a call may have written it
    loop = loop.replace("call f", "nop")
    assert over("mov rdi, rsi", {"rdi": 0x300 + 7 * 24, "rsi": 0x300 + 6 * 24}, loop) is None
    assert over("mov rdi, rbx", {"rdi": 0x300 + 7 * 24, "rbx": 0x300}, loop) == 7
