"""The rate of the time-stamp counter, which RDTSC reads.

Service, profiles and reports all convert ticks to seconds by it.
"""

from __future__ import annotations

import functools


@functools.cache
def ticks_per_second() -> float:
    """Ticks of the time-stamp counter per second; 1e9 where /proc/cpuinfo does not say.

    The kernel calibrates its delay loop by that counter, so BogoMIPS in /proc/cpuinfo is twice the rate in MHz.
    """
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("bogomips"):
                return float(line.split(":")[1]) * 0.5e6
    return 1e9
