"""Regions from small assembled nests: what is lifted, and every reason for which a nest is refused."""

from __future__ import annotations

import itertools
import math
import struct

import pytest

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Cell, LiveIn, Region, Register, Rejoin, Relation
from memopt.lifting.lift import PASSES, Lifted
from tests.support.lifting import STACK, lift_assembly

A, B, C = 0x10000, 0x20000, 0x30000
N = 10
REGISTERS = {"r8": N, "rbx": 1, "rdi": A, "rsi": B, "r9": C}

_ROW = "mov rax, {0}; imul rax, r8; add rax, {1}"
PRODUCT = {
    "i": "",
    "j": "xor ecx, ecx",
    "k": "xor edx, edx",
    "body": f"""
        {_ROW.format("rbx", "rdx")}
        movsd xmm0, [rdi+rax*8]
        {_ROW.format("rdx", "rcx")}
        mulsd xmm0, [rsi+rax*8]
        {_ROW.format("rbx", "rcx")}
        addsd xmm0, [r9+rax*8]
        movsd [r9+rax*8], xmm0""",
    "next k": "inc rdx; cmp rdx, r8; jne k",
    "next j": "inc rcx; cmp rcx, r8; jne j",
    "next i": "inc rbx; cmp rbx, r8; jne i",
    "after": "",
}


def nest(**changes: str) -> str:
    """c[i][j] += a[i][k] * b[k][j], with pieces of it replaced; an underscore stands for a space."""
    parts = PRODUCT | {name.replace("_", " "): text for name, text in changes.items()}
    return "\n".join(("xor ebx, ebx", f"i: {parts['i']}", parts["j"], "j:", parts["k"], f"k: {parts['body']}",
                      parts["next k"], parts["next j"], parts["next i"], parts["after"], "ret"))


def lift(registers: dict[str, int] | None = None, memory: dict[int, int] | None = None, **changes: str) -> Lifted:
    return lift_assembly(nest(**changes), REGISTERS | (registers or {}), memory)


def refusal(registers: dict[str, int] | None = None, memory: dict[int, int] | None = None, **changes: str) -> Reason:
    with pytest.raises(Rejected) as refused:
        lift(registers, memory, **changes)
    return refused.value.reason


def test_the_region_of_a_matrix_product() -> None:
    assert str(lift().region) == """region 0x401002
  displaced 90 90 90 90 90
  r8 = s64 r8
  r9 = s64 r9
  rbx = s64 rbx
  rdi = s64 rdi
  rsi = s64 rsi
  R = (-rbx + 10) / 1
  guard r8 - 10 == 0 "specialised"
  guard [r9 + 80*rbx, 80*R + r9 + 80*rbx) disjoint [80*rbx + rdi, 80*R + 80*rbx + rdi) "arrays do not overlap"
  guard [r9 + 80*rbx, 80*R + r9 + 80*rbx) disjoint [rsi, rsi + 800) "arrays do not overlap"
  rejoin rbx := H + rbx
  footprint A0 [r9 + 80*rbx, 80*R + r9 + 80*rbx) rw
  footprint A1 [80*rbx + rdi, 80*R + 80*rbx + rdi) r
  footprint A2 [rsi, rsi + 800) r
  dead registers rax, rcx, rdx
  array A0: f64 at r9 + 80*rbx, strides (80, 8)
  array A1: f64 at 80*rbx + rdi, strides (80, 8)
  array A2: f64 at rsi, strides (80, 8)
  S0[i<R, j<10, k<10]: A0[i, j] = add(mul(A1[i, k], A2[k, j]), A0[i, j])"""


@pytest.mark.parametrize("above", [0x7AB300, -0x7AB300])
def test_of_a_truth_in_a_byte_only_the_byte_is_guarded(above: int) -> None:
    """What compilers know before a loop of aliases: the rest of the register is a caller's."""
    region = lift(registers={"r10": above}, i="cmp r8, 4; setb al; or al, r10b; jne out", after="out:").region
    assert {"b:r10 == 0"} == {str(g) for g in region.guards if "r10" in str(g)}
    assert LiveIn("b:r10", Register("r10"), 1) in region.live_ins


