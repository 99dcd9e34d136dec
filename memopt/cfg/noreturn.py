"""Noreturn calls: calls that never return, as of ``abort`` or ``__cxa_throw``.

Example: ``call abort`` is the last instruction of a block; the compiler may have placed any other block of the function
behind it. An edge to that block would make loops of parts of a function that have nothing to do with each other.

In: the functions of a file, the slots of its dynamic linker, a control-flow graph. Out: the addresses of the noreturn
calls in it. A function does not return if it has the name of one with which C, C++, Fortran or Ada programs end or
unwind, or if it is a function of the same file whose code has no path to a return or to unknown code. Where that is
wrong and a call does return, the code behind it is met again when it runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from memopt.cfg.flowgraph import Read, discover
from memopt.elf.symbols import Function, function_among
from memopt.ir.graph import BasicBlock, DecodedInstruction, FlowGraph, Kind
from memopt.ir.reasons import Rejected
from memopt.x86.decoder import decode, rip_target

_NAMES = re.compile(
    r"_?_?exit|_Exit|quick_exit|abort|__assert(_fail|_perror_fail)?|__(stack_)?chk_fail|__fortify_fail|__libc_fatal"
    r"|(__|_|__libc_)?(sig)?longjmp(_chk)?|pthread_exit|thrd_exit|v?errx?"
    r"|__cxa_(throw|rethrow|bad_cast|bad_typeid|throw_bad_array_new_length|pure_virtual|deleted_virtual)"
    r"|_Unwind_Resume|_ZSt9terminatev|_ZSt10unexpectedv|_ZSt\d+__throw_\w+"
    r"|_gfortran_((error_)?stop_\w+|exit_i[48]|os_error(_at)?|runtime_error(_at)?)"
    r"|__gnat_(rcheck_\w+|raise_\w+|reraise\w*)")
_RETURNS = re.compile(rb"[\xc2\xc3]")
_MOST_BYTES = 1 << 12  # a larger function is taken to return
_MOST_CALLS = 8  # depth of calls that are followed
_STUB_BYTES = 24


def does_not_return(name: str) -> bool:
    """Whether functions of this name never return."""
    return _NAMES.fullmatch(name) is not None


def slot_of(call: DecodedInstruction, read: Read) -> int | None:
    """The address of the slot through which a call goes: directly, or by a stub of the procedure linkage table.

    None where the call goes through no slot.
    """
    way = (call,) if call.target is None else decode(read(call.target, _STUB_BYTES), call.target, 3)
    for instruction in way:
        if instruction.kind.ends_block:
            return rip_target(instruction)
    return None


class NoReturn:
    """Finds the noreturn calls of one file, or of its code in a process."""

    def __init__(self, read: Read, functions: Sequence[Function], slots: Collection[int]) -> None:
        """``functions``: sorted by address; ``slots``: those that the dynamic linker fills with noreturn functions."""
        self._read, self._functions, self._slots = read, functions, slots
        self._known: dict[int, bool] = {}

    def of(self, graph: FlowGraph) -> frozenset[int]:
        """The addresses of the calls in ``graph`` that do not return."""
        calls = (block.instructions[-1] for block in graph.blocks.values() if block.kind is Kind.CALL)
        return frozenset(call.address for call in calls if self._ends(call, 0))

    def _ends(self, call: DecodedInstruction, depth: int) -> bool:
        if call.target is None:
            return slot_of(call, self._read) in self._slots
        known = self._known.get(call.target)
        if known is None:
            self._known[call.target] = False  # a recursive call counts as one that returns
            found = function_among(self._functions, call.target)
            if found is None or found.start != call.target:
                known = slot_of(call, self._read) in self._slots
            else:
                known = does_not_return(found.name) or self._never_returns(found, depth)
            if known or depth == 0:
                self._known[call.target] = known
            else:
                del self._known[call.target]  # the limit on depth may have decided
        return known

    def _never_returns(self, function: Function, depth: int) -> bool:
        size = function.end - function.start
        if depth == _MOST_CALLS or size > _MOST_BYTES or _RETURNS.search(self._read(function.start, size)):
            return False
        try:
            graph = discover(self._read, function.start, (function.start, function.end))
        except Rejected:
            return False
        seen, pending = {function.start}, [function.start]
        while pending:
            following = self._following(graph.blocks[pending.pop()], depth)
            if following is None or any(s not in graph.blocks for s in following):
                return False
            pending += [s for s in dict.fromkeys(following) if s not in seen]
            seen.update(following)
        return True

    def _following(self, block: BasicBlock, depth: int) -> Sequence[int] | None:
        """The blocks that may run next; None where the block returns or its targets are not known."""
        if block.kind in (Kind.RETURN, Kind.INDIRECT):
            return None
        return () if block.kind is Kind.CALL and self._ends(block.instructions[-1], depth + 1) else block.successors
