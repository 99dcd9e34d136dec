"""Fault injection: named points in the code at which a test kills memopt or makes it fail.

Example: ``MEMOPT_FAULT=kill:install.commit:1`` kills memopt just before it writes the first patch.

In: the environment variable MEMOPT_FAULT, read once when this module is imported:

- ``kill:NAME:n`` kills memopt with SIGKILL the n-th time (from 1) that it passes a point called NAME;
- ``raise:NAME:n`` raises ``VerifyError`` there, as an internal failure would;
- ``log:FILE`` does no harm: it appends the name of each point passed to FILE, one per line.

A NAME that ends in ``*`` stands for every name that begins so. If the variable is not set, a point costs one
comparison.
"""

from __future__ import annotations

import os
import signal

from memopt.ir.reasons import VerifyError

VARIABLE = "MEMOPT_FAULT"


class Fault:
    """One armed fault: ``action`` is "kill", "raise" or "log".

    ``name``: the point, perhaps with a ``*`` at its end; for "log" the file. ``remaining``: passes of the point until
    the fault strikes, the striking one included; 0 for "log".
    """

    __slots__ = ("action", "name", "remaining")

    def __init__(self, action: str, name: str, remaining: int) -> None:
        self.action, self.name, self.remaining = action, name, remaining

    def matches(self, name: str) -> bool:
        """Whether the point called ``name`` is the fault's, or one of the fault's if that ends in ``*``."""
        return name.startswith(self.name[:-1]) if self.name.endswith("*") else name == self.name


def parse(text: str) -> Fault:
    """The fault that ``text`` asks for, in the syntax of MEMOPT_FAULT. Raises ``VerifyError`` if it is malformed."""
    action, _, rest = text.partition(":")
    if action == "log" and rest:
        return Fault(action, rest, 0)
    name, _, count = rest.rpartition(":")
    if action not in ("kill", "raise") or not name or not count.isdecimal() or int(count) < 1:
        raise VerifyError(f"{VARIABLE}={text}: expected kill:NAME:n or raise:NAME:n with n >= 1, or log:FILE")
    return Fault(action, name, int(count))


_armed: Fault | None = parse(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None


def armed() -> bool:
    """Whether a fault is to be injected."""
    return _armed is not None


def arm(text: str | None) -> None:
    """Arm another fault for this process, as tests do after a fork; ``None`` disarms."""
    global _armed
    _armed = None if text is None else parse(text)


def point(name: str) -> None:
    """Mark a point called ``name``: the armed fault strikes here, if it is meant."""
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
