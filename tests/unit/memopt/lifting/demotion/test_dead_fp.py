"""Floating-point operations the results of which nothing uses: they are done for their flags, unless others raise the
same."""

from __future__ import annotations

import pytest

from memopt.ir.scop import Apply, Scop, Statement, render
from tests.support.lifting import lift_assembly

A, B, C = 0x10000, 0x20000, 0x30000
LOADS = "movsd xmm0, [rdi+rbx*8]; movsd xmm1, [rsi+rbx*8]; movsd xmm2, [r9+rbx*8]"


def lifted(body: str, loads: str = LOADS) -> Scop:
    """for i < 10: ``body``, with a[i] in xmm0, b[i] in xmm1 and c[i] in xmm2"""
    return lift_assembly(f"""
    xor ebx, ebx
i:  {loads}
    {body}
    inc rbx
    cmp rbx, r8
    jne i
    ret
""", {"r8": 10, "rbx": 1, "rdi": A, "rsi": B, "r9": C}).region.scop


def kept(body: str, loads: str = LOADS) -> list[Statement]:
    """What is stored to private cells."""
    scop = lifted(body, loads)
    private = {a.name for a in scop.arrays if a.private}
    return [s for s in scop.statements if s.write.array in private]


def results(body: str, loads: str = LOADS) -> list[str]:
    """What is stored to private cells, and what is done beside other stores."""
    beside = [render(o, s.reads) for s in lifted(body, loads).statements if isinstance(s.expression, Apply)
              and s.expression.operator == "beside" for o in s.expression.operands[1:]]
    return beside + [str(s).partition(" = ")[2] for s in kept(body, loads)]


STORED = "mulsd xmm1, xmm0; movsd [r9+rbx*8], xmm1"


@pytest.mark.parametrize(("body", "result"), [
    (f"movapd xmm3, xmm1; addsd xmm3, xmm0; {STORED}", "add(A1[i], A2[i])"),
    (f"movapd xmm3, xmm1; addsd xmm3, xmm0; xorps xmm3, xmm3; {STORED}", "add(A1[i], A2[i])"),  # overwritten at once
    (f"movapd xmm3, xmm1; addsd xmm3, xmm0; divsd xmm3, xmm0; {STORED}", "div(add(A1[i], A2[i]), A2[i])"),
    (f"movapd xmm3, xmm0; cmpltsd xmm3, xmm1; {STORED}", "select.i64(flt.i64(A2[i], A1[i]), 0x1, 0x0)"),
    (f"xorps xmm3, xmm3; cvtsd2ss xmm3, xmm0; {STORED}", "f64to32.f32(A2[i])"),
    # the lane of b * c is not stored; P0 holds c, which is overwritten
    ("unpcklpd xmm0, xmm1; unpcklpd xmm1, xmm2; mulpd xmm0, xmm1; movsd [r9+rbx*8], xmm0", "mul(A2[i], P0[i])"),
])
def test_flags_that_nothing_stored_raises(body: str, result: str) -> None:
    assert result in results(body)


@pytest.mark.parametrize("body", [
    STORED,
    f"movapd xmm3, xmm1; mulsd xmm3, xmm0; {STORED}",
    f"movapd xmm3, xmm0; mulsd xmm3, xmm1; {STORED}",  # the other way round
    f"ucomisd xmm0, xmm0; {STORED}; ucomisd xmm0, xmm0; jp n; movsd [rdi+rbx*8], xmm0; n:",
    "unpcklpd xmm0, xmm0; unpcklpd xmm1, xmm1; mulpd xmm0, xmm1; movsd [r9+rbx*8], xmm0",  # both lanes alike
    "movd xmm0, [rdi+rbx*8]; movd xmm1, [rsi+rbx*8]; mulps xmm0, xmm1; addps xmm0, xmm1; movd [r9+rbx*8], xmm0",
    f"movq rax, xmm2; add rax, 1; {STORED}",  # an integer operation
])
def test_flags_that_something_stored_raises_too(body: str) -> None:
    assert results(body) == []


def test_comparisons_that_signal_and_those_that_do_not() -> None:
    body = "movapd xmm3, xmm1; cmpltsd xmm3, xmm0; ucomisd xmm1, xmm0; jbe n; movsd [rdi+rbx*8], xmm1; n:"
    assert any(r.startswith("select.i64(flt") for r in results(body))
    assert results(body.replace("cmpltsd", "cmpeqsd")) == []


