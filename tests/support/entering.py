"""One entry of a ``Header`` and all that the contract of a version says about it (ARCHITECTURE.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from memopt.ir.region import Guard, LiveIn, MemoryBacked, Region, Register, Trips
from memopt.x86.instructions import GENERAL
from tests.support.header import FLAGS, FREE, MXCSR, WORD, Header, Outcome, linear

N = LiveIn("n", Register("rsi"))
TRIPS = Trips(linear(n=1), 1)
INEXACT = 0x20


def with_guard(header: Header, *guards: Guard) -> Region:
    """Live-ins: n in rsi, the trip count, x in rax, y in rdx, z in rbp."""
    symbols = (N, LiveIn("x", Register("rax")), LiveIn("y", Register("rdx")), LiveIn("z", Register("rbp")))
    return header.region(symbols, TRIPS, guards)


def mirrored(header: Header, mirror: MemoryBacked) -> Region:
    """Live-ins: n in rsi, the trip count, p in rdi."""
    return replace(header.region((N, LiveIn("p", Register("rdi"))), TRIPS), memory_backed=(mirror,))


def passes(header: Header, registers: Mapping[str, int], flags: int = 0) -> bool:
    """Run once; everything but the vote must be as the contract says, with no rejoin."""
    before = dict(registers)
    outcome = header.run(registers, flags)
    check_kept(outcome, before, flags)
    assert outcome.mxcsr == MXCSR | (INEXACT if outcome.runs else 0)
    assert outcome.statistics[:2] == (1, outcome.runs)
    assert outcome.statistics[2] == (outcome.limit if outcome.runs else 0)
    assert header.frame_busy() == 0
    return outcome.runs == 1


def check_kept(outcome: Outcome, registers: Mapping[str, int], flags: int,
               moved: Mapping[str, int] | None = None) -> None:
    expected = {name: 0x1111_2222_3333_0000 + number for number, name in enumerate(GENERAL)} | {"r15": 0}
    expected |= {name: value & WORD for name, value in registers.items()} | dict(moved or {})
    found = dict(outcome.registers)
    expected |= {name: found[name] for name in ("rsp", FREE)}
    assert {n: hex(v) for n, v in found.items()} == {n: hex(v) for n, v in expected.items()}
    assert outcome.flags == flags
    assert outcome.vectors_kept
    assert outcome.red_zone_kept
    assert outcome.displaced_runs == 1


def flag_words() -> list[int]:
    bits = [1 << n for n in range(12) if FLAGS >> n & 1]
    return [sum(b for i, b in enumerate(bits) if word >> i & 1) for word in range(1 << len(bits))]
