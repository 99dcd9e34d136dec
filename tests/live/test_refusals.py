"""What memopt must leave alone: refused with its named reason, untouched, the output native.

Each refusal has a twin that differs in nothing but the hazard and is replaced: else the test would also pass with
the transformation turned off.
"""

from __future__ import annotations

import pytest

from bench.measure.execution import run, run_under_memopt
from memopt.ir.reasons import Reason
from tests.conftest import Build
from tests.support.effort import some, some_rows
from tests.support.tools import need
from tests.support.waiting import PATIENCE

SIZE = "1300"


def _report(command: tuple[str, ...]) -> tuple[str, str | None]:
    """Outcome and reason of the product's loop; the output is held against a native run."""
    native = run(command, PATIENCE)
    trial = run_under_memopt(command, PATIENCE)
    assert native.exit_code == 0
    assert trial.same_result(native), trial.stderr
    assert trial.report is not None, trial.stderr
    hottest = next(x for x in trial.report["loops"] if x["function"] in ("dgemm", "main", "count_steps"))
    if hottest["outcome"] == "replaced":
        assert trial.replaced, trial.stderr
    else:
        assert not any(x["iterations_run"] for x in trial.report["loops"])
    return hottest["outcome"], hottest["reason"]


@pytest.mark.parametrize(("source", "arguments", "reason"), [
    pytest.param("two_threads.c", ("1600",), Reason.THREADS, marks=pytest.mark.long),
    ("sigsegv_handler.c", (SIZE,), Reason.SIGSEGV_HANDLER),
    ("mapped_arrays.c", ("shared", SIZE), Reason.SHARED_MAPPING),
    pytest.param("mapped_arrays.c", ("file", SIZE), Reason.SHARED_MAPPING, marks=pytest.mark.long),
    pytest.param("mapped_arrays.c", ("twice", SIZE), Reason.DOUBLE_MAPPING, marks=pytest.mark.long),
    pytest.param("mapped_arrays.c", ("beside", SIZE), Reason.DOUBLE_MAPPING, marks=pytest.mark.long),
    ("call_in_nest.c", ("700",), Reason.CALL),
    pytest.param("index_array.c", (SIZE,), Reason.DATA_DEPENDENT_ADDRESS, marks=pytest.mark.long),
])
def test_refused_by_name_and_left_running(build: Build, source: str, arguments: tuple[str, ...], reason: Reason
                                          ) -> None:
    assert _report((str(build(source)), *arguments)) == ("kept", reason.value)


@pytest.mark.parametrize("arguments", some([("a", SIZE), ("a", SIZE, "7"), ("b", SIZE)], 1))
def test_arrays_that_overlap_keep_their_results(build: Build, arguments: tuple[str, ...]) -> None:
    """Their dependences are known like all others, so they need not be kept."""
    _report((str(build("overlap.c")), *arguments))  # compares with a native run


@pytest.mark.parametrize(("source", "arguments"), some_rows([
    ("mapped_arrays.c", ("private", SIZE)),
    ("gemm_ijk.c", (SIZE,)),
    ("overlap.c", ("a", SIZE, str(int(SIZE) ** 2))),
], 1))
def test_the_same_product_without_the_hazard_is_replaced(build: Build, source: str, arguments: tuple[str, ...]) -> None:
    assert _report((str(build(source)), *arguments)) == ("replaced", None)


def test_the_handler_of_the_fortran_library_is_known(build: Build) -> None:
    """It prints and dies; a handler of the program's own beside that library is refused (sigsegv_handler.c)."""
    program = str(build("fortran_product.f90", compiler="gfortran"))
    native, trial = run((program,), PATIENCE), run_under_memopt((program,), PATIENCE)
    assert trial.same_result(native)
    assert trial.replaced, trial.stderr


@pytest.mark.long
def test_a_handler_of_the_program_beside_a_known_library(build: Build) -> None:
    need("gfortran")
    program = str(build("sigsegv_handler.c", "-Wl,--no-as-needed", "-l:libgfortran.so.5"))
    outcome, reason = _report((program, SIZE))
    assert (outcome, reason) == ("kept", Reason.SIGSEGV_HANDLER.value)


@pytest.mark.check
def test_a_thread_that_sleeps_is_no_hazard(build: Build) -> None:
    """Later both threads run the same nest at the same time; only one of them may be in the version."""
    assert _report((str(build("sleeping_thread.c")), "500")) == ("replaced", None)
