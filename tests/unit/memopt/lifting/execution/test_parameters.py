"""Sizes that differ from entry to entry stay symbols: bounds, guards and plans with several values of them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import pytest

from memopt.ir.linear import Linear
from memopt.ir.plan import Isa
from memopt.ir.region import Disjoint, Guard
from memopt.lifting.execution.parameters import fit, parameter, varies
from memopt.lifting.lift import Lifted
from passes.context import Context
from passes.legality.loops import check_loops
from passes.loop_schedule.candidates import loop_plans
from tests.support.inprocess import host_isas
from tests.support.lifting import lift_assembly
from tests.support.loop_check import check
from tests.support.machines import ZEN5

ROW = 61 * 8
CORNER = 0x7000_0000_0000
HERE = "n:r8"  # the size, at entry

# for (i = r9; i < r8; i++) for (j = 0; j <= i; j++) c[i][j] -= c[i][-1] * c[j][-1], with a bound that is an address
TRIANGLE = """
i: movsd xmm3, [rdx-8]
mov rcx, r10
mov rax, rdx
j: movsd xmm2, [rcx]
movsd xmm1, [rax]
add rax, 8
add rcx, rdi
mulsd xmm2, xmm3
subsd xmm1, xmm2
movsd [rax-8], xmm1
cmp rsi, rax
jne j
add r9d, 1
add rdx, rdi
add rsi, r11
cmp r8d, r9d
jne i
xorps xmm1, xmm1
xorps xmm2, xmm2
xorps xmm3, xmm3
ret
"""

# for (i = rcx; i < r12; i++) for (j = 0; j < r8; j++) a[i][j] += b[i]
RECTANGLE = """
i: xor eax, eax
j: movsd xmm1, [rdx+rax*8]
addsd xmm1, [rbx]
movsd [rdx+rax*8], xmm1
add rax, 1
cmp rax, r8
jne j
add rdx, rdi
add rbx, 8
add rcx, 1
cmp rcx, r12
jne i
xorps xmm1, xmm1
ret
"""

# the same with rows of r8 elements, one after the other
ROW_START = "mov r13, rcx\nimul r13, r8\nlea r13, [rdx+r13*8]"
STRIDES = RECTANGLE.replace("i: xor eax, eax", f"i: {ROW_START}\nxor eax, eax").replace(
    "[rdx+rax*8]", "[r13+rax*8]").replace("add rdx, rdi\n", "")


def triangle(size: int, i: int, at: int) -> dict[str, int]:
    """The header's registers in iteration ``i`` of a call with the matrix ``at`` rows down the diagonal."""
    corner = CORNER + at * (ROW + 8)
    return {"r8": size, "r9": i, "rdx": corner + i * ROW, "r10": corner - 8, "rsi": corner + 8 + i * (ROW + 8),
            "rdi": ROW, "r11": ROW + 8}


def rectangle(rows: int, i: int, columns: int) -> dict[str, int]:
    column = CORNER + (1 << 20) + 8 * i
    return {"r12": rows, "rcx": i, "r8": columns, "rdx": CORNER + i * ROW, "rdi": ROW, "rbx": column}


def lifted(source: str, *entries: Mapping[str, int]) -> Lifted:
    """As captured at the last of ``entries``, after a version for each of the others."""
    earlier = []
    for registers in entries:
        earlier.append((found := lift_assembly(source, registers, earlier=tuple(earlier))).entry)
    return found


def holds(guard: Guard, values: Mapping[str, int]) -> bool:
    if isinstance(guard, Disjoint):
        return True
    number = guard.expression.evaluate(values)
    return number == 0 if guard.equal else number >= 0


def passes(found: Lifted, registers: Mapping[str, int]) -> bool:
    """Whether the guards let an entry with ``registers`` pass."""
    values = {x.symbol: registers[str(x.location)] for x in found.region.live_ins}
    values["R"] = found.region.trips.numerator.evaluate(values) // found.region.trips.divisor
    return all(holds(g, values) for g in found.region.guards)


def test_what_differs_is_a_function_of_what_differs_with_it() -> None:
    entries = [{"rax": 5, "rbx": 47, "rcx": 9}, {"rax": 7, "rbx": 63, "rcx": 9}, {"rax": 1, "rbx": 15, "rcx": 9}]
    rbx, now, earlier = Linear.symbol("rbx"), entries[0], entries[1:]
    assert varies(rbx, now, earlier)
    assert not varies(Linear.symbol("rcx"), now, earlier)
    assert fit(rbx, ("rcx", "rax"), now, earlier) == Linear.symbol(parameter("rax"), 8, 7)
    assert fit(rbx, ("rcx",), now, earlier) is None
    assert fit(rbx, ("rax",), now, [*earlier, {"rax": 2, "rbx": 24}]) is None  # not for that one


