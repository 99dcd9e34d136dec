"""The promise of memopt, and what is outside it: ``memopt exec --explain-promise`` prints this.

The promise: a program under memopt gives the same output as without it, bit for bit, or memopt leaves it alone and says
why. README.md lists the same cases, and docs/promise.md says what the promise rests on.
"""

from __future__ import annotations

from typing import NamedTuple

PROMISE = ("A program under memopt writes the same output as without it, bit for bit, and ends in the same way; or "
           "memopt leaves it alone and says why. Outside the promise:")


class Outside(NamedTuple):
    """A kind of program that may notice memopt. ``case``: what it does; ``sign``: how to know whether it concerns
    you."""

    case: str
    sign: str


OUTSIDE = (
    Outside("a program that reads or checks its own machine code: five bytes at the header of each replaced loop are "
            "a jump",
            "licence and integrity checks do that; with --dry-run nothing is changed"),
    Outside("a program that changes the instructions under this jump: it goes on with the old ones, or jumps to "
            "nowhere if it changes only some of the bytes (elsewhere in a loop changes are seen, and the original "
            "runs)",
            "live patching of a file's code does that; code that was made in memory is left alone"),
    Outside("a handler that looks at where it has interrupted the program, or unwinds by frame pointers: addresses in "
            "memopt's pages belong to no function, and rbp holds memopt's frame there",
            "profilers inside the program (SIGPROF) and write barriers do that; SigCgt in /proc/PID/status lists the "
            "signals with handlers"),
    Outside("a handler that looks at arrays in the middle of a loop, or leaves the loop by longjmp: rows that a "
            "progress counter does not yet cover may be computed in part, in another order (rows that it covers are "
            "complete)",
            "a handler that reads or prints results, or a time limit by siglongjmp"),
    Outside("data races, and threads that the C library does not know of (clone without pthread_create)",
            "ThreadSanitizer finds races"),
    Outside("arrays that come to lie in memory that is shared with another process, or mapped twice, after the loop "
            "was replaced: memopt looks at the mappings when it replaces the loop",
            "mmap with MAP_SHARED and MAP_FIXED, or shmat to a chosen address"),
    Outside("coroutines that copy their stacks elsewhere, and are switched by a signal handler in the middle of a "
            "loop",
            "no common library does both"),
    Outside("a floating-point exception flag that only the additions (or fused operations) of a sum raise which every "
            "iteration of a loop begins anew and which only its last iteration hands on",
            "programs that call fetestexcept"),
    Outside("under attach and --follow: a program that lists its own children, or waits for all kinds of them "
            "(__WALL), sees copies of itself for moments",
            "wait4 with __WALL or __WCLONE, getrusage with RUSAGE_CHILDREN"),
    Outside("time, and what tells of memory: /proc/self/maps, the size of the address space and the limits on it",
            "RLIMIT_AS: memopt's pages count"),
)


def explanation() -> str:
    """The promise as text for a terminal."""
    cases = (f"- {o.case}.\n  Does it concern you? {o.sign[0].upper()}{o.sign[1:]}." for o in OUTSIDE)
    return "\n".join((PROMISE, "", *cases))
