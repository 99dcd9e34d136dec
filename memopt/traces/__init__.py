"""What is learned from a trace of memory accesses; nothing here knows where the trace comes from."""

from __future__ import annotations

import os


def waits_for_compiler() -> bool:
    """Whether the kernels here were never compiled, which numba does when they are used first, and keeps."""
    folder = os.path.join(os.path.dirname(__file__), "__pycache__")
    return os.access(os.path.dirname(__file__), os.W_OK) and not (
        os.path.isdir(folder) and any(name.endswith(".nbi") for name in os.listdir(folder)))
