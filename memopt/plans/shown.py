"""The lines of ``memopt cache list``, ``memopt cache show PROGRAM`` and ``memopt cache clear``.

In: the folder, a program's path or a name from the list. Out: lines for the user. A file does not tell the path of its
program, so ``list`` shows names, and ``show`` finds the files of a program by its code.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

from memopt.ir.reasons import Reason
from memopt.plans import folder as folders
from memopt.plans.entries import OddFile, Stored, StoredPlan, StoredRefusal
from memopt.plans.identity import file_identity


class NothingKnown(Exception):
    """There is nothing to show. The text is one line for the user."""


def listed() -> Iterator[str]:
    """A line for each file, those used last first."""
    folder = folders.plans_folder(make=False)
    for name in () if folder is None else folders.names(folder):
        assert folder is not None
        try:
            stored = folders.load(folder, name)
            if stored is not None:
                yield f"{name}  {_contents(stored)}, last used {_day(os.path.join(folder, name))}"
        except OddFile as odd:
            yield f"{name}  is ignored: {odd}"


def shown(which: str) -> Iterator[str]:
    """What is known about ``which``: a program, or a name that ``listed`` shows. Raises ``NothingKnown``."""
    found = False
    for name, stored in _of(which):
        if found:
            yield ""
        found = True
        yield f"{name}: {_contents(stored)}"
        yield from (f"  {line}" for line in (*stored.origin, str(stored.file)))
        for entry in stored.entries:
            match entry.what:
                case StoredRefusal(reason, detail, seen, used):
                    words = _words(reason) + (f" ({detail})" if detail else "")
                    yield f"  loop at {entry.header:#x}: left alone, because {words}; seen {seen}, used {used} times"
                case StoredPlan() as plan:
                    speed = f"{plan.original / plan.version:.3g} times as fast in its trial, " if plan.version else ""
                    state = "" if plan.usable else "; not used any more: " + (
                        "it was not faster in service" if plan.lost else "its guard never held")
                    yield f"  loop at {entry.header:#x}: {speed}used {plan.used} times{state}"
                    yield from (f"    {line}" for line in plan.plan.split("\n"))
    if not found:
        raise NothingKnown(f"nothing is known about {which}; memopt cache list shows what is")


def clear(which: Sequence[str]) -> str:
    """Remove the files of these programs, or with these names; all where none is named. Raises ``NothingKnown``."""
    folder = folders.plans_folder(make=False)
    names = list(folders.names(folder)) if folder is not None and not which else []
    for each in which:
        found = [name for name, _ in _of(each)]
        if not found:
            raise NothingKnown(f"nothing is known about {each}; memopt cache list shows what is")
        names += found
    for name in names:
        assert folder is not None
        folders.remove(folder, name)
    return f"removed {len(names)} {'file' if len(names) == 1 else 'files'}"


def _of(which: str) -> Iterator[tuple[str, Stored]]:
    folder = folders.plans_folder(make=False)
    if folder is None:
        return
    known = folders.names(folder)
    file = None if which in known else file_identity(which)
    for name in known:
        try:
            stored = folders.load(folder, name) if name == which or file is not None else None
        except OddFile:
            continue
        if stored is not None and (name == which or stored.file == file):
            yield name, stored


def _contents(stored: Stored) -> str:
    plans = sum(isinstance(entry.what, StoredPlan) for entry in stored.entries)
    refusals = len(stored.entries) - plans
    return f"{plans} {'plan' if plans == 1 else 'plans'}, {refusals} {'refusal' if refusals == 1 else 'refusals'}"


def _day(path: str) -> str:
    try:
        return time.strftime("%Y-%m-%d", time.localtime(os.lstat(path).st_mtime))
    except OSError:
        return "?"


def _words(reason: str) -> str:
    return next((r.explain for r in Reason if r.value == reason), reason)
