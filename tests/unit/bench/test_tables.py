from __future__ import annotations

from dataclasses import replace

from bench.headline import Overhead
from bench.matrix import Row, summarise
from bench.measure.execution import Execution
from bench.measure.streaming import Streaming
from bench.programs.variants import VARIANTS
from bench.tables import install_line, matrix_table, overhead_table, product_table, streaming_table

LOOP = {"outcome": "replaced", "iterations_run": 60, "plan": "tiled", "reason": None,
        "seconds_per_iteration_after": 0.001, "installed_after_seconds": 1.25}
NATIVE = Execution(4.0, 0, b"result\n", "seconds 3.200000\n")
TRIAL = Execution(2.0, 0, b"result\n", "seconds 1.2\nmemopt: ...\n", {"loops": [LOOP]})


def _row(*trials: Execution) -> Row:
    return summarise(VARIANTS["a"], "gcc-O2", "plain", "avx512", 64, [NATIVE], list(trials))


def test_figures_of_a_replaced_nest() -> None:
    row = _row(TRIAL, replace(TRIAL, seconds=3.0), replace(TRIAL, seconds=1.0))
    assert row.replaced
    assert row.identical
    assert row.reason == ""
    assert row.memopt_seconds == 2.0
    assert row.process_speedup == 2.0
    assert row.speedup == 3.2 / 64 / 0.001
    assert row.gflops == 2 * 64 * 64 / 1e9 / 0.001
    assert row.installed_after_seconds == 1.25


def test_an_installed_version_that_never_ran_is_not_replaced() -> None:
    idle = replace(TRIAL, report={"loops": [{**LOOP, "iterations_run": 0}]})
    row = _row(TRIAL, idle)
    assert not row.replaced
    assert row.reason == "installed, but never entered"


def test_every_difference_is_an_exception_with_its_reason() -> None:
    kept = {"outcome": "kept", "reason": "call-in-nest", "detail": "at 0x1", "iterations_run": 0}
    assert _row(replace(TRIAL, stdout=b"other")).reason == "other output"
    assert _row(replace(TRIAL, exit_code=-11)).reason == "exit code -11 for 0"
    assert _row(replace(TRIAL, exit_code=None)).reason == "time was up"
    assert _row(replace(TRIAL, report={"loops": [kept]})).reason == "call-in-nest (at 0x1)"
    silent = replace(TRIAL, report=None, stderr="x\nmemopt: internal error\n")
    assert _row(silent).reason == "internal error"
    assert not _row(replace(TRIAL, stdout=b"other")).identical


def test_the_matrix_table_names_exceptions() -> None:
    good = _row(TRIAL)
    kept = replace(good, isa="sse2", replaced=False, reason="no-profitable-plan")
    wrong = replace(good, isa="avx2", identical=False, reason="other output")
    text = matrix_table([good, wrong, kept])
    assert "| variant | compiler | build | n | avx512 | avx2 | sse2 |" in text
    assert "| a | gcc-O2 | plain | 64 | 50x (2.0x) | **differs** | kept |" in text
    assert "1 of 3 replaced and identical" in text
    assert "- a gcc-O2 plain n=64 sse2: no-profitable-plan" in text


def test_headline_tables() -> None:
    text = product_table([(_row(TRIAL), 99.5)])
    assert "| a, n = 64, avx512 | 4.00 s | 2.00 s | 2.0x | 50.0 % | 0.0 | 99.5 | yes |" in text
    assert install_line([1.0, 1.5, 1.2]) == "From launch to installed: median 1.20 s of 3 runs (1.00 to 1.50 s).\n"
    assert install_line([2.0], " in a second run").startswith("From launch to installed in a second run: median 2.00 s")
    assert "never" in install_line([])
    overhead = Overhead("sort", True, 3, True, 2.0, 2.05)
    assert "| sort, processors busy | 2.00 s | 2.05 s | +0.050 s | 0.140 s | yes |" in overhead_table([overhead])


def test_a_stencil_beside_the_memorys_rate() -> None:
    text = streaming_table(Streaming(2897, 3, True, 700e6, None, 900e6))
    assert "| n = 2897, million points/s | 700.0 | ? | 900.0 | yes |" in text
