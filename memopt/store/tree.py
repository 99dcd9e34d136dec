"""A profile as one tree: program, threads, functions and loops.

If calls were counted, a function stands below its caller's loop, once for each calling context, and weights are
instructions. In a sampled profile functions stand directly below their thread, and weights are seconds.

In: an open profile. Out: the ``Frame`` at the root. Invariant: the total of a frame is its own weight plus the totals
of the frames below it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Frame:
    """A node of the tree."""

    name: str
    kind: str  # "program", "thread", "function" or "loop"
    own: float = 0  # instructions or seconds, without those of the frames below
    entries: int | None = None  # None if not counted; so is ``iterations``
    iterations: int | None = None
    file: str = ""  # the executable or library that holds the code
    below: list[Frame] = field(default_factory=list)
    total: float = 0  # instructions or seconds, with those of the frames below
    function: int | None = None  # id of the function; of a loop, id of the function around it

    def walk(self) -> Iterator[tuple[int, Frame]]:
        """Pairs of depth and frame in preorder: this frame first, then the frames below, the heaviest first."""
        pending = [(0, self)]
        while pending:
            depth, frame = pending.pop()
            yield depth, frame
            pending += ((depth + 1, f) for f in sorted(frame.below, key=lambda f: f.total))


def read_tree(connection: sqlite3.Connection) -> tuple[Frame, str]:
    """The root of the tree, and the unit of its weights: "instructions" or "seconds"."""
    (command,) = connection.execute("SELECT command FROM run").fetchone()
    root = Frame(command, "program")
    names = _thread_names(connection)
    exact = connection.execute("SELECT EXISTS (SELECT 1 FROM context)").fetchone()[0]
    (_contexts if exact else _samples)(connection, root, names)
    order = [frame for _, frame in root.walk()]
    for frame in reversed(order):
        frame.total = frame.own + sum(f.total for f in frame.below)
    return root, "instructions" if exact else "seconds"


def _thread_names(connection: sqlite3.Connection) -> dict[int, str]:
    """Names of the threads of processes that the program started, by thread number. Threads of the program itself are
    left out: the caller names them by number."""
    rows = connection.execute("SELECT thread, process, program FROM thread WHERE parent IS NOT NULL")
    return {thread: f"thread {thread} of process {process}, {os.path.basename(program or '?')}"
            for thread, process, program in rows}


def _contexts(connection: sqlite3.Connection, root: Frame, names: Mapping[int, str]) -> None:
    threads: dict[int, Frame] = {}
    functions: dict[int, Frame] = {}
    loops: dict[tuple[int, int], Frame] = {}
    counted = connection.execute("""SELECT x.context, x.loop, l.parent, l.header, x.entries, x.iterations,
        x.instructions, l.file, l.line FROM context_loop x JOIN loop l ON l.id = x.loop
        ORDER BY x.context, x.loop""").fetchall()
    inside: dict[int, list[tuple[int, int | None, str, int, int, int]]] = {}
    for context, loop, around, header, entries, rounds, own, *place in counted:
        inside.setdefault(context, []).append((loop, around, _loop_name(header, *place), entries, rounds, own))
    for number, thread, parent, function, name, entry, file, loop, entries, instructions in connection.execute(
            """SELECT c.id, c.thread, c.parent, c.function, f.name, c.entry, m.path, c.loop, c.entries, c.instructions
            FROM context c LEFT JOIN function f ON f.id = c.function LEFT JOIN image m ON m.id = c.image
            ORDER BY c.id"""):
        if thread not in threads:
            threads[thread] = Frame(names.get(thread, f"thread {thread}"), "thread")
            root.below.append(threads[thread])
        above = loops.get((parent, loop)) or functions.get(parent) or threads[thread]
        frame = functions[number] = Frame(name or f"{entry:#x}", "function", instructions, entries, None, file or "",
                                          function=function)
        above.below.append(frame)
        for inner, around, shown, times, rounds, own in inside.get(number, ()):
            found = loops[number, inner] = Frame(shown, "loop", own, times, rounds, file or "",
                                                 function=function)
            frame.own -= own
            (loops.get((number, around or 0)) or frame).below.append(found)


def _samples(connection: sqlite3.Connection, root: Frame, names: Mapping[int, str]) -> None:
    threads: dict[int, Frame] = {}
    functions: dict[tuple[int, int | None], Frame] = {}
    loops: dict[tuple[int, int], Frame] = {}
    nest = {loop: (parent, _loop_name(header, *place)) for loop, parent, header, *place in connection.execute(
        "SELECT id, parent, header, file, line FROM loop")}
    for thread, function, name, file, loop, seconds in connection.execute(
            """SELECT s.thread, b.function, f.name, m.path, b.loop, sum(s.seconds) FROM sample s
            LEFT JOIN block b ON b.id = s.block LEFT JOIN function f ON f.id = b.function
            LEFT JOIN image m ON m.id = s.image GROUP BY s.thread, b.function, b.loop, m.path"""):
        if thread not in threads:
            threads[thread] = Frame(names.get(thread, f"thread {thread}"), "thread")
            root.below.append(threads[thread])
        key = thread, function
        if key not in functions:
            functions[key] = Frame(name or "unknown function", "function", file=file or "", function=function)
            threads[thread].below.append(functions[key])
        frame, around = functions[key], []
        current = loop
        while current is not None:
            around.append(current)
            current = nest[current][0]
        for inner in reversed(around):
            if (thread, inner) not in loops:
                loops[thread, inner] = Frame(nest[inner][1], "loop", file=file or "", function=function)
                frame.below.append(loops[thread, inner])
            frame = loops[thread, inner]
        frame.own += seconds


def _loop_name(header: int, file: str | None, line: int | None) -> str:
    return f"loop {header:#x}" + ("" if file is None else f" ({os.path.basename(file)}:{line})")
