from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memopt.ir.reasons import Reason, Rejected
from memopt.options import Keeping
from memopt.session.snapshotting import keeping
from memopt.session.snapshotting.keeping import Keeper
from memopt.snapshots.file import read
from memopt.snapshots.form import PAGE, SnapshotError
from runtime.target.memory import Mapping, Memory, mapping_at, mappings
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
        if limit == 2:
            raise Rejected(Reason.TOO_SHORT)
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


def test_a_nest_that_cannot_be_kept_now_is_tried_again(tmp_path: Path, reasons: list[str]) -> None:
    with pytest.raises(Rejected) as again:
        keeper(path=str(tmp_path / "file"), limit=2).keep(PROCESS, trial(FASTER))
    assert again.value.reason is Reason.SHADOW_INCONCLUSIVE
    keeper(path=str(tmp_path / "file"), limit=2, mismatch=True).keep(PROCESS, trial(DIFFERENT))
    assert len(reasons) == 2


def test_arguments_and_environment_are_where_they_are_said_to_be() -> None:
    maps = mappings(os.getpid())
    low, high = keeping._arguments(SimpleNamespace(pid=os.getpid()), maps)  # type: ignore[arg-type]
    memory = Memory(os.getpid())
    found, before = memory.read(low, high - low), memory.read(low - 4096, 4096)
    memory.close()
    given = Path("/proc/self/cmdline").read_bytes() + Path("/proc/self/environ").read_bytes()
    assert found.startswith(given)
    assert given[:64] not in before
    assert mapping_at(maps, high) is None


def test_what_was_blanked_is_zero_and_code_is_the_original() -> None:
    page = 0x7000_0000_0000
    shadow: Any = SimpleNamespace(read=lambda _, size: b"\1" * size)
    block = SimpleNamespace(code=b"\2" * 8)
    code: Any = SimpleNamespace(site=SimpleNamespace(graph=SimpleNamespace(blocks={page + 16: block})))
    maps = (Mapping(page, page + 3 * PAGE, "rw-", False, 0, "00:00", 0, "[stack]"),)
    found, = keeping._contents(shadow, [(page, page + 2 * PAGE)], maps, code, (page + PAGE + 8, page + 3 * PAGE))
    assert found.start == page
    assert found.content == b"\1" * 16 + b"\2" * 8 + b"\1" * (PAGE - 16) + bytes(PAGE - 8)
    with pytest.raises(SnapshotError, match="which the program got only now"):
        list(keeping._contents(shadow, [(page, page + 4 * PAGE)], maps, code, (0, 1)))
