"""For every test: its priority, whether it is live or long, C programs built once, and what the machine lacks."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.programs.variants import KERNELS, compile_c
from memopt.session.watching.launched import NICE
from tests.support.tools import advice, need

_ROOT = Path(__file__).resolve().parents[1]
_PROGRAMS = _ROOT / "tests" / "programs"
_BUILT = _ROOT / "build" / "tests"
_LIVE = ("live", "equivalence", "mutation")

Build = Callable[..., Path]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--one-in", type=int, default=1, metavar="N", help="of the cases of each long test run one in N")


def pytest_configure() -> None:
    """memopt goes back to priority ``NICE``, and a program that keeps its own has ended before memopt has had its turn,
    where all processors are busy. Programs that have to be replaced start at that priority, like all else.

    Shells ignore signals of the terminal for what they start in the background, and so would all programs of tests."""
    _keep_to_itself()
    os.nice(max(0, NICE - os.getpriority(os.PRIO_PROCESS, 0)))
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL),
                            (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def _keep_to_itself() -> None:
    """Give the run a cache folder of its own, in which there is no plan cache: a file is in its place. Each test sees
    the programs of others for the first time; those of the plan cache make a folder of their own."""
    folder = tempfile.mkdtemp(prefix="memopt-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.mkdir(os.path.join(folder, "memopt"), 0o700)
    with open(os.path.join(folder, "memopt", "plans"), "x", encoding="ascii"):
        os.environ["XDG_CACHE_HOME"] = folder


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests with processes of their own are ``live``; drawn nests and seeded faults are ``long`` and ``whole``, too."""
    for item in items:
        folder = item.path.relative_to(_ROOT / "tests").parts[0]
        if folder in _LIVE:
            item.add_marker("live")
        if folder in _LIVE[1:]:
            item.add_marker("long")
            item.add_marker("whole")
    dropped = {*_dropped(items, config.getoption("--one-in"))}
    config.hook.pytest_deselected(items=[x for x in items if x in dropped])
    items[:] = [x for x in items if x not in dropped]


def _dropped(items: list[pytest.Item], one_in: int) -> Iterator[pytest.Item]:
    """The cases of long tests that a run of one case in ``one_in`` leaves out. By a hash of their names, so that the
    choice is the same in each run and does not follow the order of any argument; one case of each test stays."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("long") and not item.get_closest_marker("whole"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for ordered in (sorted(x, key=lambda item: zlib.crc32(item.nodeid.encode())) for x in cases.values()):
        yield from ordered[-(-len(ordered) // one_in):]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line that names the packages a machine lacks."""
    reasons = [r.longrepr[2] for r in terminalreporter.stats.get("skipped", ()) if isinstance(r.longrepr, tuple)]
    line = advice(reasons)
    if line is not None:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def build() -> Build:
    """``build("gemm_ijk.c", "-g", compiler="gcc", level="-O2")``: the program's path.

    The source is looked for in tests/programs and bench/kernels. A program is compiled once and kept in build/tests,
    under a name that tells its compiler, flags and sources; all processes of all test runs share it. A test for a
    missing compiler is skipped.
    """
    @functools.cache
    def make(source: str, *flags: str, compiler: str = "gcc", level: str = "-O2") -> Path:
        need(compiler)
        found = next(p for p in (_PROGRAMS / source, KERNELS / source) if p.exists())
        told = "\0".join((source, compiler, _version(compiler), level, *flags, _sources(found.parent)))
        output = _BUILT / hashlib.sha256(told.encode()).hexdigest()[:16] / found.stem
        if not output.exists():
            output.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=output.parent) as folder:
                made = Path(folder) / found.stem
                compile_c((compiler, level), found, made, ["-pthread", *flags])
                made.replace(output)
        return output

    return make


@functools.cache
def _version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout


@functools.cache
def _sources(folder: Path) -> str:
    """Tells all sources of ``folder`` and all headers: a source may include any of them."""
    digest = hashlib.sha256()
    for path in sorted({*folder.iterdir(), *KERNELS.glob("*.h")}):
        if path.is_file():
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
