"""A parser for the common command lines of ``memopt exec`` and ``memopt profile``, without click.

Example: ``memopt exec --quiet -- ./dgemm 2048`` is read here, ``memopt exec --fp fast ./dgemm`` by ``memopt.usage``.
The program is started before anything else is imported, and importing click takes longer than all else until then.

In: the words behind the command's name. Out: the program with its arguments, and values for fields of ``Options``; None
for a command line with any other option, a mistake or ``--help``.

Invariant: ``memopt.usage`` reads every command line that is accepted here, and reads it alike.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

# By command: the switches, each with the field of Options that it sets, and the value.
_SWITCHES: dict[str, dict[str, tuple[str, bool]]] = {
    "exec": {"--dry-run": ("dry_run", True), "--quiet": ("quiet", True), "--verbose": ("verbose", True),
             "--no-shadow": ("shadow", False), "--no-cache": ("cache", False), "--follow": ("follow", True)},
    "profile": {"--quiet": ("quiet", True)},
}
# By command: the options that take a file, each with its field of Options.
_FILES = {"exec": {"--json": "json", "--report": "report"}, "profile": {"-o": "profile", "--output": "profile"}}
# Environment variables in which MPI launchers tell a process its rank: Open MPI, PMIx, MPICH.
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MPI_LOCALRANKID")


def plain(words: Sequence[str]) -> tuple[tuple[str, ...], dict[str, bool | str]] | None:
    """Reads ``exec`` or ``profile [OPTION]... [--] PROGRAM [ARGUMENT]...``, with the options of ``_SWITCHES`` and
    ``_FILES`` only.

    Returns the program with its arguments, and the chosen fields of ``memopt.options.Options``; None for every other
    command line, and where a file that is named cannot be written.
    """
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
    """The absolute path of the profile of ``program``: ``output``, or the program's name with .db.

    Under mpirun each rank writes a profile of its own: rank 2 writes FILE.2.db in place of FILE.db. Raises ``OSError``
    where the current folder is gone.
    """
    path = os.path.abspath(output or f"{os.path.basename(program)}.db")
    rank = next((os.environ[name] for name in _RANKS if os.environ.get(name, "").isdigit()), None)
    stem, suffix = os.path.splitext(path)
    return path if rank is None else f"{stem}.{rank}{suffix}"


def _plain_profile(program: str, chosen: dict[str, bool | str]) -> bool:
    """Puts the path of the profile into ``chosen``; False where it cannot be written."""
    from memopt.store.schema import StoreError, check_new

    output = chosen.get("profile")
    try:
        chosen["profile"] = path = profile_path(output if isinstance(output, str) else None, program)
        check_new(path)
    except (StoreError, OSError):
        return False
    return True


def _plain_file(path: str) -> bool:
    """Whether ``path`` is a regular file that can be written, or can become one. Devices, pipes and dangling links are
    left to ``memopt.usage``."""
    if os.path.exists(path):
        return os.path.isfile(path) and os.access(path, os.W_OK)
    folder = os.path.dirname(path) or "."
    return not os.path.lexists(path) and os.path.isdir(folder) and os.access(folder, os.W_OK)
