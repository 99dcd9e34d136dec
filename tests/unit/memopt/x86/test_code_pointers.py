"""Words, operands and tables that name an instruction are found, and others are not taken for one."""

from __future__ import annotations

import struct

import pytest

from memopt.x86.code_pointers import Part, has_indirect_jump, named
from tests.support.binaries import assemble

LOW, HIGH = 0x401000, 0x5555_5555_5000  # as without and with -pie
CODE = """f: lea {table}(%rip), %rbx; movslq (%rbx,%rax,4), %rax; add %rbx, %rax; jmp *%rax; nop; nop
label: mov %rcx, %r8; target: mov %rcx, %r9; again: dec %r9; jnz again; ret"""
DATA_DISTANCE = 0x2000
LABEL, TARGET, AGAIN = 18, 21, 24  # offsets of instructions in CODE


def text(start: int, table: int = DATA_DISTANCE) -> Part:
    return Part(start, assemble(CODE.format(table=f"f + {table}")) + b"\xcc" * 16)


def test_the_offsets_are_right() -> None:
    code = text(LOW).content
    assert [code[at:at + 3].hex() for at in (LABEL, TARGET, AGAIN)] == ["4989c8", "4989c9", "49ffc9"]


def data(start: int, content: bytes) -> Part:
    return Part(start + DATA_DISTANCE, content)


def distances(*offsets: int, form: str = "<i", base: int = DATA_DISTANCE) -> bytes:
    return b"".join(struct.pack(form, offset - base) for offset in offsets)


@pytest.mark.parametrize("start", [LOW, HIGH])
@pytest.mark.parametrize("content", [
    distances(LABEL, TARGET),
    distances(*[LABEL] * 40, TARGET),
    distances(LABEL, TARGET, form="<q"),  # large code model
], ids=["second entry", "41st entry", "8 bytes"])
def test_a_table_of_distances(start: int, content: bytes) -> None:
    parts = text(start), (data(start, content + bytes(64)),)
    for target, found in ((TARGET, True), (LABEL, True), (AGAIN, False)):
        assert (named({start + target}, *parts, closed=False) is not None) is found
        assert named({start + target}, *parts, closed=True) is None  # nobody can jump by it
    assert named({start + AGAIN, start + TARGET}, *parts, closed=False) is not None
    assert named((), *parts, closed=False) is None


def test_a_table_ends_where_it_leads_elsewhere_and_where_another_begins() -> None:
    after = data(LOW, distances(LABEL) + struct.pack("<i", 0x7000_0000) + distances(TARGET))
    assert named({LOW + TARGET}, text(LOW), (after,), closed=False) is None
    more = assemble(f"g: lea g + {DATA_DISTANCE + 4 - 64}(%rip), %rbx")  # 64 bytes behind f: the second word
    both = Part(LOW, text(LOW).content.ljust(64, b"\xcc") + more)
    words = distances(LABEL) + distances(TARGET)
    assert named({LOW + TARGET}, text(LOW), (data(LOW, words),), closed=False) is not None
    assert named({LOW + TARGET}, both, (data(LOW, words),), closed=False) is None
    assert named({LOW + TARGET + 4}, both, (data(LOW, words),), closed=False) is not None  # the other's entry


@pytest.mark.parametrize("start", [LOW, HIGH])
@pytest.mark.parametrize("shift", [0, 3], ids=["aligned", "packed"])
def test_a_table_of_addresses(start: int, shift: int) -> None:
    """Labels as values; gcc's tables without -pie."""
    content = bytes(shift) + struct.pack("<2Q", start + LABEL, start + TARGET)
    for closed in (False, True):
        assert named({start + TARGET}, text(start), (data(start, content),), closed=closed) is not None
        assert named({start + AGAIN}, text(start), (data(start, content),), closed=closed) is None


def test_a_table_of_short_addresses() -> None:
    content = struct.pack("<2I", LOW + LABEL, LOW + TARGET)
    assert named({LOW + TARGET}, text(LOW), (data(LOW, content),), closed=False) is not None


@pytest.mark.parametrize("start", [LOW, HIGH])
@pytest.mark.parametrize("form", ["<i", "<q"])
def test_distances_from_a_label(start: int, form: str) -> None:
    """``static const int ways[] = {&&a - &&base, ...}; goto *(&&base + ways[i])``"""
    based = text(start, table=LABEL)  # the lea names the label
    content = bytes(8) + struct.pack("<2" + form[1], TARGET - LABEL, 0)
    assert named({start + TARGET}, based, (data(start, content),), closed=False) is not None
    assert named({start + AGAIN}, based, (data(start, content),), closed=False) is None
    assert named({start + TARGET}, text(start), (data(start, content),), closed=False) is None


@pytest.mark.parametrize(("more", "start"), [
    ("lea target(%rip), %rax", HIGH), ("lea target(%rip), %r15", LOW), (f"mov ${LOW + TARGET}, %eax", LOW),
    (f"movq ${LOW + TARGET}, 8(%rsp)", LOW), (f"movabs ${HIGH + TARGET}, %rax", HIGH), (f"push ${LOW + TARGET}", LOW),
])
def test_an_operand(more: str, start: int) -> None:
    """The address of a label that is put into a variable."""
    code = Part(start, assemble(f"{CODE.format(table='f + 4096')}; {more}; ret"))
    assert named({start + TARGET}, code, (), closed=True) is not None
    assert named({start + AGAIN}, code, (), closed=True) is None


def test_a_table_in_the_text() -> None:
    """As of hand-written code, and of linkers that put read-only data with the code."""
    code = text(LOW, table=64).content.ljust(64, b"\xcc") + distances(LABEL, TARGET, base=64)
    assert named({LOW + TARGET}, Part(LOW, code), (), closed=False) is not None


@pytest.mark.parametrize(("source", "found"), [
    ("jmp *%rax", True), ("jmp *%r15", True), ("jmp *(%rax,%rbx,8)", True), ("jmp *0x401000(,%rax,8)", True),
    ("jmp *8(%rsp)", True), ("notrack jmp *%rdx", True), ("jmp *0x1000(%rip)", False), ("call *%rax", False),
    ("ret; jmp .+4", False),
])
def test_indirect_jumps(source: str, found: bool) -> None:
    assert has_indirect_jump(assemble(f"nop; {source}; nop")) is found


@pytest.mark.parametrize(("extent", "found"), [
    ((LOW, LOW + 64), True), ((LOW + LABEL, LOW + 64), False), (None, True)], ids=["inside", "its start", "unknown"])
def test_only_labels_of_the_function_are_bases(extent: tuple[int, int] | None, found: bool) -> None:
    """The address of a function is named as well, and small numbers are everywhere."""
    parts = text(LOW, table=LABEL), (data(LOW, struct.pack("<2i", TARGET - LABEL, 0)),)
    assert (named({LOW + TARGET}, *parts, closed=False, extent=extent) is not None) is found


def test_what_is_called_is_no_label() -> None:
    code = Part(LOW, assemble(f"{CODE.format(table='label')}; call label; ret"))
    words = (data(LOW, struct.pack("<2i", TARGET - LABEL, 0)),)
    assert named({LOW + TARGET}, code, words, closed=False) is None
