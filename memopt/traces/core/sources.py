"""Hashes the sources that the kernels are compiled from, and tells whether they were compiled already.

Nothing here imports numba, so that asking costs little.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_FOLDER = Path(__file__).parents[1]


def sources() -> str:
    """A hash of all files of memopt.traces."""
    digest = hashlib.sha256()
    for path in sorted(_FOLDER.rglob("*.py")):
        digest.update(str(path.relative_to(_FOLDER)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def lock_of(stamp: str) -> str:
    """The name of the lock file that exists once kernels of these sources were compiled."""
    return f"kernels-{stamp[:16]}.lock"


def waits_for_compiler() -> bool:
    """Whether the kernels were never compiled from these sources. numba compiles them at first use, which takes about
    half a minute, and keeps the result.
    """
    return os.access(_FOLDER, os.W_OK) and not any(_FOLDER.rglob(f"__pycache__/{lock_of(sources())}"))
