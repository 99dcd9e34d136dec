"""The code that the probes of all functions share: lookup of targets, new nodes, questions to memopt.

A copy of it lies near each place where code lies. A routine is entered by a jump, with the program's rax, rcx and rdx
in the thread's page. It leaves with these, the flags and all other registers as the program had them.

If memopt must do something (a function is met for the first time), the thread asks and waits. If memopt was killed
meanwhile, the thread goes on in the program's own code, for good.

In: an address for the code, the table of targets, the numbers of memopt. Out: the bytes and the addresses of the
routines.
"""

from __future__ import annotations

from enum import Enum

from memopt.ir.frozen import dataclass
from runtime.recording.translation.asked_calls import ASKED_CALLS, Before
from runtime.recording.translation.encode import (
    JUMP,
    R11,
    RAX,
    RCX,
    RDI,
    RDX,
    READ_TIME_STAMP,
    RESTORE_FLAGS,
    RSI,
    RSP,
    SAVE_FLAGS,
    add,
    compare,
    compare_eax,
    compare_state,
    double,
    invert,
    jump_by_state,
    lea,
    lea_relative,
    lea_sum,
    load,
    load_indexed,
    load_state,
    low_16_bits,
    move,
    set_state,
    store,
    store_state,
    store_state_32_bits,
    test,
)
from runtime.recording.translation.layout import (
    ANSWERED_AT,
    ASKED,
    ASKED_AT,
    CALL_BYTES,
    CALL_NODE,
    CALL_STACK,
    CELL_BYTES,
    CELL_NEXT,
    CELL_NODE,
    DESTINATION,
    FLAGS,
    GO_ON,
    KEPT,
    LAST_CELL,
    NEXT_NODE,
    NODE,
    NODE_CALLER,
    NODE_SITE,
    NODE_STRAY,
    NODE_UNIT,
    RECORD,
    SAVED,
    SITE_GO_ON,
    SITE_NODE_BYTES,
    SITE_SLOT,
    SITE_TARGET,
    SITE_UNIT,
    SLOT,
    TABLE_ENTRIES,
    TARGET,
    TEXTS,
    TOP,
    WAITED,
    WAY_COPY,
    WAY_NODE_BYTES,
    WAY_UNIT,
)
from runtime.recording.translation.writer import Writer

ASKING = 12  # SIGUSR2, from the program to memopt
_WAIT_MS = 50  # between checks whether memopt is still alive
_SYS_POLL, _SYS_KILL, _SYS_TGKILL = 7, 62, 234
_NO_SUCH_THREAD = -3  # ESRCH
_EAX, _EDX, _ESI, _EDI, _SYSCALL = b"\xb8", b"\xba", b"\xbe", b"\xbf", b"\x0f\x05"  # mov register, 32 bits
_JB, _JAE, _JE, _JNE, _JBE, _JA = (bytes((0x0F, opcode)) for opcode in range(0x82, 0x88))


class Question(Enum):
    """The questions that a thread can ask memopt, by the number in ASKED."""

    MISSING = 1  # no copy of TARGET is known
    LINK = 2  # no copy of the callee of the site at RECORD is known
    ROOM_FOR_SITE = 3  # the chunk is full; a call needs a node
    ROOM_FOR_WAY = 4  # the chunk is full; a way in needs a node
    # A system call is about to be made at RECORD; DESTINATION is where without memopt.
    SIGNAL_RETURN = 5  # a handler returns by it
    CHANGE = 6  # it may change code
    SYSTEM_CALL = 8  # it may be one that memopt must not see made (runtime.recording.system_calls)
    DRAIN = 7  # the trace is full; RECORD is where to go on then, DESTINATION where without memopt


@dataclass(frozen=True, slots=True)
class Routines:
    """The addresses of the routines. ``code`` belongs at ``start``."""

    start: int
    code: bytes
    lookup: int  # goes to the copy of the original code at TARGET
    enter: int  # enters a function by the way in at rax
    resume: int  # enters the middle of a function by the way in at rax; forgets the calls that will not return
    call: int  # makes the callee's node for the site at RECORD, which has none for this caller yet
    # Before system calls (asked_calls.Before); the last one where the number is only known at run time.
    ask_return: int
    ask_change: int
    ask_call: int
    ask_any: int
    drain: int  # see Question.DRAIN
    answered: int  # goes on to GO_ON behind an answer, and adds up how long the thread has waited


