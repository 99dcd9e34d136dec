"""``python -m tests.mutation.seeding``: run the check of each fault with the fault seeded, and without.

One process imports what is not memopt's own, then forks for every run, one for each processor at a time; nothing of
memopt is loaded before the fork. Prints "caught", "survived" or "stale" (the text is not there), the name, and seconds.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import Any

from tests.mutation.faults import FAULTS, Check, Fault

_CAUGHT, _SURVIVED, _STALE, _BROKEN = 0, 1, 2, 3
WORDS = {_CAUGHT: "caught", _SURVIVED: "survived", _STALE: "stale", _BROKEN: "broken"}
_PRELOADED = ("capstone", "hypothesis", "islpy", "keystone", "numpy", "pytest", "pyvex")


class _Stale(Exception):
    pass


class _Loader(importlib.machinery.SourceFileLoader):
    fault: Fault

    def get_code(self, fullname: str) -> CodeType:
        text = self.get_data(self.path).decode()
        if text.count(self.fault.old) != 1:
            raise _Stale(f"{text.count(self.fault.old)} times in {self.path}: {self.fault.old}")
        return compile(text.replace(self.fault.old, self.fault.new), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, fault: Fault) -> None:
        self.fault = fault

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
                  ) -> importlib.machinery.ModuleSpec | None:
        if name != self.fault.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        assert spec is not None
        assert spec.origin is not None
        loader = _Loader(name, spec.origin)
        loader.fault = self.fault
        return importlib.util.spec_from_file_location(name, spec.origin, loader=loader)


def start(check: Check, fault: Fault | None) -> int:
    """In a process of its own, whose number this is; it ends with one of the codes above, or dies of what it tried."""
    child = os.fork()
    if child:
        return child
    code = _BROKEN
    try:
        if fault is not None:
            sys.meta_path.insert(0, _Finder(fault))
            importlib.import_module(fault.module)
        with open(os.devnull, "w", encoding="utf-8") as null, contextlib.redirect_stdout(
                null), contextlib.redirect_stderr(null):
            code = _CAUGHT if _notices(check) else _SURVIVED
    except _Stale as stale:
        sys.stderr.write(f"{stale}\n")
        code = _STALE
    except BaseException as error:  # noqa: BLE001 - it is said, and its code is that of a broken check
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    finally:
        os._exit(code)


class _Noticing:
    """Says on standard error, as it is outside, which test fails."""

    def __init__(self) -> None:
        self.stream = os.fdopen(os.dup(2), "w")

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.stream.write(f"  {report.nodeid}\n")
            self.stream.flush()


def _notices(check: Check) -> bool:
    if isinstance(check, str):
        import pytest

        # Plain: explaining how two large sets differ may take minutes, and is not looked at.
        code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "--assert=plain", check], [_Noticing()])
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            raise RuntimeError(f"pytest ends with {code}")
        return code == pytest.ExitCode.TESTS_FAILED
    from tests.support.random_nests.check import check as checked
    from tests.support.random_nests.chosen import chosen
    from tests.support.random_nests.program import DOUBLE, FLOAT

    programs = chosen(check.names, {"double": DOUBLE, "float": FLOAT}[check.kind], prefer=check.prefer, specials=True)
    return any(c.wrong or c.internal for c in checked(list(programs.values())))


def main() -> None:
    for name in _PRELOADED:
        importlib.import_module(name)
    assert not any(m.partition(".")[0] in ("memopt", "passes", "runtime") for m in sys.modules)
    wanted = sys.argv[1:]
    faults = [f for f in FAULTS if not wanted or f.name in wanted]
    runs: list[tuple[str, Check, Fault | None, str]] = [
        *(("without ", check, None, str(check)) for check in dict.fromkeys(f.check for f in faults)),
        *(("", fault.check, fault, fault.name) for fault in faults)]
    running: dict[int, tuple[str, str, float]] = {}
    for prefix, check, fault, name in runs:
        if len(running) == os.cpu_count():
            _report(running)
        running[start(check, fault)] = prefix, name, time.monotonic()
    while running:
        _report(running)


def _report(running: dict[int, tuple[str, str, float]]) -> None:
    """Wait for one of them."""
    child, status = os.wait()
    prefix, name, began = running.pop(child)
    code = os.waitstatus_to_exitcode(status)
    word = WORDS[_CAUGHT if code < 0 else code]  # wrong code in the test's own process
    sys.stdout.write(f"{prefix}{word}\t{name}\t{time.monotonic() - began:.1f}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