def test_operations_of_some_iterations_are_done_in_those() -> None:
    """Also where what they work on is loaded in those alone."""
    for operation in ("movapd xmm3, xmm1; addsd xmm3, xmm0", "movsd xmm3, [rdi+rbx*8+800]; addsd xmm3, xmm0"):
        statement, = (s for s in kept(f"cmp rbx, 5; jge n; {operation}; n: {STORED}") if " = add(" in str(s))
        assert statement.conditions


def test_only_stores_of_what_has_the_operands_have_operations_beside_them() -> None:
    body = "movapd xmm3, xmm1; addsd xmm3, xmm0; "
    assert kept(body + STORED) == []
    assert kept(body + "mulsd xmm1, xmm2; movsd [r9+rbx*8], xmm1")  # of another operand
    assert kept(body + "cvtsd2ss xmm1, xmm1; movss [r9+rbx*8], xmm1")  # of another type
    assert kept(body + f"cmp rbx, 5; jge n; {STORED}; n:")  # in some iterations only


def test_a_store_in_some_iterations_raises_nothing_in_others() -> None:
    body = f"movapd xmm3, xmm1; addsd xmm3, xmm0; cmp rbx, 5; jge n; movsd [rdi+rbx*8], xmm3; n: {STORED}"
    assert "add(A1[-R + i], P0[i])" in results(body)


def test_a_loop_inside_that_may_not_run_raises_nothing() -> None:
    body = """movapd xmm3, xmm1
    addsd xmm3, xmm0
    xor ecx, ecx
    cmp rcx, {trips}
    je e
j:  movsd xmm4, [r9+rcx*8]
    mulsd xmm4, xmm3
    movsd [r9+rcx*8], xmm4
    inc rcx
    cmp rcx, {trips}
    jne j
e:"""
    assert results(body.format(trips="rbx")) == ["add(A1[-R + i], A2[-R + i])"]
    assert results(body.format(trips="10")) == []


def test_what_a_loop_leaves_behind_is_computed_in_all_its_iterations() -> None:
    """The last one overwrites what those before have computed, for nothing but its flags."""
    scop = lifted("""xor ecx, ecx
j:  movsd xmm4, [r9+rcx*8]
    subsd xmm4, xmm2
    maxsd xmm4, xmm1
    inc rcx
    cmp rcx, r8
    jne j
    movsd [rdi+rbx*8], xmm4""")
    statement, = (s for s in scop.statements if "max(sub(" in str(s))
    assert [d.trips.constant for d in statement.dimensions[1:]] == [10]
    assert not statement.conditions


def with_sums(body: str) -> str:
    """for j < 10: a[j] * b[j] in xmm0, ``body``, c[j] += xmm0; what xmm4 and xmm5 carry is begun anew each time"""
    return f"""xorps xmm4, xmm4
    xorps xmm5, xmm5
    xor ecx, ecx
j:  movsd xmm0, [rdi+rcx*8]
    mulsd xmm0, [rsi+rcx*8]
    {body}
    addsd xmm0, [r9+rcx*8]
    movsd [r9+rcx*8], xmm0
    inc rcx
    cmp rcx, r8
    jne j"""


SQUARE = "movapd xmm3, xmm0; mulsd xmm3, xmm3;"


@pytest.mark.parametrize("body", [
    f"{SQUARE} addsd xmm4, xmm3",
    f"{SQUARE} addsd xmm4, xmm3; subsd xmm4, xmm0",  # two terms
    f"{SQUARE} addsd xmm3, xmm4; movapd xmm4, xmm3",  # the other way round
])
def test_a_sum_that_nobody_reads_is_not_made_but_its_terms_are(body: str) -> None:
    assert results(with_sums(body)) == ["mul(mul(A1[j], A2[j]), mul(A1[j], A2[j]))"]


def test_a_fused_sum_is_left_out_whole() -> None:
    assert results(with_sums("vfmadd231sd xmm4, xmm0, xmm0")) == []


