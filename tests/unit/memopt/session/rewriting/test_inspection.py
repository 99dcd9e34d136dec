"""The commands inspect and rewrite --undo, as a user types them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from memopt.elf.image import Image
from memopt.session.rewriting.inspection import inspect
from memopt.usage import parse
from tests.conftest import Build
from tests.support.rewritten import counted, function_start
from tests.support.tools import need


@pytest.fixture
def out(build: Build, tmp_path: Path) -> Path:
    """A rewritten program."""
    path = tmp_path / "out"
    with Image(str(build("gemm_ijk.c"))) as image:
        path.write_bytes(counted(image, function_start(image, "main")))
    path.chmod(0o755)
    return path


def test_undo_gives_the_original_back(build: Build, out: Path, tmp_path: Path,
                                      capfd: pytest.CaptureFixture[str]) -> None:
    back = tmp_path / "back"
    assert parse(["rewrite", "--undo", str(out), "-o", str(back)]) == 0
    assert back.read_bytes() == build("gemm_ijk.c").read_bytes()
    assert back.stat().st_mode & 0o777 == 0o755
    assert capfd.readouterr().err == f"memopt: {back} is the original, byte for byte\n"


def test_undo_says_where_only_the_code_comes_back(out: Path, tmp_path: Path,
                                                  capfd: pytest.CaptureFixture[str]) -> None:
    need("strip")
    subprocess.run(["strip", out], check=True)
    assert parse(["rewrite", "--undo", str(out), "-o", str(tmp_path / "back")]) == 0
    assert "the code is the original's, the file is not" in capfd.readouterr().err


@pytest.mark.parametrize("words", [
    ["rewrite", "--undo", "ORIGINAL", "-o", "BACK"], ["rewrite", "--undo", "OUT", "-o", "OUT"],
    ["rewrite", "--undo", "OUT", "-o", "FOLDER"], ["rewrite", "--undo", "OUT", "-o", "FOLDER/none/back"],
    ["rewrite", "--undo", "NONE", "-o", "BACK"], ["rewrite", "--undo", "OUT"], ["inspect", "ORIGINAL"],
    ["inspect", "NONE"], ["inspect", "OUT", "--pid", "1"], ["inspect", "FOLDER"],
    ["inspect", "OUT", "--pid", "4194304"],
], ids=" ".join)
def test_mistakes_are_one_line(build: Build, out: Path, tmp_path: Path, words: list[str],
                               capfd: pytest.CaptureFixture[str]) -> None:
    places = {"ORIGINAL": str(build("gemm_ijk.c")), "OUT": str(out), "FOLDER": str(tmp_path),
              "BACK": str(tmp_path / "back"), "NONE": str(tmp_path / "none")}
    content = out.read_bytes()
    code = parse([word.replace("FOLDER", str(tmp_path)) if "/" in word else places.get(word, word) for word in words])
    told = capfd.readouterr()
    assert code in (1, 2)
    assert told.out == ""
    assert told.err.startswith("memopt: ")
    assert told.err.count("\n") == 1
    assert out.read_bytes() == content
    assert not (tmp_path / "back").exists()


def test_inspect_shows_the_record(out: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert parse(["inspect", str(out)]) == 0
    assert "in main: " in capfd.readouterr().out
    assert parse(["inspect", "--json", str(out)]) == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["patched"], told["whole"]) == (True, True)
    assert told["versions"][0]["counters"] is None


def test_inspect_reads_the_counters_of_a_process(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source, program, out = tmp_path / "waits.c", tmp_path / "waits", tmp_path / "out"
    source.write_text("#include <stdio.h>\n#include <unistd.h>\n"
                      "__attribute__((noinline)) void work(int n) { printf(\"%d\\n\", n); fflush(stdout); }\n"
                      "int main(void) { for (int n = 0; n < 3; n++) work(n); char c; return read(0, &c, 1) != 0; }\n")
    subprocess.run(["gcc", "-O1", "-o", program, source], check=True)
    with Image(str(program)) as image:
        out.write_bytes(counted(image, function_start(image, "work")))
    out.chmod(0o755)
    running = subprocess.Popen([out], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert running.stdin is not None
    assert running.stdout is not None
    for _ in range(3):
        running.stdout.readline()
    assert inspect(str(out), running.pid, json=True) == 0
    running.communicate()
    told = json.loads(capfd.readouterr().out)
    assert told["versions"][0]["counters"] == {"entries": 3, "runs": 3, "resting": 0}


def test_the_commands_are_in_the_help() -> None:
    told = subprocess.run([sys.executable, "-m", "memopt", "--help"], capture_output=True, text=True, check=True).stdout
    assert "inspect" in told
    assert "rewrite" in told
