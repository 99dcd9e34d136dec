"""The kernels of the suite: they build without warnings, end well on small sizes, and do not depend on the compiler."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from bench.programs.families import FAMILIES, KERNELS, SMALL, Kernel
from bench.programs.variants import KERNELS as FOLDER
from tests.support.effort import some
from tests.support.tools import need

COMPILERS = {"C": "gcc", "C++": "g++", "Fortran": "gfortran"}


def _build(kernel: Kernel, level: str, folder: Path) -> Path:
    output = folder / f"{kernel.name}{level}"
    kernel.compile((COMPILERS[kernel.language], level), output, [f"-DN={SMALL}", "-Wall", "-Wextra", "-Werror"])
    return output


def test_the_list() -> None:
    affine = [k for k in KERNELS.values() if k.affine]
    assert len(affine) >= 45
    assert {language: sum(k.language == language for k in affine) >= 3 for language in COMPILERS} == dict.fromkeys(
        COMPILERS, True)
    assert len(FAMILIES) == 8
    used = {source for k in KERNELS.values() for source in (k.source, k.library)}
    unlisted = {p.name for p in FOLDER.iterdir() if p.suffix in (".c", ".cpp", ".f90")
                and not p.name.startswith(("gemm_ijk", "gemm_ikj", "gemm_jki", "gemm_repeat", "gemm_static"))} - used
    assert unlisted == {"compress.c", "ssor.c", "suite_fortran.c", "temporal_blocking.c", "tiled_product.c", "triad.c"}


@pytest.mark.parametrize("name", some(KERNELS, 8))
def test_kernel_gives_the_same_bits_at_every_level(name: str, tmp_path: Path) -> None:
    kernel = KERNELS[name]
    need(COMPILERS[kernel.language])
    outputs = set()
    for level in ("-O1", "-O3"):
        command = [str(_build(kernel, level, tmp_path)), "2", *map(str, kernel.small)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
        assert len(re.findall(r"^seconds \d+\.\d+$", done.stderr, re.MULTILINE)) == 2
        assert not re.search(r"\b(nan|inf)\b", done.stdout)
        outputs.add(done.stdout)
    assert len(outputs) == 1
