"""Room for the patch at a header: its instructions move, or the whole loop, or it is refused."""

from __future__ import annotations

import pytest
from unicorn import UC_ARCH_X86, UC_MODE_64, Uc
from unicorn import x86_const as x86

from memopt.cfg.cold_calls import without_cold_calls
from memopt.cfg.flowgraph import discover
from memopt.cfg.natural_loops import find_loops
from memopt.ir.reasons import Reason, Rejected
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
