"""For every test: the priority of what it starts, and C programs, built once a session."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.variants import KERNELS, compile_c
from memopt.session.watching.launched import NICE

_PROGRAMS = Path(__file__).resolve().parent / "programs"

Build = Callable[..., Path]


def pytest_configure() -> None:
    """memopt goes back to priority ``NICE``, and a program that keeps its own has ended before memopt has had its turn,
    where all processors are busy. Programs that have to be replaced start at that priority, like all else."""
    os.nice(max(0, NICE - os.getpriority(os.PRIO_PROCESS, 0)))


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """``build("gemm_ijk.c", "-g", compiler="gcc", level="-O2")``: the program's path, compiled at most once.

    The source is looked for in tests/programs and bench/kernels; a test for a missing compiler is skipped.
    """
    folder = tmp_path_factory.mktemp("programs")
    built: dict[tuple[str, ...], Path] = {}

    def make(source: str, *flags: str, compiler: str = "gcc", level: str = "-O2") -> Path:
        key = (source, compiler, level, *flags)
        if key not in built:
            if shutil.which(compiler) is None:
                pytest.skip(f"{compiler} is not installed")
            found = next(p for p in (_PROGRAMS / source, KERNELS / source) if p.exists())
            output = folder / f"{found.stem}-{len(built)}"
            compile_c((compiler, level), found, output, ["-pthread", *flags])
            built[key] = output
        return built[key]

    return make
