"""Programs that tests need and a machine may lack: such a test is skipped, and its package is named once, at the end.

Python, gcc and make are what the project asks of a machine; all else is here.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Iterable

import pytest

PACKAGES = {
    "g++": "g++", "clang": "clang", "clang++": "clang", "gfortran": "gfortran", "valgrind": "valgrind",
    "callgrind_annotate": "valgrind",
    "mpicc.mpich": "libmpich-dev", "mpirun.mpich": "mpich", "mpirun.openmpi": "openmpi-bin", "as": "binutils",
    "objcopy": "binutils", "readelf": "binutils", "setpriv": "util-linux", "setcap": "libcap2-bin", "xz": "xz-utils",
    "awk": "gawk", "perl": "perl", "bash": "bash", "sort": "coreutils", "ls": "coreutils", "kill": "procps",
}
_MISSING = re.compile(r"needs (\S+), which is not here: apt install (.+)")


def need(*programs: str) -> None:
    """Skip the test that calls this when one of ``programs`` (names, or paths as "/usr/bin/xz") is not here."""
    for program in programs:
        if shutil.which(program) is None:
            name = program.rpartition("/")[2]
            lacking(program, PACKAGES.get(name, name))


def need_mpich() -> None:
    """Skip the test that calls this where no MPI program can be compiled and started."""
    need("mpicc.mpich", "mpirun.mpich")
    if not _has_mpi_header():
        lacking("mpi.h", PACKAGES["mpicc.mpich"])


@functools.cache
def _has_mpi_header() -> bool:
    return subprocess.run(["mpicc.mpich", "-E", "-xc", "-"], input=b"#include <mpi.h>", capture_output=True,
                          check=False).returncode == 0


def lacking(what: str, package: str) -> None:
    pytest.skip(f"needs {what}, which is not here: apt install {package}")


def advice(reasons: Iterable[str]) -> str | None:
    """One line that names the packages for which tests were skipped, given the reasons of all skipped tests."""
    found = [m for reason in reasons if (m := _MISSING.search(reason))]
    if not found:
        return None
    packages = sorted({package for m in found for package in m[2].split()})
    return f"{len(found)} tests were skipped because programs are missing: apt install {' '.join(packages)}"
