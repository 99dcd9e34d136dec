"""What loops carry in registers, in frame slots and in sums in memory."""

from __future__ import annotations

import pytest

from memopt.cfg.functions import flow
from memopt.cfg.loop_nesting import find_nesting
from memopt.ir.graph import Loop
from memopt.recurrences.callees import Callee, Callees, Code
from memopt.recurrences.recurrences import Recurrences
from memopt.recurrences.values import Values, lifted
from tests.support.binaries import assemble

_START = 0x1000


def found(*lines: str, callee: Callee | None = None) -> tuple[Recurrences, Values, tuple[Loop, ...]]:
    """The recurrences of the function with these instructions, its values, and its loops."""
    code = assemble(f".intel_syntax noprefix; {'; '.join(lines)}")
    graph = flow(lambda address, size: code[address - _START:address - _START + size], _START,
                 (_START, _START + len(code)))
    values = Values(graph, {start: lifted(block) for start, block in graph.blocks.items()},
                    lambda _: callee or Callee(frozenset(), frozenset()), frozenset())
    nesting = find_nesting(graph)
    return Recurrences(values, nesting), values, nesting.loops


def carried(*lines: str, loop: int = 0, exchange: bool = False, callee: Callee | None = None) -> dict[str, str]:
    """What a loop carries; ``exchange``: all its loads read what it writes."""
    recurrences, values, loops = found(*lines, callee=callee)
    loads = frozenset(values.loads) if exchange else frozenset()
    return {c.location: c.recurrence.value for c in recurrences.carried(loops[loop], loads)}


_COUNTS = ("add rcx, 8", "cmp rcx, rdx", "jne 1b", "ret")


@pytest.mark.parametrize(("lines", "expected"), [
    pytest.param(("1: mov [rdi + rcx], rcx",), {}, id="counter"),
    pytest.param(("1: mov [rdi + rcx], rcx", "add rdi, rsi"), {}, id="step from outside"),
    pytest.param(("1: addsd xmm0, [rdi + rcx]",), {"xmm0.0": "sum"}, id="sum"),
    pytest.param(("1: addss xmm0, [rdi + rcx]",), {"xmm0.0": "sum"}, id="sum of single precision"),
    pytest.param(("1: mulsd xmm0, [rdi + rcx]",), {"xmm0.0": "sum"}, id="product"),
    pytest.param(("1: maxsd xmm0, [rdi + rcx]",), {"xmm0.0": "sum"}, id="maximum"),
    pytest.param(("1: mov r8, [rdi + rcx]", "cmp rax, r8", "cmovl rax, r8"), {"rax": "sum"}, id="maximum by cmov"),
    pytest.param(("1: mov r8, [rdi + rcx]", "cmp rax, r8", "jge 2f", "mov rax, r8", "2: "), {"rax": "sum"},
                 id="maximum by a branch"),
    pytest.param(("1: mov r8, [rdi + rcx]", "cmp rax, r8", "jge 2f", "mov rax, r8", "mov [rsi], rcx", "2: "),
                 {"rax": "serial"}, id="maximum that decides something else"),
    pytest.param(("1: sub rax, [rdi + rcx]",), {"rax": "sum"}, id="difference"),
    pytest.param(("1: mov r8, [rdi + rcx]", "sub r8, rax", "mov rax, r8"), {"rax": "serial"}, id="reversed"),
    pytest.param(("1: addsd xmm0, [rdi + rcx]", "movsd [rsi + rcx], xmm0"), {"xmm0.0": "serial"}, id="prefix sum"),
    pytest.param(("1: addsd xmm0, [rdi + rcx]", "mulsd xmm0, xmm1"), {"xmm0.0": "serial"}, id="two operations"),
    pytest.param(("1: mov rbx, [rbx]", "mov [rdi + rcx], rbx"), {"rbx": "serial"}, id="chain of pointers"),
    pytest.param(("1: test qword ptr [rdi + rcx], 1", "je 2f", "mov [rsi + rbx], rcx", "add rbx, 8", "2: "),
                 {"rbx": "serial"}, id="counts under a condition"),
    pytest.param(("1: test qword ptr [rdi + rcx], 1", "je 2f", "addsd xmm0, [rdi + rcx]", "2: "), {"xmm0.0": "sum"},
                 id="sum under a condition"),
    pytest.param(("1: test qword ptr [rdi + rcx], 1", "je 2f", "xorps xmm0, xmm0", "2: addsd xmm0, [rdi + rcx]"),
                 {"xmm0.0": "serial"}, id="sum that begins anew"),
    pytest.param(("1: movsd [rsi + rcx], xmm0", "movsd xmm0, [rdi + rcx]"), {"xmm0.0": "unknown"}, id="stored later"),
    pytest.param(("1: cmp qword ptr [rdi + rcx], 0", "je 3f"), {"an exit that depends on data": "unknown"},
                 id="search"),
    pytest.param(("1: fld qword ptr [rdi + rcx]", "fstp qword ptr [rdi + rcx]"),
                 {"an instruction that is not understood": "unknown"}, id="x87"),
])
def test_what_registers_carry(lines: tuple[str, ...], expected: dict[str, str]) -> None:
    assert carried(*lines, *_COUNTS, "3: ret") == expected


