"""Texts of two processes are equal up to addresses, and numbers that are no addresses stay."""

from __future__ import annotations

import pytest

from memopt.plans.addresses import Addresses, of_file


def process(image: int, heap: int) -> Addresses:
    """One whose program is at ``image``, with static arrays behind it, and that has a heap and a library."""
    maps = [(image, image + 0x2000, "/bin/prog"), (image + 0x2000, image + 0x3000, "/bin/prog"),
            (image + 0x3000, image + 0x9000, ""), (heap, heap + 0x100000, "[heap]"),
            (heap + 0x10000000, heap + 0x10001000, "/lib/libm.so"), (heap + 0x20000000, heap + 0x20001000, "")]
    return Addresses(of_file(maps, "/bin/prog", image))


ONE, TWO = (0x555500000000, 0x7F1200000000), (0x5643AB000000, 0x7FFE12345000)
TEXT = ("region {header:#x}, flags dead\n  guard rdi - {heap} >= 0\n  guard m_1 == {bss}\n  cell [+{bss:#x}]:8\n"
        "  call {library:x}\n  mov rax, -{heap}\n  add {complement} {size} 65535 xmm3 t{heap} {heap}.5")


def told(image: int, heap: int) -> str:
    return process(image, heap).relative(TEXT.format(
        header=image + 0x1550, heap=heap + 64, bss=image + 0x4000, library=heap + 0x10000010,
        complement=(1 << 64) - (heap + 8), size=2048 * 2048 * 8))


def test_two_processes_say_the_same() -> None:
    lines = [line for line in told(*ONE).splitlines() if "call" not in line and "xmm3" not in line]
    assert lines == [line for line in told(*TWO).splitlines() if "call" not in line and "xmm3" not in line]
    assert lines == ["region <file+0x1550>, flags dead", "  guard rdi - <memory> >= 0", "  guard m_1 == <file+0x4000>",
                     "  cell [+<file+0x4000>]:8", "  mov rax, -<memory>"]


def test_names_sizes_and_fractions_stay() -> None:
    last = told(*ONE).splitlines()[-1]
    assert last == f"  add <memory> 33554432 65535 xmm3 t{ONE[1] + 64} {ONE[1] + 64}.5"


@pytest.mark.parametrize(("spelled", "shown"), [
    ("ready:7f12000005d8 = s8 [+0x7f12000005d8]:1", "ready:<memory> = s8 [+<memory>]:1"),
    ("x = call 555500001136(t, 64)", "x = call <file+0x1136>(t, 64)"), ("check 7f1200000010", "check <memory>"),
    ("xmm0[8:16] m[rsp - 8]:64", "xmm0[8:16] m[rsp - 8]:64"),
])
def test_addresses_in_names_are_found(spelled: str, shown: str) -> None:
    assert process(*ONE).relative(spelled) == shown
    assert not process(*ONE).told(shown)


@pytest.mark.parametrize("text", ["name_7f12000005d8", "x7f12000005d8y", f"t{ONE[1] + 64}", f"{ONE[1] + 64}.5"])
def test_what_may_still_be_an_address_is_noticed(text: str) -> None:
    assert process(*ONE).relative(text) == text
    assert process(*ONE).told(text)
    assert not process(*TWO).told(text)


@pytest.mark.parametrize(("number", "shown"), [
    (0x555500000000, "<file+0x0>"), (0x555500009000, "<file+0x9000>"), (0x555500009001, str(0x555500009001)),
    (0x7F1200100000, "<memory>"), (0x7F1200100001, str(0x7F1200100001)), (0, "0"), (1 << 64, str(1 << 64)),
])
def test_the_end_of_a_range_counts_as_its_own(number: int, shown: str) -> None:
    assert process(*ONE).relative(str(number)) == shown
