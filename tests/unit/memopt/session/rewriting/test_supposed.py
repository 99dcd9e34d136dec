"""An entry at another size: what follows from a size follows from the other one, and all else moves by itself."""

from __future__ import annotations

from memopt.session.rewriting.supposed import other_size

HEAP = 0x7F0000000010
ARRAY = 0x1000000


def is_address(value: int) -> bool:
    return HEAP <= value < HEAP + 8 * ARRAY


def in_program(value: int) -> bool:
    return value >= HEAP + 7 * ARRAY


def other(**seen: int) -> dict[str, int]:
    return other_size(seen, is_address, in_program)


def test_multiples_and_neighbours_of_a_size_follow_it() -> None:
    found = other(r11=1500, r9=1499, rsi=12000, rdx=1502, rcx=6004, r8=-12000)
    n = found["r11"]
    assert n != 1500
    assert found == {"r11": n, "r9": n - 1, "rsi": 8 * n, "rdx": n + 2, "rcx": 4 * n + 4, "r8": -8 * n}


def test_other_sizes_move_independently() -> None:
    found = other(r11=1500, r12=700, r13=9001)
    steps = [found["r11"] - 1500, found["r12"] - 700, found["r13"] - 9001]
    assert 0 not in steps
    assert all(a == b or a % b for a in steps for b in steps)


def test_equal_sizes_stay_equal() -> None:
    found = other(r11=1500, r14=1500)
    assert found["r11"] == found["r14"] != 1500


def test_small_numbers_and_those_that_are_none_stay() -> None:
    seen = {"rax": 3, "rbx": -8, "rcx": 0, "rdx": 1 << 40}
    assert other(**seen) == seen


def test_the_end_of_an_array_moves_with_its_size() -> None:
    found = other(r10=HEAP, rdi=HEAP + 12000, r8=HEAP + ARRAY, r12=1500)
    assert found["rdi"] - found["r10"] == 8 * found["r12"]
    assert found["r8"] - found["r10"] not in (ARRAY, 8 * found["r12"])


def test_addresses_of_the_program_stay_but_for_ends() -> None:
    place = HEAP + 7 * ARRAY
    found = other(rbx=place, r9=place + 8 * 1500, r8=place + ARRAY // 2, r12=1500)
    assert (found["rbx"], found["r8"]) == (place, place + ARRAY // 2)
    assert found["r9"] == place + 8 * found["r12"]


def test_what_is_made_of_a_register_follows_it() -> None:
    found = other_size({"r11": 1500, "n:r11": 1500, "b:r11": -36, "n:b:r11": -36, "rsp": 0x7FFC00000000},
                       is_address, in_program)
    low = (found["r11"] + 128) % 256 - 128
    assert (found["n:r11"], found["b:r11"], found["n:b:r11"]) == (found["r11"], low, low)
    assert found["rsp"] == 0x7FFC00000000
