"""A job that is given up ends, and nothing is said of it; jobs of two workers take turns."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

from memopt.session.improving.worker import Worker, others_first
from tests.support.waiting import PATIENCE

_SOURCE = """
import time, weakref
from memopt.session.improving.worker import Worker, others_first
from tests.support.waiting import PATIENCE
class Thing: pass
def removed(_):
    for _ in range(20000): pass
def job():
    while True:
        for _ in range(50):
            thing = Thing()
            watch = weakref.ref(thing, removed)
            del thing
worker = Worker()
worker.start(job)
for _ in range(200):
    time.sleep(0.002)
    worker.give_up()
    if not worker.busy:
        break
"""


def test_where_it_cannot_be_raised_it_is_not_heard_of() -> None:
    """In what is called when an object goes, exceptions are only reported."""
    done = subprocess.run([sys.executable, "-c", _SOURCE], capture_output=True, text=True,
                          check=True, timeout=PATIENCE)
    assert done.stderr == ""


def test_jobs_of_two_workers_take_turns() -> None:
    """The assembler is one for all threads, and would crash."""
    inside, most, done = 0, 0, threading.Semaphore(0)

    def job() -> None:
        nonlocal inside, most
        for _ in range(20):
            inside += 1
            most = max(most, inside)
            time.sleep(0.001)
            inside -= 1
        done.release()

    for worker in (Worker(), Worker()):
        worker.start(job)
    assert all(done.acquire(timeout=PATIENCE) for _ in range(2))
    assert most == 1


def test_a_job_that_waits_lets_others_run() -> None:
    begun, told = threading.Event(), threading.Event()

    def waiting() -> None:
        with others_first():
            begun.set()
            told.wait(PATIENCE)

    first, second = Worker(), Worker()
    first.start(waiting)
    assert begun.wait(PATIENCE)
    second.start(told.set)
    assert told.wait(PATIENCE)
