"""What is tried at the next arrival at a header, and what is not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from memopt.ir.reasons import Reason, Rejected
from memopt.options import Options
from memopt.session.stages import Stages
from runtime.shadow import End, ShadowStopped


@dataclass
class Header:
    header: int = 0x401000


@dataclass
class Copy:
    """A shadow that comes to the header ``times`` more."""

    times: int
    arrived: list[int] = field(default_factory=list)

    def run_to(self, address: int, timeout_s: float) -> float:
        assert timeout_s > 0
        if len(self.arrived) == self.times:
            raise ShadowStopped(End.ENDED)
        self.arrived.append(address)
        return 0.0


@dataclass
class Trying(Stages):
    """Understands the loop, or refuses it for a reason of its own."""

    refusal: Reason | None = None

    def _lift(self, *_: object) -> Any:
        if self.refusal is not None:
            raise Rejected(self.refusal)
        return "lifted", "places"


def later(first: Reason, refusal: Reason | None = None, times: int = 1) -> tuple[object, list[int]]:
    copy = Copy(times)
    stages = Trying(Options(), 0, cast(Any, None), 0.0, refusal=refusal)
    return stages._lift_later(*cast(Any, (None, Header(), None, copy)), Rejected(first)), copy.arrived


def test_a_loop_is_looked_at_again_where_its_header_is_reached_next() -> None:
    assert later(Reason.DATA_DEPENDENT_BRANCH) == (("lifted", "places"), [0x401000])


@pytest.mark.parametrize(("first", "refusal", "times"), [
    (Reason.TRIP_COUNT, Reason.NON_AFFINE, 1),
    (Reason.TRIP_COUNT, None, 0),
    (Reason.UNSUPPORTED_INSTRUCTION, None, 1),
    (Reason.THREADS, None, 1),
])
def test_the_first_refusal_is_the_one_that_counts(first: Reason, refusal: Reason | None, times: int) -> None:
    with pytest.raises(Rejected) as refused:
        later(first, refusal, times)
    assert refused.value.reason is first
