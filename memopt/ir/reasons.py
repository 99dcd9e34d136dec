"""Typed refusals: the reasons for which memopt leaves a loop, a region or a whole program alone.

Example: a loop with ``a[b[i]]`` raises ``Rejected(Reason.DATA_DEPENDENT_ADDRESS, "load at 0x11a0")``; the report says
"an address depends on loaded data (load at 0x11a0)".
"""

from __future__ import annotations

from enum import Enum


class Reason(Enum):
    """Why something is left alone. The value is the stable name in JSON."""

    # the program
    THREADS = "threads"
    SIGSEGV_HANDLER = "sigsegv-handler"
    SET_UID = "set-uid"
    THIRTY_TWO_BIT = "32-bit"
    PTRACE_FORBIDDEN = "ptrace-forbidden"
    SECCOMP = "seccomp"
    NO_MEMORY = "no-memory"
    BLOCKED = "blocked"
    # the file
    DYNAMIC_LOADER = "dynamic-loader"
    PAYLOAD = "payload-behind-file"
    WRITABLE_CODE = "writable-code"
    TEXT_RELOCATIONS = "text-relocations"
    SIGNED = "signed-file"
    NO_SECTIONS = "no-section-headers"
    REWRITTEN = "already-rewritten"
    FILE_LAYOUT = "file-layout"
    RUNTIME = "language-runtime"
    COLLECTOR = "garbage-collector"
    NO_REACH = "no-reach"
    OTHER_FILE = "other-file"
    NOT_MOVABLE = "not-movable"
    LANDING_PAD = "landing-pad-under-patch"
    SHADOW_STACK = "shadow-stack"
    # the memory
    SHARED_MAPPING = "shared-mapping"
    DOUBLE_MAPPING = "double-mapping"
    PROTECTED_MAPPING = "protected-mapping"
    OVERLAP = "overlapping-arrays"
    # the code
    CALL = "call-in-nest"
    INDIRECT_JUMP = "indirect-jump"
    UNSUPPORTED_INSTRUCTION = "unsupported-instruction"
    DATA_DEPENDENT_ADDRESS = "data-dependent-address"
    DATA_DEPENDENT_BRANCH = "data-dependent-branch"
    NON_AFFINE = "non-affine"
    CARRIED_VALUE = "carried-value"
    TRIP_COUNT = "trip-count"
    NOT_A_NEST = "not-a-nest"
    ATOMIC = "atomic-access"
    NO_ROOM = "no-room-for-patch"
    UNPROVED = "unproved-obligation"
    IRREDUCIBLE = "irreducible-control-flow"
    CODE_CHANGED = "code-changed"
    # the transformation
    NO_SCHEDULE = "no-legal-schedule"
    NO_PLAN = "no-profitable-plan"
    TOO_SHORT = "too-short"
    # the trial
    COPY_COSTS = "copy-costs"
    NOT_HOT = "not-hot-enough"
    NOT_REACHED = "header-not-reached"
    SHADOW_MISMATCH = "shadow-mismatch"
    SHADOW_INCONCLUSIVE = "shadow-inconclusive"
    NOT_FASTER = "not-faster"
    GUARD_FAILED = "guard-never-held"
    NEW_SIZES = "ever-new-sizes"
    ENDED = "program-ended"
    DRY_RUN = "dry-run"
    INTERNAL = "internal-error"

    @property
    def explain(self) -> str:
        """The reason as a clause: the report writes it behind "left alone, because"."""
        return _WORDS[self]


