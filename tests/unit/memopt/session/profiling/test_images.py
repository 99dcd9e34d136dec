"""Which file's code a sample meets, whatever its process was before and is afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memopt.elf.image import PF_X, PT_LOAD, Image
from memopt.session.profiling.images import Images, Processes
from runtime.sampling.samples import Ended, Executed, Forked, Mapped

PROGRAM, CHILD, GRANDCHILD = 10, 11, 12
SHELL, LIST = "/bin/sh", "/bin/ls"


def mapped(pid: int, path: str, start: int) -> Mapped:
    """As the kernel maps the code of a file."""
    with Image(path) as image:
        segment = next(s for s in image.segments if s.kind == PT_LOAD and s.flags & PF_X)
    return Mapped(pid, start, start + 0x4000, segment.offset & ~0xFFF, os.stat(path).st_ino, path)


def path_at(images: Images, address: int) -> str | None:
    place = images.place(address)
    return None if place is None else place.path


def test_a_child_is_a_copy_until_it_executes_another_program() -> None:
    processes = Processes(PROGRAM)
    processes.learn(mapped(PROGRAM, SHELL, 0x400000))
    processes.learn(Forked(CHILD, PROGRAM))
    child = processes.of(CHILD)
    assert (child.parent, child.first, path_at(child, 0x400010)) == (PROGRAM, SHELL, SHELL)
    processes.learn(Forked(GRANDCHILD, CHILD))
    processes.learn(Executed(CHILD))
    assert path_at(child, 0x400010) is None
    processes.learn(mapped(CHILD, LIST, 0x400000))
    assert (child.first, path_at(child, 0x400010)) == (LIST, LIST)
    assert path_at(processes.program, 0x400010) == path_at(processes.of(GRANDCHILD), 0x400010) == SHELL
    assert (processes.of(GRANDCHILD).parent, processes.of(0)) == (CHILD, processes.program)


def test_a_process_ends_with_its_last_thread() -> None:
    """Though the first one may end before, as when another one executes a program."""
    processes = Processes(PROGRAM)
    processes.learn(Forked(CHILD, PROGRAM))
    processes.learn(Forked(CHILD, CHILD))
    child = processes.of(CHILD)
    processes.learn(Ended(CHILD))
    processes.learn(Executed(CHILD))
    processes.learn(mapped(CHILD, LIST, 0x400000))
    assert (processes.of(CHILD), path_at(child, 0x400010), child.parent) == (child, LIST, PROGRAM)
    processes.learn(Ended(CHILD))
    assert processes.of(CHILD) is not child


def test_where_something_was_lost_nothing_is_known() -> None:
    processes = Processes(PROGRAM)
    processes.learn(mapped(PROGRAM, SHELL, 0x400000))
    processes.learn(Forked(CHILD, PROGRAM))
    processes.doubt()
    assert path_at(processes.program, 0x400010) is path_at(processes.of(CHILD), 0x400010) is None


def test_a_file_that_was_not_there_yet(tmp_path: Path) -> None:
    images, path = Images(PROGRAM), tmp_path / "made"
    at = mapped(PROGRAM, SHELL, 0x400000)._replace(path=str(path))
    images.map(at)
    assert images.places == ()
    path.write_bytes(Path(SHELL).read_bytes())
    images.map(at)
    assert path_at(images, 0x400010) == str(path)


def test_what_is_mapped_later_lies_above() -> None:
    images = Images(PROGRAM)
    images.map(mapped(PROGRAM, SHELL, 0x10000))
    images.map(mapped(PROGRAM, LIST, 0x12000))
    assert [path_at(images, a) for a in (0x10010, 0x12010, 0x15FFF, 0x16000)] == [SHELL, LIST, LIST, None]
    images.map(Mapped(PROGRAM, 0x13000, 0x14000, 0, 0, "//anon"))
    assert [path_at(images, a) for a in (0x12FFF, 0x13000, 0x13FFF, 0x14000)] == [LIST, None, None, LIST]
    assert len({place.bias for place in images.places if place.path == LIST}) == 1


@pytest.mark.parametrize("path", ["//anon", "[vdso]", "/no/such/file", "/etc/passwd", ""])
def test_what_is_no_code_of_a_file(path: str) -> None:
    images = Images(PROGRAM)
    images.map(Mapped(PROGRAM, 0x10000, 0x12000, 0, 1, path))
    assert (images.places, images.first) == ((), "")


def test_the_bias_is_that_of_the_file_that_was_mapped(tmp_path: Path) -> None:
    at = mapped(PROGRAM, SHELL, 0x7F0000000000)
    images = Images(PROGRAM)
    images.map(at)
    place = images.place(0x7F0000000123)
    assert place is not None
    with Image(SHELL) as image:
        assert place.bias == image.load_bias(at.start, at.offset)


def test_where_nothing_was_told_it_is_looked_up() -> None:
    images = Images(os.getpid())
    address = next(int(line.split("-")[0], 16) for line in Path("/proc/self/maps").read_text().splitlines()
                   if " r-xp " in line and line.endswith(".so.6"))
    assert images.place(address) is None
    images.see(address)
    assert (path_at(images, address) or "").endswith(".so.6")
    assert images.parent == os.getppid()
