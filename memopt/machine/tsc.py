"""The rate of the time-stamp counter, which RDTSC reads: the one source of it for the service, profiles and reports."""

from __future__ import annotations

import functools


@functools.cache
def ticks_per_second() -> float:
    """The time stamp counter's rate: the kernel calibrates its delay loop by it (twice tsc_khz, in BogoMIPS)."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("bogomips"):
                return float(line.split(":")[1]) * 0.5e6
    return 1e9
