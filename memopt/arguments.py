"""The command lines that need neither help nor a complaint, read without the library that gives both.

The program is to be started at once, and importing that library takes longer than everything else until then.
Invariant: whatever is understood here means the same to ``memopt.usage``; anything else is left to it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

_SWITCHES: dict[str, dict[str, tuple[str, bool]]] = {
    "exec": {"--dry-run": ("dry_run", True), "--quiet": ("quiet", True), "--verbose": ("verbose", True),
             "--no-shadow": ("shadow", False), "--follow": ("follow", True)},
    "profile": {"--quiet": ("quiet", True)},
}
_FILES = {"exec": {"--json": "json", "--report": "report"}, "profile": {"-o": "profile", "--output": "profile"}}
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MPI_LOCALRANKID")  # Open MPI, PMIx, MPICH


def plain(words: Sequence[str]) -> tuple[tuple[str, ...], dict[str, bool | str]] | None:
    """Of ``exec`` or ``profile [OPTION]... [--] PROGRAM [ARGUMENT]...`` without anything unusual the program with its
    arguments, and what was chosen (fields of memopt.options); None for everything else."""
    if not words or words[0] not in _SWITCHES:
        return None
    switches, files = _SWITCHES[words[0]], _FILES[words[0]]
    chosen: dict[str, bool | str] = {}
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        if word in switches:
            name, chosen_value = switches[word]
            chosen[name] = chosen_value
        elif word in files and rest and _plain_file(rest[0]):
            chosen[files[word]] = rest.pop(0)
        else:
            return None
    if not rest or (words[0] == "profile" and not _plain_profile(rest[0], chosen)):
        return None
    return tuple(rest), chosen


def profile_path(output: str | None, program: str) -> str:
    """Of the profile of ``program``, by default its name with .db. FILE.db becomes FILE.2.db for rank 2 of several that
    mpirun has started, each of which writes its own."""
    path = os.path.abspath(output or f"{os.path.basename(program)}.db")
    rank = next((os.environ[name] for name in _RANKS if os.environ.get(name, "").isdigit()), None)
    stem, suffix = os.path.splitext(path)
    return path if rank is None else f"{stem}.{rank}{suffix}"


def _plain_profile(program: str, chosen: dict[str, bool | str]) -> bool:
    from memopt.store.schema import StoreError, check_new

    output = chosen.get("profile")
    try:
        chosen["profile"] = path = profile_path(output if isinstance(output, str) else None, program)
        check_new(path)
    except (StoreError, OSError):
        return False
    return True


def _plain_file(path: str) -> bool:
    """A regular file, or none yet, that can be written."""
    if os.path.exists(path):
        return os.path.isfile(path) and os.access(path, os.W_OK)
    folder = os.path.dirname(path) or "."
    return not os.path.lexists(path) and os.path.isdir(folder) and os.access(folder, os.W_OK)
