from __future__ import annotations

from dataclasses import replace

import pytest

from memopt.elf.lines import Place, SourceLine
from memopt.ir.reasons import Reason
from memopt.report.model import Account, Code, LoopReport, Outcome, RunReport, Stage, Statement, Tried
from memopt.report.text import duration, lines

REPLACED = LoopReport(
    0x5555, 0.973, Outcome.REPLACED, "dgemm", SourceLine("/src/gemm.c", 8), plan="tiled (i/96), 8x24 register tile",
    seconds_per_iteration_before=0.0216, seconds_per_iteration_after=0.00017, installed_after_seconds=1.21,
    iterations_run=1999, runs=1, in_service=True,
)
KEPT = LoopReport(0x6666, 0.023, Outcome.KEPT, "main", reason=Reason.CALL, detail="at 0x1122")


def test_replaced_and_kept_loops() -> None:
    report = RunReport("0.1.0", ("./dgemm", "2048"), (KEPT, REPLACED), (Stage("find", 0.002),), ("a note",))
    assert lines(report) == [
        "a note",
        "dgemm at gemm.c:8, 97.3 % of the time: replaced 1.21 s after the start",
        "  tiled (i/96), 8x24 register tile",
        "  21.6 ms per outer iteration before, 170 us after: 127 times as fast",
        "  entered 1 time, 1,999 outer iterations",
        "main at 0x6666, 2.3 % of the time: left alone, because the loop calls a function",
        "next: memopt exec --json FILE -- ./dgemm 2048   (the same figures as JSON)",
    ]
    assert "  find: 2 ms" in lines(report, verbose=True)


def test_nothing_hot_and_the_command_is_quoted() -> None:
    report = RunReport("0.1.0", ("./a b", "$x"), (LoopReport(1, 0.01, Outcome.KEPT, reason=Reason.CALL),))
    assert lines(report) == [
        "no hot loop was found",
        "next: memopt exec --verbose -- './a b' '$x'   (with the time of each stage)",
    ]
    assert lines(report, verbose=True)[-1] == "next: memopt profile -- './a b' '$x'   (where the time goes)"
    assert lines(replace(report, follow=True))[-1] == "next: memopt exec --follow -- './a b' '$x'"


def test_a_dry_run_says_what_it_would_do_and_how_to_do_it() -> None:
    loop = LoopReport(0x10, 0.9, Outcome.KEPT, reason=Reason.DRY_RUN, plan="tiled", shadow_speedup=31.4)
    assert lines(RunReport("1", ("./p",), (loop,))) == [
        "a loop at 0x10, 90.0 % of the time: would be replaced",
        "  tiled",
        "  31 times as fast in a trial copy",
        "next: memopt exec -- ./p",
    ]


_SPMV = SourceLine("/src/spmv.c", 11)
_STATEMENT = Statement(SourceLine("/src/spmv.c", 12), "s += a[k] * x[col[k]];")


@pytest.mark.parametrize(("source", "reason", "detail", "statement", "short", "long"), [
    (_SPMV, Reason.DATA_DEPENDENT_ADDRESS, "the address is loaded at 0x55c28a43", _STATEMENT,
     "spmv at spmv.c:11: an address depends on loaded data (line 12: `s += a[k] * x[col[k]];`: the address is loaded)",
     ("spmv at spmv.c:11, 0x401150: an address depends on loaded data (line 12: `s += a[k] * x[col[k]];`: the address "
      "is loaded at 0x55c28a43)")),
    (_SPMV, Reason.CALL, "at 0x401162", Statement(SourceLine("/src/sum.h", 3, Place("/usr/vector.h", 9)), ""),
     "spmv at spmv.c:11: the loop calls a function (sum.h:3 (inlined from vector.h:9))",
     "spmv at spmv.c:11, 0x401150: the loop calls a function (sum.h:3 (inlined from vector.h:9): at 0x401162)"),
    (None, Reason.CARRIED_VALUE, "r12d is still used after the loop", None,
     "spmv at 0x401150: a value is carried from iteration to iteration in a way that memopt cannot transform",
     ("spmv at 0x401150: a value is carried from iteration to iteration in a way that memopt cannot transform (r12d is "
      "still used after the loop)")),
    (None, Reason.NO_PLAN, "expected 0.97 times as fast", None,
     "spmv at 0x401150: no transformation is expected to make it faster on this machine (expected 0.97 times as fast)",
     "spmv at 0x401150: no transformation is expected to make it faster on this machine (expected 0.97 times as fast)"),
])
def test_a_reason_speaks_of_the_source(source: SourceLine | None, reason: Reason, detail: str,
                                       statement: Statement | None, short: str, long: str) -> None:
    tried = Tried(0x401150, "spmv", source, reason, detail, statement)
    outer = Tried(0x401100, "spmv", SourceLine("/src/spmv.c", 9), Reason.TRIP_COUNT)
    loop = LoopReport(0x401150, 0.9, Outcome.KEPT, "spmv", source, reason, detail, statement, (outer, tried))
    report = RunReport("1", ("./p",), (loop,))
    assert lines(report)[0].endswith(", 90.0 % of the time: left alone")
    assert lines(report)[1:3] == ["  spmv at spmv.c:9: the trip count is not known at loop entry", f"  {short}"]
    assert lines(report, verbose=True)[2] == f"  {long}"
    alone = replace(loop, tried=(tried,))
    assert lines(RunReport("1", ("./p",), (alone,)))[0].partition(": left alone, because ")[2] == (
        short.partition(": ")[2])


