"""Resource limits: memopt lifts those of its own memory as far as it may, and the program gets what memopt inherited.

Example: under ``ulimit -S -v 300000`` memopt has the hard limit for itself, and the program 300,000 KiB. Under
``ulimit -s 128`` memopt may lift nothing and would die of its own stack, so it becomes the program.

In: the limits that memopt was started with. Out: the same ones in the program; why memopt cannot work under them.

Python itself does not start where the stack is limited to 64 KiB. Then there is no memopt to start the program.

This module is imported before the program starts and so delays it: it imports nothing slow, and no dataclasses.

Sources: setrlimit(2): a soft limit may be raised up to the hard one, which only root may raise. The stack of the first
thread grows up to the limit of the moment.
"""

from __future__ import annotations

import resource

_ALL = resource.RLIM_INFINITY
# What memopt asks for, and without how much of it the program runs alone; how `ulimit` names the limit, and its option.
_WANTED = {
    resource.RLIMIT_STACK: (8 << 20, 1 << 20, "stack", "-s"),
    resource.RLIMIT_AS: (_ALL, 256 << 20, "address space", "-v"),
    resource.RLIMIT_DATA: (_ALL, 160 << 20, "data", "-d"),
}

_inherited: dict[int, tuple[int, int]] = {}


def lift() -> str:
    """Lifts memopt's own limits. Returns why memopt cannot work under one of them, with what to do; "" if it can."""
    for kind, (wanted, needed, name, option) in _WANTED.items():
        soft, hard = resource.getrlimit(kind)
        if _at_least(soft, wanted):
            continue
        _inherited.setdefault(kind, (soft, hard))
        for more in ((wanted, hard if _at_least(hard, wanted) else wanted), (hard, hard)):
            try:
                resource.setrlimit(kind, more)
            except (OSError, ValueError):
                continue
            soft = more[0]
            break
        if not _at_least(soft, needed):
            give_to_program()
            return (f"the {name} is limited to {soft >> 10:,} KiB, of which memopt needs {needed >> 10:,}: "
                    f"the program runs natively; raise it by ulimit {option}")
    return ""


def give_to_program() -> None:
    """Sets the limits as memopt inherited them; called in the process that is about to execve, last of all."""
    for kind, limits in _inherited.items():
        resource.setrlimit(kind, limits)


def _at_least(limit: int, wanted: int) -> bool:
    return limit == _ALL or (wanted != _ALL and limit >= wanted)