def restore(write: Writer) -> None:
    """Loads the program's rax, rcx and rdx."""
    write(load_state(RAX, SAVED[0]), load_state(RCX, SAVED[1]), load_state(RDX, SAVED[2]))


def save(write: Writer) -> None:
    """Saves the program's rax, rcx and rdx."""
    write(store_state(SAVED[0], RAX), store_state(SAVED[1], RCX), store_state(SAVED[2], RDX))


def routines(start: int, table: int, memopt: tuple[int, int]) -> Routines:
    """Writes the routines at ``start``. ``memopt``: the number of its process, and that of one of its threads. When
    memopt is killed, the thread is gone at once; the process stays in the list of processes until its parent collects
    it.
    """
    w = Writer(start)
    w.place("lookup")
    w(SAVE_FLAGS, store_state(FLAGS, RAX))
    w(load_state(RCX, TARGET), low_16_bits(RAX, RCX), double(RAX))
    w.place("probe")
    w(load_indexed(RDX, RAX, table), test(RDX))
    w.to_label(_JE, "lost")
    w(b"\x48\x01\xca")  # add rdx, rcx
    w.to_label(_JE, "hit")
    w(b"\x83\xc0\x02", b"\x25" + (2 * TABLE_ENTRIES - 1).to_bytes(4, "little"))  # add eax, 2; and eax, size
    w.jump("probe")
    w.place("hit")
    w(load_indexed(RDX, RAX, table + 8))
    w.place("leave")
    w(store_state(DESTINATION, RDX), load_state(RAX, FLAGS), RESTORE_FLAGS)
    restore(w)
    w(jump_by_state(DESTINATION))
    w.place("lost")
    w(load_state(RAX, FLAGS), RESTORE_FLAGS, load_state(RDX, TARGET), store_state(DESTINATION, RDX))
    _ask(w, Question.MISSING, memopt)

    w.place("enter")
    w(store_state(RECORD, RAX), move(RCX, RAX), SAVE_FLAGS, store_state(FLAGS, RAX))
    w.place("choose")  # rcx: the way in
    w(load(RAX, RCX, WAY_UNIT), load_state(RDX, SLOT), load(RDX, RDX))
    w.place("next")
    w(test(RDX))
    w.to_label(_JE, "new")
    w(compare(RAX, RDX, 0))
    w.to_label(_JE, "listed")
    w(load(RDX, RDX, CELL_NEXT))
    w.jump("next")
    w.place("listed")
    w(load(RDX, RDX, CELL_NODE))
    w.place("found")
    w(store_state(NODE, RDX), load_state(RCX, RECORD))
    w.place("go")
    w(load(RDX, RCX, WAY_COPY))
    w.jump("leave")
    w.place("new")
    _find_caller(w, WAY_UNIT, "cell")
    _make_node(w, WAY_UNIT, WAY_NODE_BYTES, "no room for way")
    w(load_state(RAX, SLOT), store(RDX, NODE_SITE, RAX))
    w.place("cell")  # rdx: the node
    w(store_state(KEPT[0], RDX), load_state(RDX, LAST_CELL), lea(RDX, RDX, -CELL_BYTES), compare_state(RDX, NEXT_NODE))
    w.to_label(_JB, "no room for way")
    w(store_state(LAST_CELL, RDX), load(RAX, RCX, WAY_UNIT), store(RDX, 0, RAX))
    w(load_state(RAX, KEPT[0]), store(RDX, CELL_NODE, RAX), load_state(RAX, SLOT), load(RAX, RAX))
    w(store(RDX, CELL_NEXT, RAX), load_state(RAX, SLOT), store(RAX, 0, RDX), load_state(RDX, KEPT[0]))
    w.jump("found")
    w.place("no room for way")
    w(load_state(RAX, FLAGS), RESTORE_FLAGS, load_state(RDX, TARGET), store_state(DESTINATION, RDX))
    _ask(w, Question.ROOM_FOR_WAY, memopt)

    w.place("resume")
    w(store_state(RECORD, RAX), move(RCX, RAX), SAVE_FLAGS, store_state(FLAGS, RAX), load_state(RDX, TOP))
    w.place("unwind")
    w(compare(RSP, RDX, CALL_STACK - CALL_BYTES))
    w.to_label(_JBE, "unwound")  # the return address of this call is still on the stack
    w(load(RAX, RDX, CALL_NODE - CALL_BYTES), store_state(NODE, RAX), lea(RDX, RDX, -CALL_BYTES))
    w.jump("unwind")
    w.place("unwound")
    w(store_state(TOP, RDX), load_state(RDX, NODE), load(RAX, RDX, NODE_UNIT))
    w(compare(RAX, RCX, WAY_UNIT))
    w.to_label(_JE, "go")
    w(lea(RDX, RDX, NODE_STRAY), store_state(SLOT, RDX))
    w.jump("choose")

    w.place("call")
    w(SAVE_FLAGS, store_state(FLAGS, RAX), load_state(RCX, RECORD), load(RAX, RCX, SITE_UNIT), test(RAX))
    w.to_label(_JE, "unknown")
    _find_caller(w, SITE_UNIT, "made")
    _make_node(w, SITE_UNIT, SITE_NODE_BYTES, "no room for site")
    w(store(RDX, NODE_SITE, RCX))
    w.place("made")
    w(load_state(RAX, NODE), add(RAX, RCX, SITE_SLOT), store(RAX, 0, RDX))
    w(load(RAX, RCX, SITE_GO_ON), store_state(DESTINATION, RAX), move(RCX, RDX), load_state(RDX, NODE))
    w(load_state(RAX, FLAGS), RESTORE_FLAGS, load_state(RAX, SAVED[0]), jump_by_state(DESTINATION))
    for label, question in (("unknown", Question.LINK), ("no room for site", Question.ROOM_FOR_SITE)):
        w.place(label)
        w(load_state(RAX, FLAGS), RESTORE_FLAGS)
        w(load_state(RDX, RECORD), load(RDX, RDX, SITE_TARGET), store_state(DESTINATION, RDX))
        _ask(w, question, memopt)
    w.place("ask_return")
    _ask(w, Question.SIGNAL_RETURN, memopt)
    w.place("ask_change")
    w(SAVE_FLAGS, store_state(FLAGS, RAX))
    w.place(Before.CHANGE)
    for low, end in TEXTS:
        w(compare_state(RDI, end))
        w.to_label(_JAE, ("apart", low))
        w(lea_sum(RAX, RDI, RSI), compare_state(RAX, low))
        w.to_label(_JA, "meets code")
        w.place(("apart", low))
    w.place("elsewhere")
    w(load_state(RDX, RECORD))
    w.jump("leave")
    w.place("meets code")
    w(load_state(RAX, FLAGS), RESTORE_FLAGS)
    _ask(w, Question.CHANGE, memopt)
    w.place("ask_any")
    w(SAVE_FLAGS, store_state(FLAGS, RAX), load_state(RAX, SAVED[0]))
    for number, before in ASKED_CALLS.items():
        w(compare_eax(number))
        w.to_label(_JE, before)
    w.jump("elsewhere")
    w.place(Before.RETURN)
    w(load_state(RAX, FLAGS), RESTORE_FLAGS)
    w.jump("ask_return")
    w.place(Before.CALL)
    w(load_state(RAX, FLAGS), RESTORE_FLAGS)
    w.place("ask_call")
    _ask(w, Question.SYSTEM_CALL, memopt)
    w.place("drain")
    _ask(w, Question.DRAIN, memopt)
    w.place("answered")
    w(store_state(SAVED[0], RAX), store_state(SAVED[2], RDX), *_time_to(ANSWERED_AT), load_state(RAX, ANSWERED_AT))
    w(load_state(RDX, ASKED_AT), invert(RDX), lea_sum(RAX, RAX, RDX, 1), load_state(RDX, WAITED))
    w(lea_sum(RAX, RAX, RDX), store_state(WAITED, RAX), load_state(RAX, SAVED[0]), load_state(RDX, SAVED[2]))
    w(jump_by_state(GO_ON))
    code = w.finish()
    at = w.labels
    names = ("lookup", "enter", "resume", "call", "ask_return", "ask_change", "ask_call", "ask_any", "drain",
             "answered")
    return Routines(start, code, *(at[name] for name in names))


