"""A version that is interrupted: suspended while it is taken out, or left for good.

The program is tests/programs/interrupted.c. In every test new code is in place, and the interruption comes in the
middle of it: the lock of its frame is held, and no thread stands in it.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memopt.ir.code import FRAME_BUSY, FRAME_RETIRED
from memopt.ir.reasons import Reason
from runtime.patching.install import Installed, find_installed, find_versions
from runtime.target.memory import Memory, mapping_at, mappings
from runtime.target.tracee import attach, status_field
from tests.conftest import Build
from tests.live.test_exec_attach import ALONE
from tests.live.test_exec_attach import attach as memopt_attach
from tests.support.effort import some
from tests.support.told import EXIT_CODE, Told, await_that, native_output, text_of

SIZE = "448"


@pytest.fixture(scope="session")
def interrupted(build: Build) -> Path:
    return build("interrupted.c")


@pytest.fixture(scope="session")
def right(interrupted: Path) -> str:
    return native_output(interrupted, SIZE, "leave")


def busy(pid: int, version: Installed) -> int:
    memory = Memory(pid)
    try:
        return memory.word(version.placement.frame + FRAME_BUSY)
    finally:
        memory.close()


def runs(pid: int, version: Installed) -> int:
    memory = Memory(pid)
    try:
        return memory.word(version.placement.statistics + 8)
    finally:
        memory.close()


def inside(pid: int, version: Installed) -> bool:
    place = version.placement
    with attach(pid) as tracee:
        tracee.stop(10.0)
        return place.code <= tracee.registers().rip < place.code + place.code_size


def interrupt_in_the_middle(pid: int, resume: Callable[[], None]) -> Installed:
    """Send SIGUSR2 until it comes in the middle of the version, which is returned. ``resume``: what undoes it."""
    version, = find_installed(pid)
    found: list[bool] = []

    def hit() -> bool:
        os.kill(pid, signal.SIGUSR2)
        time.sleep(0.1)
        found.append(busy(pid, version) not in (0, FRAME_RETIRED) and not inside(pid, version))
        if found[-1] and busy(pid, version) not in (0, FRAME_RETIRED):
            return True
        resume()
        time.sleep(0.05)
        return False

    await_that(hit, lambda: f"an interruption of the version; {len(found)} tries")
    return version


@pytest.fixture(params=some(["suspend", "large", "nested"], 1))
def alone(request: pytest.FixtureRequest, interrupted: Path, tmp_path: Path) -> Iterator[Told]:
    with Told(interrupted, tmp_path, command=ALONE, arguments=(SIZE, request.param)) as told:
        yield told


def improve(pid: int) -> None:
    """Attach until there is a version in force: on a busy machine memopt leaves before it has seen enough."""
    await_that(lambda: memopt_attach(pid).exit_code == 0 and len(find_installed(pid)) == 1, lambda: "a version")


def test_taken_out_under_somebody_who_comes_back(alone: Told, right: str) -> None:
    text = text_of(alone.pid)
    improve(alone.pid)
    version = interrupt_in_the_middle(alone.pid, lambda: os.kill(alone.pid, signal.SIGHUP))
    undone = memopt_attach(alone.pid, "--undo")
    assert "1 of 1 versions in the middle of a run" in undone.stderr
    assert text_of(alone.pid) == text
    maps = mappings(alone.pid)
    assert all(mapping_at(maps, at) is not None for at in (
        version.placement.code, version.placement.frame, version.placement.statistics, version.placement.scratch))
    os.kill(alone.pid, signal.SIGHUP)  # it goes on in the version, and comes out
    await_that(lambda: not busy(alone.pid, version), lambda: "the end of the run")
    undone = memopt_attach(alone.pid, "--undo")
    assert "in the middle" not in undone.stderr
    assert busy(alone.pid, version) == FRAME_RETIRED
    left, = find_versions(alone.pid)
    assert (left.placement.code, left.placement.scratch_size) == (version.placement.code, 0)
    assert mapping_at(mappings(alone.pid), version.placement.scratch) is None
    improve(alone.pid)  # a new one beside it
    assert len(find_versions(alone.pid)) > 1
    memopt_attach(alone.pid, "--undo")
    assert text_of(alone.pid) == text
    assert alone.finish() == (EXIT_CODE, right)


@pytest.mark.parametrize("mode", some(["leave", "deeper"], 1))
def test_left_for_good(interrupted: Path, right: str, tmp_path: Path, mode: str) -> None:
    """An entry with the stack pointer of the one that was left takes the version over, or memopt frees its lock."""
    with Told(interrupted, tmp_path, arguments=(SIZE, mode)) as told:
        told.await_replaced()
        told.await_idle()
        version, = find_installed(told.pid)
        for _ in range(5):
            os.kill(told.pid, signal.SIGUSR2)
            before = runs(told.pid, version)
            await_that(lambda before=before: runs(told.pid, version) > before + 2, lambda: "further runs")
        assert told.finish() == (EXIT_CODE, right)


@pytest.mark.long
def test_a_suspended_holder_keeps_the_lock(interrupted: Path, right: str, tmp_path: Path) -> None:
    """The other task runs the original meanwhile, however long memopt waits."""
    with Told(interrupted, tmp_path, "--verbose", arguments=(SIZE, "suspend")) as told:
        told.await_replaced()
        told.await_idle()
        version = interrupt_in_the_middle(told.pid, lambda: os.kill(told.pid, signal.SIGHUP))
        before = runs(told.pid, version)
        time.sleep(4.0)
        assert busy(told.pid, version) not in (0, FRAME_RETIRED)
        assert runs(told.pid, version) == before
        os.kill(told.pid, signal.SIGHUP)
        await_that(lambda: busy(told.pid, version) in (0, FRAME_RETIRED), lambda: "the end of the run")
        assert told.finish() == (EXIT_CODE, right)
        assert re.search(r"unlock: \d", told.stderr), told.stderr


def test_confined_while_a_version_is_in_service(interrupted: Path, right: str, tmp_path: Path) -> None:
    """It stays, and can be taken out."""
    with Told(interrupted, tmp_path, arguments=(SIZE, "confine")) as told:
        text = text_of(told.pid)
        told.await_replaced()
        told.await_idle()
        version, = find_installed(told.pid)
        os.kill(told.pid, signal.SIGUSR2)
        await_that(lambda: status_field(told.pid, "Seccomp") == "2", lambda: "a confined program")
        before = runs(told.pid, version)
        await_that(lambda: runs(told.pid, version) > before + 2, lambda: "further runs")
        undone = memopt_attach(told.pid, "--undo")
        assert (undone.exit_code, text_of(told.pid)) == (0, text), undone.stderr
        assert mapping_at(mappings(told.pid), version.placement.scratch) is not None
        assert told.finish() == (EXIT_CODE, right)


def test_a_handler_that_may_repair_faults_comes_later(interrupted: Path, right: str, tmp_path: Path) -> None:
    """The version is taken out, and the report says why."""
    with Told(interrupted, tmp_path, arguments=(SIZE, "handle")) as told:
        text = text_of(told.pid)
        told.await_replaced()
        await_that(lambda: len(find_installed(told.pid)) == 1, lambda: "a version")
        version, = find_installed(told.pid)
        await_that(lambda: runs(told.pid, version) > 2, lambda: "runs")
        os.kill(told.pid, signal.SIGUSR2)
        await_that(lambda: text_of(told.pid) == text, lambda: "the original code")
        assert told.finish() == (EXIT_CODE, right)
        assert Reason.SIGSEGV_HANDLER.explain in told.stderr
        assert "KiB of code that was taken out stay" in told.stderr


@pytest.mark.long
@pytest.mark.parametrize("milliseconds", range(0, 3000, 150))
def test_confined_at_any_moment(interrupted: Path, right: str, tmp_path: Path, milliseconds: int) -> None:
    with Told(interrupted, tmp_path, arguments=(SIZE, "confine")) as told:
        time.sleep(milliseconds / 1000)
        os.kill(told.pid, signal.SIGUSR2)
        told.await_idle()
        assert told.finish() == (EXIT_CODE, right)
