"""Which values are told of functions and loops."""

from __future__ import annotations

import pytest

from memopt.cfg.flowgraph import discover
from memopt.cfg.loop_nesting import find_nesting
from memopt.instrumentation.induction_registers import steppings
from memopt.instrumentation.value_probes import Moment, Point, points
from tests.support.binaries import assemble


def points_of(*lines: str) -> tuple[Point, ...]:
    code = assemble(".intel_syntax noprefix; " + "; ".join(lines))
    graph = discover(lambda a, n: code[a - 0x1000:a - 0x1000 + n], 0x1000, (0x1000, 0x1000 + len(code)))
    nesting = find_nesting(graph)
    return points(graph, nesting, steppings(graph, nesting), 5)


@pytest.mark.parametrize(("lines", "arguments"), [
    (("mov rax, rdi", "ret"), ("rdi",)),
    (("mov edi, 1", "mov rax, rdi", "ret"), ()),
    (("xor esi, esi", "lea rax, [rsi + rdx*8]", "ret"), ("rdx",)),
    (("mov dil, 1", "ret"), ("rdi",)),  # what else is in it stays
    (("test r8d, r8d", "je l", "mov ecx, 2", "l: mov eax, ecx", "ret"), ("rcx", "r8")),
    (("test r8d, r8d", "je l", "mov ecx, 2", "jmp m", "l: mov ecx, 3", "m: mov eax, ecx", "ret"), ("r8",)),
    (("call rax", "mov rax, rdi", "ret"), ()),  # calls give it up
    (("push rdi", "pop rsi", "mov rax, rsi", "ret"), ("rdi",)),
    (("l: dec r9", "jne l", "ret"), ("r9",)),
])
def test_arguments_are_read_before_they_are_set(lines: tuple[str, ...], arguments: tuple[str, ...]) -> None:
    assert points_of(*lines)[0] == Point(5, Moment.ENTRY, None, arguments)


def test_a_loop_is_told_by_its_register_or_counted() -> None:
    stepped = points_of("l: movsd xmm0, [rsi + rdi*8]", "add rdi, 2", "cmp rdi, rdx", "jne l", "ret")
    assert [(p.number, p.moment) for p in stepped] == [
        (5, Moment.ENTRY), (6, Moment.BACK), (7, Moment.LOOP_ENTRY), (8, Moment.LOOP_EXIT)]
    assert stepped[2].registers == ("rdx", "rsi")
    assert stepped[2].trips is not None
    assert (stepped[2].trips.register, stepped[2].trips.step, stepped[2].counts_trips) == ("rdi", 2, False)
    counted = points_of("l: mov rdi, [rdi]", "test rdi, rdi", "jne l", "ret")
    assert (counted[2].trips, counted[2].counts_trips, counted[2].registers) == (None, True, ())


def test_a_step_elsewhere_than_in_the_header_is_no_trip() -> None:
    found = points_of("l: cmp rdi, [rsi]", "je m", "inc rax", "m: cmp rsi, 7", "jne l", "ret")
    assert found[2].counts_trips


@pytest.mark.parametrize("line", ["call rbp", "cpuid"])
def test_calls_and_what_is_not_known_change_registers(line: str) -> None:
    found = points_of("l: add rbx, rsi", line, "cmp rbx, r12", "jne l", "ret")
    assert found[2].registers == (("r12", "rbp") if line == "call rbp" else ())


def test_loops_that_are_entered_in_several_ways_are_not_told() -> None:
    found = points_of("test rdi, rdi", "je m", "l: inc rax", "m: inc rcx", "cmp rcx, rax", "jne l", "ret")
    assert [p.moment for p in found] == [Moment.ENTRY, Moment.BACK]
