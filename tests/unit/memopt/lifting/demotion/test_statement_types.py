"""What a statement computes: choices from masks and flags, integers narrower than their registers, parts of cells."""

from __future__ import annotations

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason
from memopt.lifting.values.loop_tree import CarriedValue, Guarded
from memopt.lifting.values.values import Atom, Carried, Final, Integer, LiveVector, Node, Truth, Value, constant
from tests.support.lifting import lift_assembly
from tests.support.recovering import (
    A,
    B,
    C,
    D,
    H,
    J,
    add,
    demands,
    load,
    loop,
    recovered,
    refused,
    store,
    v,
)


def choice(truth: Value, first: Value, second: Value) -> Node:
    """As SSE2 code makes it: a mask, and, andnot, or."""
    mask = Node("sext", (truth,), 64)
    inverse = Node("not", (mask,), 64)
    return Node("or", (Node("and", (mask, first), 64), Node("and", (inverse, second), 64)), 64)


def test_masks_are_choices() -> None:
    less = Node("fle", (v(0), v(1)), 1)
    assert recovered(load(0, A), load(1, B), store(C, choice(less, v(0), v(1)))) == [
        "  [c]:64 = select.i64(fle.i64([a], [b]), bits.i64([a]), bits.i64([b]))"]
    smaller = Node("flt", (v(1), v(0)), 1)
    assert recovered(load(0, A), load(1, B), store(C, choice(smaller, v(0), v(1)))) == ["  [c]:64 = max([a], [b])"]


def test_flags_of_a_comparison() -> None:
    """comisd a, b; cmova"""
    flags = Node("and", (Node("zext", (Node("fcompare", (v(0), v(1)), 32),), 64), Integer(Linear.of(0x45), 64)), 64)
    above = Node("eq", (Node("and", (flags, Integer(Linear.of(0x41), 64)), 64), Integer(Linear(), 64)), 1)
    picked = Node("select", (above, v(2), v(3)), 64)
    loads = (load(0, A), load(1, A + 8), load(2, B), load(3, B + 8))
    assert recovered(*loads, store(C, picked)) == [
        "  [c]:64 = select.i64(flt.i64([a + 8], [a]), [b], [b + 8])"]


def test_narrow_integers() -> None:
    """unsigned bytes widened, multiplied, accumulated; a byte sum computed in 32 bits"""
    wide = tuple(Node("zext", (v(n, 8),), 32) for n in range(2))
    total = Node("add", (v(2, 32), Node("mul", wide, 32)), 32)
    assert recovered(load(0, A, 8), load(1, B, 8), load(2, C, 32), store(C, total, 32)) == [
        "  [c]:32 = add.i32([c], mul.i32(zext.i32([a]), zext.i32([b])))"]
    byte = Node("trunc", (Node("add", wide, 32),), 8)
    assert recovered(load(0, A, 8), load(1, B, 8), store(C, byte, 8)) == ["  [c]:8 = add.i8([a], [b])"]


def test_an_affine_condition_makes_two_statements() -> None:
    """for j: a[j] = i >= 2 j ? b : d, as a conditional move; what it compares must not wrap around"""
    least = Truth(Atom(H - J * 2, False, (H + 5,)), 1)
    body = loop("j", store(A + J * 8, Node("select", (least, v(0), v(1)), 64)))
    assert recovered(load(0, B), load(1, D), body)[1:] == [
        "    [a + 8*c:j]:64 = [b] if c:i - 2*c:j >= 0",
        "    [a + 8*c:j]:64 = [d] if -c:i + 2*c:j - 1 >= 0",
    ]
    assert "c:i + 5" in demands


def test_what_is_loaded_under_a_condition_is_used_under_it() -> None:
    """if (i >= 3) x = a; else x = b; c = x + x"""
    least = Truth(Atom(H - 3, False, ()), 1)
    items = (Guarded((H - 3,), (load(0, A),)), Guarded((-H + 2,), (load(1, B),)))
    chosen = Node("select", (least, v(0), v(1)), 64)
    assert recovered(*items, store(C, add(chosen, chosen))) == [
        "  [c]:64 = add([a], [a]) if c:i - 3 >= 0",
        "  [c]:64 = add([b], [b]) if -c:i + 2 >= 0",
    ]
    assert refused(*items, store(C, v(0))) is Reason.CARRIED_VALUE


