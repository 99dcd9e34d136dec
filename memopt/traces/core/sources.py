"""Which sources the kernels of memopt.traces are compiled from, and whether they were compiled already.

Nothing here imports numba: it is asked before that is worth its time.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_FOLDER = Path(__file__).parents[1]


def sources() -> str:
    """Tells all that the kernels here are compiled from from what they were compiled from at other times."""
    digest = hashlib.sha256()
    for path in sorted(_FOLDER.rglob("*.py")):
        digest.update(str(path.relative_to(_FOLDER)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def lock_of(stamp: str) -> str:
    """Name of the file that is there once kernels of these sources were compiled."""
    return f"kernels-{stamp[:16]}.lock"


def waits_for_compiler() -> bool:
    """Whether the kernels here were never compiled, which numba does when they are used first, and keeps."""
    return os.access(_FOLDER, os.W_OK) and not any(_FOLDER.rglob(f"__pycache__/{lock_of(sources())}"))
