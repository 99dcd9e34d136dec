"""What one run leaves, the next one finds: refusals by the code, plans by the header; what failed is not used again."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from memopt.ir.reasons import Reason, Rejected
from memopt.options import Options
from memopt.plans import folder as folders
from memopt.plans.entries import Entry
from memopt.plans.identity import file_identity, file_name, origin
from memopt.session.replacing.known import LOOK_AGAIN, KnownLoops
from memopt.session.replacing.process import detected_machine
from memopt.session.replacing.site import Site
from tests.conftest import Build
from tests.support.sites import NESTS, TEXT, site_of
from tests.support.stored import PLAN

BIAS = 0x10000
OPTIONS = Options()


@pytest.fixture
def site(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site in a program for which there is a cache; its code is moved by ``BIAS``."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return replace(site_of(NESTS), path=str(shutil.copy(build("one_product.c"), tmp_path / "program")), bias=BIAS)


def run(site: Site, *refusals: Rejected, options: Options = OPTIONS) -> Rejected | None:
    """What the next run knows about the outermost loop, after which the stages refuse it for ``refusals``."""
    known = KnownLoops(options)
    found = known.refusal(site, site.loops[0])
    for why in refusals if found is None else ():
        known.left_alone(site, site.loops[0], why)
    known.write()
    return found


def test_a_refusal_by_the_code_is_gone_by_at_once(site: Site) -> None:
    why = Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"cpuid at {TEXT + 4:#x}")
    assert run(site, why) is None
    found = run(site)
    assert found is not None
    assert (found.reason, found.detail) == (why.reason, why.detail)
    moved = run(replace(site, bias=0))  # another header then
    assert moved is None


def test_addresses_are_those_of_the_process_of_now(site: Site) -> None:
    run(site, Rejected(Reason.ATOMIC, f"at {TEXT + 4:#x}"))
    folder = folders.plans_folder()
    assert folder is not None
    content = Path(folder, folders.names(folder)[0]).read_text()
    assert f"at {TEXT + 4 - BIAS:#x}" in content
    assert f"{TEXT:#x}" not in content


def test_details_with_other_addresses_are_not_kept(site: Site) -> None:
    run(site, Rejected(Reason.ATOMIC, "at 0x7f1200001000"))
    found = run(site)
    assert found is not None
    assert found.detail == ""


def test_a_refusal_by_values_has_to_be_seen_twice(site: Site) -> None:
    why = Rejected(Reason.DATA_DEPENDENT_BRANCH)
    assert run(site, why) is None
    assert run(site, why) is None
    assert run(site) is not None


def test_now_and_then_the_stages_are_asked_again(site: Site) -> None:
    run(site, Rejected(Reason.ATOMIC))
    assert [run(site) is None for _ in range(LOOK_AGAIN)].count(True) == 1


@pytest.mark.parametrize("reason", [Reason.NO_PLAN, Reason.THREADS, Reason.TOO_SHORT, Reason.NOT_REACHED, Reason.CALL])
def test_other_refusals_are_of_one_run(site: Site, reason: Reason) -> None:
    for _ in range(3):
        assert run(site, Rejected(reason)) is None


def test_other_code_other_options_and_no_cache_know_nothing(site: Site) -> None:
    run(site, Rejected(Reason.ATOMIC))
    changed = replace(site_of(NESTS.replace("xor ecx, ecx", "sub ecx, ecx")), path=site.path, bias=site.bias)
    assert run(changed) is None
    assert run(site, options=Options(fp="fast")) is None
    assert run(site, options=Options(cache=False)) is None
    assert run(site) is not None


def stored(site: Site, *entries: Entry) -> KnownLoops:
    """The cache in a run after one that has left ``entries``."""
    file, folder = file_identity(site.path), folders.plans_folder()
    assert file is not None
    assert folder is not None
    folders.add(folder, file_name(file, "exact", ""), origin(detected_machine(), "exact", ""), file, entries)
    return KnownLoops(Options())


def planned(site: Site, header: int) -> Entry:
    return Entry(header - site.bias, ((header - site.bias, 16),), "0" * 64, PLAN)


def test_a_loop_with_a_plan_is_tried_first(site: Site) -> None:
    inner = site.loops[-1]
    assert KnownLoops(Options()).planned(site, site.loops) is None
    known = stored(site, planned(site, inner.header))
    assert known.planned(site, site.loops) is inner


@pytest.mark.parametrize("reason", [Reason.NOT_FASTER, Reason.GUARD_FAILED, Reason.SHADOW_MISMATCH])
def test_a_plan_that_failed_is_not_used_again(site: Site, reason: Reason) -> None:
    entry = planned(site, site.loops[-1].header)
    known = stored(site, entry)
    known.failed(site.path, entry, reason)
    assert known.planned(site, site.loops) is None
    known.write()
    later = KnownLoops(Options())
    assert later.planned(site, site.loops) is None
    assert not later.expect(site.path)


def test_a_sample_in_a_loop_with_a_plan_counts_once(site: Site, build: Build) -> None:
    known = stored(site, planned(site, 0x1190 + BIAS))
    assert known.expect(site.path)
    start = 0x555500001000
    maps = ((0x400000, 0x500000, 0, "/lib/other"), (start, start + 0x1000, 0x1000, site.path))
    at = start - 0x1000 + 0x1190
    assert known.come_to({at + 3: 1}, maps[:1]) is None  # it is not mapped yet
    assert known.come_to({at - 1: 1, at + 16: 1}, maps) is None
    assert known.come_to({at - 1: 1, at + 3: 1}, maps) == at + 3
    assert not known.expecting
    assert known.come_to({at + 3: 1}, maps) is None


def test_an_odd_file_is_one_note_and_gone(site: Site) -> None:
    stored(site, planned(site, site.loops[0].header))
    folder = folders.plans_folder()
    assert folder is not None
    path = Path(folder, folders.names(folder)[0])
    path.write_text("odd")
    known = KnownLoops(Options())
    assert known.planned(site, site.loops) is None
    assert known.refusal(site, site.loops[0]) is None
    assert len(known.notes) == 1
    assert "its checksum does not match" in known.notes[0]
    assert not path.exists()
