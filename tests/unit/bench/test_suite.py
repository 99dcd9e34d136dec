from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import suite
from bench.cells import BUILDS, REFERENCES, Build, Cell, kernel_loops, longer, run_cell, steady, summarise
from bench.measure.execution import Execution
from bench.programs.families import KERNELS
from bench.suite_tables import counts_table, exceptions, family_table, geometric_mean, reference_lines, suite_text

GEMM, HISTOGRAM = KERNELS["gemm_nn"], KERNELS["histogram"]
LOOP = {"function": "gemm", "outcome": "replaced", "iterations_run": 60, "plan": "tiled", "reason": None,
        "detail": None, "share": 0.9, "installed_after_seconds": 0.75, "installed_after_first_sample_seconds": 0.5}
KEPT = {**LOOP, "outcome": "kept", "iterations_run": 0, "plan": None, "reason": "carried-value", "detail": "xmm0",
        "installed_after_seconds": None, "installed_after_first_sample_seconds": None}
NATIVE = Execution(4.0, 0, b"c 0x1p+0\n", "seconds 0.5\n" * 6)
TRIAL = Execution(2.0, 0, b"c 0x1p+0\n", "seconds 0.5\n" * 4 + "seconds 0.125\n" * 2 + "memopt: ...\n",
                  {"loops": [LOOP]})


def _cell(*trials: Execution, kernel: str = "gemm_nn", build: str = "gcc-O2") -> Cell:
    return summarise(KERNELS[kernel], BUILDS[build], "quick", ("./gemm", "6"), [NATIVE] * len(trials), list(trials))


def _reported(*loops: dict[str, object]) -> Execution:
    return replace(TRIAL, report={"loops": list(loops), "reason": None})


def test_the_steady_state_is_the_last_third() -> None:
    assert steady([9.0] * 6 + [1.0, 2.0, 3.0]) == 2.0
    assert steady([9.0, 1.0, 3.0]) == 2.0
    assert steady([9.0, 1.0]) is None
    cell = _cell(TRIAL)
    assert cell.speedup == 4.0
    assert cell.process_speedup == 2.0
    assert cell.repetitions == 6
    assert cell.installed_after == 0.75
    assert cell.installed_after_first_sample == 0.5
    assert not cell.late
    assert replace(cell, installed_after=1.5).late


def test_replaced_only_if_replaced_code_of_the_kernel_ran_in_every_run() -> None:
    assert _cell(TRIAL, TRIAL).replaced
    assert not _cell(TRIAL, _reported(KEPT)).replaced
    assert not _cell(_reported({**LOOP, "iterations_run": 0})).replaced
    assert _cell(_reported({**LOOP, "iterations_run": 0})).reason == "program-ended"
    assert not _cell(TRIAL).reason
    assert not _cell(_reported({**LOOP, "function": "fill_real"}, KEPT)).replaced
    assert _cell(_reported(KEPT)).reason == "carried-value"
    assert _cell(_reported(KEPT)).detail == "xmm0"


def test_main_counts_for_affine_kernels_only() -> None:
    trial = _reported({**LOOP, "function": "main"})
    assert kernel_loops(trial, GEMM)
    assert not kernel_loops(trial, HISTOGRAM)


def test_any_difference_of_any_run_is_wrong() -> None:
    for broken, words in ((replace(TRIAL, stdout=b"c 0x1p+1\n"), "other output"),
                          (replace(TRIAL, exit_code=-11), "exit code -11 for 0"),
                          (replace(TRIAL, exit_code=None), "time was up")):
        cell = _cell(TRIAL, broken)
        assert not cell.identical
        assert cell.detail == words
        assert f"- **WRONG** gemm_nn gcc-O2: {words} (`memopt exec -- ./gemm 6`)" in exceptions([cell])


def test_a_program_that_fails_natively_is_not_identical() -> None:
    failed = replace(NATIVE, exit_code=1)
    cell = summarise(GEMM, BUILDS["gcc-O2"], "quick", ("x",), [failed], [replace(TRIAL, exit_code=1)])
    assert not cell.identical


def test_too_slow_is_two_percent_and_a_tenth() -> None:
    assert not replace(_cell(TRIAL), memopt_seconds=4.17).too_slow
    assert replace(_cell(TRIAL), memopt_seconds=4.19).too_slow


def test_counts_and_reasons() -> None:
    wanted = {**KEPT, "reason": "data-dependent-address", "function": "histogram"}
    cells = [_cell(TRIAL), _cell(_reported(KEPT), kernel="gemm_nt"), _cell(_reported(wanted), kernel="histogram"),
             _cell(_reported(KEPT), kernel="linked_list", build="gcc-O1")]
    text = counts_table(cells, ["gcc-O2", "gcc-O1"])
    assert "| gcc-O2 | 1 of 2 (50 %) | 1 of 1 | 3 of 3 | 0 | 4.0x |" in text
    assert "| gcc-O1 | 0 of 0 | 1 of 1 |" in text
    named = exceptions(cells)
    assert "- gemm_nt gcc-O2: carried-value (xmm0)" in named
    assert "histogram" not in named
    assert "histogram gcc-O2: replaced, expected data-dependent-address" in exceptions(
        [_cell(_reported({**LOOP, "function": "histogram"}), kernel="histogram")])
    assert "kept for carried-value (xmm0), expected call-in-nest" in exceptions(
        [_cell(_reported({**KEPT, "function": "transform"}), kernel="unknown_call")])


