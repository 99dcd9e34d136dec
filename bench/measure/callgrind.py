"""Instruction counts by callgrind (Nethercote and Seward, Valgrind, 2007), by the file that the instructions lie in.

Callgrind assigns code outside a file's section .text (.init, the procedure linkage table) to no file. Here it is
assigned by its address: valgrind's log tells where each file is mapped.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from memopt.elf.image import PF_X, PT_LOAD, ElfError, Image

_COST = re.compile(r"(0x[0-9a-f]+|[+-]\d+|\*) (?:[+-]?\d+|\*) (\d+)")
_OBJECT = re.compile(r"(c?)ob=(\(\d+\))(?: (.*))?")
_NO_FILE = "???"
# Lines that -v -v logs for each mapped file: its path, then the link-time address and the address in memory of its
# text.
_FILE = re.compile(r"Reading syms from (.*)$")
_MAPPED = re.compile(r"svma 0x([0-9a-f]+), avma 0x([0-9a-f]+)")


def installed() -> bool:
    """Whether valgrind is installed."""
    return shutil.which("valgrind") is not None


def instructions(command: Sequence[str], timeout: float) -> Counter[str]:
    """Runs ``command`` under callgrind. Returns executed instructions by real path of the file, without child
    processes.

    All cost lines are counted but the inclusive costs of calls (Valgrind manual, "Callgrind Format Specification").
    Raises ``subprocess.TimeoutExpired``; ``OSError`` if callgrind fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        path, log = Path(folder) / "out", Path(folder) / "log"
        subprocess.run(("valgrind", "-v", "-v", "--tool=callgrind", "--dump-instr=yes", f"--log-file={log}",
                        f"--callgrind-out-file={path}", *command), check=False,
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout)
        lines = path.read_text(errors="replace").splitlines()
        mapped = _mapped(log.read_text(errors="replace").splitlines())
    found: Counter[str] = Counter()
    for name, address, count in _costs(lines):
        if name == _NO_FILE:
            name = next((path for path, text in mapped if address in text), name)
        found[os.path.realpath(name)] += count
    return found


def _costs(lines: Iterable[str]) -> Iterable[tuple[str, int, int]]:
    """Triples of file, link-time address and instruction count. For code of no file, the address is that in memory."""
    names: dict[str, str] = {}
    current, address, is_call = "", 0, False
    for line in lines:
        if match := _OBJECT.match(line):
            names.setdefault(match[2], match[3] or "")
            current = current if match[1] else match[2]
        elif line.startswith("calls="):
            is_call = True
        elif match := _COST.match(line):
            position = match[1]
            address = int(position, 16) if position.startswith("0x") else address + int(position.replace("*", "0"))
            if not is_call:
                yield names.get(current, _NO_FILE), address, int(match[2])
            is_call = False


def _mapped(lines: Iterable[str]) -> list[tuple[str, range]]:
    """Pairs of a file's path and the addresses in memory of one executable segment of it."""
    found, path = [], ""
    for line in lines:
        if match := _FILE.search(line):
            path = match[1]
        elif path and (match := _MAPPED.search(line)):
            bias = int(match[2], 16) - int(match[1], 16)
            with contextlib.suppress(ElfError, OSError), Image(path) as image:
                found += [(path, range(bias + segment.address, bias + segment.address + segment.memory_size))
                          for segment in image.segments if segment.kind == PT_LOAD and segment.flags & PF_X]
            path = ""
    return found
