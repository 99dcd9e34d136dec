"""The time of a program in the kernel, and of what it has started."""

from __future__ import annotations

import os
import resource
import subprocess
import time

import pytest

from memopt.session.watching.started import Started

_BUSY = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"


def _usage(command: str) -> tuple[Started, resource.struct_rusage]:
    process = subprocess.Popen(["sh", "-c", command])
    started, now = Started(process.pid), 0.0
    while True:
        started.step(now := now + 1)
        pid, _, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = 0
            return started, usage
        time.sleep(0.002)


def test_a_program_that_starts_nothing() -> None:
    started, usage = _usage(_BUSY)
    assert started.account(usage.ru_utime, usage) == (usage.ru_stime, 0.0)
    assert started.note() == ""


def test_a_program_that_starts_another() -> None:
    started, usage = _usage(f"{_BUSY}; sh -c '{_BUSY}'; true")
    kernel, others = started.account(0.5 * usage.ru_utime, usage)
    assert kernel + others == pytest.approx(0.5 * usage.ru_utime + usage.ru_stime, abs=0.05)
    assert others > 0
    kernel, others = started.account(0.0, None)  # its end was seen elsewhere: what was seen before counts
    assert 0 <= kernel <= usage.ru_stime + 0.03
