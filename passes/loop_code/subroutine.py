"""A piece of code that several places run, without the stack: arguments and the place to return to lie in frame slots.

Return goes through a chain of comparisons; there are a few callers only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from memopt.x86.instructions import Mem
from passes.vector.emitter import Emitter


class Subroutine:
    """``call`` as often as wanted, then ``body`` once, both in the same emitter."""

    def __init__(self, emitter: Emitter, stem: str) -> None:
        self._emitter = emitter
        self._entry = emitter.fresh(stem)
        self._returns: list[str] = []
        self._caller: Mem | None = None
        self._arguments: tuple[Mem, ...] = ()

    def arguments(self, names: tuple[str, ...]) -> tuple[Mem, ...]:
        """The slots of the arguments, made when first asked for."""
        if not self._arguments:
            self._arguments = tuple(self._emitter.slot() for _ in names)
        return self._arguments

    def call(self) -> None:
        """Clobbers what the body clobbers."""
        if self._caller is None:
            self._caller = self._emitter.slot()
        back = self._emitter.fresh("back")
        self._emitter.op("mov", self._caller, len(self._returns))
        self._returns.append(back)
        self._emitter.jump(self._entry)
        self._emitter.place(back)

    @contextmanager
    def body(self) -> Iterator[None]:
        """What is emitted inside is the body; control passes it by."""
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
