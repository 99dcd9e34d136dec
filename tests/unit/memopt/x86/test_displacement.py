"""Room for the patch at a header: its instructions move, or the whole loop, or it is refused."""

from __future__ import annotations

import pytest
from unicorn import UC_ARCH_X86, UC_MODE_64, Uc
from unicorn import x86_const as x86

from memopt.cfg.cold_calls import without_cold_calls
from memopt.cfg.flowgraph import discover
from memopt.cfg.natural_loops import find_loops
from memopt.ir.reasons import Reason, Rejected
from memopt.x86.code_pointers import Part, Surroundings
from memopt.x86.displacement import Displacement, displacement
from tests.support.binaries import assemble

OLD, NEW = 0x400000, 0x600000
SHORT = "outer: xor %ecx, %ecx; inner: inc %rdx; inc %ecx; cmp %esi, %ecx; jne inner; dec %edi; jne outer; ret"


def room(code: bytes) -> Displacement:
    """At the header of the outermost loop."""
    def read(address: int, size: int) -> bytes:
        return code[address - OLD:address - OLD + size]

    text = (OLD, OLD + len(code))
    graph = discover(read, OLD, text)
    loop = next(x for x in find_loops(graph).loops if x.depth == 1)
    return displacement(read, graph, loop, text)


def test_the_instructions_under_the_patch_move() -> None:
    found = room(assemble("outer: mov $3, %ecx; inner: dec %ecx; jne inner; dec %edi; jne outer; ret"))
    assert [i.mnemonic for i in found.instructions] == ["mov"]
    assert not found.places(NEW)


def test_a_branch_under_the_patch_moves_the_loop() -> None:
    code = assemble(SHORT)
    found = room(code)
    assert found.original == code[:5]
    assert found.places(NEW)[OLD] == NEW
    assert len(found.places(NEW)) == 7


def test_the_moved_loop_counts_as_before() -> None:
    """Entered at its start, with a jump to it where the header was, as the patch is."""
    code = assemble(SHORT)
    moved = room(code).code(NEW)
    patched = b"\xe9" + (NEW - (OLD + 5)).to_bytes(4, "little", signed=True) + b"\xf4" * (len(code) - 6) + code[-1:]
    emulator = Uc(UC_ARCH_X86, UC_MODE_64)
    for address, content in ((OLD, patched), (NEW, moved)):
        emulator.mem_map(address, 0x1000)
        emulator.mem_write(address, content)
    emulator.reg_write(x86.UC_X86_REG_RDI, 5)
    emulator.reg_write(x86.UC_X86_REG_RSI, 7)
    emulator.reg_write(x86.UC_X86_REG_RDX, 0)
    emulator.emu_start(OLD, OLD + len(code) - 1)
    assert emulator.reg_read(x86.UC_X86_REG_RDX) == 35


@pytest.mark.parametrize("source", [
    f"jmp outer; {SHORT}; je inner; ret",  # from behind the loop
    "outer: jmp inner; nop; nop; nop; nop; inner: dec %edi; jne outer; ret",  # code of others under the patch
])
def test_what_leaves_no_room(source: str) -> None:
    with pytest.raises(Rejected) as refused:
        room(assemble(source))
    assert refused.value.reason is Reason.NO_ROOM


def test_a_loop_that_is_entered_in_its_middle_stays() -> None:
    """Without its call the loop would be free to move, but the call returns into its old bytes."""
    code = assemble("outer: xor %ecx, %ecx; inner: inc %rdx; inc %ecx; cmp %esi, %ecx; je aside; back: jne inner;"
                    "dec %edi; jne outer; ret; aside: call *%rax; jmp back")

    def read(address: int, size: int) -> bytes:
        return code[address - OLD:address - OLD + size]

    text = (OLD, OLD + len(code))
    graph = discover(read, OLD, text)
    whole = next(x for x in find_loops(graph).loops if x.depth == 1)
    found = without_cold_calls(graph, whole)
    assert found is not None
    with pytest.raises(Rejected) as refused:
        displacement(read, graph, found[1], text)
    assert refused.value.reason is Reason.NO_ROOM


LONG_HEADER = "outer: mov $3, %ecx; inner: dec %ecx; jne inner; dec %edi; jne outer; {way}"
TWO_UNDER_IT = ("outer: xor %ecx, %ecx; second: xor %edx, %edx; mov %rdi, %rax; inner: inc %ecx; cmp %esi, %ecx;"
                "jne inner; dec %edi; jne outer; {way}")
SECOND = OLD + 2


def around(source: str, surroundings: Surroundings) -> Displacement:
    code = assemble(source)

    def read(address: int, size: int) -> bytes:
        return code[address - OLD:address - OLD + size]

    text = (OLD, OLD + len(code))
    graph = discover(read, OLD, text)
    return displacement(read, graph, next(x for x in find_loops(graph).loops if x.depth == 1), text, surroundings)


def data(content: bytes) -> Surroundings:
    return Surroundings(closed=False, data=lambda: (Part(NEW, content),))


def test_where_one_whole_instruction_moves_any_jump_will_do() -> None:
    """Nothing is searched."""
    def nothing() -> tuple[Part, ...]:
        raise AssertionError

    found = around(LONG_HEADER.format(way="jmp *%rax"), Surroundings(closed=False, data=nothing))
    assert [i.mnemonic for i in found.instructions] == ["mov"]


def test_an_indirect_jump_whose_table_is_not_known_might_lead_under_the_patch() -> None:
    source = TWO_UNDER_IT.format(way="jmp *%rax")
    with pytest.raises(Rejected) as refused:
        around(source, Surroundings())
    assert refused.value.reason is Reason.INDIRECT_JUMP
    jump = OLD + len(assemble(source)) - 2
    assert around(source, Surroundings(tables=frozenset({jump}))).header == OLD


@pytest.mark.parametrize(("address", "room"), [(SECOND, False), (OLD, True), (OLD + 7, True), (SECOND + 1, True)])
def test_an_address_in_the_data(address: int, room: bool) -> None:
    """Of the instruction under the patch, of the header, behind the patch, of no instruction."""
    source, surroundings = TWO_UNDER_IT.format(way="ret"), data(bytes(16) + address.to_bytes(8, "little"))
    if room:
        assert around(source, surroundings).header == OLD
        return
    with pytest.raises(Rejected) as refused:
        around(source, surroundings)
    assert refused.value.reason is Reason.NO_ROOM


def test_an_exception_that_leads_under_the_patch() -> None:
    source = TWO_UNDER_IT.format(way="ret")
    assert around(source, Surroundings(pads=frozenset({OLD, OLD + 7}))).header == OLD
    with pytest.raises(Rejected) as refused:
        around(source, Surroundings(pads=frozenset({SECOND})))
    assert refused.value.reason is Reason.NO_ROOM


def test_no_loop_moves_to_which_an_address_leads() -> None:
    """All its instructions but the header count."""
    source = SHORT
    assert around(source, data(bytes(8))).places(NEW)
    inside = OLD + len(assemble("xor %ecx, %ecx; inc %rdx"))
    with pytest.raises(Rejected) as refused:
        around(source, data(inside.to_bytes(8, "little")))
    assert refused.value.reason is Reason.NO_ROOM
