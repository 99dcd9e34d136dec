"""Samples of real processes: the hot address, the threads, not the children."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.launch.identify import identify
from runtime.launch.launch import Target, launch_prepared
from runtime.sampling.perf_events import Events
from runtime.sampling.samples import Sampler, Source, sampler_of

PROGRAM = """
#include <pthread.h>
#include <unistd.h>
__attribute__((noinline)) void *spin(void *unused) { for (volatile long i = 0;; i++); return unused; }
int main(int count, char **arguments) {
    pthread_t thread;
    if (fork() == 0) { alarm(20); spin(0); }
    alarm(20);
    if (count > 1) pthread_create(&thread, 0, spin, 0);
    spin(arguments);
}
"""


@pytest.fixture(scope="module")
def spinner(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("sampling")
    (folder / "spin.c").write_text(PROGRAM)
    subprocess.run(["gcc", "-O1", "-no-pie", "-pthread", "-o", folder / "spin", folder / "spin.c"], check=True)
    return str(folder / "spin")


@pytest.fixture
def running(spinner: str, request: pytest.FixtureRequest) -> Iterator[tuple[Target, list[Sampler]]]:
    target, sampler = launch_prepared(identify(spinner, None), [spinner, *request.param],
                                      lambda pid: sampler_of(Events(pid, on_exec=True)))
    samplers = [sampler]
    children = Path(f"/proc/{target.pid}/task/{target.pid}/children")
    yield target, samplers
    for pid in (*children.read_text().split(), target.pid):
        os.kill(int(pid), signal.SIGKILL)
    while target.supervisor.outcome is None:
        target.supervisor.poll(None)
    target.supervisor.close()
    for sampler in samplers:
        sampler.close()


def need_perf(sampler: Sampler) -> None:
    if sampler.source is not Source.PERF_EVENT:
        pytest.skip(sampler.note)


def run_for(pid: int, seconds: float) -> None:
    """Until the process has used that much processor time more."""
    def used() -> float:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    end = used() + seconds
    while used() < end:
        time.sleep(0.01)


def function(program: str, name: str) -> tuple[int, int]:
    symbols = subprocess.run(["nm", "-S", program], capture_output=True, text=True, check=True).stdout
    start, size = next(line.split()[:2] for line in symbols.splitlines() if line.endswith(f" {name}"))
    return int(start, 16), int(start, 16) + int(size, 16)


@pytest.mark.parametrize("running", [()], indirect=True)
def test_samples_from_the_start_find_the_hot_loop(running: tuple[Target, list[Sampler]], spinner: str) -> None:
    target, (sampler,) = running
    need_perf(sampler)
    run_for(target.pid, 0.2)
    samples = sampler.read()
    start, end = function(spinner, "spin")
    inside = sum(start <= sample.address < end for sample in samples)
    assert 100 < len(samples) < 2000
    assert inside > 0.9 * len(samples)
    assert {sample.tid for sample in samples} == {target.pid}
    assert sampler.lost == 0


@pytest.mark.parametrize("running", [("thread",)], indirect=True)
def test_threads_count_and_children_do_not(running: tuple[Target, list[Sampler]]) -> None:
    target, (sampler,) = running
    need_perf(sampler)
    run_for(target.pid, 0.3)
    tasks = {int(name) for name in os.listdir(f"/proc/{target.pid}/task")}
    assert len(tasks) == 2
    assert {sample.tid for sample in sampler.read()} == tasks


@pytest.mark.parametrize("running", [("thread",)], indirect=True)
def test_attach_sees_the_threads_there_are(running: tuple[Target, list[Sampler]]) -> None:
    target, samplers = running
    run_for(target.pid, 0.05)
    sampler = sampler_of(Events(target.pid, on_exec=False))
    samplers.append(sampler)
    need_perf(sampler)
    run_for(target.pid, 0.3)
    assert {sample.tid for sample in sampler.read()} == {int(name) for name in os.listdir(f"/proc/{target.pid}/task")}


@pytest.mark.parametrize("running", [()], indirect=True)
def test_pause_resume_and_interval(running: tuple[Target, list[Sampler]]) -> None:
    target, (sampler,) = running
    need_perf(sampler)
    sampler.pause()
    sampler.read()
    run_for(target.pid, 0.1)
    assert sampler.read() == []
    sampler.set_interval(20_000_000)
    sampler.resume()
    run_for(target.pid, 0.3)
    assert 5 < len(sampler.read()) < 60


def test_sampling_leaks_no_descriptor(spinner: str) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    sampler = sampler_of(Events(os.getpid(), on_exec=False))
    sampler.close()
    sampler.close()
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_program_sees_no_descriptor_of_the_sampler(tmp_path: Path) -> None:
    found = tmp_path / "found"
    target, sampler = launch_prepared(identify("sh", "/bin"), ["sh", "-c", f"readlink /proc/$$/fd/* > {found}"],
                                      lambda pid: sampler_of(Events(pid, on_exec=True)))
    while target.supervisor.outcome is None:
        target.supervisor.poll(None)
    target.supervisor.close()
    sampler.close()
    assert "perf" not in found.read_text()