def test_a_register_that_some_iterations_write_and_nobody_reads_is_dead() -> None:
    written = "cmp rbx, 5; jge 1f; lea r13, [rbx+1]; 1:"
    assert "r13" in lift(i=written, after="xor r13d, r13d").region.dead_registers
    assert "r13" not in lift(i=written, after="mov rax, r13").region.dead_registers


def test_a_32_bit_counter_is_guarded_against_wrapping() -> None:
    guards = {str(g) for g in lift(next_i="inc ebx; cmp ebx, r8d; jne i").region.guards}
    assert {"rbx + 1 >= 0", "-R - rbx + 2147483647 >= 0"} <= guards


def test_a_counter_on_the_stack_is_rejoined() -> None:
    body = "movsd xmm0, [rdi+rdx*8]; mov rax, rdx; imul rax, r8; add rax, rcx; mulsd xmm0, [rsi+rax*8]\n"
    body += "addsd xmm0, [r9+rcx*8]; movsd [r9+rcx*8], xmm0"
    region = lift(memory={STACK - 8: 1}, body=body,
                  next_i="add rdi, 80; add r9, 80; inc qword ptr [rsp-8]; cmp [rsp-8], r8; jne i").region
    cell = Cell("rsp", -8, 8)
    symbol = next(x for x in region.live_ins if x.location == cell).symbol
    assert Rejoin(cell, Linear.symbol(symbol) + Linear.symbol("H")) in region.rejoin
    assert str(region.trips) == f"R = (-{symbol} + 10) / 1"
    assert any("own variables" in g.why for g in region.guards)


def through_frame(distance: int) -> Region:
    return lift(registers={"rbp": STACK + distance}, memory={STACK + distance - 24: 1},
                i="mov [rbp-16], rdi", body="movsd xmm0, [rdi+rdx*8]; mulsd xmm0, [rsi+rdx*8]; movsd [r9+rcx*8], xmm0",
                next_i="mov rdi, [rbp-16]; add rdi, 80; add r9, 80; inc qword ptr [rbp-24]; cmp [rbp-24], r8; jne i",
                ).region


def test_what_is_stored_through_the_frame_pointer_is_on_the_stack() -> None:
    region = through_frame(160)
    assert Rejoin(Cell("rsp", 136, 8), Linear.symbol("m[rsp + 136]:64") + Linear.symbol("H"), 8) in region.rejoin
    assert any(isinstance(g, Relation) and str(g).startswith("rbp - rsp - 160 == 0") for g in region.guards)


@pytest.mark.parametrize("distance", [-160, 1 << 20])
def test_a_pointer_to_somewhere_else_is_no_frame_pointer(distance: int) -> None:
    with pytest.raises(Rejected):
        through_frame(distance)


def test_a_bound_in_memory_is_a_live_in() -> None:
    region = lift(memory={STACK + 16: N}, next_i="inc rbx; cmp rbx, [rsp+16]; jne i").region
    symbol = next(x.symbol for x in region.live_ins if x.location == Cell("rsp", 16, 8))
    assert region.trips.numerator == Linear.symbol(symbol) - Linear.symbol("rbx")


def test_a_scalar_operand_is_a_live_in_vector() -> None:
    body = PRODUCT["body"].replace("mulsd xmm0, [rsi+rax*8]", "mulsd xmm0, xmm7")
    assert "mul(A1[i, k], xmm7)" in str(lift(body=body).region)


def test_a_while_loop_leaves_its_last_iteration_to_the_original() -> None:
    """The exit test comes first: the header is reached once more than there are whole iterations."""
    region = lift(i="cmp rbx, r8; je out", next_i="inc rbx; jmp i", after="out:").region
    assert region.trips.numerator == Linear.symbol("rbx", -1) + N


def test_a_register_that_holds_what_was_loaded_last_is_read_from_there() -> None:
    """The cell is kept apart from what is written, up to the last header that a version comes to."""
    region = lift(i="mov [r10+rbx*8], r11; mov r11, [r12+rbx*8]").region
    assert [str(m) for m in region.memory_backed] == ["r11 is [8*H + r12 + 8*rbx - 8]:8, in the page of [r12 + 8*rbx]"]
    assert any("[r12 + 8*rbx - 8, 8*R + r12 + 8*rbx - 8)" in str(g) for g in region.guards)
    assert region.original_iterations == 1  # it need not be dead


