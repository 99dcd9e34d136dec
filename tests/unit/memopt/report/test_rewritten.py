from __future__ import annotations

import json
from dataclasses import replace

from memopt.elf.rewriting.record import Change, PatchRecord, Record, VersionRecord
from memopt.report.rewritten import Counters, Inspection, as_json, lines

VERSION = VersionRecord(header=0x1190, function="dgemm", guards=("rdi == 400", "arrays disjoint"), region="r",
                        plan="tile 8x8\npack A", isa="avx2", machine="a processor", scratch=65536,
                        code=(0x5040, 0x5240), entries=0, runs=8, resting=16, measured=(("gain", 3.25),))
RECORD = Record("1.0", 16000, "ab" * 32, "c0ffee", (0x4040, 4096), (Change(56, b"\x0d"),),
                (PatchRecord(0x1190, b"\x90" * 5, b"\xe9\x00\x00\x00\x00"),), (VERSION, replace(VERSION, function="")))


def test_the_text_names_all_that_people_ask_for() -> None:
    text = "\n".join(lines(Inspection("prog", RECORD, True, True, (Counters(1200, 7, 3), Counters(0, 0, 0)))))
    for words in ("rewritten by memopt 1.0, 2 versions", "16,000 bytes, SHA-256 abab", "build id c0ffee",
                  "loop at 0x1190 in dgemm: 512 bytes of code for avx2", "plan: tile 8x8", "    pack A",
                  "guard: rdi == 400", "copies of arrays: 65,536 bytes", "gain 3.25",
                  "entries 1,200, runs 7, resting for 3 passes", "loop at 0x1190: "):
        assert words in text
    assert "changed" not in text


def test_the_text_says_what_became_of_the_file() -> None:
    assert "runs as the original" in "\n".join(lines(Inspection("prog", RECORD, False, True)))
    assert "neither the original's nor memopt's" in "\n".join(lines(Inspection("prog", RECORD, None, True)))
    changed = "\n".join(lines(Inspection("prog", replace(RECORD, versions=(VERSION,)), True, False)))
    assert "1 version of" in changed
    assert "changed since memopt rewrote it" in changed
    assert "entries" not in changed


def test_the_json_has_all_of_it() -> None:
    told = json.loads(as_json(Inspection("prog", RECORD, True, False, (Counters(5, 4, 3), Counters(2, 1, 0)))))
    assert told["format"] == 1
    assert (told["patched"], told["whole"]) == (True, False)
    assert told["original"] == {"length": 16000, "sha256": "ab" * 32, "build_id": "c0ffee"}
    assert told["versions"][0]["counters"] == {"entries": 5, "runs": 4, "resting": 3}
    assert told["versions"][0]["measured"] == {"gain": 3.25}
    assert told["versions"][1]["function"] is None
    assert told["patches"] == [{"address": "0x1190", "original": "90" * 5, "new": "e900000000"}]
    without = json.loads(as_json(Inspection("prog", RECORD, True, True)))
    assert without["versions"][0]["counters"] is None
