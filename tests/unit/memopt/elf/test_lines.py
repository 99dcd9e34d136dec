"""Lines of instructions and loops, held against programs in which each line that begins a loop is marked."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from bench.programs.variants import KERNELS
from memopt.cfg.functions import structures
from memopt.cfg.loop_control import loop_control
from memopt.elf.image import Image
from memopt.elf.lines import Place, SourceLine, SourceLines
from memopt.elf.symbols import Symbols
from tests.conftest import Build
from tests.support.effort import some_rows
from tests.support.tools import need

_PROGRAMS = Path(__file__).parents[3] / "programs" / "lines"
_MARK = re.compile(r"(?:/\*|//|!) loop\b")


def _span(program: Path, name: str) -> range:
    with Image(str(program)) as image:
        return next(range(f.start, f.end) for f in Symbols(image).functions if f.name == name)


@pytest.mark.parametrize(("compiler", "flags"), some_rows([
    ("gcc", ("-g",)), ("gcc", ("-gdwarf-4",)), ("clang", ("-g",)), ("gcc", ("-g", "-static")),
    ("gcc", ("-g", "-no-pie")), ("gcc", ("-g", "-gz")),
], 3))
def test_every_address_of_a_function_has_a_line_of_it(build: Build, compiler: str, flags: tuple[str, ...]) -> None:
    program = build("gemm_ijk.c", *flags, compiler=compiler)
    source = (KERNELS / "gemm_ijk.c").read_text().splitlines()
    first = next(n for n, text in enumerate(source, 1) if "void dgemm" in text)
    last = source.index("}", first) + 1
    lines = SourceLines(str(program))
    found = {lines.at(address) for address in _span(program, "dgemm")[::7]} - {None}
    assert {x.file for x in found if x} == {str(KERNELS / "gemm_ijk.c")}
    assert {x.line for x in found if x} <= set(range(first, last + 1))
    assert len(found) >= 3


def test_no_line_without_debug_information(build: Build, tmp_path: Path) -> None:
    program = build("gemm_ijk.c")
    assert SourceLines(str(program)).at(_span(program, "dgemm").start) is None
    assert SourceLines(str(build("gemm_ijk.c", "-g"))).at(1 << 50) is None
    assert SourceLines(str(tmp_path / "missing")).at(0) is None


_LEVELS = ("-O1", "-O2", "-O3")


@pytest.mark.parametrize(("compiler", "name", "level"), some_rows([
    *((c, "loops.c", level) for c in ("gcc", "clang") for level in _LEVELS),
    *((c, "loops.cpp", level) for c in ("g++", "clang++") for level in _LEVELS),
    *(("gfortran", "loops.f90", level) for level in _LEVELS),
], 7))
def test_the_line_of_a_loop_is_that_of_its_beginning(tmp_path: Path, compiler: str, name: str, level: str) -> None:
    """Each loop of the machine code begins in a marked line, and each marked line has a loop."""
    need(compiler)
    source, library = _PROGRAMS / name, tmp_path / "library.so"
    subprocess.run([compiler, level, "-g", "-shared", "-fPIC", "-o", library, source], check=True)
    marked = {n for n, text in enumerate(source.read_text().splitlines(), 1) if _MARK.search(text)}
    lines, found = SourceLines(str(library)), list[SourceLine | None]()
    with Image(str(library)) as image:
        own = [f for f in Symbols(image).functions if (x := lines.at(f.start)) is not None and x.file == str(source)]
        for one in structures(image, own):
            found += [lines.of_loop(loop_control(one.graph, one.nesting.loops, x)) for x in one.nesting.loops]
    if name == "loops.f90" and level == "-O3":
        marked |= {n + 2 for n in marked}  # of vectors, the compiler names only the statement
        assert {x.line for x in found if x} <= marked
    else:
        assert {x.line for x in found if x} == marked
    assert {x.file for x in found if x} == {str(source)}
    if name == "loops.cpp":
        assert {Path(x.inlined.file).name for x in found if x and x.inlined} >= {"stl_numeric.h"}


def test_a_chain_ends_in_the_function_itself(tmp_path: Path) -> None:
    """Code of a header, in a function that is inlined into another function of the same file."""
    need("gcc")
    (tmp_path / "sum.h").write_text("static inline long sum(const long *a, long n)\n"
                                    "{ long s = 0; for (long i = 0; i < n; i++) s += a[i] ^ i; return s; }\n")
    source = tmp_path / "main.c"
    source.write_text('#include "sum.h"\nstatic inline long twice(const long *a, long n)\n{\n'
                      "    return 2 * sum(a, n);\n}\nlong all(const long *a, long n)\n{\n    return twice(a, n);\n}\n")
    library = tmp_path / "library.so"
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-o", library, source], check=True)
    lines = SourceLines(str(library))
    chains = [lines.chain(address) for address in _span(library, "all")]
    deep = next(chain for chain in chains if len(chain) == 3)
    header = str(tmp_path / "sum.h")
    assert deep == (Place(header, 2), Place(str(source), 4), Place(str(source), 8))
    shown = next(s for a in _span(library, "all") if (s := lines.at(a)) is not None and s.inlined is not None)
    assert str(shown) == "main.c:4 (inlined from sum.h:2)"