def _time_to(offset: int) -> tuple[bytes, ...]:
    """Stores the time stamp counter at an offset of the page; its halves stay in rax and rdx."""
    return READ_TIME_STAMP, store_state_32_bits(offset, RAX), store_state_32_bits(offset + 4, RDX)


def way_in(start: int, record: int, routine: int) -> bytes:
    """The code at ``start`` that enters ``routine`` with the way in at ``record``."""
    w = Writer(start)
    save(w)
    w.to(lea_relative(RAX), record)
    w.to(JUMP, routine)
    return w.finish()


def way_around(start: int, target: int, routine: int) -> bytes:
    """The code at ``start`` to which direct calls of a copy go whose original may have changed: it goes by ``routine``,
    the lookup, to the copy of what is at the original ``target`` now. The node is that of the copy that is left out.
    """
    w = Writer(start)
    save(w)
    w.to(lea_relative(RAX), target)
    w(store_state(TARGET, RAX), load_state(RAX, NODE), lea(RAX, RAX, NODE_STRAY), store_state(SLOT, RAX))
    w.to(JUMP, routine)
    return w.finish()


WAY_CODE_BYTES = len(way_in(0, 0, 0))


def _find_caller(w: Writer, unit: int, found: str) -> None:
    """Goes to ``found`` if the unit of the record at rcx is among the callers, with its node in rdx. So a recursive
    call leads back to the node it comes from (Ammons, Ball and Larus, Exploiting hardware performance counters with
    flow and context sensitive profiling, 1997, section 4.1).
    """
    again = (found, "again")
    w(load(RAX, RCX, unit), load_state(RDX, NODE))
    w.place(again)
    w(compare(RAX, RDX, NODE_UNIT))
    w.to_label(_JE, found)
    w(load(RDX, RDX, NODE_CALLER), test(RDX))
    w.to_label(_JNE, again)


