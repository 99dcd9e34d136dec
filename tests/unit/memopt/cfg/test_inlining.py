"""Calls inside loops: small functions copied into the graph, library functions replaced by what they do."""

from __future__ import annotations

import functools

import pytest

from memopt.cfg.flowgraph import discover
from memopt.cfg.inlining import COPY, inlined, is_small
from memopt.cfg.library_models import LibraryFunction
from memopt.cfg.natural_loops import find_loops
from memopt.ir.graph import DecodedInstruction, FlowGraph
from memopt.ir.operations import Block
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Relation
from memopt.lifting.execution.assumptions import GENERAL
from memopt.lifting.lift import Code, Lifted, lift_region
from memopt.x86.semantics import lift_block
from tests.support.binaries import assemble
from tests.support.lifting import DISPLACED, STACK

TEXT, SLOT, ROUTINE = 0x401000, 0x404018, 0x7F00_0000_1000
REGISTERS = {"rbx": 0, "r15": 10, "r12": 0x10000, "r13": 0x80000, "r14": 0xF0000, "rbp": 80, "rsp": STACK}
LOOP = "xor ebx, ebx; i: {body}; inc rbx; cmp rbx, r15; jne i; ret; {functions}"


def lift(body: str, functions: str = "", routine: str = "", registers: dict[str, int] | None = None) -> Lifted:
    source = ".intel_syntax noprefix\n" + LOOP.format(body=body, functions=functions or "library: ret")
    machine_code = assemble(source)

    def read(address: int, size: int) -> bytes:
        return machine_code[address - TEXT:address - TEXT + size]

    def callee(call: DecodedInstruction) -> FlowGraph | LibraryFunction | None:
        if routine:
            return LibraryFunction(routine, ROUTINE, SLOT)
        assert call.target is not None
        function = discover(read, call.target, (TEXT, TEXT + len(machine_code)))
        return function if is_small(function) else None

    graph = discover(read, TEXT, (TEXT, TEXT + len(machine_code)))
    loop = find_loops(graph).loops[0]
    graph, links = inlined(graph, loop.blocks, callee)
    forest = find_loops(graph)

    @functools.cache
    def operations(address: int) -> Block:
        return links.block(address, lambda real: lift_block(graph.blocks[address].code, real))

    state = {name: 0x10_0000_0000 * (n + 1) for n, name in enumerate(GENERAL)} | REGISTERS | (registers or {})
    cells = {SLOT: ROUTINE}
    loop = next(x for x in forest.loops if x.header == loop.header)
    return lift_region(Code(graph, forest, operations, calls=True), loop, state,
                       lambda address, bits: cells.get(address, 0), DISPLACED)


def refusal(body: str, functions: str = "", routine: str = "", registers: dict[str, int] | None = None) -> Reason:
    with pytest.raises(Rejected) as refused:
        lift(body, functions, routine, registers)
    return refused.value.reason


ADDED = "add qword ptr [r12+rbx*8], 1"
SQUARE = "f: mulsd xmm0, xmm0; ret"


def test_a_function_called_twice_is_there_twice() -> None:
    body = "movsd xmm0, [r12+rbx*8]; call f; call f; movsd [r13+rbx*8], xmm0"
    lifted = lift(body, SQUARE)
    square = "mul([{0}], [{0}])".format("8*c:401002 + r12 + 8*rbx")
    assert str(lifted.statements).splitlines()[1] == f"  [8*c:401002 + r13 + 8*rbx]:64 = mul({square}, {square})"


def test_spills_below_the_stack_pointer_are_no_live_values() -> None:
    function = "f: push rbp; mov rbp, rsp; movsd [rbp-8], xmm0; movsd xmm1, [rbp-8]; addsd xmm0, xmm1; pop rbp; ret"
    region = lift("movsd xmm0, [r12+rbx*8]; call f; movsd [r12+rbx*8], xmm0", function).region
    assert [x for x in region.live_ins if "[rsp" in x.symbol] == []
    assert [str(s).split(" = ")[1] for s in region.scop.statements]


def test_functions_with_branches_and_loops_and_calls() -> None:
    functions = """f: xor ecx, ecx; 1: movsd xmm0, [r12+rcx*8]; call g; movsd [rdi+rcx*8], xmm0; inc rcx; cmp rcx, 7
    jne 1b; ret; g: addsd xmm0, xmm0; ret"""
    lines = str(lift("mov rdi, rbx; shl rdi, 9; add rdi, r13; call f", functions).statements).splitlines()
    copy = int(lines[1].split()[1].removeprefix("c:"), 16)
    assert copy > COPY
    assert lines[1].endswith("< 7")
    assert "add([8*c:" in lines[2]


def test_a_function_that_changes_its_return_address_is_refused() -> None:
    assert refusal(f"{ADDED}; call f", "f: add qword ptr [rsp], 1; ret") in (
        Reason.DATA_DEPENDENT_BRANCH, Reason.INDIRECT_JUMP)


