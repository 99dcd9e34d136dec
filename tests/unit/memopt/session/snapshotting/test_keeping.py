from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memopt.ir.reasons import Reason, Rejected
from memopt.options import Keeping
from memopt.session.snapshotting import keeping
from memopt.session.snapshotting.keeping import Keeper
from memopt.snapshots.file import read
from memopt.snapshots.form import SnapshotError
from runtime.trial.trial import Measurement
from tests.support.sample_snapshot import SNAPSHOT

PROCESS: Any = SimpleNamespace()
FASTER = Measurement(2.0, 1.0, 10)
DIFFERENT = Rejected(Reason.SHADOW_MISMATCH, "at least 1 words differ")


def trial(*results: Measurement | Rejected) -> Any:
    site = SimpleNamespace(function="multiply", bias=0x400000)
    code = SimpleNamespace(site=site, loop=SimpleNamespace(header=0x401040), ranges=((0x401040, 0x401080),))
    return SimpleNamespace(code=code, results=results)


@pytest.fixture
def reasons(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why snapshots were taken."""
    found: list[str] = []

    def taken(_process: object, _trial: object, limit: int, why: str) -> Any:
        found.append(why)
        if limit == 1:
            raise SnapshotError("too large")
        return SNAPSHOT

    monkeypatch.setattr(keeping, "taken", taken)
    return found


def keeper(**options: Any) -> Keeper:
    return Keeper(Keeping(**options))


@pytest.mark.parametrize(("nest", "kept"), [
    ("", True), ("multiply", True), ("divide", False), ("0x401040", True), ("0x40107f", True), ("0x401080", False),
    ("0x1040", True), ("0xyz", False),
])
def test_the_nest_that_is_meant(nest: str, kept: bool, tmp_path: Path, reasons: list[str]) -> None:
    path = str(tmp_path / "file")
    asked = keeper(path=path, nest=nest)
    asked.keep(PROCESS, trial(FASTER))
    assert asked.written is kept
    assert reasons == (["asked for"] if kept else [])
    if kept:
        assert read(path) == SNAPSHOT


def test_the_first_nest_is_kept_and_no_other(tmp_path: Path, reasons: list[str],
                                             capfd: pytest.CaptureFixture[str]) -> None:
    asked = keeper(path=str(tmp_path / "file"))
    asked.keep(PROCESS, trial(Rejected(Reason.NOT_FASTER)))
    assert not asked.written
    asked.keep(PROCESS, trial(FASTER))
    asked.keep(PROCESS, trial(FASTER))
    assert len(reasons) == 1
    assert capfd.readouterr().err.count("snapshot of multiply: ") == 1


def test_only_a_mismatch_is_kept(tmp_path: Path, reasons: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    asked = keeper(path=str(tmp_path / "file"), mismatch=True)
    asked.keep(PROCESS, trial(FASTER, Rejected(Reason.NOT_FASTER)))
    assert reasons == []
    asked.keep(PROCESS, trial(FASTER, DIFFERENT))
    assert reasons == ["mismatch: at least 1 words differ"]
    assert "whose new code gave other results in a trial" in capfd.readouterr().err


def test_a_reason_against_it_is_said_once(tmp_path: Path, reasons: list[str],
                                          capfd: pytest.CaptureFixture[str]) -> None:
    asked = keeper(path=str(tmp_path / "file"), limit=1)
    asked.keep(PROCESS, trial(FASTER))
    asked.keep(PROCESS, trial(FASTER))
    assert len(reasons) == 2
    assert asked.wanted == "multiply: too large"
    assert capfd.readouterr().err == "memopt: no snapshot of multiply: too large\n"