def test_a_value_that_only_registers_hold_gets_a_cell_of_its_own() -> None:
    region = lift(i="mov [r10+rbx*8], r11; xor r11, [r12+rbx*8]").region
    (passed,) = region.register_carried
    assert str(passed) == "r11 is P0:8"
    assert next(x for x in region.live_ins if x.symbol == passed.symbol).location == Register("r11")
    assert "A0[i] = P0[]" in str(region)
    assert "P0[] = xor.i64(A0[i], A4[i])" in str(region)
    narrow = lift(i="mov [r10+rbx*4], r11d; xor r11d, [r12+rbx*4]").region
    assert ([str(p) for p in narrow.register_carried], narrow.original_iterations) == (["r11 is P0:4"], 1)
    single = lift(i="movss [r10+rbx*4], xmm7; mulss xmm7, [r12+rbx*4]").region  # the rest of the lane stays
    assert ([str(p) for p in single.register_carried], single.original_iterations) == (["xmm7[0:4] is P0:4"], 1)
    assert refusal(i="mov [r10+rbx*4], r11d; xor r11, [r12+rbx*8]") is Reason.CARRIED_VALUE
    assert [str(p) for p in lift(body=CARRIED).region.register_carried] == ["xmm5[0:8] is P0:8"]


def test_touching_arrays_are_unified() -> None:
    """c lies 8 bytes into a: one array, with the distance guarded."""
    region = lift(registers={"r9": A + 8}).region
    assert Relation(Linear.build({"r9": 1, "rdi": -1}, -8), True, "specialised") in region.guards
    assert "A0[10*i + j + 1] = add(mul(A0[10*i + k], A1[k, j]), A0[10*i + j + 1])" in str(region)


REGISTERS_R10 = 0x10_0000_0000 * 11
SPILLED = "inc rbx; mov [rsp-8], rbx; cmp rbx, r8; jne i"
BODY = PRODUCT["body"]
NEXT = PRODUCT["next k"]
CARRIED = BODY.replace("addsd xmm0, [r9+rax*8]", "addsd xmm0, xmm5; mulsd xmm5, xmm0")
BEHIND = BODY.replace("mulsd", "mulsd xmm0, [rdi+r11*8]; mulsd")
LOADED_INDEX = BODY.replace("mov rax, rdx", "mov rax, [r10+rdx*8]", 1)
QUADRATIC = BODY.replace("movsd xmm0, [rdi", "imul rax, rax; movsd xmm0, [rdi", 1)


@pytest.mark.parametrize(("reason", "changes"), [
    (Reason.CALL, {"k": "xor edx, edx; call other", "after": "other:"}),
    (Reason.DATA_DEPENDENT_ADDRESS, {"body": LOADED_INDEX}),
    (Reason.DATA_DEPENDENT_ADDRESS, {"body": QUADRATIC}),
    (Reason.DATA_DEPENDENT_BRANCH, {"next k": "inc rdx; cmp rdx, [r10+rdx*8]; jne k"}),
    (Reason.TRIP_COUNT, {"next j": "add rcx, 3; cmp rcx, rbx; jb j"}),
    (Reason.TRIP_COUNT, {"next k": "add rdx, 3; cmp rdx, r8; jne k"}),
    (Reason.TRIP_COUNT, {"next i": "add rbx, 2; cmp rbx, r8; jne i"}),
    (Reason.TRIP_COUNT, {"next i": "inc rbx; cmp rbx, r8; je out; test [r9+rbx*8], rbx; jne i", "after": "out:"}),
    (Reason.CARRIED_VALUE, {"i": "mov [rsp+8], rbx; mov r11d, [rsp+10]"}),
    (Reason.NON_AFFINE, {"i": "mov rax, rbx; imul rax, r8; mov dword ptr [r9+rax*8], 0"}),
    (Reason.NON_AFFINE, {"next i": "inc rbx; cmp rbx, [r10+r10]; jne i"}),
    (Reason.UNPROVED, {"i": "lea r11d, [rbx-2]", "body": BEHIND}),
    (Reason.UNSUPPORTED_INSTRUCTION, {"k": "xor edx, edx; cpuid"}),
    (Reason.UNSUPPORTED_INSTRUCTION, {"k": "xor edx, edx; ldmxcsr [rsp-4]"}),
    (Reason.UNSUPPORTED_INSTRUCTION, {"k": "xor edx, edx; mov rax, fs:[0]"}),
    (Reason.ATOMIC, {"k": "xor edx, edx; lock inc qword ptr [r10]"}),
])
def test_refusals(reason: Reason, changes: dict[str, str]) -> None:
    memory = {2 * REGISTERS_R10: N}
    assert refusal(None, memory, **{n.replace(" ", "_"): t for n, t in changes.items()}) is reason


