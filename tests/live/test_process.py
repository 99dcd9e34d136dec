"""The process as the stages see it: looked at in the stop in which it is changed; no dead copies stay its children."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import nullcontext

import pytest

from memopt.ir.reasons import Reason, Rejected
from memopt.options import Options
from memopt.session.replacing.process import Process
from memopt.session.replacing.reservation import give_back, surroundings
from memopt.session.replacing.site import find_site
from runtime.patching.install import install, unpatched
from runtime.target.memory import mapping_at, mappings
from runtime.target.tracee import status_field
from tests.conftest import Build
from tests.support.targets import RIGHT, Worker
from tests.support.version import prepare
from tests.support.waiting import PATIENCE


def process_of(worker: Worker) -> Process:
    return Process(worker.pid, Options(quiet=True), nullcontext, time.monotonic())


def confine(worker: Worker) -> None:
    os.kill(worker.pid, signal.SIGUSR2)
    deadline = time.monotonic() + PATIENCE
    while status_field(worker.pid, "Seccomp") == "0":
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_confined_process_is_not_copied_and_keeps_the_dead_copy_it_has() -> None:
    with Worker("confine", foreign=True) as worker:
        process = process_of(worker)
        with process.shadows(1, lambda: False):
            pass
        assert worker.children() == []
        with process.shadows(1, lambda: False) as (shadow,):
            confine(worker)
            assert shadow.zombie
        assert len(worker.children()) == 1  # nobody could ask the worker to wait for it
        with pytest.raises(Rejected) as caught, process.shadows(1, lambda: False):
            pass
        assert caught.value.reason is Reason.SECCOMP
        assert worker.finish() == RIGHT  # whose own waitpid sees no child


def test_a_copy_is_made_while_the_process_is_in_the_loop(build: Build) -> None:
    program = subprocess.Popen([str(build("mostly_asleep.c"))], stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout is not None
        first, end = map(int, program.stdout.readline().split())
        process = Process(program.pid, Options(quiet=True), nullcontext, time.monotonic())
        inside = 0
        for _ in range(20):
            with process.shadows(1, lambda: False, ((first, end),)) as (shadow,):
                inside += first <= shadow.registers().rip < end
        assert inside > 10  # of 20; by chance it would be two
    finally:
        program.kill()
        program.communicate()


def test_a_dead_copy_that_could_not_be_waited_for_is_waited_for_later() -> None:
    with Worker("timer", foreign=True) as worker:
        process = process_of(worker)
        away = [False]

        def verify() -> None:
            if away[0]:
                raise Rejected(Reason.BLOCKED)

        object.__setattr__(process, "verify", verify)
        with process.shadows(1, lambda: False):
            away[0] = True
        assert len(worker.children()) == 1
        away[0] = False
        with process.shadows(1, lambda: False):
            pass
        assert worker.children() == []
        assert worker.finish() == RIGHT


@pytest.mark.parametrize("mode", ["segv", "seccomp"])
def test_only_an_eligible_process_is_changed(mode: str) -> None:
    with Worker(mode) as worker:
        process = process_of(worker)
        with process.stopped():
            pass
        with pytest.raises(Rejected) as caught, process.eligible():
            pass
        assert caught.value.reason in (Reason.SIGSEGV_HANDLER, Reason.SECCOMP)
        with pytest.raises(Rejected), process.shadows(1, lambda: False):
            pass
        assert worker.children() == []
        assert worker.finish() == RIGHT


def test_giving_back_before_and_after_service() -> None:
    with Worker("timer") as worker:
        process = process_of(worker)
        before = mappings(worker.pid)
        with process.stopped() as tracee:
            cache, _ = prepare(tracee, worker.address("spin_header"))
        assert give_back(process, cache) == 0
        assert mappings(worker.pid) == before
        with process.stopped() as tracee:
            cache, patch = prepare(tracee, worker.address("spin_header"))
            cache.reserve_scratch(tracee, 1 << 20)
            install(tracee, patch, cache)
        place = cache.placement
        assert give_back(process, cache) == place.code_size + place.frame_size + 4096
        assert mapping_at(mappings(worker.pid), place.code) is not None
        assert mapping_at(mappings(worker.pid), place.scratch) is None
        assert worker.finish() == RIGHT


def test_memory_that_was_never_in_service_stays_in_a_confined_process() -> None:
    with Worker("confine") as worker:
        process = process_of(worker)
        with process.stopped() as tracee:
            cache, _ = prepare(tracee, worker.address("spin_header"))
        confine(worker)
        before = mappings(worker.pid)
        give_back(process, cache)
        assert mappings(worker.pid) == before
        assert worker.finish() == RIGHT


def test_a_function_without_indirect_jumps_is_closed() -> None:
    with Worker("timer") as worker:
        with unpatched(worker.pid) as text:
            site = find_site(worker.pid, worker.address("spin_header"))
            assert surroundings(site, text.read_some, worker.pid).closed
            other = find_site(worker.pid, site.text[0] + 0x20)  # the linkage table: jumps through slots
            assert not surroundings(other, text.read_some, worker.pid).closed
        assert worker.finish() == RIGHT
