"""Rows as long as a live-in value says: subscripts, and guards under which cells are one only if these are equal."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import product as pairs

import pytest

from memopt.ir.linear import Linear, product
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import admits
from memopt.ir.scop import ElementType, bytes_of
from memopt.lifting.execution.parameters import parameter
from memopt.lifting.lift import Lifted
from memopt.lifting.scop.delinearisation import ByteAccess, Cluster
from memopt.lifting.scop.symbolic_rows import rows_of
from tests.support.lifting import lift_assembly

N, M, R = Linear.symbol("n:rcx"), Linear.symbol("n:rdx"), Linear.symbol("R")
X, J, BASE = Linear.symbol("i"), Linear.symbol("j"), Linear.symbol("rdi")
SAMPLE = {"rdi": 4096, "n:rcx": 11, "n:rdx": 7, "R": 5}


def access(address: Linear, rows: Linear = R, columns: Linear = M) -> ByteAccess:
    return ByteAccess(address + BASE, (("i", rows), ("j", columns)), ElementType.F64, written=False)


def found(*members: ByteAccess) -> tuple[list[str], str, list[str]]:
    """Subscripts of each member, the array, guards but for the last one, on the size of the array."""
    array, accesses, guards = rows_of(Cluster.of(members, SAMPLE), "A", SAMPLE)
    return [str(accesses[m]) for m in members], str(array), [str(g.expression) for g in guards[:-1]]


def test_rows_and_columns() -> None:
    assert found(access(product(X, N) * 8 + J * 8)) == (
        ["A[i, j]"], "array A: f64 at rdi, strides (8*n:rcx = 88, 8)", ["8*n:rcx - 8*n:rdx"])


def test_a_row_that_is_all_used_needs_no_guard() -> None:
    _, _, guards = found(access(product(X, M) * 8 + J * 8))
    assert guards == []


def test_padded_rows_and_a_column_counted_from_the_end() -> None:
    places, array, guards = found(access(product(X, M) * 8 + X * 24 - J * 8))
    assert places == ["A[i, -j + n:rdx - 1]"]
    assert array == "array A: f64 at -8*n:rdx + rdi + 8, strides (8*n:rdx + 24 = 80, 8)"
    assert guards == []


def test_the_next_row_of_the_same_array() -> None:
    places, _, _ = found(access(product(X, N) * 8 + J * 8), access(product(X, N) * 8 + N * 8 + J * 8))
    assert places == ["A[i, j]", "A[i + 1, j]"]


def test_the_array_is_smaller_than_the_address_space() -> None:
    """Rows 2**61 doubles long would all be one, modulo 2**64: the guard computes the size without overflow."""
    member = access(product(X, N) * 8 + J * 8)
    _, _, guards = rows_of(Cluster.of((member,), SAMPLE), "A", SAMPLE)
    assert str(guards[-1].expression) == "8*c:(R)*(n:rcx) - 8*n:rcx + 8*n:rdx - 8"
    values = SAMPLE | {"n:rcx": 1 << 61}
    assert guards[-1].expression.evaluate(values) >= 1 << 63


@pytest.mark.parametrize("members", [
    (access(product(X, N) * 8 + product(J, M) * 8),),
    (access(product(X, N) * 8 + J * 8), access(product(X, M) * 8 + J * 8)),
    (access(product(X, N) * 8 + J * 8, columns=Linear.of(12)),),
    (access(product(X, N) * 8 + J * 4),),
], ids=["two lengths in one address", "two lengths in one array", "columns beyond the row", "half elements"])
def test_what_has_no_rows_is_refused(members: tuple[ByteAccess, ...]) -> None:
    with pytest.raises(Rejected) as refusal:
        found(*members)
    assert refusal.value.reason is Reason.NON_AFFINE


@pytest.mark.parametrize("seed", range(60))
def test_cells_are_one_only_where_subscripts_are_equal(seed: int) -> None:
    source = random.Random(seed)

    def some() -> ByteAccess:
        rows, columns = source.choice([X, J, X * 2, X + 1, J - 1]), source.choice([X, J, -J, J * 2, M - J, X + J])
        length = N * 8 + source.choice([0, 0, 16])
        return access(product(rows, length) + columns * 8 + source.randrange(3) * 8,
                      R, source.choice([M, Linear.of(4)]))

    members = (some(), some())
    try:
        array, accesses, guards = rows_of(Cluster.of(members, SAMPLE), "A", SAMPLE)
    except Rejected:
        return
    for _ in range(40):
        values = SAMPLE | {"n:rcx": source.randrange(1, 16), "n:rdx": source.randrange(1, 8)}
        values["R"] = source.randrange(2, 7)
        if any(g.expression.evaluate(values) < 0 for g in guards):
            continue
        cells: dict[int, set[tuple[int, ...]]] = {}
        for member in members:
            trips = [t.evaluate(values) for _, t in member.trips]
            for i, j in pairs(range(trips[0]), range(trips[1])):
                here = values | {"i": i, "j": j}
                place = tuple(s.evaluate(here) for s in accesses[member].subscripts)
                address = member.address.evaluate(here)
                assert address == array.base.evaluate(here) + sum(
                    bytes_of(s).evaluate(here) * p for s, p in zip(array.strides, place, strict=True))
                for byte in range(8):
                    cells.setdefault(address + byte, set()).add((*place, byte))
        assert all(len(c) == 1 for c in cells.values())


PRODUCT = """
i: mov rdi, rbx
xor r8d, r8d
j: mov rdx, rdi
mov rax, r9
pxor xmm1, xmm1
k: movsd xmm0, [rax]
mulsd xmm0, [rdx]
add rax, 8
add rdx, rcx
addsd xmm1, xmm0
cmp rax, rsi
jne k
lea rax, [r8+1]
movsd [r10+r8*8], xmm1
add rdi, 8
cmp r11, rax
je e
mov r8, rax
jmp j
e: lea rax, [rbp+1]
add r10, rcx
add r9, rcx
add rsi, rcx
cmp r8, rbp
je o
mov rbp, rax
jmp i
o: xorps xmm0, xmm0
xorps xmm1, xmm1
ret
"""
A_AT, B_AT, C_AT = 0x7000_0000_0000, 0x7100_0000_0000, 0x7200_0000_0000


def entry(size: int, **others: int) -> dict[str, int]:
    """The header's registers of gcc's code for a product of square matrices."""
    a = others.get("r9", A_AT)
    return {"r10": C_AT, "r9": a, "rbx": B_AT, "r11": size, "rcx": 8 * size, "rsi": a + 8 * size, "rbp": 0,
            "r8": 0, "rax": 0, "rdx": 0, "rdi": 0} | others


def passes(lifted: Lifted, registers: Mapping[str, int]) -> bool:
    values = {x.symbol: registers[str(x.location)] for x in lifted.region.live_ins}
    values["R"] = lifted.region.trips.numerator.evaluate(values) // lifted.region.trips.divisor
    return values["R"] >= 2 and admits(lifted.region, values, lambda *_: 0)


@pytest.fixture(scope="module")
def lifted() -> Lifted:
    first = lift_assembly(PRODUCT, entry(50))
    return lift_assembly(PRODUCT, entry(40), earlier=(first.entry,), strided=lambda _: True)


@pytest.mark.parametrize("size", [2, 3, 40, 50, 1000, 1 << 17])
def test_a_product_of_any_size(lifted: Lifted, size: int) -> None:
    assert passes(lifted, entry(size))
    assert str(lifted.region.scop.statements[-1]).endswith(
        "A0[i, j] = add(A0[i, j], mul(A1[i, k], A2[k, j]))")
    assert [d.trips for d in lifted.region.scop.statements[-1].dimensions[1:]] == [Linear.symbol(parameter("r11"))] * 2


@pytest.mark.parametrize(("size", "others"), [
    (40, {"rcx": 8 * 39}), (40, {"rcx": 0}), (40, {"rcx": -8 * 40}), (0, {}), (-3, {}),
    (1 << 61, {"rcx": 0, "rsi": A_AT}), (1 << 45, {}), (40, {"rsi": A_AT + 8 * 39}),
    (40, {"r10": A_AT + 8}), (40, {"r10": B_AT + 8 * 40 * 39 + 312}), (40, {"r10": A_AT - 8 * 40 * 40 + 8}),
], ids=["rows that overlap", "no distance of rows", "rows that go down", "nothing", "less than nothing",
        "rows that are all one modulo 2**64", "more than there is memory", "a shorter sum", "the result in A",
        "the result at the end of B", "the result before A"])
def test_entries_that_are_kept_out(lifted: Lifted, size: int, others: dict[str, int]) -> None:
    assert passes(lifted, entry(40))
    assert not passes(lifted, entry(size, **others))


def test_results_beside_operands_are_let_in(lifted: Lifted) -> None:
    assert passes(lifted, entry(40, r10=A_AT + 8 * 40 * 40))
    assert passes(lifted, entry(40, r10=B_AT - 8 * 40 * 40))


def test_where_nothing_can_be_done_with_symbols_every_size_is_a_number() -> None:
    first = lift_assembly(PRODUCT, entry(50))
    found = lift_assembly(PRODUCT, entry(40), earlier=(first.entry,), strided=lambda _: False)
    assert not found.region.scop.strided
    assert passes(found, entry(40))
    assert not passes(found, entry(50))


def test_lengths_that_follow_from_one_another() -> None:
    """Rows of C are padded, and two pointers walk down them."""
    source = PRODUCT.replace("add r10, rcx", "add r10, r12\nadd r13, r12")

    def padded(size: int) -> dict[str, int]:
        return entry(size, r12=8 * size + 16, r13=C_AT + 8)

    first = lift_assembly(source, padded(50))
    found = lift_assembly(source, padded(40), earlier=(first.entry,), strided=lambda _: True)
    assert [str(a.strides[0]) for a in found.region.scop.arrays] == ["8*n:r11 + 16 = 336", *["8*n:r11 = 320"] * 2]
    assert all(passes(found, padded(size)) for size in (2, 40, 777))
    assert not passes(found, padded(40) | {"r12": 8 * 41})


def test_the_first_entry_has_numbers() -> None:
    assert not lift_assembly(PRODUCT, entry(50), strided=lambda _: True).region.scop.strided


MULTIPLIED = PRODUCT.replace("i: mov rdi, rbx", "i: mov rdi, rbx\nmov r12, r14\nimul r12, rcx\nmov r12, [rbx+r12]")


def test_a_stride_that_has_to_be_a_number_elsewhere_is_a_number() -> None:
    """It is multiplied with another live-in value, which is none of the entry's sizes."""
    first = lift_assembly(MULTIPLIED, entry(40, r14=8000))
    found = lift_assembly(MULTIPLIED, entry(30, r14=8000), earlier=(first.entry,), strided=lambda _: True)
    assert not found.region.scop.strided
    assert passes(found, entry(30, r14=8000))