def test_too_short() -> None:
    assert refusal(registers={"rbx": N - 1}) is Reason.TOO_SHORT


def test_nothing_stored_is_no_nest() -> None:
    assert refusal(body=BODY.replace("movsd [r9+rax*8], xmm0", "")) is Reason.NOT_A_NEST


def test_an_array_over_the_loops_own_variables_is_refused() -> None:
    assert refusal(registers={"r9": STACK - 160}, next_i=SPILLED) is Reason.OVERLAP


def test_a_bound_that_the_loop_may_store_to_is_data() -> None:
    assert refusal(registers={"r9": C, "r10": C + 16 * 8}, memory={C + 16 * 8: N},
                   next_i="inc rbx; cmp rbx, [r10]; jne i") is Reason.DATA_DEPENDENT_BRANCH


def test_a_number_that_is_added_and_stored_to_is_data() -> None:
    """Taken for a number when it is first met, it would be the loop's own variable, which no array may overlap."""
    region = lift(body="mov rax, [r9+16]; add rax, [rdi+rdx*8]; mov [r9+rcx*8], rax").region
    assert not any(x.location == Cell("r9", 16, 8) for x in region.live_ins)
    assert "add.i64(A0[2], A1[k])" in str(region.scop)


def test_a_live_in_cell_over_the_stack_slots_of_the_loop_is_refused() -> None:
    """The bound is read through a pointer and written through the stack pointer."""
    stored = "inc rbx; mov [rsp-16], r8; cmp rbx, [r10]; jne i"
    assert refusal(registers={"r10": STACK - 16}, memory={STACK - 16: N}, next_i=stored) is Reason.OVERLAP
    guards = lift(registers={"r10": STACK - 24}, memory={STACK - 24: N}, next_i=stored).region.guards
    assert "[r10, r10 + 8) disjoint [rsp - 16, rsp - 8)" in map(str, guards)


def test_a_value_put_back_is_refused() -> None:
    """Put back into a cell that is in no array of the region, so that c could be written in between."""
    assert refusal(i="mov rbp, [r12+rbx*8]", next_i="mov [r12+rbx*8], rbp; inc rbx; cmp rbx, r8; jne i"
                   ) is Reason.OVERLAP


def test_a_live_in_of_the_region_names_its_location() -> None:
    assert LiveIn("rbx", Register("rbx")) in lift().region.live_ins


COPIED_ROWS = """
    mov r12, rsi; mov r13, rdi; xor ebx, ebx
    i: mov rsi, r12; mov rdi, r13; mov ecx, 30; rep movsq
    lea r12, [r12+400]; lea r13, [r13+400]
    inc rbx; cmp rbx, r8; jne i; ret"""


def test_a_repeated_string_instruction_is_its_loop() -> None:
    rows = {"rbx": 0, "r12": A, "r13": C}
    assert str(lift_assembly(COPIED_ROWS, REGISTERS | rows).statements) == """\
for c:401008 < R
  for c:401013 < 30
    [400*c:401008 + 8*c:401013 + r13]:64 = [400*c:401008 + 8*c:401013 + r12]"""
    cleared = COPIED_ROWS.replace("rep movsq", "xor eax, eax; rep stosd")
    assert str(lift_assembly(cleared, REGISTERS | rows).statements) == """\
for c:401008 < R
  for c:401015 < 30
    [400*c:401008 + 4*c:401015 + r13]:32 = 0x0"""


