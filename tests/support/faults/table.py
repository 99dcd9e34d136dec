"""The programs in tests/programs/faults: how they are built and run, and what is right.

Example: ``Fault("stop-flag-by-signal", "done\\n", timed=True)`` is built by ``gcc -O2``, prints "done" and exits with
0, and is run several times, because the signal may come at any moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from memopt.ir.reasons import Reason


@dataclass(frozen=True, slots=True)
class Made:
    """How a program is built. ``libraries``: flags of each plug-in, which is made of ``plug_in`` and stands behind the
    arguments as a path; ``linked``: flags of a library that the program is linked with."""

    compiler: str = "gcc"
    level: str = "-O2"
    flags: tuple[str, ...] = ()
    plug_in: str = ""
    libraries: tuple[tuple[str, ...], ...] = ()
    linked: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return " ".join((self.compiler, self.level, *(f for f in self.flags if f != "-pthread")))


GCC, CLANG = Made(), Made("clang")


def levels(*made: str, flags: tuple[str, ...] = ()) -> tuple[Made, ...]:
    """``levels("gcc -O1", "clang -O2")``."""
    return tuple(Made(*words.split(), flags) for words in made)


@dataclass(frozen=True, slots=True)
class Fault:
    """``right``: all of standard output; "" where it is what the program prints natively. ``timed``: it depends on
    time, and is to be run several times. ``cpus``: numbers of processors to run on; 0 for all. ``refusals``: reasons
    for which memopt may leave the nest alone. ``least_runs``: that new code must have been entered at the end.
    ``edge``: other output that the promise does not exclude; ``outside``: the README's words for that."""

    name: str
    right: str = ""
    exit_code: int = 0
    arguments: tuple[str, ...] = ()
    made: tuple[Made, ...] = (GCC,)
    way: str = "exec"
    timed: bool = False
    cpus: tuple[int, ...] = (0,)
    refusals: frozenset[Reason] = frozenset()
    witnessed: bool = True
    least_runs: int = 0
    edge: str = ""
    outside: str = ""


def _or(*reasons: Reason) -> frozenset[Reason]:
    return frozenset(reasons)


_NO_THREADS_KNOWN = _or(Reason.THREADS)
_UNWOUND = ("-fno-asynchronous-unwind-tables", "-s")
_FRAMES = ("-fno-omit-frame-pointer", "-fno-optimize-sibling-calls")
_EVERY = levels("gcc -O1", "gcc -O2", "gcc -O3", "gcc -Os", "clang -O2")

