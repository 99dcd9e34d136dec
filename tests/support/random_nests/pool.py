"""Worker processes that check programs: a worker that hangs or dies loses one program, and says which."""

from __future__ import annotations

import multiprocessing
import os
import re
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from tests.support.random_nests.check import Checked, check
from tests.support.random_nests.draw import draw
from tests.support.random_nests.replacing import REPLACED

CHUNK = 50
_SECONDS = 8.0  # for one program, on average over a chunk
_LEAST_SECONDS = 90.0
_NUMBER = re.compile(r"0x[0-9a-f]+|-?\d+(\.\d+)?(e[-+]\d+)?")


@dataclass
class Summary:
    """What is kept of one program. ``lost``: its worker died over it."""

    seed: int
    build: str
    reason: str
    detail: str
    loops: list[str] = field(default_factory=list)
    wrong: str = ""
    internal: list[str] = field(default_factory=list)
    lost: bool = False
    in_file: int = 0  # runs of its versions in a rewritten file

    @property
    def replaced(self) -> bool:
        return self.reason == REPLACED

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def summary(checked: Checked) -> Summary:
    kept = next((x for x in checked.loops if x.reason != REPLACED), None)
    detail = _NUMBER.sub("N", kept.detail) if kept and not checked.replaced else ""
    loops = [f"{x.header:#x} {x.reason} {x.detail} entries {x.entries} iterations {x.iterations} "
             f"{x.seconds * 1e3:.0f} ms" for x in checked.loops]
    return Summary(checked.program.seed, checked.program.build.name, checked.reason, detail, loops, checked.wrong,
                   checked.internal, in_file=checked.in_file)


def run(seeds: Sequence[int], jobs: int, *, files: bool = False) -> list[Summary]:
    """All programs of ``seeds``, in order. ``files``: see ``check``."""
    waiting = [list(seeds[n:n + CHUNK]) for n in range(0, len(seeds), CHUNK)]
    if jobs > 1 and len(waiting) < 2 * jobs:
        size = max(1, -(-len(seeds) // (2 * jobs)))
        waiting = [list(seeds[n:n + size]) for n in range(0, len(seeds), size)]
    found: dict[int, Summary] = {}
    workers = [_Worker(files) for _ in range(jobs)]
    while waiting or any(w.chunk for w in workers):
        for worker in workers:
            if not worker.chunk and waiting:
                worker.give(waiting.pop(0))
        busy = [w for w in workers if w.chunk]
        wait([w.connection for w in busy], timeout=1.0)
        for worker in busy:
            done = worker.collect()
            if isinstance(done, str):  # halve the chunk, until the program to blame is alone in it
                if len(worker.chunk) == 1:
                    seed = worker.chunk[0]
                    found[seed] = Summary(seed, draw(seed).build.name, "lost", "", internal=[done], lost=True)
                else:
                    half = len(worker.chunk) // 2
                    waiting = [worker.chunk[:half], worker.chunk[half:], *waiting]
                worker.restart()
            elif done:
                found |= {s.seed: s for s in done}
                worker.chunk = []
    for worker in workers:
        worker.end()
    return [found[s] for s in seeds]


class _Worker:
    def __init__(self, files: bool) -> None:
        self._files = files
        self.chunk: list[int] = []
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("fork")
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_serve, args=(theirs, self._files), daemon=True)
        self.process.start()
        theirs.close()

    def give(self, chunk: list[int]) -> None:
        self.chunk = chunk
        self.deadline = time.monotonic() + max(_LEAST_SECONDS, _SECONDS * len(chunk))
        self.connection.send(chunk)

    def collect(self) -> list[Summary] | str:
        """What is done, nothing yet, or why nothing will come."""
        if self.connection.poll():
            try:
                result: list[Summary] | str = self.connection.recv()
            except (EOFError, ConnectionResetError):
                return "the worker died"
            return result
        if not self.process.is_alive():
            return "the worker died"
        return "the worker hung" if time.monotonic() > self.deadline else []

    def restart(self) -> None:
        self.end()
        self.chunk = []
        self._start()

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def _serve(connection: Connection, files: bool) -> None:
    while True:
        try:
            seeds: list[int] = connection.recv()
        except EOFError:
            os._exit(0)
        try:
            connection.send([summary(c) for c in check([draw(s) for s in seeds], files=files)])
        except Exception:  # noqa: BLE001 - a fault of the generator or the harness: shown with the program's number
            connection.send(traceback.format_exc())