def test_a_row_copied_by_aligned_words_and_its_ends_is_one_row() -> None:
    """As gcc copies 51 floats: eight bytes at each end, and what lies between from the first aligned address on."""
    source = """
    xor ebx, ebx
    i: mov rax, rbx; imul rax, rax, 204; lea rdx, [rax+0x100004]; lea rsi, [rax+0x200004]
    mov rcx, [rsi]; mov [rdx], rcx; mov rcx, [rsi+196]; mov [rdx+196], rcx
    lea rdi, [rdx+8]; and rdi, -8; sub rdx, rdi; sub rsi, rdx
    add edx, 204; shr edx, 3; mov ecx, edx; rep movsq
    movss xmm0, [rax+0x300004]; addss xmm0, xmm0; movss [rax+0x300004], xmm0; movss [rax+0x100000], xmm0
    inc rbx; cmp rbx, r8; jne i; ret"""
    assert str(lift_assembly(source, {"r8": N, "rbx": 0}).statements).splitlines()[1:3] == [
        "  for c:row0 < 51",
        "    [-204*R + 204*c:401002 + 4*c:row0 + 1050620]:32 = [-204*R + 204*c:401002 + 4*c:row0 + 2099196]"]


def test_a_bound_behind_two_pointers() -> None:
    """As Fortran passes it, and gcc spills the pointer: each is read only where the guards before it hold."""
    region = lift(memory={STACK + 16: 0x6000, 0x6000: 0x5000, 0x5000: N},
                  next_i="inc rbx; mov r11, [rsp+16]; mov r11, [r11]; cmp rbx, [r11]; jne i").region
    found = {x.symbol: x.location for x in region.live_ins if isinstance(x.location, Cell)}
    bases = ["rsp", "m[rsp + 16]:64", "m[m[rsp + 16]:64]:64"]
    assert [found[f"m[{base}{' + 16' * (base == 'rsp')}]:64"] for base in bases] == [
        Cell(base, 16 * (base == "rsp"), 8) for base in bases]


def _branching(left: bytes, right: bytes, compare: str = "ucomisd", taken: str = "ja") -> Lifted:
    """A row is left out when a comparison of two registers that never change says so."""
    changes = {"i": f"{compare} xmm6, xmm7; {taken} next", "next i": f"next: {PRODUCT['next i']}"}
    vectors = {"xmm6": left.ljust(32, b"\0"), "xmm7": right.ljust(32, b"\0")}
    return lift_assembly(nest(**changes), REGISTERS, vectors=vectors)


@pytest.mark.parametrize(("left", "right", "taken"), [
    (1.5, 2.5, "ja"), (1.5, 1.5, "ja"), (0.0, -0.0, "ja"), (2.5, -1.5, "jbe"), (2.5, 1.5, "je"), (2.5, 1.5, "jp")])
def test_a_comparison_of_registers_that_never_change_is_guarded(left: float, right: float, taken: str) -> None:
    one, two = struct.pack("<d", left), struct.pack("<d", right)
    guards = [g for g in _branching(one, two, taken=taken).region.guards if isinstance(g, Relation) and "xmm" in str(g)]
    held = (("xmm6[0:8]", one), ("xmm7[0:8]", two))
    expected = {Linear.symbol(name) - int.from_bytes(bits, "little", signed=True) for name, bits in held}
    assert {g.expression for g in guards if g.equal} == expected


def test_a_compared_register_may_be_spilled_and_filled_in_the_loop() -> None:
    """As around a call: the loop writes the register, with what it holds anyway."""
    number = struct.pack("<d", 1.5)
    spilled = "movsd [rsp-8], xmm6; ucomisd xmm6, xmm6; jne next; movsd xmm6, [rsp-8]"
    vectors = {"xmm6": number.ljust(32, b"\0")}
    lifted = lift_assembly(nest(i=spilled, next_i=f"next: {PRODUCT['next i']}"), REGISTERS, vectors=vectors)
    held = Linear.symbol("xmm6[0:8]") - int.from_bytes(number, "little", signed=True)
    assert held in {g.expression for g in lifted.region.guards if isinstance(g, Relation) and g.equal}