FAULTS = (
    # New code touches what the original does not
    Fault("branch-passes-over-freed", "0x1.5dd051p+26\n"),
    Fault("branch-passes-over-read-only", made=levels("gcc -O2", "gcc -O1")),
    Fault("shortest-paths-read-only-rows"),
    Fault("dirty-pages-by-handler", "8 pages written, the first was 0\n"),
    Fault("static-program-starts-threads", "0 of 400 counters wrong\n", timed=True,
          made=(Made(flags=("-static", "-s")),), refusals=_NO_THREADS_KNOWN),
    Fault("row-table-made-shorter", "0x1.26f10ca1cp+44\n", made=(GCC, CLANG)),
    # A cell that the loop reads again is read once
    Fault("stop-flag-by-signal", "done\n", timed=True),
    Fault("bound-lowered-by-handler", "done\n", timed=True),
    Fault("flag-behind-a-pointer", "done\n", timed=True),
    Fault("flag-ends-inner-loop", "cancelled\n", timed=True,
          refusals=_or(Reason.TRIP_COUNT, Reason.DATA_DEPENDENT_BRANCH, Reason.CARRIED_VALUE)),
    Fault("stop-flag-by-thread", "done\n", timed=True),
    Fault("stop-flag-by-process", "done\n", timed=True),
    # Stores are seen by others in another order
    Fault("release-store-publishes-rows", "0 rows taken that were not complete\n", timed=True,
          made=levels("gcc -O2", "gcc -O3", "clang -O2", "clang -O3")),
    Fault("progress-read-by-handler", "rows go by\n", timed=True),
    Fault("longjmp-out-at-a-time-limit", "0 numbers missing in rows that are done\n",
          arguments=("20", "5000"), timed=True),
    Fault("counter-behind-its-rows", "0 numbers wrong in rows that are done\n", timed=True),
    Fault("two-counters", "0 wrong, rows go by\n", timed=True),
    Fault("ready-flags", "0 rows taken that were not complete\n", timed=True, made=(GCC, CLANG)),
    Fault("rows-for-another-process", "0 rows taken that were not complete\n", timed=True),
    # Two threads in one version
    Fault("threads-share-a-frame", "alone: 0 wrong\ntogether: 0 0 wrong\n", timed=True, made=_EVERY, cpus=(0, 1, 2),
          arguments=("4000",)),
    Fault("threads-share-a-frame", "alone: 0 wrong\ntogether: 0 0 0 wrong\n", timed=True, made=_EVERY, cpus=(0, 1),
          arguments=("2500", "3")),
    Fault("thread-starts-inside", "0 wrong\n", timed=True, cpus=(0, 1)),
    Fault("thread-cancelled-inside", "0 wrong\n", timed=True, cpus=(0, 1)),
    Fault("handler-in-a-thread", "0 wrong\n", timed=True, made=levels("gcc -O2", "gcc -Os"), cpus=(0, 1)),
    # Code is not what was lifted
    *(Fault("plug-in-exchanged", "0 wrong\n", arguments=(rounds,), timed=True, witnessed=rounds == "0", made=(
        Made(plug_in="plug-in-exchanged-plugin", libraries=(("-fno-tree-vectorize", "-DOFF=0"),
                                                            ("-fno-tree-vectorize", "-DOFF=1"))),))
      for rounds in ("0", "40")),
    Fault("dlclose-and-reload", "0 wrong\n", timed=True,
          made=(Made(plug_in="dlclose-and-reload", libraries=(("-DLIB=+",), ("-DLIB=-",))),)),
    Fault("code-made-at-run-time-changes", "254108\n", refusals=_or(Reason.PROTECTED_MAPPING, Reason.NO_ROOM)),
    Fault("text-patched-by-the-program", "before 480000 after 160000000\n"),
    Fault("text-written-anew", "3\n1000\n1997\n2994\n"),
    Fault("callee-patched", "300000\n900\n", refusals=_or(Reason.CALL)),
    Fault("constant-pool-changed"),
    Fault("linkage-slot-changed", "1 slot: 260000\n", refusals=_or(Reason.CALL),
          made=(Made(flags=("-Wl,-z,now,-z,norelro",), plug_in="linkage-slot-changed", linked=("-DLIB",)),)),
    Fault("jump-table-into-a-loop", "0x1.27a3e1b6377p+44\n",
          refusals=_or(Reason.INDIRECT_JUMP, Reason.NO_ROOM, Reason.NOT_A_NEST),
          made=levels("clang -O1", "clang -O2", "clang -O3", "gcc -O2", flags=_UNWOUND)),
    # What was looked at is not what is there
    *(Fault("seccomp-later", "done 0\n", 4, (ms, *way), timed=True, refusals=_or(Reason.SECCOMP), witnessed=ms == "-1")
      for ms in ("-1", "500", "800", "1100", "1400") for way in ((), ("filter",))),
    *(Fault("seccomp-strict-later", "0x1.c24p+11\n", 0, (rounds,), timed=True, refusals=_or(Reason.SECCOMP),
            witnessed=rounds == "-1") for rounds in ("-1", "15", "25", "35", "45", "60")),
    Fault("time-stamp-counter-forbidden", "0x1.c24p+11\n"),
    # Copies are visible
    Fault("descriptors-held-by-copies", timed=True, arguments=("2000",),
          right="0 times locked by somebody else, 0 times no port, 0 times no end of the pipe\n"),
    Fault("largest-gap-reserved", "reserved\n"),
    *(Fault("many-mappings", f"{number}\n", arguments=(str(number),)) for number in (10, 5000, 60000)),
    # Taking a version out
    Fault("undo-under-a-suspended-context", "0 wrong\n", way="undo", timed=True),
    Fault("undo-under-a-large-signal-frame", "0x1.c24p+11\n", way="undo", timed=True),
    Fault("gain-lost-after-longjmp", "done\n", least_runs=25),
    # Exception flags
    Fault("avx-predicates", "FE_INVALID is clear\n", made=(Made(flags=("-mavx2",)),)),
    Fault("conversion-raises-denormal", "flags 20\n", made=levels("gcc -O3")),
    # Recording
    Fault("profile-many-threads", "200\n", way="profile", witnessed=False),
    Fault("profile-seccomp", "hello\n", 4, way="profile", witnessed=False),
    Fault("profile-seccomp", "hello\n", 4, ("strict",), way="profile", witnessed=False),
    Fault("profile-clone-untraced", "before 0\nchild 42 status 0\n", 5, way="profile", witnessed=False),
    # Near the promise's edge
    Fault("frame-pointer-profiler", "samples have callers\n", made=(Made(flags=_FRAMES),),
          edge="many samples have no caller\n", outside="by frame pointers"),
    Fault("handler-sees-address", "samples outside the program: 0\n", edge=r"samples outside the program: \d+\n",
          outside="where it has interrupted the program"),
    Fault("reads-its-own-text", "code is what it was\n", edge="code has been changed\n",
          outside="reads or checks its own machine code"),
    # Gain missed, cost of looking
    Fault("rank-k-inlined", least_runs=3),
    Fault("large-sweeps", witnessed=False),
)


def each() -> Iterator[Fault]:
    """Every program in every build, on every number of processors: ``made`` and ``cpus`` have one element each."""
    for fault in FAULTS:
        for made in fault.made:
            for cpus in fault.cpus:
                yield replace(fault, made=(made,), cpus=(cpus,))


def label(fault: Fault) -> str:
    """A name for one of ``each()``."""
    cpus = f"{fault.cpus[0]} cpu" if fault.cpus[0] else ""
    return " ".join(filter(None, (fault.name, *fault.arguments, f"[{fault.made[0].name}]", cpus)))