_WORDS = {
    Reason.THREADS: "a second thread is running",
    Reason.SIGSEGV_HANDLER: "the program handles SIGSEGV itself",
    Reason.SET_UID: "the program is set-uid or set-gid, or has file capabilities",
    Reason.THIRTY_TWO_BIT: "the program is 32-bit",
    Reason.PTRACE_FORBIDDEN: "the system does not let memopt trace the program",
    Reason.SECCOMP: "the program runs under a seccomp filter",
    Reason.NO_MEMORY: "there is not enough free memory for a trial copy or for new code",
    Reason.BLOCKED: "the program is stopped or waits in a system call",
    Reason.DYNAMIC_LOADER: "it is the dynamic loader, which uses the memory behind its own variables",
    Reason.PAYLOAD: "data follow the program in its file, as in self-extracting programs, and would not be found",
    Reason.WRITABLE_CODE: "a segment of the file is both writable and executable",
    Reason.TEXT_RELOCATIONS: "the dynamic linker changes its code (DT_TEXTREL)",
    Reason.SIGNED: "the file is signed, or its hash is kept elsewhere",
    Reason.NO_SECTIONS: "the file has no section headers",
    Reason.REWRITTEN: "memopt has rewritten it already",
    Reason.FILE_LAYOUT: "the file has a layout that memopt cannot extend",
    Reason.RUNTIME: "its language runtime looks at interrupted instructions",
    Reason.COLLECTOR: "its garbage collector would read the memory of the new code at each collection",
    Reason.NO_REACH: "the loop is too far from the end of the file for a jump",
    Reason.OTHER_FILE: "it is in another file, which would have to be rewritten itself",
    Reason.NOT_MOVABLE: "its new code would work in this one process only",
    Reason.LANDING_PAD: "an exception would come back into the bytes of the patch",
    Reason.SHADOW_STACK: "the patch would move a call, which shadow stacks forbid",
    Reason.SHARED_MAPPING: "an array lies in memory that is shared with other processes",
    Reason.DOUBLE_MAPPING: "a page of an array is mapped twice, and one of the mappings is shared",
    Reason.PROTECTED_MAPPING: "an array does not lie in plain readable and writable memory",
    Reason.OVERLAP: "arrays overlap in a way that forbids reordering",
    Reason.CALL: "the loop calls a function",
    Reason.INDIRECT_JUMP: "the loop contains an indirect jump",
    Reason.UNSUPPORTED_INSTRUCTION: "the loop contains an instruction that memopt does not model",
    Reason.DATA_DEPENDENT_ADDRESS: "an address depends on loaded data",
    Reason.DATA_DEPENDENT_BRANCH: "a branch depends on loaded data",
    Reason.NON_AFFINE: "an address or bound is not affine in the loop counters",
    Reason.CARRIED_VALUE: "a value is carried from iteration to iteration in a way that memopt cannot transform",
    Reason.TRIP_COUNT: "the trip count is not known at loop entry",
    Reason.NOT_A_NEST: "the code is not a loop nest that memopt can reorder",
    Reason.ATOMIC: "the loop makes atomic accesses",
    Reason.NO_ROOM: "there is no safe place for the patch at the loop header",
    Reason.UNPROVED: "memopt could not prove a fact that the new code needs",
    Reason.IRREDUCIBLE: "the loop is irreducible: it has several entries",
    Reason.CODE_CHANGED: "the machine code of the loop is not what it was when memopt looked at it",
    Reason.NO_SCHEDULE: "no reordering of the loop keeps its dependences",
    Reason.NO_PLAN: "no transformation is expected to make it faster on this machine",
    Reason.TOO_SHORT: "the loop is too short: new code with its guard would not be faster",
    Reason.COPY_COSTS: "a trial copy would cost the program more than there seems to be left to gain",
    Reason.NOT_HOT: "it was not hot enough to be looked at",
    Reason.NOT_REACHED: "the loop header was not reached again",
    Reason.SHADOW_MISMATCH: "the new code gave other results in a trial copy of the process",
    Reason.SHADOW_INCONCLUSIVE: "no trial in a copy of the process ran to its end",
    Reason.NOT_FASTER: "the new code was not faster",
    Reason.GUARD_FAILED: "the loop was not entered again with the values that the new code is made for",
    Reason.NEW_SIZES: "the loop comes with other sizes nearly every time, and each would need new code of its own",
    Reason.ENDED: "the program ended too early",
    Reason.DRY_RUN: "this is a dry run",
    Reason.INTERNAL: "memopt failed inside",
}


class Rejected(Exception):
    """A stage does not apply. That is expected, and shown to the user. ``detail`` names the place (address, value)."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(reason.value + (f": {detail}" if detail else ""))
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return self.reason.explain + (f" ({self.detail})" if self.detail else "")


class VerifyError(Exception):
    """An invariant of memopt is broken: a bug. The work on this loop stops, and the program continues natively."""
