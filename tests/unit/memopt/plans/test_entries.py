"""Entries are read as they were written, and nothing else is; entries of two runs are merged."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memopt.plans.entries import (
    MOST_BYTES,
    MOST_ENTRIES,
    MOST_OF_A_LOOP,
    Entry,
    OddFile,
    Stored,
    StoredPlan,
    StoredRefusal,
    merged,
    parse,
    text,
)
from memopt.plans.identity import FileIdentity
from tests.support.stored import PLAN, STORED, entry

LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r", exclude_categories=("Cs",)),
                         max_size=40), min_size=1, max_size=5).map("\n".join)
SHA = st.text("0123456789abcdef", min_size=64, max_size=64)
COUNTS = st.integers(0, 10**6)
TIMES = st.floats(0, 1e12, allow_nan=False).map(abs)
PLANS = st.builds(StoredPlan, LINES, LINES, SHA, TIMES, TIMES, COUNTS, st.booleans(), TIMES, COUNTS, COUNTS, COUNTS)
REFUSALS = st.builds(StoredRefusal, st.sampled_from(["non-affine", "atomic-access"]), st.text(max_size=40), COUNTS,
                     COUNTS)
ENTRIES = st.builds(Entry, st.integers(0, 2**64 - 1),
                    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 10**6)), min_size=1, max_size=3
                             ).map(tuple), SHA, PLANS | REFUSALS)
FILES = st.builds(Stored, st.just(("memopt 1", "machine \"x\"")), st.builds(
    FileIdentity, st.integers(0, 2**40), st.sampled_from(["", "0a1b"]), SHA), st.lists(ENTRIES, max_size=4).map(tuple))


@given(FILES)
def test_what_is_written_is_read(stored: Stored) -> None:
    assert parse(text(stored)) == stored


def resummed(content: str) -> str:
    """``content`` with another body under a right checksum: only its form can give it away."""
    body = content[:content.rindex("sum ")]
    return f"{body}sum {hashlib.sha256(body.encode()).hexdigest()}\n"


@pytest.mark.parametrize(("old", "new"), [
    ("memopt-plans 1", "memopt-plans 2"), ("file 100", "file -1"), ("loop 0x10", "loop 10"),
    ("0x10+4", "0x10+99999999"), ("times 1.0", "times nan"), ("times 1.0", "times inf"), ("times 1.0", "times 1e999"),
    ("times 1.0", "times 1.0.0"), ("used 1 lost", "used -1 lost"), ("used 1 lost", "used 99999999 lost"),
    ("| nest", "+ nest"), (": region", ":region"), ("refused non-affine", "refused NON"), ("even", "odd"),
    ('"at', "'at"), ("| plan", "loop"), ("| nest\n| plan\n", ""), ("code 0x20+4 0x30+1", "code"), ("made 0", "made g"),
])
def test_anything_else_is_odd(old: str, new: str) -> None:
    content = text(STORED)
    assert old in content
    with pytest.raises(OddFile):
        parse(resummed(content.replace(old, new)))


@given(st.integers(0, len(text(STORED)) - 1), st.integers(1, 127))
def test_a_changed_character_is_noticed(place: int, by: int) -> None:
    content = text(STORED)
    changed = content[:place] + chr((ord(content[place]) + by) % 128) + content[place + 1:]
    with pytest.raises(OddFile):
        parse(changed)


@given(st.integers(0, len(text(STORED)) - 1))
def test_a_file_that_was_cut_is_noticed(size: int) -> None:
    with pytest.raises(OddFile):
        parse(text(STORED)[:size])


def test_a_file_does_not_grow_too_large() -> None:
    large = replace(PLAN, region="x" * 60000)
    stored = replace(STORED, entries=tuple(Entry(n, ((n, 1),), "0" * 64, large) for n in range(40)))
    content = text(stored)
    assert len(content) <= MOST_BYTES
    assert 10 < len(parse(content).entries) < 40


def test_too_many_entries_are_odd() -> None:
    lines = "".join(f"loop {n:#x} code {n:#x}+1 bytes {'0' * 64}\nrefused non-affine seen 1 used 0 \"\"\n"
                    for n in range(MOST_ENTRIES + 1))
    content = text(replace(STORED, entries=()))
    with pytest.raises(OddFile, match="too many"):
        parse(resummed(content.replace("sum ", f"{lines}sum ")))


def test_counts_of_two_runs_are_added() -> None:
    known = (entry(1, PLAN), entry(2, StoredRefusal("non-affine", "", 1)))
    found = (entry(2, StoredRefusal("non-affine", "", 1)), entry(1, replace(PLAN, made="9" * 64, lost=1)))
    first, second = merged(known, found)
    assert first == entry(2, StoredRefusal("non-affine", "", 2))
    assert second == entry(1, replace(PLAN, made="9" * 64, used=2, lost=1))
    assert not second.what.usable  # type: ignore[union-attr]


def test_merging_twice_in_either_order_keeps_all() -> None:
    one, two = (entry(1, PLAN),), (entry(2, PLAN),)
    assert set(merged(one, two)) == set(merged(two, one)) == {*one, *two}


def test_a_loop_with_a_plan_has_no_refusal() -> None:
    known = (entry(1, StoredRefusal("non-affine", "", 5)),)
    assert merged(known, (entry(1, PLAN),)) == (entry(1, PLAN),)
    assert len(merged(known, (entry(1, replace(PLAN, lost=1)),))) == 2


def test_of_one_loop_the_plans_used_last_are_kept() -> None:
    known = tuple(entry(1, replace(PLAN, region=f"r{n}")) for n in range(MOST_OF_A_LOOP))
    new = entry(1, replace(PLAN, region="new"))
    assert merged(known, (new,)) == (new, *known[:-1])
