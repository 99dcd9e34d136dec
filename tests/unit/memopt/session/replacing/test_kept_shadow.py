"""One copy serves the loops around an address, as far as it gets; none is left in the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from memopt.ir.reasons import Reason, Rejected
from memopt.session.replacing.kept_shadow import KeptShadow
from runtime.trial.shadow import End, Shadow, ShadowStopped


@dataclass
class Fake:
    """A copy that gets to the headers ``ahead``."""

    ahead: set[int]
    at: int = 0
    killed: bool = False

    def run_out(self, addresses: frozenset[int], timeout_s: float) -> None:
        self.run_to(*addresses, timeout_s)

    def run_to(self, address: int, timeout_s: float) -> float:
        if address not in self.ahead:
            raise ShadowStopped(End.SYSTEM_CALL)
        self.at = address
        return 0.0


@dataclass
class Program:
    ahead: set[int]
    copies: list[Fake] = field(default_factory=list)

    @contextmanager
    def fork(self) -> Iterator[tuple[Shadow, ...]]:
        self.copies.append(Fake(self.ahead))
        try:
            yield cast(Any, (self.copies[-1],))
        finally:
            self.copies[-1].killed = True


def give_up(copies: KeptShadow, program: Program, header: int, reason: Reason = Reason.TRIP_COUNT) -> None:
    def attempt() -> None:
        with copies.at(header, program.fork) as shadow:
            assert cast(Any, shadow).at == header
            assert not cast(Any, shadow).killed
            raise Rejected(reason)

    with pytest.raises(Rejected):
        attempt()


def keeping() -> KeptShadow:
    copies = KeptShadow()
    copies.keep = True
    return copies


def test_the_copy_of_a_loop_that_was_given_up_goes_on_to_the_next() -> None:
    program, copies = Program({1, 2}), keeping()
    give_up(copies, program, 1)
    give_up(copies, program, 2)
    with copies.at(1, program.fork):
        pass
    assert len(program.copies) == 1
    copies.drop()
    assert program.copies[0].killed


def test_a_new_copy_is_made_where_the_old_one_does_not_get_to() -> None:
    program, copies = Program({1}), keeping()
    give_up(copies, program, 1)
    program.ahead = {2}
    give_up(copies, program, 2)
    assert [copy.killed for copy in program.copies] == [True, False]
    copies.drop()
    assert program.copies[1].killed


def test_no_copy_is_kept_that_stands_at_the_wrong_entry_or_unless_wanted() -> None:
    program, copies = Program({1}), keeping()
    give_up(copies, program, 1, Reason.NOT_REACHED)
    copies.keep = False
    give_up(copies, program, 1)
    with pytest.raises(Rejected), copies.at(7, program.fork):
        raise AssertionError
    assert [copy.killed for copy in program.copies] == [True, True, True]


@pytest.mark.parametrize("out", [3, 4])
def test_the_next_look_at_a_loop_is_at_another_entry(out: int) -> None:
    program, copies = Program({1, 3}), keeping()
    give_up(copies, program, 1, Reason.GUARD_FAILED)
    copies.leave(frozenset({out}))
    assert program.copies[0].at == (3 if out == 3 else 1)
    assert program.copies[0].killed == (out == 4)
    give_up(copies, program, 1, Reason.GUARD_FAILED)
    assert len(program.copies) == (1 if out == 3 else 2)
