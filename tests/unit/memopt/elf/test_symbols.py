from __future__ import annotations

from memopt.elf.image import Image
from memopt.elf.symbols import Function, Symbols, demangle
from memopt.elf.unwind import function_range_at, function_ranges
from tests.conftest import Build


def test_an_address_belongs_to_its_function_and_to_no_other(build: Build) -> None:
    program = build("gemm_ijk.c")
    with Image(str(program)) as image:
        symbols = Symbols(image)
        dgemm = next(f for f in symbols.functions if f.name == "dgemm")
        assert symbols.function_at(dgemm.start) == dgemm
        assert symbols.function_at(dgemm.end - 1) == dgemm
        assert symbols.function_at(dgemm.end) != dgemm
        assert symbols.function_at(dgemm.start - 1) != dgemm
        assert dgemm.shown == "dgemm"


def test_a_stripped_function_is_named_by_its_start(build: Build) -> None:
    program = str(build("gemm_ijk.c", "-s"))
    start, end = function_ranges(program)[-1]
    with Image(program) as image:
        function = Symbols(image).function_at(end - 1)
        assert function == Function(start, end, "")
        assert function.shown == f"function {start:#x}"
        assert Symbols(image).function_at(1 << 60) is None


def test_a_function_without_unwind_entry_is_found_by_its_symbol(build: Build) -> None:
    with Image(str(build("where.c"))) as image:
        symbols = Symbols(image)
        bare = next(f for f in symbols.functions if f.name == "bare")
        assert function_range_at(image, bare.start) is None
        assert bare.end == bare.start + 2
        assert symbols.function_at(bare.start + 1) == bare


def test_names_are_demangled_and_odd_ones_kept() -> None:
    assert demangle("_ZN4math5dgemmEiPd") == "math::dgemm(int, double*)"
    assert demangle("_ZN4conv4main17he0d208af5088631bE") == "conv::main"
    assert demangle("dgemm") == "dgemm"
    assert demangle("_Z") == "_Z"
