"""Hardware detection: the description of the machine that memopt runs on.

In: sysfs, CPUID, /proc/cpuinfo. Out: a ``Machine``.

Caches come from sysfs, and from CPUID only where sysfs lists none: under a hypervisor CPUID's cache leaves may still
show the host's values, which the kernel has corrected in sysfs. CPUID and XCR0 together decide which vector extensions
may be executed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from memopt.machine import cpuid as cpuid_module
from memopt.machine.cpuid import Registers
from memopt.machine.description import XCR0_AVX, XCR0_AVX512, XCR0_SSE, CacheLevel, Machine

_PROCESSORS = Path("/sys/devices/system/cpu")

# name, (CPUID leaf, register, bit), XCR0 bits that must be enabled: Intel SDM vol. 2A, CPUID, leaves 1 and 7.
_EXTENSIONS = (
    ("sse2", (1, "edx", 26), 0),
    ("sse4.1", (1, "ecx", 19), 0),
    ("avx", (1, "ecx", 28), XCR0_AVX),
    ("fma", (1, "ecx", 12), XCR0_AVX),
    ("avx2", (7, "ebx", 5), XCR0_AVX),
    ("bmi2", (7, "ebx", 8), 0),
    ("avx512f", (7, "ebx", 16), XCR0_AVX512),
    ("avx512dq", (7, "ebx", 17), XCR0_AVX512),
    ("avx512bw", (7, "ebx", 30), XCR0_AVX512),
    ("avx512vl", (7, "ebx", 31), XCR0_AVX512),
)

# Assumed where neither sysfs nor CPUID lists a cache: the smallest caches in current use, so that tiles fit.
_ASSUMED = (CacheLevel("L1d", 1, 32 << 10, 64, 8, 1), CacheLevel("L2", 2, 256 << 10, 64, 8, 1))


def detect(processors: Path = _PROCESSORS) -> Machine:
    """The description of this machine; ``processors``: the folder of processors in sysfs."""
    cores = os.cpu_count() or 1
    try:
        enabled, model = cpuid_module.xcr0(), cpuid_module.brand()
        extensions = _extensions(cpuid_module.cpuid, enabled)
        fallback = caches_from_cpuid(cpuid_module.cpuid, cores)
    except OSError:  # no executable page for CPUID: only SSE2 is certain, as part of x86-64
        extensions, enabled, model, fallback = ("sse2",), XCR0_SSE, "", ()
    levels = caches_from_sysfs(processors) or fallback or _ASSUMED
    page_size = os.sysconf("SC_PAGE_SIZE")
    return Machine(levels, page_size, extensions, enabled, model or "x86-64", cores, _frequency(processors))


def _extensions(query: Callable[[int], Registers], enabled: int) -> tuple[str, ...]:
    leaves = {leaf: query(leaf) for leaf in (1, 7)}
    return tuple(
        name
        for name, (leaf, register, bit), state in _EXTENSIONS
        if getattr(leaves[leaf], register) >> bit & 1 and enabled & state == state
    )


def caches_from_sysfs(processors: Path) -> tuple[CacheLevel, ...]:
    """The data and unified caches of the first processor that lists some; empty where none does."""
    for processor in sorted(processors.glob("cpu[0-9]*")):
        found = [_sysfs_cache(index) for index in sorted((processor / "cache").glob("index[0-9]*"))]
        levels = {cache.level: cache for cache in found if cache is not None}
        if levels:
            return tuple(levels[number] for number in sorted(levels))
    return ()


def _sysfs_cache(index: Path) -> CacheLevel | None:
    try:
        values = {name: (index / name).read_text().strip() for name in ("type", "level", "size", "coherency_line_size")}
        if values["type"] == "Instruction":
            return None
        level, size, line = int(values["level"]), _bytes(values["size"]), int(values["coherency_line_size"])
        ways = int((index / "ways_of_associativity").read_text())
        shared_by = _listed((index / "shared_cpu_list").read_text())
    except (OSError, ValueError):
        return None
    if min(level, size, line) <= 0:
        return None
    # Zero ways stands for "fully associative" in sysfs.
    return CacheLevel(_name(level), level, size, line, ways or size // line, max(shared_by, 1))


def _bytes(text: str) -> int:
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * scale[text[-1]] if text[-1:] in scale else int(text)


def _listed(text: str) -> int:
    """The number of processors in a list such as ``0-3,8``."""
    count = 0
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        count += int(last or first) - int(first) + 1
    return count


def caches_from_cpuid(query: Callable[[int, int], Registers], cores: int) -> tuple[CacheLevel, ...]:
    """The data and unified caches by CPUID's cache parameters: Intel's leaf 4, or AMD's leaf 0x8000001D (same layout).

    Empty where the processor has neither. ``cores`` limits how many processors may share a cache.
    """
    for leaf in (4, 0x8000_001D):
        levels: dict[int, CacheLevel] = {}
        for subleaf in range(16):
            r = query(leaf, subleaf)
            kind, level = r.eax & 0x1F, r.eax >> 5 & 7
            if kind == 0:
                break
            ways, partitions, line = (r.ebx >> 22) + 1, (r.ebx >> 12 & 0x3FF) + 1, (r.ebx & 0xFFF) + 1
            size = ways * partitions * line * (r.ecx + 1)
            if kind != 2 and level:  # 2: instructions only
                shared_by = min((r.eax >> 14 & 0xFFF) + 1, cores)
                levels[level] = CacheLevel(_name(level), level, size, line, ways, shared_by)
        if levels:
            return tuple(levels[number] for number in sorted(levels))
    return ()


def _name(level: int) -> str:
    return "L1d" if level == 1 else f"L{level}"


def _frequency(processors: Path) -> int | None:
    """MHz: the maximum frequency from sysfs, else the current one from /proc/cpuinfo, else None."""
    try:
        return int((processors / "cpu0/cpufreq/cpuinfo_max_freq").read_text()) // 1000
    except (OSError, ValueError):
        pass
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            found = next((line for line in lines if line.startswith("cpu MHz")), "")
        return round(float(found.partition(":")[2])) or None
    except (OSError, ValueError):
        return None