def test_functions_that_do_not_return_or_jump_anywhere_are_refused() -> None:
    for function in ("f: jmp rax", "f: ud2", "f: jmp f"):
        assert refusal(f"{ADDED}; call f", function) is Reason.CALL


COPY_ROW = "mov rdi, r13; mov rsi, r12; mov rdx, rbp; call library; lea r13, [rax+104]; add r12, 104"


def test_memcpy_is_its_loop_while_its_slot_is_what_it_was() -> None:
    lifted = lift(COPY_ROW, routine="memcpy")
    lines = str(lifted.statements).splitlines()
    assert lines[1].endswith("< 10")
    assert lines[2].split("]:64 = ")[1].endswith(" + 104*c:401002 + r12]")
    guarded = [str(g.expression) for g in lifted.region.guards if isinstance(g, Relation)]
    assert all(any(name in g for g in guarded) for name in (f"m[{SLOT}]:64", "rbp"))


@pytest.mark.parametrize(("size", "bits"), [("rbx*8+8", 64), ("rbx*4+4", 32), ("rbx*8+3", 8)])
def test_elements_are_as_large_as_the_size_allows(size: str, bits: int) -> None:
    body = f"mov rdi, rbx; shl rdi, 9; lea rsi, [rdi+r12]; add rdi, r13; lea rdx, [{size}]; call library"
    assert f"]:{bits} = [" in str(lift(body, routine="memcpy").statements)


def test_a_copy_onto_its_own_source_is_refused() -> None:
    assert lift(COPY_ROW, routine="memmove", registers={"r13": 0x10000 - 8}).statements is not None
    with pytest.raises(Rejected):
        lift(COPY_ROW, routine="memmove", registers={"r13": 0x10000 + 8})


def test_memset_repeats_its_byte() -> None:
    body = "mov rdi, r13; mov esi, 1; mov edx, 24; call library; add r13, 104"
    assert "]:64 = 0x101010101010101" in str(lift(body, routine="memset").statements)


@pytest.mark.parametrize("register", ["rcx", "xmm3", "r11"])
def test_what_a_library_function_may_change_is_unknown(register: str) -> None:
    store = "movsd [r14+rbx*8], xmm3" if register == "xmm3" else f"mov [r14+rbx*8], {register}"
    assert refusal(f"{COPY_ROW}; {store}", routine="memcpy") is Reason.CARRIED_VALUE
    compare = "movq rdx, xmm3; cmp rdx, 5" if register == "xmm3" else f"cmp {register}, 5"
    assert refusal(f"{COPY_ROW}; {compare}; je 1f; {ADDED}; 1:", routine="memcpy") in (
        Reason.CARRIED_VALUE, Reason.DATA_DEPENDENT_BRANCH)


@pytest.mark.parametrize(("routine", "operands", "checked"), [
    ("exp", "{0}", False), ("log", "{0}", True), ("pow", "{0}, [8*c:401002 + r13 + 8*rbx]", True)])
def test_mathematical_functions_are_operations(routine: str, operands: str, checked: bool) -> None:
    body = "movsd xmm0, [r12+rbx*8]; movsd xmm1, [r13+rbx*8]; call library; movsd [r14+rbx*8], xmm0"
    lifted = lift(body, routine=routine)
    value = f"call {ROUTINE:x}({operands.format('[8*c:401002 + r12 + 8*rbx]')})"
    assert str(lifted.statements).splitlines()[1] == f"  [8*c:401002 + r14 + 8*rbx]:64 = {value}"
    assert any(f"m[{SLOT}]:64" in str(g.expression) for g in lifted.region.guards if isinstance(g, Relation))
    assert (lifted.region.rollback is not None) == checked


def test_mathematical_functions_of_single_precision() -> None:
    body = "movss xmm0, [r12+rbx*4]; call library; movss [r14+rbx*4], xmm0"
    assert f"]:32 = call {ROUTINE:x}.f32([4*c:401002 + r12 + 4*rbx])" in str(lift(body, routine="expf").statements)
    above = "movss xmm0, [r12+rbx*4]; call library; movsd [r14+rbx*8], xmm0"
    assert refusal(above, routine="expf") is Reason.CARRIED_VALUE


@pytest.mark.parametrize("register", ["rax", "rdi", "xmm1", "xmm7"])
def test_what_a_mathematical_function_may_change_is_unknown(register: str) -> None:
    store = f"movsd [r13+rbx*8], {register}" if "xmm" in register else f"mov [r13+rbx*8], {register}"
    body = f"movsd xmm0, [r12+rbx*8]; call library; movsd [r14+rbx*8], xmm0; {store}"
    assert refusal(body, routine="exp") is Reason.CARRIED_VALUE


def test_a_mathematical_function_is_not_called_in_one_way_of_a_branch_only() -> None:
    body = "movsd xmm0, [r12+rbx*8]; cmp qword ptr [r13+rbx*8], 5; je 1f; call library; 1: movsd [r14+rbx*8], xmm0"
    assert refusal(body, routine="exp") is Reason.DATA_DEPENDENT_BRANCH
