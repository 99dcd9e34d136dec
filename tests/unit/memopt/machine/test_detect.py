from __future__ import annotations

from pathlib import Path

import pytest

from memopt.machine.cpuid import Registers, cpuid, xcr0
from memopt.machine.description import CacheLevel, Machine, parse, usable_isas
from memopt.machine.detect import caches_from_cpuid, caches_from_sysfs, detect

# CPUID leaf 4 of a Core i7-4770 as its manual's tables have it: L1d, L1i, L2, L3, end.
_HASWELL = [
    Registers(0x1C004121, 0x01C0003F, 0x3F),
    Registers(0x1C004122, 0x01C0003F, 0x3F),
    Registers(0x1C004143, 0x01C0003F, 0x1FF),
    Registers(0x1C03C163, 0x03C0003F, 0x1FFF),
    Registers(),
]


def _write(folder: Path, **values: object) -> None:
    folder.mkdir(parents=True)
    for name, value in values.items():
        (folder / name).write_text(f"{value}\n")


def _cache(folder: Path, level: int, kind: str, size: str, ways: int, shared: str) -> None:
    _write(folder, level=level, type=kind, size=size, coherency_line_size=64, ways_of_associativity=ways,
           shared_cpu_list=shared)


def test_sysfs_lists_data_caches_in_order(tmp_path: Path) -> None:
    _cache(tmp_path / "cpu0/cache/index0", 1, "Data", "48K", 12, "0")
    _cache(tmp_path / "cpu0/cache/index1", 1, "Instruction", "32K", 8, "0")
    _cache(tmp_path / "cpu0/cache/index2", 2, "Unified", "1M", 16, "0,4")
    _cache(tmp_path / "cpu0/cache/index3", 3, "Unified", "32768K", 0, "0-3,8-11")
    assert caches_from_sysfs(tmp_path) == (
        CacheLevel("L1d", 1, 48 << 10, 64, 12, 1),
        CacheLevel("L2", 2, 1 << 20, 64, 16, 2),
        CacheLevel("L3", 3, 32 << 20, 64, (32 << 20) // 64, 8),
    )


def test_sysfs_without_caches_or_with_broken_ones(tmp_path: Path) -> None:
    assert caches_from_sysfs(tmp_path) == ()
    _cache(tmp_path / "cpu0/cache/index0", 1, "Data", "many", 12, "0")
    _write(tmp_path / "cpu0/cache/index1", level=2, type="Unified")
    assert caches_from_sysfs(tmp_path) == ()


def test_cpuid_leaf_four() -> None:
    caches = caches_from_cpuid(lambda leaf, sub: _HASWELL[sub] if leaf == 4 else Registers(), 8)
    assert caches == (
        CacheLevel("L1d", 1, 32 << 10, 64, 8, 2),
        CacheLevel("L2", 2, 256 << 10, 64, 8, 2),
        CacheLevel("L3", 3, 8 << 20, 64, 16, 8),
    )


def test_cpuid_amd_leaf_and_silence() -> None:
    caches = caches_from_cpuid(lambda leaf, sub: _HASWELL[sub] if leaf == 0x8000_001D else Registers(), 1)
    assert [c.shared_by for c in caches] == [1, 1, 1]
    assert caches_from_cpuid(lambda leaf, sub: Registers(), 1) == ()


def test_this_machine_agrees_with_the_kernel() -> None:
    """/proc/cpuinfo lists a flag only when the kernel enabled its state, which is what usable means."""
    flags = set(Path("/proc/cpuinfo").read_text().split("flags", 1)[1].split("\n", 1)[0].split())
    machine = detect()
    names = {"sse4.1": "sse4_1"}
    for name in ("sse2", "sse4.1", "avx", "fma", "avx2", "bmi2", "avx512f", "avx512dq", "avx512bw",
                 "avx512vl"):
        assert (name in machine.extensions) == (names.get(name, name) in flags), name
    assert parse(machine.to_toml()) == machine
    assert usable_isas(machine)[-1].value == "sse2"


def test_cpuid_runs() -> None:
    assert cpuid(1).edx >> 26 & 1, "SSE2 is part of x86-64"
    assert cpuid(0x7000_0000) == Registers() == cpuid(0xFFFF_FFFF)
    assert xcr0() & 0x3 == 0x3


def test_no_executable_page_is_survived(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(leaf: int, subleaf: int = 0) -> Registers:
        raise OSError("no")

    monkeypatch.setattr("memopt.machine.cpuid.cpuid", refuse)
    machine: Machine = detect(tmp_path)
    assert machine.extensions == ("sse2",)
    assert [c.level for c in machine.levels] == [1, 2]
