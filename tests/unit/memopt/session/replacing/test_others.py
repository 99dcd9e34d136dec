"""Which loops come back to their guards, and how often."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memopt.ir.parse import parse_region
from memopt.ir.region import Region
from memopt.session.replacing.others import LEAST_STEPS, chunk, hands_out_stack, returning
from runtime.target.memory import Mapping
from tests.support.sites import NESTS, site_of

_NEST = """region 0x401000
  rdi = s64 rdi
  {live_in}
  R = (rdi) / 1
  guard {symbol} == 0 "the branch goes one way"
  {rejoin}footprint A0 [rdi, 800*R + rdi) rw
  array A0: f64 at rdi, strides (800, 8)
  S0[i<R, j<100]: A0[i, j] = add(A0[i, j], A0[i, j])
"""
_MAPS = (Mapping(0x1000, 0x2000, "r--", False, 0, "0:0", 0, ""), Mapping(0x2000, 0x3000, "rw-", False, 0, "0:0", 0, ""))
_LEAF, _WITH_ARRAY = site_of(NESTS), site_of("lea rsi, [rsp - 64]\n" + NESTS)


def nest(cell: str, guarded: bool = True, rejoin: str = "") -> Region:
    return parse_region(_NEST.format(live_in=f"flag = s32 {cell}", symbol="flag" if guarded else "rdi",
                                     rejoin=f"rejoin {rejoin}\n  " if rejoin else ""))


@pytest.mark.parametrize(("cell", "often"), [
    ("[+0x2010]:4", True), ("[+0x1010]:4", False), ("[+0x9010]:4", True), ("[rbx+0x10]:4", True),
    ("[rsp-0x8]:4", False),
    ("rbx", False),
])
def test_a_cell_that_decides_may_be_changed_by_others(cell: str, often: bool) -> None:
    values = {"rdi": 100, "rbx": 0x2000}
    assert returning(nest(cell), _LEAF, values, _MAPS).returns_often is often
    assert not returning(nest(cell, guarded=False), _LEAF, values, _MAPS).returns_often


def test_cells_on_a_stack_whose_addresses_are_handed_out_count() -> None:
    assert returning(nest("[rsp-0x8]:4"), _WITH_ARRAY, {"rdi": 100}, _MAPS).returns_often


def test_a_cell_that_tells_how_far_the_loop_is_must_move() -> None:
    assert returning(nest("rbx", False, "[+0x2010]:4 := H"), _LEAF, {"rdi": 100}, _MAPS).returns_often
    assert not returning(nest("rbx", False, "[rsp-0x8]:8 := H"), _LEAF, {"rdi": 100}, _MAPS).returns_often
    assert returning(nest("rbx", False, "[rsp-0x8]:8 := H"), _WITH_ARRAY, {"rdi": 100}, _MAPS).returns_often


@pytest.mark.parametrize(("before", "expected"), [
    ("mov rbp, rsp", False), ("push rbp", False), ("lea rax, [rsp + 8]", True), ("lea rcx, [rbp - 8]", True),
    ("mov rcx, rsp", True), ("mov [rcx], rsp", True), ("push rsp", True), ("add rcx, rsp", True),
    ("sub rsp, 64", False), ("lea rsp, [rsp + 8]", False), ("mov rsp, rbp", False), ("mov [rsp + 8], rax", False),
    ("mov rax, [rbp - 8]", False), ("lea rax, [rcx + 8]", False),
])
def test_functions_that_hand_out_addresses_of_their_stack(before: str, expected: bool) -> None:
    assert hands_out_stack(site_of(f"{before}\n{NESTS}")) is expected


def test_the_iterations_of_a_chunk() -> None:
    plain, waited = nest("[rsp-0x8]:4"), replace(nest("[+0x2010]:4"), returns_often=True)
    assert chunk(plain, {"rdi": 1000}, 1e-3) is None
    assert chunk(waited, {"rdi": 1000}, 1e-3) == 20
    assert chunk(waited, {"rdi": 1000}, 1.0) == 1
    telling = replace(nest("rbx", False, "[+0x2010]:4 := H"), returns_often=True)
    assert chunk(telling, {"rdi": 16 * LEAST_STEPS}, 1e-9) == 16
    assert chunk(telling, {"rdi": 3}, 1e-9) == 1


def test_without_a_trial_the_work_tells_the_iterations() -> None:
    assert chunk(replace(nest("[+0x2010]:4"), returns_often=True), {"rdi": 1000}, None) == 200_000
