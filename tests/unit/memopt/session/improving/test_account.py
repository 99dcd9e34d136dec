"""Where samples went: what was decided about, and what nobody looked at."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from memopt.elf.image import Image
from memopt.elf.symbols import Symbols
from memopt.ir.reasons import Reason
from memopt.session.improving.account import account
from memopt.session.replacing.decision import Refused
from memopt.session.replacing.source import Sources
from runtime.target.memory import Mapping
from tests.support.installed import installed
from tests.support.tools import need

BASE = 0x7F0000000000
SOURCE = """long sum(const long *a, long n)
{
    long s = 0;
    for (long i = 0; i < n; i++)
        s += a[i] ^ i;
    return s;
}
long three(long a) { return a * 3 + (a >> 7) + (a ^ 5) + a / 7; }
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    need("gcc")
    (tmp_path / "p.c").write_text(SOURCE)
    subprocess.run(["gcc", "-O1", "-g", "-falign-functions=4096", "-shared", "-fPIC", "p.c", "-o", "p.so"], check=True,
                   cwd=tmp_path)
    return tmp_path / "p.so"


def _maps(path: Path) -> tuple[Mapping, ...]:
    with Image(str(path)) as image:
        text = next(s for s in image.segments if s.flags & 1)
    start = BASE + (text.address & -4096)
    return (Mapping(start, start + (text.file_size + 4096 & -4096), "r-x", False, text.offset & -4096, "", 1,
                    str(path)),)


def _address(path: Path, name: str) -> int:
    with Image(str(path)) as image:
        return BASE + next(f.end - 8 for f in Symbols(image).functions if f.name == name)


def test_all_samples_are_in_one_part(library: Path) -> None:
    version, refused = installed(), Refused(0x500000, ((0x500000, 0x500010),), None, Reason.CALL)
    new_code = version.compiled.placement.code + 8
    loop, straight = _address(library, "sum") - 8, _address(library, "three")
    samples = Counter({0x401004: 100, new_code: 200, 0x500004: 150, 0x600000: 50, loop: 300, straight: 190})
    samples[0x700000] = 10
    found, unlooked = account(samples, [version, refused], ((0x600000, 0x600010),), _maps(library), Sources(), 0.2)
    assert [round(1000 * x) for x in (found.improved, found.left, found.cool, found.late, found.no_loop)] == [
        300, 200, 10, 300, 190]
    (one,) = unlooked
    assert (one.function, str(one.source), one.share, one.reason) == ("sum", "p.c:4", 0.3, Reason.ENDED)
    _, (one,) = account(samples, [version, refused], (), _maps(library), Sources(), 0.5)
    assert one.reason is Reason.NOT_HOT


def test_code_of_no_file_is_in_no_loop(library: Path) -> None:
    maps = (Mapping(BASE, BASE + 4096, "r-x", False, 0, "", 0, ""),)
    found, unlooked = account(Counter({BASE + 5: 10}), [], (), maps, Sources(), 0.2)
    assert (found.no_loop, found.total, unlooked) == (0.01, 0.01, [])
    os.unlink(library)
    found, unlooked = account(Counter(dict.fromkeys(range(50), 1)), [], (), (), Sources(), 0.2)
    assert (found.total, unlooked) == (0.05, [])


def test_nothing_was_sampled() -> None:
    assert account(Counter(), [], (), (), Sources(), 0.2)[0].total == 0