def test_of_several_that_differ_with_it_the_one_in_elements_is_chosen() -> None:
    now, earlier = {"rax": 14, "rbx": 47, "rcx": 5}, [{"rax": 10, "rbx": 7, "rcx": 0}]
    assert fit(Linear.symbol("rbx"), ("rax", "rcx"), now, earlier) == Linear.symbol(parameter("rcx"), 8, 7)
    assert fit(Linear.symbol("rbx"), ("rax",), now, earlier) == Linear.symbol(parameter("rax"), 10, -93)


BYTES = """
i: lea rdx, [rdi+r14]
j: movsd xmm1, [rdx]
addsd xmm1, xmm0
movsd [rdx], xmm1
add rdx, 8
cmp rdx, rdi
jne j
sub rdi, r9
inc rcx
cmp rcx, r12
jne i
xorps xmm1, xmm1
ret
"""


def test_a_size_in_bytes_follows_from_one_in_elements() -> None:
    """The inner loop ends where a pointer is another one: what divides their distance has to be known."""
    def entry(size: int) -> dict[str, int]:
        return {"rdi": CORNER + 40 * ROW, "r9": ROW, "r14": -8 * size, "r8": size, "rcx": 0, "r12": 30}

    found = lifted(BYTES, entry(20), entry(32))
    assert "8*n:r8 + r14 == 0" in map(str, found.region.guards)
    assert all(passes(found, entry(size)) for size in (20, 32, 25))
    assert not passes(found, entry(20) | {"r14": -168})


def test_the_first_look_specialises_on_the_size() -> None:
    found = lifted(TRIANGLE, triangle(40, 3, 10))
    assert passes(found, triangle(40, 5, 12))
    assert not passes(found, triangle(39, 3, 10))


@pytest.mark.parametrize("size", [1, 2, 3, 17, 40, 60])
def test_a_triangle_of_any_size(size: int) -> None:
    found = lifted(TRIANGLE, triangle(40, 3, 10), triangle(23, 7, 27))
    assert str(found.region.scop.statements[0]).startswith(f"S0[i<R, j<-R + i + {HERE} + 1]")
    assert passes(found, triangle(size, 0, 0))
    assert not passes(found, triangle(61, 0, 0))  # its rows would meet
    assert not passes(found, triangle(size, 0, 0) | {"rsi": CORNER + 16})
    assert found.trips(found.entry) == 23  # from its start on


@pytest.mark.parametrize("columns", [1, 2, 7, 60])
def test_rows_of_any_length(columns: int) -> None:
    found = lifted(RECTANGLE, rectangle(30, 2, 40), rectangle(30, 5, 23))
    assert passes(found, rectangle(9, 0, columns))
    assert not passes(found, rectangle(9, 0, 0))  # the loop would run all the same: it ends at its bound only
    assert not passes(found, rectangle(9, 0, 62))


def test_what_advances_is_no_parameter() -> None:
    """rcx goes up with each row, so that no bound may follow its value at entry."""
    found = lifted(RECTANGLE, rectangle(30, 2, 42), rectangle(30, 5, 45))
    assert parameter("rcx") not in {x.symbol for x in found.region.live_ins}
    assert passes(found, rectangle(30, 7, 20))


def test_a_size_that_is_a_stride_is_a_number_and_so_are_all_others() -> None:
    entries = [rectangle(30, 2, 40), rectangle(30, 5, 23)]
    entered = [{**e, "rdx": CORNER} for e in entries]
    found = lifted(STRIDES, *entered)
    assert not [x for x in found.region.live_ins if x.symbol.startswith(parameter(""))]
    assert [d.trips for d in found.region.scop.statements[0].dimensions][1] == Linear.of(23)


@pytest.mark.parametrize(("source", "first", "second"), [
    (TRIANGLE, triangle(40, 3, 10), triangle(23, 7, 27)),
    (RECTANGLE, rectangle(30, 2, 40), rectangle(30, 5, 23)),
], ids=["triangle", "rectangle"])
@pytest.mark.parametrize("isa", host_isas())
def test_one_version_serves_every_size(source: str, first: dict[str, int], second: dict[str, int], isa: Isa) -> None:
    """The generated code against the statements run one by one, also where loops do not run and nothing divides."""
    region = lifted(source, first, second).region
    known = [f for f in region.nonnegative if f.symbols <= {HERE, "R"}]
    for plan in islice(loop_plans(region.scop, Context(ZEN5, isa, trips=20), region.nonnegative, least_gain=0.0), 2):
        check_loops(region.scop, plan, facts=region.nonnegative)
        for size in (0, 1, 2, 7, 13, 31, 60):
            for rest in {1, min(2, size), size // 2, size - 1} - {0, -1}:
                values = {x.symbol: 0 for x in region.live_ins} | {HERE: size, "R": rest + 1, "H": rest}
                if all(f.evaluate(values) >= 0 for f in known):
                    check(region, plan, values, seed=size, specials=True)
