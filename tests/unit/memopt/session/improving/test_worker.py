"""A job that is given up ends, and nothing is said of it."""

from __future__ import annotations

import subprocess
import sys

from tests.support.waiting import PATIENCE

_SOURCE = """
import time, weakref
from memopt.session.improving.worker import Worker
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