def test_loops_around_a_replaced_one_say_why_they_stay() -> None:
    outer = Tried(0x5500, "dgemm", SourceLine("/src/gemm.c", 7), Reason.CALL)
    text = lines(RunReport("1", ("./p",), (replace(REPLACED, tried=(outer,)),)))
    assert text[4:6] == ["  left alone around it:", "    dgemm at gemm.c:7: the loop calls a function"]


def test_the_account_and_the_run_without_memopt() -> None:
    account = Account(improved=6.0, left=2.5, cool=1.0, kernel=0.4, started=0.1)
    report = RunReport("1", ("./p",), (REPLACED,), seconds=10.5, account=account, seconds_without=63.0,
                       own_seconds=0.8)
    assert lines(report)[-3:-1] == [
        ("of 10 s of processor time: 60.0 % in loops that were replaced, 25.0 % in loops that were left alone, 10.0 % "
         "in loops that were not hot enough to be looked at, 4.0 % in the kernel, 1.0 % in processes that it started"),
        "the run took 10.5 s, about 63 s without memopt; 800 ms of processor time were memopt's own"]


def test_code_without_lines_is_named_as_objdump_shows_it() -> None:
    loop = replace(KEPT, code=Code("/usr/lib/libblas.so.3", 0x4F370))
    report = RunReport("1", ("./p",), (loop,))
    assert lines(report)[0].startswith("main in libblas.so.3 at 0x4f370, 2.3 % of the time")
    assert lines(report, verbose=True)[0].startswith("main in libblas.so.3 at 0x4f370, 0x6666, 2.3 % of the time")


def test_a_reason_of_the_whole_program_is_given_once() -> None:
    handler = replace(KEPT, reason=Reason.SIGSEGV_HANDLER, detail="")
    late = replace(KEPT, address=1, reason=Reason.NOT_HOT)
    report = RunReport("1", ("./p",), (handler, replace(handler, address=2), late), account=Account(left=2.0))
    assert lines(report) == ["./p: the program handles SIGSEGV itself; it runs natively"]
    assert len(lines(replace(report, loops=(handler, KEPT)))) > 2
    around = RunReport("1", ("mpirun",), processes=(report,))
    assert lines(around)[1:2] == [f"  {line}" for line in lines(report)]


@pytest.mark.parametrize(("name", "shown"), [
    ("covariance(double const*, int)", "covariance(double const*, int)"),
    ("covariance(std::vector<std::vector<double, std::allocator<double> >, std::allocator<int> > const&, int)",
     "covariance"),
    ("void Grid<double, std::allocator<double>, 3>::multiply<int>(Grid<double> const&, Grid<double> const&) const",
     "void Grid::multiply"),
    ("main::{lambda(std::vector<double, std::allocator<double> > const&)#1}::operator()(std::vector<double> const&)",
     "main::{lambda#1}::operator"),
])
def test_long_names_lose_their_arguments(name: str, shown: str) -> None:
    text = lines(RunReport("1", ("./p",), (replace(REPLACED, function=name),)))
    assert text[0].startswith(f"{shown} at gemm.c:8, ")


def test_times_of_a_trial_are_named_so() -> None:
    text = lines(RunReport("1", ("./p",), (replace(REPLACED, in_service=False),)))
    assert text[2] == "  21.6 ms per outer iteration before, 170 us after: 127 times as fast in a trial copy"


@pytest.mark.parametrize(("seconds", "shown"), [
    (44.42, "44.4 s"), (1234.0, "1234 s"), (1.0, "1 s"), (0.0216, "21.6 ms"), (0.99999, "1 s"), (1.7e-4, "170 us"),
    (8e-8, "80 ns"), (0.0, "0 ns"), (0.9990, "999 ms"),
])
def test_durations(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown
