"""The report of a run for machines: one JSON object.

In: ``RunReport``. Out: text. Addresses are hexadecimal strings, because not every JSON reader keeps a 64-bit number.
Times are seconds. Unknown values are null. The number ``format`` changes when a key is removed or changes its meaning.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from memopt.elf.lines import Place, SourceLine
from memopt.report.model import Code, LoopReport, RunReport, Statement

FORMAT = 1


def render(report: RunReport) -> str:
    """The report as JSON text with a newline at its end. Raises ``ValueError`` for a number that JSON does not have
    (NaN, infinity)."""
    return json.dumps({"format": FORMAT, **_run(report)}, indent=2, allow_nan=False) + "\n"


def _run(report: RunReport) -> dict[str, Any]:
    return {
        "version": report.version,
        "program": list(report.program),
        "seconds": report.seconds,
        "samples": report.samples,
        "reason": report.reason.value if report.reason else None,
        "loops": [_loop(x) for x in sorted(report.loops, key=lambda x: (-x.share, x.address))],
        "stages": {stage.name: stage.seconds for stage in report.stages},
        "notes": list(report.notes),
        "account": {**asdict(report.account), "total": report.account.total},
        "seconds_without": report.seconds_without,
        "own_seconds": report.own_seconds,
        "processes": [_run(x) for x in report.processes],
    }


def _loop(loop: LoopReport) -> dict[str, Any]:
    return {
        "address": f"{loop.address:#x}",
        **_code(loop.code),
        "function": loop.function or None,
        **_source(loop.source),
        "share": loop.share,
        "outcome": loop.outcome.value,
        "reason": loop.reason.value if loop.reason else None,
        "explanation": loop.reason.explain if loop.reason else None,
        "detail": loop.detail or None,
        "statement": _statement(loop.statement),
        "tried": [{"address": f"{x.address:#x}", **_code(x.code), "function": x.function or None, **_source(x.source),
                   "reason": x.reason.value, "explanation": x.reason.explain, "detail": x.detail or None,
                   "statement": _statement(x.statement)} for x in loop.tried],
        "plan": loop.plan or None,
        "planned_before": loop.planned_before,
        "seconds_per_iteration_before": loop.seconds_per_iteration_before,
        "seconds_per_iteration_after": loop.seconds_per_iteration_after,
        "measured_in": None if loop.seconds_per_iteration_before is None else (
            "service" if loop.in_service else "trial"),
        "shadow_speedup": loop.shadow_speedup,
        "installed_after_seconds": loop.installed_after_seconds,
        "installed_after_first_sample_seconds": loop.installed_after_first_sample_seconds,
        "iterations_run": loop.iterations_run,
        "runs": loop.runs,
    }


def _code(code: Code | None) -> dict[str, Any]:
    return {"image": None if code is None else code.image, "link_address": None if code is None else f"{code.link:#x}"}


def _source(source: SourceLine | None) -> dict[str, Any]:
    if source is None:
        return {"source": None, "file": None, "line": None, "inlined": None}
    return {"source": str(Place(source.file, source.line)), "file": source.file, "line": source.line,
            "inlined": str(source.inlined) if source.inlined else None}


def _statement(statement: Statement | None) -> dict[str, Any] | None:
    return None if statement is None else {**_source(statement.source), "text": statement.text or None}
