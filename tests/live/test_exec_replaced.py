"""Every variant of the matrix product, by every compiler and for every instruction set: replaced, and the same bytes.

CI runs a spread in which each variant meets each compiler; MEMOPT_ALL_COMBINATIONS=1 runs every one, each against a
native run of its own (in CI builds share it: they must all print the same, or the sums were done in another order).
"""

from __future__ import annotations

import functools
import itertools
import os
from pathlib import Path

import pytest

from bench.measure.execution import Execution, run, run_under_memopt
from bench.programs.variants import COMPILERS, VARIANTS, Variant, compile_kernel
from memopt.ir.plan import Isa
from memopt.machine.description import usable_isas
from memopt.machine.detect import detect
from tests.support.effort import some_rows
from tests.support.tools import need
from tests.support.waiting import PATIENCE

# Primes for which the original takes a few seconds: long enough to be replaced on a busy machine.
SIZES = {"a": 1409, "b": 1583, "c": 1399, "d-ikj": 2039, "d-jki": 1009, "e": 307}
BUILDS = ("prime", "prime+no-pie", "prime+stripped")
ISAS = tuple(isa.value for isa in Isa)
EVERY = tuple(itertools.product(VARIANTS, COMPILERS, ISAS, BUILDS))
ALL_COMBINATIONS = os.environ.get("MEMOPT_ALL_COMBINATIONS") == "1"

Combination = tuple[str, str, str, str]


def spread() -> list[Combination]:
    """Half of the pairs of variant and compiler; instruction sets and builds go round among them."""
    pairs = [(v, c) for (i, v), (j, c) in itertools.product(enumerate(VARIANTS), enumerate(COMPILERS)) if (i + j) % 2]
    return [(v, c, ISAS[i % len(ISAS)], BUILDS[(i + i // len(ISAS)) % len(BUILDS)]) for i, (v, c) in enumerate(pairs)]


COMBINATIONS = list(EVERY) if ALL_COMBINATIONS else spread()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


def built(variant: Variant, compiler: str, build: str, folder: Path) -> tuple[str, ...]:
    need(COMPILERS[compiler][0])
    size = SIZES[variant.name]
    return (str(compile_kernel(variant, compiler, build, size, folder)), *variant.arguments(size))


@functools.cache
def native(command: tuple[str, ...]) -> Execution:
    return run(command, PATIENCE)


@functools.cache
def usable() -> frozenset[str]:
    return frozenset(isa.value for isa in usable_isas(detect()))


def test_the_spread_leaves_nothing_out() -> None:
    for position, values in enumerate((VARIANTS, COMPILERS, ISAS, BUILDS)):
        assert {combination[position] for combination in spread()} == set(values)


@pytest.mark.parametrize(("name", "compiler", "isa", "build"), some_rows(COMBINATIONS, 2))
def test_replaced_and_identical(folder: Path, name: str, compiler: str, isa: str, build: str) -> None:
    if isa not in usable():
        pytest.skip(f"this machine has no {isa}")
    variant = VARIANTS[name]
    command = built(variant, compiler, build, folder)
    reference = native(command if ALL_COMBINATIONS else built(variant, "gcc-O2", BUILDS[0], folder))
    assert reference.exit_code == 0
    ours = run_under_memopt(command, PATIENCE, ("--isa", isa))
    assert ours.same_result(reference), ours.stderr
    assert ours.replaced, ours.reason()
    loop = ours.replaced[0]
    assert isa in loop["plan"]
    assert loop["share"] > 0.3
    assert loop["iterations_run"] > 0
    if variant.calls > 1:
        assert loop["runs"] > variant.calls // 3
        assert len(ours.replaced) == 1
