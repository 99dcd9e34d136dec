"""The kernels and the programs for refusals: they build without warnings and compute what they say."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conftest import Build

SIZE = 37


def _output(program: Path, *arguments: object) -> str:
    return subprocess.run([program, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def _hash(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("hash"))


def test_every_order_sums_each_element_in_the_same_order(build: Build) -> None:
    """k ascends in all of them, so all bits agree: what makes reordering legal is visible in the kernels."""
    reference = _hash(_output(build("gemm_ijk.c", "-Wall", "-Wextra", "-Werror"), SIZE))
    for source in ("gemm_ikj.c", "gemm_jki.c"):
        assert _hash(_output(build(source, "-Wall", "-Wextra", "-Werror"), SIZE)) == reference
    static = build("gemm_static.c", f"-DN={SIZE}", "-Wall", "-Wextra", "-Werror")
    assert _hash(_output(static)) == reference


def test_every_compiler_gives_the_same_bits(build: Build) -> None:
    results = {_output(build("gemm_ijk.c", compiler=c, level=level), SIZE, "all")
               for c, level in (("gcc", "-O1"), ("gcc", "-O2"), ("gcc", "-O3"), ("clang", "-O2"))}
    assert len(results) == 1


def test_the_whole_matrix_is_the_exact_product(build: Build) -> None:
    """Rounded after every product and every sum, k ascending, by Python's own IEEE arithmetic."""
    n = 5
    rows = _output(build("gemm_ijk.c"), n, "all").splitlines()[:n]
    printed = [float.fromhex(x) for row in rows for x in row.split()]
    a, b, c = (_fill(n * n, seed) for seed in (1, 2, 3))
    for i in range(n):
        for j in range(n):
            for k in range(n):
                c[i * n + j] += a[i * n + k] * b[k * n + j]
    assert printed == c


def _fill(count: int, state: int) -> list[float]:
    values = []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        values.append((state >> 11) * 2.0**-53 - 0.5)
    return values


def test_single_precision_differs_from_double(build: Build) -> None:
    double, single = (_output(build("gemm_ijk.c", f"-DREAL={real}"), SIZE) for real in ("double", "float"))
    assert _hash(double) != _hash(single)


def test_repeated_calls_each_count(build: Build) -> None:
    program = build("gemm_repeat.c", "-Wall", "-Wextra", "-Werror")
    assert len({_output(program, 8, calls) for calls in (1, 2, 3)}) == 3


@pytest.mark.parametrize("source", ["two_threads.c", "sigsegv_handler.c", "call_in_nest.c"])
def test_programs_to_refuse_compute_the_product(build: Build, source: str) -> None:
    assert _hash(_output(build(source), SIZE)) == _hash(_output(build("gemm_ijk.c"), SIZE))


def test_mappings_matter_only_where_pages_are_shared_by_operands(build: Build) -> None:
    program = build("mapped_arrays.c")
    results = {mode: _hash(_output(program, mode, SIZE)) for mode in ("shared", "file", "twice", "beside", "private")}
    assert results["shared"] == results["file"] == results["beside"] == results["private"]
    assert results["twice"] != results["private"]


def test_overlap_changes_the_result(build: Build) -> None:
    program = build("overlap.c")
    assert len({_hash(_output(program, over, SIZE, offset)) for over in "ab" for offset in (0, 1, SIZE)}) == 6
