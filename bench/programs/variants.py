"""Variants of the matrix product, compilers, and ways to link, for ``bench.run``; and how C sources are compiled.

The sizes make a native run take some seconds: long enough to be improved while it runs, short enough that the whole
matrix takes minutes. Each outer iteration of each variant does 2 * n * n floating-point operations.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

KERNELS = Path(__file__).resolve().parents[1] / "kernels"

COMPILERS = {
    "gcc-O1": ("gcc", "-O1"),
    "gcc-O2": ("gcc", "-O2"),
    "gcc-O3": ("gcc", "-O3"),
    "clang-O2": ("clang", "-O2"),
}
# A build is a set of these names, joined by "+". "plain": position-independent, not stripped, the even size. "prime":
# the prime size.
LINK_FLAGS = {"plain": (), "prime": (), "no-pie": ("-no-pie", "-fno-pie"), "stripped": ("-s",), "debug": ("-g",)}


class BuildError(Exception):
    """The compiler is missing or failed. The message is one line."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A matrix product."""

    name: str
    title: str
    source: str  # file in bench/kernels
    size: int  # n
    prime_size: int  # n of builds with "prime"
    real: str = "double"
    static: bool = False  # n is a compile-time constant
    calls: int = 1  # entries of the nest

    def arguments(self, size: int) -> tuple[str, ...]:
        """The program's arguments for matrices of ``size``."""
        if self.static:
            return ()
        return (str(size), str(self.calls)) if self.calls > 1 else (str(size),)

    def operations(self, size: int) -> float:
        """The number of floating-point operations of one outer iteration."""
        return 2.0 * size * size


VARIANTS = {
    v.name: v
    for v in (
        Variant("a", "i-j-k, double, malloc", "gemm_ijk.c", 1024, 1511),
        Variant("b", "i-j-k, double, static arrays in main", "gemm_static.c", 1024, 1511, static=True),
        Variant("c", "i-j-k, float", "gemm_ijk.c", 1024, 1511, real="float"),
        Variant("d-ikj", "i-k-j, double", "gemm_ikj.c", 2048, 2039),
        Variant("d-jki", "j-k-i, double", "gemm_jki.c", 768, 1201),
        Variant("e", "i-j-k, 200 calls on fresh arrays", "gemm_repeat.c", 256, 257, calls=200),
    )
}


def parts(build: str) -> tuple[str, ...]:
    """The parts of a build's name. Raises ``BuildError`` for an unknown part."""
    names = tuple(build.split("+"))
    for name in names:
        if name not in LINK_FLAGS:
            raise BuildError(f"{name}: not a way to build; known are {', '.join(LINK_FLAGS)}")
    return names


def compile_kernel(variant: Variant, compiler: str, build: str, size: int, folder: Path) -> Path:
    """Builds the program in ``folder``, unless it is there and younger than its sources. Returns its path."""
    output = folder / f"{variant.name}-{compiler}-{build}-{size}"
    sources = (KERNELS / variant.source, KERNELS / "matrix.h")
    if output.exists() and all(output.stat().st_mtime > s.stat().st_mtime for s in sources):
        return output
    flags = [flag for name in parts(build) for flag in LINK_FLAGS[name]]
    flags += [f"-DREAL={variant.real}"] + ([f"-DN={size}"] if variant.static else [])
    compile_c(COMPILERS[compiler], sources[0], output, flags)
    return output


def compile_c(compiler: tuple[str, ...], source: Path, output: Path, flags: list[str],
              libraries: Sequence[str] = ()) -> None:
    """Compiles one source. ``libraries`` stand behind the source, because their order matters to the linker. Raises
    ``BuildError``."""
    output.parent.mkdir(parents=True, exist_ok=True)
    command = [*compiler, *flags, f"-I{KERNELS}", "-o", str(output), str(source), *libraries]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise BuildError(f"{compiler[0]} is not installed") from error
    except subprocess.CalledProcessError as error:
        raise BuildError(f"{' '.join(command)} failed: {error.stderr.strip().splitlines()[0]}") from error
