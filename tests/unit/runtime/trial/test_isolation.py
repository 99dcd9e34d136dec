"""What a copy shares with its parent, and by which calls that is taken away. Real copies: tests/live/test_shadow.py."""

from __future__ import annotations

import fcntl
import mmap
import os
from pathlib import Path

import pytest

from memopt.ir.reasons import VerifyError
from runtime.target.memory import Mapping, mappings
from runtime.target.remote_calls import SYS_MMAP, SYS_MPROTECT, SYS_MUNMAP, Call
from runtime.trial.isolation import (
    _LOOP,
    Held,
    _counted,
    _is_shared,
    _joined,
    _six,
    clone_flags,
    closes_ranges,
    held_by,
)

NOTHING = Held(frozenset(), frozenset())


def mapping(path: str, perms: str = "rw-", shared: bool = True, inode: int = 9) -> Mapping:
    return Mapping(0x1000, 0x2000, perms, shared, 0, "fe:00", inode, path)


@pytest.mark.parametrize(("found", "held", "shared", "counted"), [
    pytest.param(mapping("/a"), NOTHING, True, False, id="a shared file"),
    pytest.param(mapping("/a", "r--"), NOTHING, False, False, id="one that is only read"),
    pytest.param(mapping("/a", "r--"), Held(frozenset({"/a"}), frozenset()), True, True, id="one that is open"),
    pytest.param(mapping("/a", shared=False), NOTHING, False, False, id="a private file"),
    pytest.param(mapping("/a", shared=False), Held(frozenset({"/a"}), frozenset()), True, True, id="it is open, too"),
    pytest.param(mapping("/SYSV00000000 (deleted)", "r--", inode=0), NOTHING, True, True, id="a segment of System V"),
    pytest.param(mapping("", shared=False, inode=0), NOTHING, False, False, id="memory"),
])
def test_what_is_shared_and_what_is_counted(found: Mapping, held: Held, shared: bool, counted: bool) -> None:
    assert _is_shared(found, held) or not shared
    assert _counted(found, held) == counted
    assert _is_shared(found, held) == (shared or counted)


def test_files_that_are_open_and_mapped(tmp_path: Path) -> None:
    names = ("open", "closed", "locked", "unmapped")
    opened = {name: os.open(tmp_path / name, os.O_RDWR | os.O_CREAT) for name in names}
    maps = []
    for name in names[:3]:
        os.ftruncate(opened[name], 4096)
        maps.append(mmap.mmap(opened[name], 4096))  # which keeps a descriptor of its own
    held = held_by(os.getpid(), mappings(os.getpid()))
    assert {str(tmp_path / name) for name in names[:3]} <= held.paths
    assert str(tmp_path / "unmapped") not in held.paths
    assert not any(path.endswith(".so") for path in held.paths)
    inode = os.stat(tmp_path / "locked").st_ino
    assert inode not in held.locked
    fcntl.flock(opened["locked"], fcntl.LOCK_EX)
    assert inode in held_by(os.getpid(), mappings(os.getpid())).locked
    for mapped in maps:
        mapped.close()
    assert not {str(tmp_path / name) for name in names} & held_by(os.getpid(), mappings(os.getpid())).paths
    for descriptor in opened.values():
        os.close(descriptor)
    assert held_by(2**22 + 1, ()) == NOTHING


def test_neighbours_are_joined_where_they_are_treated_alike() -> None:
    def of(number: int, start: int, *rest: int) -> Call:
        return Call(number, (start, 0x1000, *rest))

    calls = [of(SYS_MPROTECT, 0x1000, 1), of(SYS_MPROTECT, 0x2000, 1), of(SYS_MUNMAP, 0x3000), of(SYS_MUNMAP, 0x4000),
             of(SYS_MUNMAP, 0x6000), of(SYS_MPROTECT, 0x7000, 1), of(SYS_MPROTECT, 0x8000, 0),
             of(SYS_MMAP, 0x9000, 3, 0x32, -1, 0), of(SYS_MMAP, 0xA000, 3, 0x32, -1, 0)]
    assert [(c.number, *c.arguments[:2]) for c in _joined(calls)] == [
        (SYS_MPROTECT, 0x1000, 0x2000), (SYS_MUNMAP, 0x3000, 0x2000), (SYS_MUNMAP, 0x6000, 0x1000),
        (SYS_MPROTECT, 0x7000, 0x1000), (SYS_MPROTECT, 0x8000, 0x1000), (SYS_MMAP, 0x9000, 0x1000),
        (SYS_MMAP, 0xA000, 0x1000)]
    assert list(_joined([])) == []


def test_a_table_of_calls_holds_numbers() -> None:
    assert list(_six(Call(9, (1, -1)))) == [1, (1 << 64) - 1, 0, 0, 0, 0]
    with pytest.raises(VerifyError):
        list(_six(Call(80, (b"/\0",))))


def test_the_loop_over_the_table_goes_back_to_its_start() -> None:
    from capstone import CS_ARCH_X86, CS_MODE_64, Cs

    code = list(Cs(CS_ARCH_X86, CS_MODE_64).disasm(_LOOP, 0x1000))
    assert sum(i.size for i in code) == len(_LOOP)
    assert [i.mnemonic for i in code].count("syscall") == 1
    assert [(i.mnemonic, i.op_str) for i in code[-2:]] == [("jb", "0x1000"), ("int3", "")]


def test_the_flags_say_how_descriptors_are_left() -> None:
    assert clone_flags() == (0x400 if closes_ranges() else 0)
