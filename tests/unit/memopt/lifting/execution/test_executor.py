"""Induction and trip counts of random loops, against the loops run on numbers; what the outer loop leaves behind."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Register, Relation
from memopt.ir.scop import Scop, Statement
from memopt.lifting.lift import Lifted
from tests.support.lifting import lift_assembly

ARRAY, LONG = 0x7000_0000, 400
CONDITIONS: dict[str, Callable[[int, int, int, int], bool]] = {  # cmp a, b: unsigned a, b and signed x, y
    "ne": lambda a, b, x, y: a != b, "b": lambda a, b, x, y: a < b, "be": lambda a, b, x, y: a <= b,
    "a": lambda a, b, x, y: a > b, "ae": lambda a, b, x, y: a >= b, "l": lambda a, b, x, y: x < y,
    "le": lambda a, b, x, y: x <= y, "g": lambda a, b, x, y: x > y, "ge": lambda a, b, x, y: x >= y,
}
OPPOSITE = {"ne": "e", "b": "ae", "be": "a", "a": "be", "ae": "b", "l": "ge", "le": "g", "g": "le", "ge": "l"}


@dataclass(frozen=True)
class Form:
    """``rbx += step``, and rbx + ``offset`` compared with r8, in ``width`` bits, at the bottom or the top."""

    step: int
    condition: str
    width: int
    top: bool
    offset: int

    @property
    def _registers(self) -> tuple[str, str, str]:
        return ("rbx", "r8", "rax") if self.width == 64 else ("ebx", "r8d", "eax")

    def loop(self, label: str, body: str) -> str:
        counter, bound, spare = self._registers
        test = f"lea {spare}, [rbx{self.offset:+}]; cmp {spare}, {bound}"
        if self.top:
            return (f"{label}: {test}; j{OPPOSITE[self.condition]} {label}_out\n{body}\nadd {counter}, {self.step}\n"
                    f"jmp {label}\n{label}_out:")
        return f"{label}: {body}\nadd {counter}, {self.step}\n{test}\nj{self.condition} {label}"

    def visits(self, counter: int, bound: int) -> int | None:
        """How often the body runs, None when it is too long to tell."""
        mask, half = (1 << self.width) - 1, 1 << (self.width - 1)

        def goes_on() -> bool:
            a, b = (counter + self.offset) & mask, bound & mask
            return CONDITIONS[self.condition](a, b, (a ^ half) - half, (b ^ half) - half)

        for number in range(LONG):
            if self.top and not goes_on():
                return number
            counter = (counter + self.step) & mask
            if not self.top and not goes_on():
                return number + 1
        return None


def forms(seed: int) -> tuple[random.Random, Form]:
    source = random.Random(seed)
    return source, Form(source.choice((1, 1, -1, 2, 3, -4, 8)), source.choice(tuple(CONDITIONS)),
                        source.choice((32, 64)), source.random() < 0.3, source.choice((0, 0, 1, -1, 5)))


def states(source: random.Random, form: Form) -> Iterator[dict[str, int]]:
    """Counter and bound, often a few iterations apart, near zero or where something wraps, with garbage above."""
    middles = (0, 5, 1000, 2**31, 2**32, -2**31) + ((2**63 - 40, 2**40) if form.width == 64 else ())
    while True:
        bound = source.choice(middles) + source.randrange(-12, 12)
        counter = bound - form.step * source.randrange(-3, 30) + source.choice((0, 0, 0, 1))
        garbage = source.choice((0, 0, 0, 0x1234_0000_0000, -1 << 32)) if form.width == 32 else 0
        values = {"rbx": counter + garbage, "r8": bound + source.choice((0, garbage))}
        yield {r: (v + 2**63) % 2**64 - 2**63 for r, v in values.items()}


def guards_hold(lifted: Lifted, values: dict[str, int]) -> bool:
    """As guard code sees them: 64 bits, overflow is failure."""
    for guard in lifted.region.guards:
        if isinstance(guard, Relation):
            number = evaluated(guard.expression, values)
            if number is None or (number != 0 if guard.equal else number < 0):
                return False
    return True


def evaluated(linear: Linear, values: dict[str, int]) -> int | None:
    numbers = (linear.constant, linear.evaluate(values), *(c for _, c in linear.terms))
    return numbers[1] if all(-2**63 <= n < 2**63 for n in numbers) else None


def trips(lifted: Lifted, values: dict[str, int]) -> int | None:
    """R where the guard lets the version run."""
    numerator = evaluated(lifted.region.trips.numerator, values)
    if numerator is None or numerator % lifted.region.trips.divisor or numerator // lifted.region.trips.divisor < 2:
        return None
    return numerator // lifted.region.trips.divisor


@pytest.mark.parametrize("seed", range(60))
def test_the_trip_count_of_the_patched_loop(seed: int) -> None:
    """Lifted at one state, the guards must refuse every other state where R is not what the loop really does."""
    source, form = forms(seed)
    body = "movsd [rdi+rcx*8], xmm0; inc rcx"
    code = form.loop("i", body) + "\nret"
    fixed = {"rdi": ARRAY, "rcx": 0}
    ours = states(source, form)
    for _ in range(3):
        captured = next(ours)
        try:
            lifted = lift_assembly(code, fixed | captured)
        except Rejected:
            continue
        for state in (captured, *(next(ours) for _ in range(60))):
            values = fixed | state
            count = trips(lifted, values)
            if count is not None and guards_hold(lifted, values | {"R": count}):
                assert form.visits(state["rbx"], state["r8"]) == (count if count < LONG else None), (form, state)


@pytest.mark.parametrize("seed", range(60, 120))
def test_the_trip_count_of_an_inner_loop(seed: int) -> None:
    source, form = forms(seed)
    inner = form.loop("k", "addsd xmm0, [rdi+rcx*8]; movsd [rdi+rcx*8], xmm0; inc rcx")
    code = f"i: mov rbx, r9; xor ecx, ecx; movsd xmm0, [rsi]\n{inner}\nadd rdi, 8000; inc rdx; cmp rdx, 10; jne i; ret"
    fixed = {"rdi": ARRAY, "rsi": 0x1000, "rdx": 0}
    ours = states(source, form)
    for _ in range(3):
        first = next(ours)
        captured = {"r9": first["rbx"], "r8": first["r8"]}
        try:
            lifted = lift_assembly(code, fixed | captured)
        except Rejected:
            continue
        scop = lifted.region.scop
        inner_trips = sum(s.dimensions[1].trips.constant if len(s.dimensions) > 1 else 1
                          for s in scop.statements if not scop.array(s.write.array).private)
        for state in (first, *(next(ours) for _ in range(60))):
            values = fixed | {"r9": state["rbx"], "r8": state["r8"]}
            count = trips(lifted, values)
            if count is not None and guards_hold(lifted, values | {"R": count}):
                assert form.visits(state["rbx"], state["r8"]) == inner_trips, (form, state)


def test_most_ordinary_loops_are_accepted() -> None:
    """The tests above would pass if everything were refused."""
    accepted = 0
    for step, condition in ((1, "ne"), (1, "l"), (1, "b"), (8, "ne"), (-1, "ne"), (-1, "g"), (2, "l"), (1, "le")):
        for width in (32, 64):
            for top in (False, True):
                form = Form(step, condition, width, top, 0)
                body = "movsd [rdi+rcx*8], xmm0; inc rcx"
                lifted = lift_assembly(form.loop("i", body) + "\nret", {"rdi": ARRAY, "rcx": 0, "rbx": 1600 - 32 * step,
                                                                       "r8": 1600})
                count = trips(lifted, {"rdi": ARRAY, "rcx": 0, "rbx": 1600 - 32 * step, "r8": 1600})
                assert count == form.visits(1600 - 32 * step, 1600)
                accepted += 1
    assert accepted == 32


STORE = "movsd [rdi+rcx*8], xmm0"
LIVE_OUT = {
    "the register behind": "mov rdx, rsi; mov rsi, [r9+rcx*8]",
    "its comparison": "cmp rsi, 5; sete al; movzx edx, al; mov rsi, [r9+rcx*8]",
    "a byte of it": "mov dl, sil; mov rsi, [r9+rcx*8]",
    "a vector lane": "movaps xmm2, xmm1; movups xmm1, [r9+rcx*8]",
    "a stack slot": "mov rdx, [rsp-8]; mov [rsp-16], rdx; mov rdx, [r9+rcx*8]; mov [rsp-8], rdx",
}


@pytest.mark.parametrize("what", LIVE_OUT)
def test_what_comes_from_the_iteration_before_is_made_by_the_original(what: str) -> None:
    """The version does not make it, and the last iteration of the original alone would see something stale."""
    code = f"i: {LIVE_OUT[what]}; {STORE}; inc rcx; cmp rcx, r8; jne i; ret"
    registers = {"rdi": ARRAY, "rcx": 0, "r8": 20, "r9": 0x9000}
    assert lift_assembly(code, registers).region.original_iterations == 2


def test_what_comes_from_long_ago_is_made_by_as_many_iterations_of_the_original() -> None:
    code = f"""
    i: mov rdx, rsi; mov rsi, r10; mov r10, r11; mov r11, r12; mov r12, r13; mov r13, [r9+rcx*8]
       {STORE}; inc rcx; cmp rcx, r8; jne i; ret"""
    assert lift_assembly(code, {"rdi": ARRAY, "rcx": 0, "r8": 20, "r9": 0x9000}).region.original_iterations == 6


def test_registers_that_pass_something_on_to_the_code_after_the_loop_are_computed() -> None:
    """A sum that is not stored, and two registers that change places."""
    for code, passed in (("addsd xmm1, [r9+rcx*8]", ["xmm1[0:8] is P0:8"]),
                         ("xchg r10, r11", ["r10 is P1:8", "r11 is P2:8"])):
        region = lift_assembly(f"i: {code}; {STORE}; inc rcx; cmp rcx, r8; jne i; ret",
                               {"rdi": ARRAY, "rcx": 0, "r8": 20, "r9": 0x9000}).region
        assert list(map(str, region.register_carried)) == passed
        assert region.original_iterations == 1


def test_what_no_iteration_makes_must_be_dead() -> None:
    swap = "mov rdx, [rsp-8]; mov rax, [rsp-16]; mov [rsp-16], rdx; not rax; mov [rsp-8], rax"
    code = f"i: {swap}; {STORE}; inc rcx; cmp rcx, r8; jne i; ret"
    with pytest.raises(Rejected) as refused:
        lift_assembly(code, {"rdi": ARRAY, "rcx": 0, "r8": 20})
    assert refused.value.reason is Reason.CARRIED_VALUE


def test_an_inner_loop_that_does_not_run_in_the_last_iteration() -> None:
    """for k < n - 1 - i: what it leaves in rdx was made an iteration earlier, where it ran for the last time."""
    code = f"""
    i: mov rbx, r8; sub rbx, rcx; dec rbx; jle 1f
    k: mov rdx, [r9+rbx*8]; dec rbx; jne k
    1: {STORE}; inc rcx; cmp rcx, r8; jne i; ret"""
    lifted = lift_assembly(code, {"rdi": ARRAY, "rcx": 3, "r8": 20, "r9": 0x9000})
    assert str(lifted.outer.node.items[0]).startswith("loop c:40100b~ < R - c:401000 - 1")
    assert lifted.region.original_iterations == 2


def test_a_narrow_load_of_a_slot_sees_the_wide_store_before_it() -> None:
    """Although a path that is never taken would store to the narrow slot too."""
    code = """
    i: mov [rsp-16], rcx
       xor edx, edx
    k: mov eax, [rsp-16]
       movsd [rdi+rax*8], xmm0
       test r11, r11
       je 1f
       mov dword ptr [rsp-16], 7
    1: inc rdx; cmp rdx, 3; jne k
       inc rcx; cmp rcx, r8; jne i; ret"""
    try:
        region = lift_assembly(code, {"rdi": ARRAY, "rcx": 0, "r8": 20, "r11": 0}).region
    except Rejected:
        return
    assert str(region.scop.statements[0].write) == "A0[i]"


def test_a_register_that_is_rewritten_before_use_may_hold_anything() -> None:
    code = f"i: mov rsi, [r9+rcx*8]; mov rdx, rsi; {STORE}; inc rcx; cmp rcx, r8; jne i; ret"
    region = lift_assembly(code, {"rdi": ARRAY, "rcx": 0, "r8": 20, "r9": 0x9000}).region
    assert [r.location for r in region.rejoin] == [Register("rcx")]


def test_an_odd_iteration_before_a_loop_that_is_unrolled_twice() -> None:
    """for k < i, where i is odd the first one by itself: the rest starts at the remainder."""
    code = """
    i: mov rdx, rcx; imul rdx, r9; add rdx, rdi; xor eax, eax; test cl, 1; je 1f
       movsd xmm1, [rdx]; mulsd xmm1, xmm0; movsd [rdx], xmm1; mov eax, 1
    1: cmp rcx, 1; je 2f
    k: movsd xmm1, [rdx+rax*8]; mulsd xmm1, xmm0; movsd [rdx+rax*8], xmm1
       movsd xmm1, [rdx+rax*8+8]; mulsd xmm1, xmm0; movsd [rdx+rax*8+8], xmm1
       add rax, 2; cmp rax, rcx; jne k
    2: inc rcx; cmp rcx, r8; jne i; ret"""
    only, = lift_assembly(code, {"rdi": ARRAY, "rcx": 1, "r8": 30, "r9": 400}).region.scop.statements
    assert str(only).startswith("S0[i<R, j<-R + i + 30]")


def test_an_odd_iteration_after_a_loop_that_is_unrolled_twice() -> None:
    """for k < i, where i is odd the last one by itself; the test for one iteration stands inside that for none."""
    code = """
    i: mov rdx, rcx; imul rdx, r9; add rdx, rdi; test rcx, rcx; je 3f; cmp rcx, 1; jne 1f
       xor eax, eax; jmp 2f
    1: mov rsi, rcx; and rsi, -2; xor eax, eax
    k: movsd xmm1, [rdx+rax*8]; mulsd xmm1, xmm0; movsd [rdx+rax*8], xmm1
       movsd xmm1, [rdx+rax*8+8]; mulsd xmm1, xmm0; movsd [rdx+rax*8+8], xmm1
       add rax, 2; cmp rax, rsi; jne k
    2: test cl, 1; je 3f
       movsd xmm1, [rdx+rax*8]; mulsd xmm1, xmm0; movsd [rdx+rax*8], xmm1
    3: inc rcx; cmp rcx, r8; jne i; ret"""
    only, = lift_assembly(code, {"rdi": ARRAY, "rcx": 0, "r8": 30, "r9": 400}).region.scop.statements
    assert str(only).startswith("S0[i<R, j<-R + i + 30]")


def test_a_negative_difference_compared_as_an_unsigned_one() -> None:
    """Are the arrays a vector apart? What wraps around is below zero, and that is all a guard has to look at."""
    code = "i: cmp rdx, 16; jbe 1f; movsd [rdi+rcx*8], xmm0; 1: inc rcx; cmp rcx, r8; jne i; ret"
    guards = [str(g) for g in lift_assembly(code, {"rdi": ARRAY, "rcx": 0, "r8": 20, "rdx": -400}).region.guards]
    assert "-rdx - 1 >= 0" in guards
    assert f"rdx + {(1 << 63) - 1} >= 0" in guards  # holds, and can be told in 64 bits


def test_an_inner_loop_that_is_entered_at_its_top_and_at_its_test() -> None:
    """What is left after fours, or all of a short row: clang jumps into the same loop from both."""
    code = """
    i: mov rdx, rcx; imul rdx, r9; add rdx, rdi; cmp rcx, 4; jae 1f
       xor eax, eax; jmp 3f
    1: movabs rsi, 0x7ffffffffffffffc; and rsi, rcx; xor eax, eax
    k: movupd xmm1, [rdx+rax*8]; mulpd xmm1, xmm0; movupd [rdx+rax*8], xmm1
       movupd xmm1, [rdx+rax*8+16]; mulpd xmm1, xmm0; movupd [rdx+rax*8+16], xmm1
       add rax, 4; cmp rax, rsi; jne k
       jmp 4f
    3: movsd xmm1, [rdx+rax*8]; mulsd xmm1, xmm0; movsd [rdx+rax*8], xmm1; inc rax
    4: cmp rcx, rax; jne 3b
       inc rcx; cmp rcx, r8; jne i; ret"""
    scop = lift_assembly(code, {"rdi": ARRAY, "rcx": 1, "r8": 30, "r9": 400}).region.scop
    assert sorted(written(scop, {"R": 29, "rdi": ARRAY})) == [ARRAY + 400 * i + 8 * k for i in range(1, 30)
                                                              for k in range(i)]


def written(scop: Scop, values: dict[str, int]) -> Iterator[int]:
    """The addresses that the statements write, in all iterations."""
    arrays = {a.name: a for a in scop.arrays}

    def visit(statement: Statement, around: dict[str, int]) -> Iterator[int]:
        rest = [d for d in statement.dimensions if d.name not in around]
        if rest:
            for number in range(rest[0].trips.evaluate(around)):
                yield from visit(statement, around | {rest[0].name: number})
        elif all(c.evaluate(around) >= 0 for c in statement.conditions):
            array, subscripts = arrays[statement.write.array], statement.write.subscripts
            yield array.base.evaluate(around) + sum(
                s * x.evaluate(around) for s, x in zip(array.strides, subscripts, strict=True))

    for statement in scop.statements:
        yield from visit(statement, values)


def test_a_register_that_is_cleared_for_the_next_iteration() -> None:
    code = """
    i: movsd xmm2, [rdi+rcx*8]; addsd xmm2, xmm1; movsd [rdi+rcx*8], xmm2
       movsd xmm1, [r9+rcx*8]; mulsd xmm1, xmm0; movsd [r9+rcx*8], xmm1; xorpd xmm1, xmm1
       inc rcx; cmp rcx, r8; jne i; ret"""
    registers = {"rdi": ARRAY, "rcx": 0, "r8": 20, "r9": 0x9000_0000}
    region = lift_assembly(code, registers, vectors={"xmm1": bytes(32)}).region
    assert str(region.scop.statements[0]).endswith("add(A0[i], 0x0)")
    assert "xmm1[0:8] == 0" in [str(g) for g in region.guards]
    other = lift_assembly(code, registers, vectors={"xmm1": bytes(7) + b"?" + bytes(24)}).region
    assert "0x0)" not in str(other.scop.statements[0])


@pytest.mark.parametrize(("other", "pieces"), [
    ("xor edx, edx", ["S0[i<R, j<30]: A0[i, j] = A1[j, 0]"]),
    ("mov edx, 1", ["S0[i<R, j<30, j >= 0, -j >= 0]: A0[i, j] = A1[0]",
                    "S1[i<R, j<30, j - 1 >= 0] at (0, 0, 1): A0[i, j] = A2[j, 0]"]),
])
def test_a_product_that_is_known_where_the_counter_is_zero(other: str, pieces: list[str]) -> None:
    """for i: for j: c[i, j] = a[j == 0 ? 0 : 5 * j]: compilers leave the product out there."""
    code = f"""
    i: xor ecx, ecx
    j: test rcx, rcx; je 1f; lea rdx, [rcx+rcx*4]; jmp 2f; 1: {other}; 2: movsd xmm0, [rdi+rdx*8]
       movsd [r9+rcx*8], xmm0; inc rcx; cmp rcx, 30; jne j; add r9, 240; dec r8; jne i; ret"""
    registers = {"rdi": ARRAY, "r8": 20, "r9": 0x9000_0000}
    region = lift_assembly(code, registers).region
    assert [str(s) for s in region.scop.statements] == pieces
    assert len(region.scop.arrays) == 1 + len(pieces)  # none for the way that is never gone
