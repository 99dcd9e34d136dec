"""What is learned from a trace of memory accesses; nothing here knows where the trace comes from."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_FOLDER = Path(__file__).parent


def sources() -> str:
    """Tells all that the kernels here are compiled from from what they were compiled from at other times."""
    digest = hashlib.sha256()
    for path in sorted(_FOLDER.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def lock_of(stamp: str) -> str:
    """Name of the file that is there once kernels of these sources were compiled."""
    return f"kernels-{stamp[:16]}.lock"


def waits_for_compiler() -> bool:
    """Whether the kernels here were never compiled, which numba does when they are used first, and keeps."""
    return os.access(_FOLDER, os.W_OK) and not (_FOLDER / "__pycache__" / lock_of(sources())).exists()
