"""Machine code for tests: assembled snippets, and functions compiled from C."""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.tools import need


@cache
def assemble(source: str) -> bytes:
    """The text section of AT&T assembly; statements are separated by ``;`` or newlines."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        (path / "a.s").write_text(source + "\n")
        subprocess.run(["as", "-o", "a.o", "a.s"], cwd=path, check=True)
        subprocess.run(["objcopy", "-O", "binary", "-j", ".text", "a.o", "a.bin"], cwd=path, check=True)
        return (path / "a.bin").read_bytes()


@dataclass(frozen=True)
class Text:
    """The text section of a linked program, and its functions as (start, end) by name."""

    start: int
    code: bytes
    functions: dict[str, tuple[int, int]]

    @property
    def bounds(self) -> tuple[int, int]:
        return self.start, self.start + len(self.code)

    def read(self, address: int, size: int) -> bytes:
        assert self.start <= address < self.bounds[1]
        return self.code[address - self.start:address - self.start + size]


@cache
def compile_c(source: str, compiler: str = "gcc", *flags: str) -> Text:
    """Compile and link C source. Skips the test where the compiler is missing."""
    need(compiler)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        (path / "a.c").write_text(source)
        subprocess.run([compiler, *flags, "-o", "a", "a.c", "-lm"], cwd=path, check=True)
        subprocess.run(["objcopy", "-O", "binary", "-j", ".text", "a", "a.bin"], cwd=path, check=True)
        sections = subprocess.run(["readelf", "-SW", "a"], cwd=path, check=True, capture_output=True, text=True).stdout
        line = next(line for line in sections.splitlines() if " .text " in line)
        start = int(line.split(".text")[1].split()[1], 16)
        names = subprocess.run(["nm", "-S", "a"], cwd=path, check=True, capture_output=True, text=True).stdout
        functions = {}
        for fields in map(str.split, names.splitlines()):
            if len(fields) == 4 and fields[2] in "tT":
                functions[fields[3]] = int(fields[0], 16), int(fields[0], 16) + int(fields[1], 16)
        return Text(start, (path / "a.bin").read_bytes(), functions)
