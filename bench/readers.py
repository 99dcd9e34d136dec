"""The speed of trace readers: accesses per second of each reader, by the processor time of its thread.

    python -m bench.readers [PROGRAM ARGUMENT...]

Each program runs as under ``memopt profile --memory`` for patterns and strides, and as under ``--dependences`` for
dependences. Without arguments, kernels of ours and programs of the distribution run. The time to load compiled code,
0.2 to 0.5 s of each process, does not count.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy

from bench.programs.variants import KERNELS, compile_c
from memopt.session.profiling.memory_rows import MemoryWatch
from memopt.traces.core.format import BLOCK, EXTRA, Words
from memopt.traces.core.reader import Reading
from memopt.traces.dependences.dependences import Dependences
from memopt.traces.streams import Streams
from runtime.launch import launch as launching
from runtime.launch.identify import identify
from runtime.launch.launch import launch_prepared
from runtime.recording.recorder import Recorder
from runtime.recording.translation.trace_probes import Recording, Told

_OURS = (("ssor", "4", "49"), ("compress", "1"), ("temporal_blocking", "65", "65", "65", "4"))
_TEXT_BYTES = 200_000
_INDEX = numpy.uint64(48)


class Clocked(MemoryWatch):
    """A watcher that measures its readers: seconds and accesses, by the class of the reader."""

    def __init__(self, dependences: bool) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.accesses: Counter[str] = Counter()
        super().__init__(dependences, reuse=False)

    def _new_readers(self):  # type: ignore[no-untyped-def]  # what it returns is private
        readers = super()._new_readers()
        for reader in readers.all():
            if isinstance(reader, Dependences | Streams):
                reader.feed(numpy.zeros(0, numpy.uint64))
                reader.feed = functools.partial(self._feed, reader, reader.feed)  # type: ignore[method-assign]
        return readers

    def _feed(self, reader: Reading, feed: Callable[[Words], None], words: Words) -> None:
        began = time.thread_time()
        feed(words)
        self.seconds[type(reader).__name__] += time.thread_time() - began
        index = words >> _INDEX
        runs, others = numpy.count_nonzero(index == BLOCK), numpy.count_nonzero(index == EXTRA)
        self.accesses[type(reader).__name__] += len(words) - 2 * int(runs) - int(others)


def main() -> int:
    """Prints the table; with a program on the command line, one row of it, on standard error."""
    if len(sys.argv) > 1:
        sys.stderr.write(_measured(sys.argv[1:]) + "\n")
        return 0
    sys.stdout.write("| program | accesses | patterns and strides | dependences |\n|" + " --- |" * 4 + "\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for program, *_ in _OURS:
            compile_c(("gcc", "-O2"), KERNELS / f"{program}.c", folder / program, [], ["-lm"])
        library = Path(sysconfig.get_path("stdlib"))
        text = b"".join(path.read_bytes() for path in sorted(library.glob("[a-t]*.py")))[:_TEXT_BYTES]
        (folder / "text").write_bytes(text)
        for command in (*((str(folder / name), *rest) for name, *rest in _OURS), ("bzip2", "-k", "-c", "text"),
                        ("xz", "-c", "text"), ("sort", "-r", *["text"] * 8),
                        ("perl", "-e", "my %h; $h{$_ % 97} += $_ for 1 .. 300000; print $h{7}")):
            done = subprocess.run((sys.executable, "-m", "bench.readers", *command), check=False, cwd=folder,
                                  env={**os.environ, "PYTHONPATH": os.getcwd()}, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True)
            sys.stdout.write(done.stderr)
            sys.stdout.flush()
    return 0


def _measured(command: Sequence[str]) -> str:
    watches = _watched(command, dependences=False), _watched(command, dependences=True)
    rates = (f"{watch.accesses[kind] / watch.seconds[kind] / 1e6:.3g} million a second"
             for watch, kind in zip(watches, ("Streams", "Dependences"), strict=True))
    return f"| {Path(command[0]).name} | {watches[0].accesses['Streams'] / 1e6:,.0f} million | {' | '.join(rates)} |"


def _watched(command: Sequence[str], dependences: bool) -> Clocked:
    watch = Clocked(dependences)

    def prepare(_: int) -> Recorder:
        supervisor = launching.supervised()
        assert supervisor is not None
        recorder = Recorder(supervisor, Recording(Told.ACCESSES, allocations=not dependences), watch)
        recorder.seize()
        return recorder

    _, recorder = launch_prepared(identify(command[0], os.environ.get("PATH")), command, prepare)
    recorder.run()
    watch.begin()  # waits until everything is read
    return watch


if __name__ == "__main__":
    sys.exit(main())
