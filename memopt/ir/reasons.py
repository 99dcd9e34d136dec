"""Why a loop, a region or a whole program is left alone: typed reasons in the user's terms."""

from __future__ import annotations

from enum import Enum


class Reason(Enum):
    """The value is the stable name in JSON; ``explain`` gives the words for people."""

    # the program
    THREADS = "threads"
    SIGSEGV_HANDLER = "sigsegv-handler"
    SET_UID = "set-uid"
    THIRTY_TWO_BIT = "32-bit"
    PTRACE_FORBIDDEN = "ptrace-forbidden"
    SECCOMP = "seccomp"
    NO_MEMORY = "no-memory"
    BLOCKED = "blocked"
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
    # the transformation
    NO_SCHEDULE = "no-legal-schedule"
    NO_PLAN = "no-profitable-plan"
    TOO_SHORT = "too-short"
    # the trial
    NOT_REACHED = "header-not-reached"
    SHADOW_MISMATCH = "shadow-mismatch"
    SHADOW_INCONCLUSIVE = "shadow-inconclusive"
    NOT_FASTER = "not-faster"
    GUARD_FAILED = "guard-never-held"
    ENDED = "program-ended"
    DRY_RUN = "dry-run"
    INTERNAL = "internal-error"

    @property
    def explain(self) -> str:
        return _WORDS[self]


_WORDS = {
    Reason.THREADS: "a second thread is running",
    Reason.SIGSEGV_HANDLER: "the program handles SIGSEGV itself",
    Reason.SET_UID: "the program is set-uid, set-gid or carries capabilities",
    Reason.THIRTY_TWO_BIT: "the program is 32-bit",
    Reason.PTRACE_FORBIDDEN: "the system does not allow memopt to trace the program",
    Reason.SECCOMP: "the program runs under a seccomp filter",
    Reason.NO_MEMORY: "not enough free memory for a trial copy of the program",
    Reason.BLOCKED: "the program is stopped, or waits in a system call",
    Reason.SHARED_MAPPING: "an array lies in memory shared with others",
    Reason.DOUBLE_MAPPING: "an array's pages are mapped twice",
    Reason.PROTECTED_MAPPING: "an array lies outside plain readable and writable memory",
    Reason.OVERLAP: "the arrays overlap in a way that forbids reordering",
    Reason.CALL: "the loop calls a function",
    Reason.INDIRECT_JUMP: "the loop contains an indirect jump",
    Reason.UNSUPPORTED_INSTRUCTION: "the loop contains an instruction memopt does not model",
    Reason.DATA_DEPENDENT_ADDRESS: "an address depends on loaded data",
    Reason.DATA_DEPENDENT_BRANCH: "a branch depends on loaded data",
    Reason.NON_AFFINE: "an address or bound is not affine in the loop counters",
    Reason.CARRIED_VALUE: "a value is carried from iteration to iteration in a way memopt cannot undo",
    Reason.TRIP_COUNT: "the number of iterations is not known at loop entry",
    Reason.NOT_A_NEST: "the loop does not form a nest memopt can reorder",
    Reason.ATOMIC: "the loop makes atomic accesses",
    Reason.NO_ROOM: "there is no safe place for the patch at the loop header",
    Reason.UNPROVED: "a fact the new code relies on could not be proved",
    Reason.IRREDUCIBLE: "the control flow has no single loop header",
    Reason.NO_SCHEDULE: "no reordering of the loop respects its dependences",
    Reason.NO_PLAN: "no transformation is expected to pay on this machine",
    Reason.TOO_SHORT: "the loop is too short for a guarded version to pay",
    Reason.NOT_REACHED: "the loop header was not reached again",
    Reason.SHADOW_MISMATCH: "the new code gave other results in a trial copy",
    Reason.SHADOW_INCONCLUSIVE: "no trial copy could run to its end",
    Reason.NOT_FASTER: "the new code was not faster",
    Reason.GUARD_FAILED: "the loop was not entered again with the values the new code is for",
    Reason.ENDED: "the program ended first",
    Reason.DRY_RUN: "this is a dry run",
    Reason.INTERNAL: "memopt failed inside",
}


class Rejected(Exception):
    """A stage does not apply: expected, logged, shown to the user. ``detail`` names the place (address, value)."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(reason.value + (f": {detail}" if detail else ""))
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return self.reason.explain + (f" ({self.detail})" if self.detail else "")


class VerifyError(Exception):
    """An invariant of memopt's own does not hold: a bug of ours. Stops the work; the program runs on natively."""