@pytest.mark.parametrize("move", ["movsd xmm6, [r10]", "cvtss2sd xmm6, [r10]"])
def test_a_compared_number_that_is_loaded_from_one_cell_is_guarded(move: str) -> None:
    """Fortran passes scalars by reference; stores to the array might change them, as far as the compiler knows."""
    bits = struct.unpack("<i", struct.pack("<f", 1.5)) if "ss" in move else struct.unpack("<q", struct.pack("<d", 1.5))
    compare = f"{move}; ucomisd xmm6, xmm7; jp next; jne next"
    lifted = lift_assembly(nest(i=compare, next_i=f"next: {PRODUCT['next i']}"), REGISTERS | {"r10": 0x5000},
                           {0x5000: bits[0]}, {"xmm7": struct.pack("<d", 1.5).ljust(32, b"\0")})
    width = 32 if "ss" in move else 64
    assert f"m[r10]:{width} - {bits[0]} == 0" in [str(g) for g in lifted.region.guards]


def test_a_comparison_in_single_precision_is_guarded_in_its_own_width() -> None:
    guards = _branching(struct.pack("<ff", 1.5, math.nan), struct.pack("<ff", 2.5, math.nan), "comiss").region.guards
    symbols = {s for g in guards if isinstance(g, Relation) for s in g.expression.symbols}
    assert {"xmm6[0:4]", "xmm7[0:4]"} <= symbols


@pytest.mark.parametrize("number", [math.nan, 5e-324, -1e-310])
def test_numbers_whose_comparison_is_no_mere_comparison_decide_nothing(number: float) -> None:
    """NaNs raise a flag; subnormal numbers may count as zero."""
    with pytest.raises(Rejected) as refused:
        _branching(struct.pack("<d", number), struct.pack("<d", 2.5))
    assert refused.value.reason is Reason.DATA_DEPENDENT_BRANCH


def test_patience_ends_within_an_attempt() -> None:
    """Nothing is specialised here, so one attempt is all there is."""
    asked = itertools.count(1)
    lift_assembly(nest(), REGISTERS, patient=lambda: bool(next(asked)))
    needed = next(asked) - 1
    assert needed > 2
    for most in (1, needed // 2, needed - 1):
        left = itertools.count(most, -1)
        with pytest.raises(Rejected) as refused:
            lift_assembly(nest(), REGISTERS, patient=lambda left=left: next(left) > 0)
        assert refused.value.detail == "understanding the loop takes too long"


def test_a_slot_that_the_last_iterations_write_anew_is_left_as_it_is() -> None:
    source = """xor ebx, ebx
    i: mov rax, [r12+rbx*8]; mov [rsp+24], rax; add [r13+rbx*8], rax; inc rbx; cmp rbx, r15; jne i; ret"""
    region = lift_assembly(source, {"rbx": 0, "r15": 100, "r12": 0x10000, "r13": 0x80000}).region
    assert region.dead_stack_cells == (Cell("rsp", 24, 8),)


def _diagonal(upper: int) -> Lifted:
    """if (j == i) a[j][i] = x + b[j], for every k anew; what AVX clears is passed on where the condition fails."""
    source = """xor ebx, ebx
    i: xor edx, edx
    k: xor ecx, ecx; mov rax, r9
    j: cmp rcx, rbx; jne next
    vaddsd xmm0, xmm1, [rdi+rcx*8]; vmovsd [rax+rbx*8], xmm0
    next: add rax, 320; inc rcx; cmp rcx, 40; jne j
    inc rdx; cmp rdx, 40; jne k
    inc rbx; cmp rbx, 40; jne i; ret"""
    held = struct.pack("<QQQQ", 1, 2, upper, 0)
    return lift_assembly(source, {"rbx": 0, "rdi": 0x10000, "r9": 0x80000}, vectors={"xmm0": held, "xmm1": bytes(32)})


def test_what_an_instruction_clears_under_a_condition_is_clear_throughout_if_it_is_before() -> None:
    assert {"xmm0[16:24] == 0", "xmm0[24:32] == 0"} <= {str(g) for g in _diagonal(0).region.guards}
    with pytest.raises(Rejected) as refused:
        _diagonal(3)
    assert refused.value.reason is Reason.CARRIED_VALUE


def test_an_observer_sees_the_statements_after_each_pass() -> None:
    """In every attempt that gets there; the last one is the one that the region is made of."""
    seen: list[tuple[str, str]] = []
    lifted = lift_assembly(nest(), REGISTERS, observer=lambda name, statements: seen.append((name, str(statements))))
    names = [step.name for step in PASSES]
    assert [name for name, _ in seen[-len(names):]] == names
    assert seen[-1] == ("floor-divisions", str(lifted.statements))