def test_families_count_the_same_whatever_their_size() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([]) is None
    fast = replace(_cell(TRIAL), memopt_step=NATIVE.steps[0] / 16)
    cells = [fast, replace(fast, kernel="gemm_nt"), replace(_cell(TRIAL), kernel="lu", memopt_step=0.5)]
    text = family_table(cells)
    assert "| products | 2 | 16x |" in text
    assert "| **all families** | 3 | 4.0x |" in text


def test_references_are_compared_by_the_better_one() -> None:
    cells = [_cell(TRIAL), Cell("gemm_nn", "ref-gcc", "quick", native_step=0.25),
             Cell("gemm_nn", "ref-polly", "quick", native_step=0.0625), _cell(TRIAL, kernel="lu"),
             Cell("lu", "ref-gcc", "quick", native_step=0.25), _cell(TRIAL, kernel="syrk")]
    text = reference_lines(cells)
    assert "on 1 of 2 kernels (1 without a reference)." in text
    assert "gemm_nn 0.50" in text


def test_builds_that_should_agree_and_do_not() -> None:
    cells = [_cell(TRIAL), replace(_cell(TRIAL, build="gcc-O3"), native_hash="0")]
    assert "- gemm_nn: native outputs differ between builds" in exceptions(cells)
    longer_run = [_cell(TRIAL), replace(_cell(TRIAL, build="gcc-O3"), native_hash="0", repetitions=60)]
    assert "differ" not in exceptions(longer_run)
    fused = [_cell(TRIAL), replace(_cell(TRIAL, build="gcc-O3-haswell"), native_hash="0")]
    assert "differ" not in exceptions(fused)


def test_which_kernels_a_build_is_for() -> None:
    assert not BUILDS["gcc-O3"].applies(KERNELS["lu_fortran"])
    assert BUILDS["gcc-O2"].applies(KERNELS["lu_fortran"])
    assert BUILDS["gcc-O2"].applies(KERNELS["gemm_template"])
    assert not REFERENCES["ref-polly"].applies(KERNELS["lu_fortran"])


def test_a_build_that_fails_is_a_cell(tmp_path: Path) -> None:
    cell = run_cell(GEMM, Build("none", {"C": "no-such-compiler"}, ()), True, 1, False, tmp_path)
    assert cell.detail == "no-such-compiler is not installed"
    assert "- gemm_nn none: not run: no-such-compiler is not installed" in exceptions([cell])


def test_a_run_is_resumed_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def fake(kernel: object, build: Build, *_rest: object) -> Cell:
        ran.append(build.name)
        return _cell(TRIAL, build=build.name)

    monkeypatch.setattr(suite, "run_cell", fake)
    output = tmp_path / "suite.jsonl"
    output.write_text(json.dumps(_cell(TRIAL).to_json()) + "\n" + '{"kernel": "gemm')
    arguments = ["--quick", "--kernels", "gemm_nn", "--builds", "gcc-O2,gcc-O3", "--references", "",
                 "--json", str(output)]
    done = CliRunner().invoke(suite.main, [*arguments, "--resume"])
    assert done.exit_code == 0, done.output
    assert ran == ["gcc-O3"]
    text = output.with_suffix(".md").read_text()
    assert "| gemm_nn | 4.0x | 4.0x | 2.0x | 0.5 s |" in text
    assert CliRunner().invoke(suite.main, [*arguments, "--table-only"]).output == text + "\n"
    CliRunner().invoke(suite.main, [*arguments, "--resume"])
    assert ran == ["gcc-O3"]
    CliRunner().invoke(suite.main, arguments)
    assert ran == ["gcc-O3", "gcc-O2", "gcc-O3"]


def test_a_wrong_output_is_the_exit_code(tmp_path: Path) -> None:
    output = tmp_path / "suite.jsonl"
    output.write_text(json.dumps(_cell(replace(TRIAL, stdout=b"")).to_json()) + "\n")
    assert CliRunner().invoke(suite.main, ["--table-only", "--json", str(output)]).exit_code == 1


def test_every_section_is_there() -> None:
    text = suite_text([_cell(TRIAL)])
    assert [line for line in text.splitlines() if line.startswith("##")] == [
        "## Counts", "## Kernel x build", "## Families, gcc-O2", "## References", "## Exceptions"]


def test_a_build_that_is_fast_repeats_more_often() -> None:
    assert longer(("./gemm",), replace(NATIVE, seconds=3.5), 10.0) == ("./gemm", "19")  # half a second is no repetition
    assert longer(("./gemm", "6"), NATIVE, 2.5) == ("./gemm", "6")