def test_an_element_that_the_next_iteration_can_load_itself() -> None:
    body = ("1: movsd xmm2, [rdi + rcx + 8]", "addsd xmm0, xmm2", "movsd [rsi + rcx], xmm0", "movsd xmm0, xmm2")
    loaded = ("movsd xmm0, [rdi + rcx]", *body, *_COUNTS)
    assert carried(*loaded) == {}
    assert carried(*loaded, exchange=True) == {"xmm0.0": "unknown"}
    assert carried("xorps xmm0, xmm0", *body, *_COUNTS) == {"xmm0.0": "unknown"}
    assert carried("movsd xmm0, [rdi + rcx + 8]", *body, *_COUNTS) == {"xmm0.0": "unknown"}
    assert carried("movsd xmm0, [rdi + rcx]", *body, "movsd [r8 + rcx], xmm2", *_COUNTS) == {"xmm0.0": "unknown"}


def test_a_pointer_that_runs_through_both_loops() -> None:
    inner = ("1: mov rbx, rdx", "2: mov [rdi], rbx", "add rdi, 8", "sub rbx, 1", "jne 2b")
    assert carried(*inner, "sub rcx, 1", "jne 1b", "ret") == {}
    assert carried(*inner, "mov rdx, [rsi]", "sub rcx, 1", "jne 1b", "ret") == {"rdi": "serial", "rdx": "unknown"}


def test_what_calls_read_and_write() -> None:
    loop = ("1: movsd xmm0, [rdi + rcx]", "call 9f", "addsd xmm1, xmm0", *_COUNTS, "9: ret")
    assert carried(*loop) == {"xmm1.0": "sum"}
    passed = ("1: call 9f", *_COUNTS, "9: ret")
    lanes = frozenset(("xmm0.0",))
    assert carried(*passed, callee=Callee(lanes, lanes)) == {"xmm0.0": "serial"}
    assert carried(*passed, callee=Callee(frozenset(), lanes)) == {}


def test_what_a_function_reads_and_writes() -> None:
    code = assemble(".intel_syntax noprefix; test edi, edi; je 1f; mov rsi, rdi; 1: mov eax, esi; ret")
    graph = flow(lambda address, size: code[address - _START:address - _START + size], _START,
                 (_START, _START + len(code)))
    code_of = Code(graph, {start: lifted(block) for start, block in graph.blocks.items()}, lambda _: None)
    known = Callees(lambda _: code_of).of(_START)
    assert known.reads == {"rdi", "rsi"}
    assert {"rax", "rsi"} <= known.writes
    assert "rdi" not in known.writes


