"""How long a copy is followed, with a kernel that says what the test wants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from runtime.target.ptrace import Registers, Stop, StopKind, WaitTimeout
from runtime.trial.shadow import End, Shadow, ShadowStopped

WRITE, LONG = 1, 1000.0


@dataclass
class Calling:
    """A process that writes ``calls`` times and then computes for ever; ``used``: its processor seconds, ``share`` of
    those that it is waited for."""

    calls: int
    share: float
    pid: int = 1
    used: float = 0.0

    def go(self, how: int, pid: int) -> None: ...

    def stop(self, timeout_s: float) -> None: ...

    def wait(self, pid: int, timeout_s: float) -> Stop:
        if self.calls:
            self.calls -= 1
            return Stop(StopKind.SYSCALL)
        self.used += self.share * timeout_s
        raise WaitTimeout

    def registers(self) -> Registers:
        return Registers(**dict.fromkeys(Registers.__dataclass_fields__, WRITE))

    def set_registers(self, registers: Registers) -> None: ...


@pytest.mark.parametrize("share", [1.0, 0.1])
@pytest.mark.parametrize("calls", [0, 1, 3])
def test_behind_a_system_call_there_is_little_time(monkeypatch: pytest.MonkeyPatch, calls: int, share: float) -> None:
    """The place may be one that the program came to only before. While others have the processor no time passes."""
    process = Calling(calls, share)
    monkeypatch.setattr(Shadow, "_processor_time", lambda _: process.used)
    with pytest.raises(ShadowStopped) as caught:
        Shadow(cast("Any", process), 0, ())._go(0, LONG)
    assert caught.value.reason is End.TIMEOUT
    assert (process.used > LONG / 2) == (calls == 0)
    assert process.used > 0.1
