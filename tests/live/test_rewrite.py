"""``memopt rewrite``: the new file gives the same output at sizes it was not trained with, and its new code runs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bench.measure.execution import memopt_command
from memopt.elf.image import Image
from memopt.elf.rewriting.record import Record, record_of
from memopt.machine.description import usable_isas
from memopt.machine.detect import detect
from memopt.session.rewriting.runs import Run, run
from tests.conftest import Build
from tests.support.effort import some_rows
from tests.support.tools import need
from tests.support.waiting import PATIENCE

TRAINED = ("500", "30")
OTHERS = (TRAINED, ("333", "2"), ("2", "5"), ("501", "2"), ("400", "4", "threads"))


def rewritten(file: Path, folder: Path, *trainings: str) -> Path:
    new = folder / f"{file.name}.new"
    done = subprocess.run([*memopt_command(), "rewrite", str(file), "-o", str(new), *trainings], timeout=PATIENCE,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return new


def record_in(file: Path) -> Record:
    with Image(str(file)) as image:
        record = record_of(image)
    assert record is not None
    return record


def watched(new: Path, *arguments: str) -> Run:
    return run([str(new), *arguments], watched=(str(new), record_in(new)))


@pytest.mark.parametrize(("compiler", "flags"), some_rows([
    ("gcc", ()), ("gcc", ("-no-pie",)), ("gcc", ("-static",)), ("gcc", ("-static-pie",)), ("clang", ()),
    ("gcc", ("-g", "-Wl,-z,now,-z,relro")), ("clang", ("-static",))], 1))
def test_the_same_output_at_all_sizes(build: Build, tmp_path: Path, compiler: str, flags: tuple[str, ...]) -> None:
    program = build("rewritten.c", *flags, compiler=compiler)
    new = rewritten(program, tmp_path, "--train", "--", *TRAINED)
    for arguments in OTHERS:
        native = run([str(program), *arguments])
        assert watched(new, *arguments).output == native.output != b"", arguments
    assert sum(watched(new, *TRAINED).runs) > 0
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-o", str(stripped), str(new)], check=True)
    assert run([str(stripped), *TRAINED]).output == run([str(program), *TRAINED]).output
    original = tmp_path / "original"
    subprocess.run([*memopt_command(), "rewrite", "--undo", str(new), "-o", str(original)], check=True)
    assert original.read_bytes() == program.read_bytes()
    check_record(new, str(tmp_path))


@pytest.mark.long
def test_a_version_for_each_size(build: Build, tmp_path: Path) -> None:
    program = build("rewritten.c")
    new = rewritten(program, tmp_path, "--train", "--", "500", "30", "--train", "--", "432", "40")
    for size in ("500", "432"):
        assert sum(watched(new, size, "15").runs) > 0
    for size in ("431", "433", "499"):
        assert watched(new, size, "2").output == run([str(program), size, "2"]).output


@pytest.mark.long
def test_other_processors_take_the_widest_version_that_fits(build: Build, tmp_path: Path) -> None:
    """The emulator lists the code that it comes to in each version."""
    need("qemu-x86_64")
    program = build("rewritten.c", "-static")
    new = rewritten(program, tmp_path, "--train", "--", *TRAINED)
    code = {version.isa: version.code for version in record_in(new).versions}
    assert list(code) == [isa.value for isa in usable_isas(detect())]
    for processor, isa, multiply in (("SandyBridge", "sse2", "mulpd"), ("Haswell", "avx2", "vmulpd"),
                                     ("qemu64", "none: it has no XSAVE", "mulpd")):
        for version, (start, end) in code.items():
            log = tmp_path / f"{processor}-{version}"
            emulated = run([shutil.which("qemu-x86_64") or "", "-cpu", processor, "-d", "in_asm", "-D", str(log),
                            "-dfilter", f"{start:#x}..{end:#x}", str(new), TRAINED[0], "1"])
            assert emulated.output == run([str(program), TRAINED[0], "1"]).output
            assert (multiply in log.read_text().split()) == (version == isa), (processor, version)


def test_nothing_to_gain_is_said_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run([*memopt_command(), "rewrite", "/bin/true", "-o", str(tmp_path / "new")], timeout=PATIENCE,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith("memopt: /bin/true: nothing written: no loop was hot")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_a_failure_is_said_in_one_line(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no program\n")
    for words in ([str(text)], [str(tmp_path / "missing")]):
        done = subprocess.run([*memopt_command(), "rewrite", *words, "-o", str(tmp_path / "new")], timeout=PATIENCE,
                              capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr


def check_record(new: Path, folder: str) -> None:
    """It holds no address of a process, and no path."""
    shown = subprocess.run([*memopt_command(), "inspect", "--json", str(new)], capture_output=True, check=True).stdout
    assert json.loads(shown)
    assert re.findall(rb"0x(?:5[56]|7f)[0-9a-f]{10}", shown) == []
    assert folder.encode() not in new.read_bytes()