def test_many_affine_conditions_are_comparisons() -> None:
    value: Value = v(0)
    for number in range(5):
        value = Node("select", (Truth(Atom(H - number, True, ()), 1), v(1), value), 64)
    (line,) = recovered(load(0, A), load(1, B), store(C, value))
    assert line.startswith("  [c]:64 = select.i64(eq.i64(i64(c:i - 4), 0x0), [b], select.i64(")


def test_a_product_of_64_bits_from_products_of_32() -> None:
    """As SSE2 code makes it, with pmuludq."""
    halves = [tuple(Node("zext", (Node(name, (v(n),), 32),), 64) for name in ("trunc", "high")) for n in range(2)]
    (low_a, high_a), (low_b, high_b) = halves
    crossed = Node("add", (Node("mul", (high_b, low_a), 64), Node("mul", (high_a, low_b), 64)), 64)
    moved = Node("shl", (crossed, Integer(Linear.of(32), 8)), 64)
    product = Node("add", (moved, Node("mul", (low_b, low_a), 64)), 64)
    assert recovered(load(0, A), load(1, B), store(C, product)) == ["  [c]:64 = mul.i64([a], [b])"]
    wrong = Node("add", (moved, Node("mul", (low_b, low_b), 64)), 64)
    assert "shl" in recovered(load(0, A), load(1, B), store(C, wrong))[0]


def test_a_double_changed_as_an_integer() -> None:
    mixed = Node("xor", (v(0), LiveVector("xmm1.0")), 64)
    assert recovered(load(0, A), store(C, add(mixed, mixed))) == [
        "  [c]:64 = add(xor([a], xmm1), xor([a], xmm1))"]


def _low(value: Value) -> Value:
    return Node("zext", (Node("trunc", (value,), 32),), 64)


def test_the_low_end_of_a_cell_is_cut_from_what_is_read() -> None:
    """c[i] = a[i] + (a[i] & 0xffffffff): not the same bits as another type."""
    value = Node("add", (v(1), _low(v(1))), 64)
    assert recovered(load(1, A + H * 8), store(C + H * 8, value)) == [
        "  [c + 8*c:i]:64 = add.i64([a + 8*c:i], zext.i64(trunc.i32([a + 8*c:i])))"]


def test_a_cell_is_not_read_in_two_widths() -> None:
    """c[i] = (a[i] & 0xffffffff) << 3 ^ a[i], where the narrow read comes first."""
    value = Node("xor", (Node("shl", (_low(v(1)), constant(3, 64)), 64), v(1)), 64)
    assert refused(load(1, A + H * 8), store(C + H * 8, value)) is Reason.UNSUPPORTED_INSTRUCTION


def test_a_part_that_starts_inside_a_byte_is_cut_from_what_is_held() -> None:
    """for j: s += a[j]; c[i] = (byte)(s >> 4), which is bits 4 to 11 of s"""
    total = Node("add", (Carried("j", "rax"), v(1)), 64)
    carried = (CarriedValue("rax", constant(0, 64), total),)
    body = loop("j", load(1, A + J * 8), carried=carried, finals=(("rax", total),))
    shifted = Node("trunc", (Node("shr", (Final("j", "rax"), constant(4, 8)), 64),), 8)
    assert recovered(body, store(C + H, shifted, 8))[-1] == (
        "  [c + c:i]:8 = trunc.i8(shr.i64(P0[i], 0x4))")


def test_a_byte_of_a_sum_in_a_register_is_cut_from_the_sum() -> None:
    """Bytes from 32 bits: the register is one number, with no cell for each of its bytes."""
    scop = lift_assembly("""
        pixel:  xor ecx, ecx
                xor edx, edx
                lea rsi, [rbx + r9]
        tap:    movzx eax, byte ptr [rsi + rdx]
                imul eax, dword ptr [r8 + rdx*4]
                add rdx, 1
                add ecx, eax
                cmp rdx, 50
                jne tap
                movzx eax, ch
                mov byte ptr [rdi + r9], al
                add r9, 1
                cmp r9, 101
                jne pixel
                ret
    """, {"r9": 0, "rbx": 0x200000, "rdi": 0x100000, "r8": 0x300000}).region.scop
    assert str(scop.statements[-1]).endswith("= trunc.i8(shr.i32(P0[i], 0x8))")
