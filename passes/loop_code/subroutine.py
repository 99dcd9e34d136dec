"""Subroutines without the stack: arguments, and a number for the place to return to, lie in frame slots.

A version must not touch the program's stack or red zone, so it has no call and ret. A subroutine returns by a chain of
comparisons of that number with each call's. The chain is short: there are only a few calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from memopt.x86.instructions import Mem
from passes.vector.emitter import Emitter


class Subroutine:
    """One subroutine: ``call`` any number of times, at least once, then ``body`` once, all in the same emitter."""

    def __init__(self, emitter: Emitter, stem: str) -> None:
        self._emitter = emitter
        self._entry = emitter.fresh(stem)
        self._returns: list[str] = []
        self._caller: Mem | None = None
        self._arguments: tuple[Mem, ...] = ()

    def arguments(self, names: tuple[str, ...]) -> tuple[Mem, ...]:
        """The frame slots of the arguments ``names``, made when first asked for. Callers fill, the body reads them."""
        if not self._arguments:
            self._arguments = tuple(self._emitter.slot() for _ in names)
        return self._arguments

    def call(self) -> None:
        """Code that runs the body here; it clobbers what the body clobbers."""
        if self._caller is None:
            self._caller = self._emitter.slot()
        back = self._emitter.fresh("back")
        self._emitter.op("mov", self._caller, len(self._returns))
        self._returns.append(back)
        self._emitter.jump(self._entry)
        self._emitter.place(back)

    @contextmanager
    def body(self) -> Iterator[None]:
        """Context manager: code emitted inside is the body. Control that comes from above jumps over it."""
        emitter, beyond = self._emitter, self._emitter.fresh("beyond")
        assert self._caller is not None
        emitter.jump(beyond)
        emitter.place(self._entry)
        yield
        for number, back in enumerate(self._returns[:-1]):
            emitter.op("cmp", self._caller, number)
            emitter.jump(back, "e")
        emitter.jump(self._returns[-1])
        emitter.place(beyond)