def _make_node(w: Writer, unit: int, size: int, full: str) -> None:
    """Makes a node for the record at rcx, in rdx, or goes to ``full``. Relies on the chunk being zero."""
    w(load_state(RDX, NEXT_NODE), move(RAX, RDX), add(RAX, RCX, size), compare_state(RAX, LAST_CELL))
    w.to_label(_JA, full)
    w(store_state(NEXT_NODE, RAX), load(RAX, RCX, unit), store(RDX, NODE_UNIT, RAX))
    w(load_state(RAX, NODE), store(RDX, NODE_CALLER, RAX))


def _ask(w: Writer, question: Question, memopt: tuple[int, int]) -> None:
    """Asks memopt, and waits to be taken from here to where the program goes on. If memopt is gone: goes on in the
    original code at DESTINATION.

    A trap would be faster, but the program would die of one that memopt does not live to answer. getppid would not tell
    whether memopt lives, since children of the program ask, too.
    """
    again, alone = (question, "again"), (question, "alone")
    pid, witness = (number.to_bytes(4, "little") for number in memopt)
    is_gone = (_EDI + pid, _ESI + witness, _EDX + bytes(4), _EAX + _SYS_TGKILL.to_bytes(4, "little"), _SYSCALL,
               lea(RCX, RAX, -_NO_SUCH_THREAD))
    w(store_state(KEPT[0], R11), store_state(KEPT[1], RDI), store_state(KEPT[2], RSI))
    w(*_time_to(ASKED_AT), set_state(ASKED, question.value), *is_gone)
    w.if_zero(alone)
    w(_EDI + pid, _ESI + ASKING.to_bytes(4, "little"), _EAX + _SYS_KILL.to_bytes(4, "little"), _SYSCALL)
    w.place(again)
    w(_EDI + bytes(4), _ESI + bytes(4), _EDX + _WAIT_MS.to_bytes(4, "little"))
    w(_EAX + _SYS_POLL.to_bytes(4, "little"), _SYSCALL, *is_gone)
    w.if_zero(alone)
    w.jump(again)
    w.place(alone)
    w(set_state(ASKED, 0), load_state(R11, KEPT[0]), load_state(RDI, KEPT[1]), load_state(RSI, KEPT[2]))
    restore(w)
    w(jump_by_state(DESTINATION))