@pytest.mark.parametrize("body", [
    "movapd xmm3, xmm4; addsd xmm3, xmm0; movapd xmm4, xmm0",  # the value of the iteration before, which is no sum
    "mulsd xmm4, xmm0",
    "movapd xmm3, xmm4; addsd xmm3, xmm5; addsd xmm4, xmm0; movapd xmm5, xmm0",  # made of a sum
])
def test_what_is_no_sum_is_computed(body: str) -> None:
    assert results(with_sums(body))


def test_private_cells_are_no_places_to_look_for_what_a_register_carries() -> None:
    """xmm2 carries what the iteration before stored; the comparison has a cell of its own."""
    scop = lift_assembly("""
    xor ebx, ebx
i:  movsd xmm0, [rdi+rbx*8]
    movapd xmm3, xmm0
    cmpltsd xmm3, xmm1
    addsd xmm2, xmm0
    movsd [rdi+rbx*8], xmm2
    inc rbx
    cmp rbx, r8
    jne i
    ret
""", {"r8": 10, "rbx": 1, "rdi": A}).region
    assert any(a.private for a in scop.scop.arrays)
    assert scop.memory_backed


def test_what_is_done_beside_a_chain_of_sums_is_done_once() -> None:
    """c[i] = a[i] + (b[i] + c[i]) is two statements."""
    assert results("movapd xmm3, xmm1; mulsd xmm3, xmm2; addsd xmm1, xmm2; addsd xmm0, xmm1;"
                   "movsd [r9+rbx*8], xmm0") == ["mul(A1[i], A0[i])"]


def test_what_the_last_part_of_an_iteration_does_is_done_too() -> None:
    """The inner loop is left in its middle: ten sums and eleven squares, of which the last is nobody's."""
    assert results("""xor ecx, ecx
j:  movsd xmm0, [rdi+rcx*8]
    movapd xmm3, xmm0
    mulsd xmm3, xmm3
    cmp rcx, r8
    je n
    addsd xmm0, [rsi+rcx*8]
    movsd [r9+rcx*8], xmm0
    inc rcx
    jmp j
n:""", loads="") == ["mul(A1[j], A1[j])", "mul(A2[0], A2[0])"]


def test_what_comes_after_the_test_is_not_done_once_more() -> None:
    """Of eleven elements that are loaded ten are squared."""
    square, = kept("""xor ecx, ecx
    xorps xmm3, xmm3
    movsd [r9+rbx*8], xmm5
j:  movsd xmm0, [rdi+rcx*8]
    cmp rcx, r8
    je n
    movapd xmm3, xmm0
    mulsd xmm3, xmm3
    xorps xmm3, xmm3
    lea rcx, [rcx+1]
    jmp j
n:""", loads="")
    assert [str(d) for d in square.dimensions] == ["i<R", "j<10"]


def test_a_sum_that_goes_on_behind_an_inner_loop_is_not_made() -> None:
    """Each row begins where the last one ended; the last of its elements comes after the inner loop, which is left in
    its middle."""
    rows = """xorps xmm4, xmm4
    xor edx, edx
k:  xor ecx, ecx
j:  movsd xmm0, [rdi+rcx*8]
    mulsd xmm0, [rsi+rcx*8]
    movsd [r9+rcx*8], xmm0
    addsd xmm4, xmm0
    cmp rcx, 9
    je n
    inc rcx
    jmp j
n:  inc rdx
    cmp rdx, 7
    jne k"""
    assert results(rows, loads="") == []
    assert results(rows.replace("n:", "n: mulsd xmm4, xmm0;"), loads="")  # no sum


def test_what_never_changes_is_left_to_the_last_iteration_where_that_comes_to_it() -> None:
    inner = """xor ecx, ecx
    xor edx, edx
j:  movapd xmm3, xmm5
    mulsd xmm3, xmm6
    movsd xmm0, [rdi+rcx*8]
    mulsd xmm0, xmm0
    movsd [r9+rcx*8], xmm0
    inc rcx
    cmp rcx, r8
    jne j"""
    assert results(inner, loads="") == []
    assert results(inner.replace("cmp rcx, r8", "cmp rcx, rbx"), loads="")  # perhaps a loop of no iteration at all
    assert results(f"cmp rbx, 5; jge n; {inner}; n:", loads="")  # perhaps not in the last iteration
