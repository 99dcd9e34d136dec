"""The command lines that need neither help nor a complaint, read without the library that gives both.

The program is to be started at once, and importing that library takes longer than everything else until then.
Invariant: whatever is understood here means the same to ``memopt.usage``; anything else is left to it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

_SWITCHES: dict[str, tuple[str, bool]] = {
    "--dry-run": ("dry_run", True), "--quiet": ("quiet", True), "--verbose": ("verbose", True),
    "--no-shadow": ("shadow", False), "--follow": ("follow", True),
}
_FILES = {"--json": "json", "--report": "report"}


def plain(words: Sequence[str]) -> tuple[tuple[str, ...], dict[str, bool | str]] | None:
    """Of ``exec [OPTION]... [--] PROGRAM [ARGUMENT]...`` without anything unusual the program with its arguments, and
    what was chosen (fields of memopt.options); None for everything else."""
    if not words or words[0] != "exec":
        return None
    chosen: dict[str, bool | str] = {}
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        if word in _SWITCHES:
            name, chosen_value = _SWITCHES[word]
            chosen[name] = chosen_value
        elif word in _FILES and rest and _plain_file(rest[0]):
            chosen[_FILES[word]] = rest.pop(0)
        else:
            return None
    return (tuple(rest), chosen) if rest else None


def _plain_file(path: str) -> bool:
    """A regular file, or none yet, that can be written."""
    if os.path.exists(path):
        return os.path.isfile(path) and os.access(path, os.W_OK)
    folder = os.path.dirname(path) or "."
    return not os.path.lexists(path) and os.path.isdir(folder) and os.access(folder, os.W_OK)