@pytest.mark.parametrize(("lines", "steps", "sums"), [
    pytest.param(("add qword ptr [rsp + 8], 16",), True, False, id="counter"),
    pytest.param(("mov rax, [rsp + 8]", "add rax, rsi", "mov [rsp + 8], rax"), True, False, id="counter, three parts"),
    pytest.param(("mov rax, [rsp + 8]", "add rax, [rdi + rcx]", "mov [rsp + 8], rax"), False, True, id="sum"),
    pytest.param(("mov rax, [rsp + 8]", "imul rax, rsi", "add rax, [rdi + rcx]", "mov [rsp + 8], rax"), False, False,
                 id="recurrence"),
    pytest.param(("add qword ptr [rsp + 8], 16", "add dword ptr [rsp + 12], 1"), False, False, id="slots that overlap"),
])
def test_slots_of_the_frame(lines: tuple[str, ...], steps: bool, sums: bool) -> None:
    recurrences, values, (loop,) = found("sub rsp, 24", "mov qword ptr [rsp + 8], 0", f"1: {lines[0]}", *lines[1:],
                                         "mov rax, [rsp + 8]", "add rcx, 8", "cmp rcx, rdx", "jne 1b", "add rsp, 24",
                                         "ret")
    accesses = [i.address for b in values.graph.blocks.values() for i in b.instructions
                if "[rsp + 8]" in i.operands_text and b.start == loop.header]
    first, last = accesses[0], accesses[len(lines) > 1]
    assert recurrences.is_induction(loop, last, first) is steps
    assert recurrences.is_sum(loop, last, first) is sums


@pytest.mark.parametrize(("lines", "expected"), [
    pytest.param(("add [rdi], rax",), True, id="in one"),
    pytest.param(("inc dword ptr [rdi + rcx*4]",), True, id="count"),
    pytest.param(("movsd xmm0, [rdi]", "addsd xmm0, xmm1", "movsd [rdi], xmm0"), True, id="in three"),
    pytest.param(("addsd xmm0, [rdi + 8]", "mov r9, rdx", "movsd [rdi + 8], xmm0"), False, id="carried, too"),
    pytest.param(("movsd xmm0, xmm1", "addsd xmm0, [rdi + 8]", "movsd [rdi + 8], xmm0"), True, id="added to"),
    pytest.param(("mov eax, [rdi]", "imul eax, ecx", "mov [rdi], eax"), True, id="product"),
    pytest.param(("mov [rdi], rax",), False, id="store only"),
    pytest.param(("movsd xmm0, [rdi]", "movsd [rdi], xmm0"), False, id="nothing added"),
    pytest.param(("movsd xmm0, [rdi]", "addsd xmm0, xmm1", "movsd [rdi + 8], xmm0"), False, id="another place"),
    pytest.param(("movsd xmm0, [rdi]", "addsd xmm0, xmm1", "movsd [rdi], xmm1"), False, id="another value"),
    pytest.param(("mov eax, [rdi]", "add eax, 3", "add rdi, 8", "mov [rdi], eax"), False, id="pointer has moved"),
    pytest.param(("mov eax, [rdi]", "add eax, 3", "mov [rsi + rcx], eax", "mov [rdi], eax"), False, id="used before"),
    pytest.param(("mov eax, [rdi]", "add eax, 3", "mov [rdi], eax", "mov [rsi + rcx], eax"), False, id="used behind"),
])
def test_sums_in_memory(lines: tuple[str, ...], expected: bool) -> None:
    recurrences, values, (loop,) = found(f"1: {lines[0]}", *lines[1:], "add rcx, 8", "cmp rcx, rdx", "jne 1b", "ret")
    stores = [e.address for e in values.effects if e.operator == "store"]
    assert any(recurrences.is_sum(loop, store, load) for store in stores for load in values.loads) is expected
