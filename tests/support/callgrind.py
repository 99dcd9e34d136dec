"""``python -m tests.support.callgrind -- PROGRAM ARGUMENTS...``: calling contexts by memopt and by callgrind.

Example: both say that 30299 instructions were executed in ``main > outer > inner``. The program prints the heaviest
contexts, by the instructions executed in them and in what they call, with both counts, and the heaviest functions. A
star marks a context that is among the heaviest of one of both only; then the exit code is 1.

In: a command, which is run twice. Out: ``Contexts`` of each: instructions by the functions on the way to where they
were executed. A function is named as in the profile, and found there by the addresses that callgrind has for it.

Both are brought to one view:

- In a recursion memopt goes back to the node that it comes from. Callgrind's contexts are folded in the same way. One
  that is longer than ``--depth`` lacks its first functions.
- Callgrind begins a context of its own where a signal is handled. So do both here.
- Callgrind knows no functions outside of ``.text``, such as stubs and ``_init``. They belong to their callers here.
- The cold part of a function (``f.cold``) belongs to the function.

The rest that differs is valgrind's: it loads a library of its own, for which the dynamic linker works more. It has no
vdso and no clone3. Its processor is another one, for which libraries choose other functions. Its addresses are smaller,
and some programs compare or hash addresses. Of a process that executes another program, memopt keeps the last one
only, callgrind all.
"""

from __future__ import annotations

import argparse
import bisect
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.measure.execution import memopt_command
from tests.support.callgrind_files import NO_FILE, Dump, callers
from tests.support.symbol_files import write_symbols

Way = tuple[str, ...]  # names of functions, callers first

# Valgrind's processor has neither AVX-512 nor transactions, and the C library chooses its functions by that.
_SAME_CHOICES = ("glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512CD,-AVX512DQ,-RTM,-XSAVEC"
                 ":glibc.cpu.x86_rep_movsb_threshold=4096:glibc.cpu.x86_rep_stosb_threshold=4096"
                 ":glibc.cpu.x86_non_temporal_threshold=1048576")
_APART = re.compile(r"( \[clone)? ?\.cold(\.\d+)?\]?$")  # a part of a function that lies apart
_NAMELESS = re.compile(r"(?:function_)?0x0*([0-9a-f]+)")
_NO_FUNCTION = "-"


@dataclass(slots=True)
class Contexts:
    """Instructions by context. ``own``: in the function itself."""

    own: Counter[Way] = field(default_factory=Counter)
    roots: set[str] = field(default_factory=set)  # functions with which contexts begin

    @property
    def total(self) -> int:
        return sum(self.own.values())

    def inclusive(self) -> Counter[Way]:
        """Instructions by context, with those of callees."""
        found: Counter[Way] = Counter()
        for way, count in self.own.items():
            for depth in range(1, len(way) + 1):
                found[way[:depth]] += count
        return found

    def functions(self) -> Counter[str]:
        """Instructions by function, without those of callees."""
        found: Counter[str] = Counter()
        for way, count in self.own.items():
            found[way[-1] if way else _NO_FUNCTION] += count
        return found

    def below(self, name: str) -> Contexts:
        """The contexts in which ``name`` was called, from there on."""
        found = Contexts()
        for way, count in self.own.items():
            if name in way:
                found.own[way[way.index(name):]] += count
        return found

    def begun_at(self, roots: Collection[str]) -> Contexts:
        """The contexts from the last function on that is among ``roots``."""
        found = Contexts()
        for way, count in self.own.items():
            first = max((at for at, name in enumerate(way) if name in roots), default=0)
            found.own[way[first:]] += count
        return found


def folded(names: Iterable[str]) -> Way:
    """A way without its recursions: what is called again leads back to where it was called first."""
    way: list[str] = []
    for name in names:
        if name == _NO_FUNCTION:
            continue
        if name in way:
            del way[way.index(name) + 1:]
        else:
            way.append(name)
    return tuple(way)


# -- memopt ------------------------------------------------------------------------------------------------------------

def counted(path: Path) -> Contexts:
    """The contexts of a profile."""
    found = Contexts()
    with closing(sqlite3.connect(path)) as connection:
        ways: dict[int, list[str]] = {}
        for number, parent, name, entry, file, instructions in connection.execute(
                """SELECT c.id, c.parent, f.name, c.entry, m.path, c.instructions FROM context c
                LEFT JOIN function f ON f.id = c.function LEFT JOIN image m ON m.id = c.image ORDER BY c.id"""):
            ways[number] = [*ways.get(parent, ()), _name(file, name or f"function {entry:#x}")]
            found.own[folded(ways[number])] += instructions
    return found


def _name(file: str | None, function: str) -> str:
    if function in ("_init", "_fini"):
        return _NO_FUNCTION
    if (found := _NAMELESS.fullmatch(function)) is not None:
        function = f"function {int(found[1], 16):#x}"
    return f"{_APART.sub('', function)} [{os.path.basename(file or NO_FILE)}]"


