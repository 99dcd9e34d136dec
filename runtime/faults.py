"""Fault injection: named points at which a test can kill memopt or make it fail.

``MEMOPT_FAULT=kill:NAME:n`` kills memopt with SIGKILL the n-th time (from 1) a point called NAME is passed;
``raise:NAME:n`` raises ``VerifyError`` there, as an internal failure would. A NAME that ends in ``*`` stands for every
name with that beginning. ``log:FILE`` does no harm and appends each name passed to FILE, one a line. The variable is
read once; unset, a point costs one comparison.
"""

from __future__ import annotations

import os
import signal

from memopt.ir.reasons import VerifyError

VARIABLE = "MEMOPT_FAULT"


class Fault:
    """``remaining`` counts down to the pass on which ``action`` ("kill" or "raise") happens. For ``action`` "log",
    ``name`` is the file."""

    __slots__ = ("action", "name", "remaining")

    def __init__(self, action: str, name: str, remaining: int) -> None:
        self.action, self.name, self.remaining = action, name, remaining

    def matches(self, name: str) -> bool:
        return name.startswith(self.name[:-1]) if self.name.endswith("*") else name == self.name


def parse(text: str) -> Fault:
    """``text`` as in ``MEMOPT_FAULT``; raises ``VerifyError`` when it is malformed."""
    action, _, rest = text.partition(":")
    if action == "log" and rest:
        return Fault(action, rest, 0)
    name, _, count = rest.rpartition(":")
    if action not in ("kill", "raise") or not name or not count.isdecimal() or int(count) < 1:
        raise VerifyError(f"{VARIABLE}={text}: expected kill:NAME:n or raise:NAME:n with n >= 1, or log:FILE")
    return Fault(action, name, int(count))


_armed: Fault | None = parse(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None


def arm(text: str | None) -> None:
    """Replace the fault for this process (tests that fork); ``None`` disarms."""
    global _armed
    _armed = None if text is None else parse(text)


def point(name: str) -> None:
    """A place where the armed fault may strike."""
    if _armed is not None:
        _strike(_armed, name)


def _strike(fault: Fault, name: str) -> None:
    if fault.action == "log":
        with open(fault.name, "a", encoding="utf-8") as file:
            file.write(f"{name}\n")
        return
    if not fault.matches(name):
        return
    fault.remaining -= 1
    if fault.remaining == 0:
        if fault.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise VerifyError(f"fault injected at {name}")
