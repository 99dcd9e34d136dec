"""What one run leaves, the next one finds: refusals by the code, plans by the header; what failed is not used again."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from memopt.ir.code import CompiledRegion, Placement
from memopt.ir.parse import parse_plan, parse_region
from memopt.ir.plan import NestPlan
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Region
from memopt.options import Options
from memopt.plans import folder as folders
from memopt.plans.addresses import Addresses
from memopt.plans.entries import Entry
from memopt.plans.identity import file_identity, file_name, origin
from memopt.session.replacing import known as replacing
from memopt.session.replacing.known import LOOK_AGAIN, KnownLoops
from memopt.session.replacing.process import Process, detected_machine
from memopt.session.replacing.site import Site
from runtime.trial.trial import Measurement
from tests.conftest import Build
from tests.support.sites import NESTS, TEXT, site_of
from tests.support.stored import PLAN

BIAS = 0x10000
OPTIONS = Options()
PROCESS = Process(0, OPTIONS, nullcontext, 0.0)


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


REGION = parse_region("""region 0x401000
  code 0x401000 31 c9
  rdi = s64 rdi
  R = (rdi) / 1
  guard rdi - 2 >= 0
  guard rdi - 5 >= 0
  array A0: f64 at rdi, strides (8)
  S0[i<R]: A0[i] = A0[i]
""")
NEST = parse_plan("""nest
plan avx2 S0: i/8
tile i:1 x j:1x4 over k""")
HEAP = 0x7F1200000000
PLACEMENT = Placement(0x500000, 4096, 0x501000, 4096, 0x502000, 0x503000, 4096)


def kept(site: Site, monkeypatch: pytest.MonkeyPatch, region: Region = REGION) -> KnownLoops:
    """The cache in the run after one that has installed a version of ``region``."""
    monkeypatch.setattr(replacing, "_addresses", lambda *_: Addresses([(HEAP, HEAP + 4096, "", 0)]))
    assert isinstance(NEST, NestPlan)
    made = CompiledRegion(region, NEST, PLACEMENT, b"", 0x500000, 0, "mov rax, [0x501008]")
    known = KnownLoops(OPTIONS)
    known.installed(PROCESS, site, made, 100.0, Measurement(1.0, 0.5, 7))
    known.write()
    return KnownLoops(OPTIONS)


def test_a_plan_is_found_for_an_equal_region(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of its guards does not count, anything else does. It counts as used when it is installed again."""
    known = kept(site, monkeypatch)
    assert known.has_plan(site, REGION.header)
    found = known.plan(PROCESS, site, REGION, 100.0)
    assert found is not None
    assert found.plan.plan == str(NEST)
    assert known.plan(PROCESS, site, replace(REGION, guards=REGION.guards[::-1]), 100.0) is not None
    for other in (replace(REGION, guards=REGION.guards[1:]), replace(REGION, code=((0x401000, b"\x31\xc8"),)),
                  replace(REGION, returns_often=True)):
        assert known.plan(PROCESS, site, other, 100.0) is None


def test_the_trial_is_spared_for_the_same_code_and_as_much_work(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(NEST, NestPlan)
    moved = replace(PLACEMENT, frame=0x601000)
    for listing, work, spared in (("mov rax, [0x601008]", 104.0, True), ("mov rax, [0x601010]", 100.0, False),
                                  ("mov rax, [0x601008]", 200.0, False)):
        found = kept(site, monkeypatch).plan(PROCESS, site, REGION, work)
        assert found is not None
        measured = found.measured(CompiledRegion(REGION, NEST, moved, b"", 0, 0, listing))
        assert (measured == Measurement(1.0, 0.5, 7)) == spared


@pytest.mark.parametrize("region", [
    replace(REGION, code=((0x1000, b"\x31\xc9"),)), replace(REGION, free_register="x7f1200000010"),
], ids=["code of another file", "an address in a name"])
def test_what_is_of_this_process_alone_is_not_kept(region: Region, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not kept(site, monkeypatch, region).has_plan(site, REGION.header)
