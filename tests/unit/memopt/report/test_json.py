from __future__ import annotations

import json

import pytest

from memopt.elf.lines import Place, SourceLine
from memopt.ir.reasons import Reason
from memopt.report.json import FORMAT, render
from memopt.report.model import Code, LoopReport, Outcome, RunReport, Stage, Statement, Tried


def test_keys_and_values() -> None:
    replaced = LoopReport(0x5555, 0.9, Outcome.REPLACED, "dgemm", SourceLine("/s/gemm.c", 8), plan="tiled",
                          seconds_per_iteration_before=0.5, seconds_per_iteration_after=0.25,
                          installed_after_seconds=1.5, iterations_run=7, runs=1)
    inlined = SourceLine("/s/a.cpp", 9, Place("/usr/vector.h", 3))
    tried = Tried(0x6660, "f", inlined, Reason.OVERLAP, "c over a", Statement(inlined, "c = a;"), Code("/bin/p", 0x660))
    kept = LoopReport(0x6666, 0.01, Outcome.KEPT, reason=Reason.OVERLAP, detail="c over a", tried=(tried,))
    run = RunReport("0.1.0", ("./p", "1"), (kept, replaced), (Stage("find", 0.5),), ("n",), 3.0, 99)
    report = json.loads(render(run))
    assert report["version"] == "0.1.0"
    assert report["format"] == FORMAT
    assert report["program"] == ["./p", "1"]
    assert report["stages"] == {"find": 0.5}
    assert report["notes"] == ["n"]
    assert (report["seconds"], report["samples"]) == (3.0, 99)
    first, second = report["loops"]
    assert first["address"] == "0x5555"
    assert (first["function"], first["source"], first["share"]) == ("dgemm", "gemm.c:8", 0.9)
    assert (first["outcome"], first["reason"], first["plan"]) == ("replaced", None, "tiled")
    assert (first["seconds_per_iteration_before"], first["seconds_per_iteration_after"]) == (0.5, 0.25)
    assert (first["installed_after_seconds"], first["iterations_run"], first["runs"]) == (1.5, 7, 1)
    assert (second["outcome"], second["reason"], second["detail"]) == ("kept", "overlapping-arrays", "c over a")
    assert second["explanation"] == Reason.OVERLAP.explain
    assert second["function"] is None
    place = {"source": "a.cpp:9", "file": "/s/a.cpp", "line": 9, "inlined": "vector.h:3"}
    assert second["tried"] == [{
        "address": "0x6660", "image": "/bin/p", "link_address": "0x660", "function": "f", **place,
        "reason": "overlapping-arrays", "explanation": Reason.OVERLAP.explain, "detail": "c over a",
        "statement": {**place, "text": "c = a;"}}]


def test_arguments_that_are_not_text_survive() -> None:
    argument = b"\xff".decode("utf-8", "surrogateescape")
    assert json.loads(render(RunReport("1", (argument,))))["program"] == [argument]


def test_no_number_that_json_does_not_know() -> None:
    with pytest.raises(ValueError, match="JSON"):
        render(RunReport("1", ("p",), (LoopReport(1, float("nan"), Outcome.KEPT, reason=Reason.CALL),)))
