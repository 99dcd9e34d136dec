"""How many instructions callgrind counts (Nethercote and Seward, Valgrind, 2007), by the files they lie in."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

_COST = re.compile(r"(?:[+-]?\d+|\*) (\d+)")
_OBJECT = re.compile(r"(c?)ob=(\(\d+\))(?: (.*))?")


def installed() -> bool:
    return shutil.which("valgrind") is not None


def instructions(command: Sequence[str], timeout: float) -> Counter[str]:
    """By real paths, of the process of ``command`` alone: costs of lines that are not those of calls (the manual's
    section on the file format). Raises ``subprocess.TimeoutExpired``, and ``OSError`` where callgrind fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "out"
        subprocess.run(("valgrind", "--tool=callgrind", f"--callgrind-out-file={path}", *command), check=False,
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout)
        lines = path.read_text(errors="replace").splitlines()
    costs: Counter[str] = Counter()
    names: dict[str, str] = {}
    current, is_call = "", False
    for line in lines:
        if match := _OBJECT.match(line):
            names.setdefault(match[2], match[3] or "")
            current = current if match[1] else match[2]
        elif line.startswith("calls="):
            is_call = True
        elif match := _COST.match(line):
            costs[current] += 0 if is_call else int(match[1])
            is_call = False
    found: Counter[str] = Counter()
    for key, count in costs.items():
        found[os.path.realpath(names.get(key, "?"))] += count
    return found
