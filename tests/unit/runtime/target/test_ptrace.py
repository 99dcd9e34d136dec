from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from runtime.target.ptrace import Registers, Stop, StopKind, decode

MINUS_ONE = (1 << 64) - 1
CALM = Registers(*[0] * 27).outside_call()


def status(number: int, event: int = 0) -> int:
    return event << 16 | number << 8 | 0x7F


@pytest.mark.parametrize(("value", "stop"), [
    (status(signal.SIGTRAP, 128), Stop(StopKind.INTERRUPT)),
    (status(signal.SIGTSTP, 128), Stop(StopKind.GROUP, signal.SIGTSTP)),
    (status(signal.SIGTRAP | 0x80), Stop(StopKind.SYSCALL)),
    (status(signal.SIGTRAP), Stop(StopKind.SIGNAL, signal.SIGTRAP)),
    (status(signal.SIGALRM), Stop(StopKind.SIGNAL, signal.SIGALRM)),
    (status(signal.SIGTRAP, 1), Stop(StopKind.NEW_PROCESS)),
    (status(signal.SIGTRAP, 3), Stop(StopKind.NEW_PROCESS)),
])
def test_stops(value: int, stop: Stop) -> None:
    assert decode(value) == stop


@pytest.mark.parametrize(("orig_rax", "rax", "restarting"), [
    (MINUS_ONE, (1 << 64) - 512, False),  # not in a call at all: rax may hold anything
    (0, (1 << 64) - 512, True),
    (35, (1 << 64) - 516, True),
    (0, 1, False),
    (0, (1 << 64) - 4, False),  # -EINTR is an answer, not a restart
])
def test_restarting_calls(orig_rax: int, rax: int, restarting: bool) -> None:
    assert replace(CALM, orig_rax=orig_rax, rax=rax).restarting is restarting