class _Functions:
    """The functions that a profile knows, by file and address."""

    def __init__(self, path: Path) -> None:
        self.of: dict[str, list[tuple[int, int, str]]] = {}
        with closing(sqlite3.connect(path)) as connection:
            for file, start, end, name in connection.execute("""SELECT m.path, f.start, f.end, f.name FROM function f
                    JOIN image m ON m.id = f.image ORDER BY f.start"""):
                self.of.setdefault(file, []).append((start, end, name))

    def around(self, file: str, address: int) -> str | None:
        functions = self.of.get(file, [])
        _, end, name = functions[bisect.bisect_right(functions, address, key=lambda f: f[0]) - 1] if functions else (
            0, 0, "")
        return _name(file, name) if address < end else None


# -- callgrind ---------------------------------------------------------------------------------------------------------

def called(paths: Iterable[Path], profile: Path, depth: int) -> Contexts:
    """The contexts that callgrind has found, up to ``depth`` functions long, with names as in the profile."""
    functions, result = _Functions(profile), Contexts()
    for path in paths:
        dump = Dump.read(path)
        names = {context: _shown(context, *place, functions) for context, place in dump.places.items()}
        by_first = {context.split("'", 1)[0]: name for context, name in names.items()}
        for context, count in dump.own.items():
            # Where a context is longer than its caller's may be, that of its caller has no costs.
            way = folded(reversed([names.get(c) or by_first.get(c.split("'", 1)[0], _NO_FUNCTION)
                                   for c in callers(context)]))
            result.own[way] += count
            if way and context.count("'") + 1 < depth:
                result.roots.add(way[0])
    return result


def _shown(context: str, file: str, address: int, functions: _Functions) -> str:
    """The name in the profile of the function of a context, which has code at ``address`` of ``file``."""
    first = context.split("'", 1)[0]
    if file == NO_FILE:
        return _NO_FUNCTION
    if _NAMELESS.fullmatch(first):
        return _name(file, first)
    return functions.around(file, address) or _name(file, first)


# -- both --------------------------------------------------------------------------------------------------------------

def measure(command: Sequence[str], folder: Path, depth: int = 100) -> tuple[Contexts, Contexts]:
    """The contexts of ``command`` by memopt and by callgrind, whose files lie in ``folder``."""
    around = {**os.environ, "GLIBC_TUNABLES": _SAME_CHOICES, "PYTHONHASHSEED": "0"}
    profile = folder / "memopt.db"
    silent = partial(subprocess.run, env=around, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                     stderr=subprocess.DEVNULL)
    silent([*memopt_command(), "profile", "--exact", "-o", str(profile), "--", *command])
    for file in _Functions(profile).of:
        write_symbols(file, folder / "symbols")
    silent(["valgrind", f"--extra-debuginfo-path={folder}/symbols", "--tool=callgrind",
            f"--separate-callers={depth}", "--separate-recs=1", "--separate-threads=yes", "--dump-instr=yes",
            "--compress-pos=no", "--show-below-main=yes", "--trace-children=yes",
            f"--callgrind-out-file={folder}/callgrind.%p", *command])
    theirs = called(sorted(folder.glob("callgrind.*")), profile, depth)
    return counted(profile).begun_at(theirs.roots), theirs


def heaviest(contexts: Contexts, count: int) -> list[Way]:
    """The ``count`` contexts with most instructions, those of callees included."""
    inclusive = contexts.inclusive()
    return sorted(inclusive, key=lambda way: (-inclusive[way], way))[:count]


def table(ours: Contexts, theirs: Contexts, count: int) -> Iterator[str]:
    """Lines on the heaviest contexts of both."""
    by_ours, by_theirs = ours.inclusive(), theirs.inclusive()
    first, second = heaviest(ours, count), heaviest(theirs, count)
    yield f"{'memopt':>14} {'callgrind':>14}  context\n"
    yield f"{ours.total:14,} {theirs.total:14,}  in all\n"
    for way in [*first, *(w for w in second if w not in first)]:
        mark = " " if way in first and way in second else "*"
        shown = " > ".join(way[-4:])
        yield f"{by_ours[way]:14,} {by_theirs[way]:14,} {mark}{len(way):3} {shown}\n"
    functions, their_functions = ours.functions(), theirs.functions()
    for name, number in functions.most_common(count):
        yield f"{number:14,} {their_functions[name]:14,}      {name}\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.callgrind", description=__doc__)
    parser.add_argument("--below", help="only what this function calls, named as in the profile")
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--depth", type=int, default=100, help="the longest context of callgrind")
    parser.add_argument("--keep", type=Path, help="a folder for the files of both")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        ours, theirs = measure(options.command, folder, options.depth)
    if options.below:
        ours, theirs = ours.below(options.below), theirs.below(options.below)
    sys.stdout.writelines(table(ours, theirs, options.count))
    return int(set(heaviest(ours, options.count)) != set(heaviest(theirs, options.count)))


if __name__ == "__main__":
    sys.exit(main())
