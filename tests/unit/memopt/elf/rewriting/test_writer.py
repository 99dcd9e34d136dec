"""Programs and libraries with a counting function run as before, and so they do after the tools that people use."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from memopt.elf.image import ElfError, Image
from memopt.elf.rewriting.record import record_of
from memopt.elf.rewriting.undo import undone
from memopt.elf.rewriting.writer import Addition, Patch, written
from tests.support.effort import some_rows
from tests.support.rewritten import Ran, code_of, counted, function_start, run
from tests.support.tools import need

SOURCE = Path(__file__).parents[4] / "programs" / "rewritten.cpp"
BUILDS = {
    "pie": ("g++", "-g"), "fixed address": ("g++", "-no-pie", "-fno-pie"), "static": ("g++", "-static"),
    "static-pie": ("g++", "-static-pie"), "stripped": ("g++", "-s"), "clang": ("clang++", "-O2"),
    "relro": ("g++", "-Wl,-z,relro,-z,now"), "no relro": ("g++", "-Wl,-z,norelro"),
    "one segment for all code": ("g++", "-Wl,-z,noseparate-code"), "no build id": ("g++", "-Wl,--build-id=none"),
    "large pages": ("g++", "-Wl,-z,max-page-size=0x200000"), "relr": ("g++", "-Wl,-z,pack-relative-relocs"),
    "control-flow notes": ("g++", "-fcf-protection=full", "-Wl,-z,ibt,-z,shstk"),
    "old hash": ("g++", "-Wl,--hash-style=sysv"), "both hashes": ("g++", "-Wl,--hash-style=both"),
    "gold": ("g++", "-fuse-ld=gold"), "lld": ("clang++", "-fuse-ld=lld"),
    "lld, static": ("clang++", "-fuse-ld=lld", "-static"),
}
LINKERS = {"-fuse-ld=gold": "ld.gold", "-fuse-ld=lld": "ld.lld"}
TOOLS = {
    "strip": "strip -o OUT IN", "strip -g": "strip -g -o OUT IN", "objcopy": "objcopy IN OUT",
    "eu-strip": "eu-strip -o OUT IN", "llvm-strip": "llvm-strip -o OUT IN",
    "rpath": "patchelf --set-rpath /nowhere/at/all/that/is/long --output OUT IN",
    "needed": "patchelf --add-needed libm.so.6 --output OUT IN",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rewritten")


def built(folder: Path, name: str) -> Path:
    compiler, *flags = BUILDS[name]
    need(compiler, *(LINKERS[f] for f in flags if f in LINKERS))
    path = folder / name
    if not path.exists():
        subprocess.run([compiler, "-O2", *flags, "-o", path, SOURCE], check=True)
    return path


def rewritten(path: Path) -> Path:
    """The file in which ``work`` counts; where the file is stripped, its entry point."""
    with Image(str(path)) as image:
        try:
            address = function_start(image, "work")
        except StopIteration:
            address = image.entry
        content = counted(image, address)
    out = path.with_name(f"{path.name}, rewritten")
    out.write_bytes(content)
    out.chmod(0o755)
    return out


def as_before(path: Path, out: Path) -> Ran:
    """Runs the rewritten file ``out`` and compares it with the original; its counter counts."""
    told, found = run([str(path)]), run([str(out)])
    assert (found.output, found.errors, found.status) == (told.output, told.errors, told.status)
    assert told.output.count(b"\n") >= 6
    return found


def applied(tool: str, source: Path, to: Path) -> bool:
    """Whether the tool has made ``to`` from ``source``."""
    words = TOOLS[tool].split()
    need(words[0])
    command = [{"IN": str(source), "OUT": str(to)}.get(word, word) for word in words]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("name", some_rows(((b,) for b in BUILDS), 6))
def test_programs_run_as_before_and_are_undone_to_the_byte(folder: Path, name: str) -> None:
    path = built(folder, name)
    out = rewritten(path)
    assert as_before(path, out).count == (2 if name != "stripped" else 1)
    content = out.read_bytes()
    back = undone(content)
    assert back.whole
    assert back.content == path.read_bytes()
    assert len(content) - path.stat().st_size < 12_000


@pytest.mark.parametrize(("name", "tool"), some_rows(((b, t) for b in BUILDS for t in TOOLS), 8))
def test_tools_leave_them_right(folder: Path, tmp_path: Path, name: str, tool: str) -> None:
    path = built(folder, name)
    out, treated, plain = rewritten(path), tmp_path / "treated", tmp_path / "plain"
    if not applied(tool, path, plain) or run([str(plain)]).output != run([str(path)]).output:
        pytest.skip("the tool does not do for the original")
    assert applied(tool, out, treated)
    assert as_before(plain, treated).count == (2 if name != "stripped" else 1)
    back = undone(treated.read_bytes())
    assert not back.whole
    without = tmp_path / "without"
    without.write_bytes(back.content)
    without.chmod(0o755)
    assert as_before(plain, without).count == 0
