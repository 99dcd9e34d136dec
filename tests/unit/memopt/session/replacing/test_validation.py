"""Of what the copies of a trial are made, and how many trials there are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from memopt.ir.reasons import Reason, Rejected
from memopt.session.replacing import validation
from memopt.session.replacing.validation import TRIALS, UNLIKE_TRIALS, first_decided


class Trials:
    """Every trial ends as ``ends`` say, in turn; of what it was made is noted."""

    def __init__(self, ends: Sequence[Reason | None]) -> None:
        self.ends = ends
        self.made_of: list[tuple[str | None, bool]] = []

    def __call__(self, kept: str | None, on: bool) -> str:
        self.made_of.append((kept, on))
        end = self.ends[len(self.made_of) - 1]
        if end is not None:
            raise Rejected(end)
        return "version"


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation.time, "sleep", lambda _: None)


KEPT_ON, KEPT, PROGRAM_ON, PROGRAM = ("kept", True), ("kept", False), (None, True), (None, False)


@pytest.mark.parametrize(("kept", "ends", "made_of"), [
    ("kept", (None,), [KEPT_ON]),
    ("kept", (Reason.SHADOW_INCONCLUSIVE, None), [KEPT_ON, KEPT]),  # the next entry is not to be had
    ("kept", (Reason.TOO_SHORT, Reason.TOO_SHORT, None), [KEPT_ON, KEPT, PROGRAM]),
    ("kept", (Reason.GUARD_FAILED, None), [KEPT_ON, PROGRAM]),  # what was captured would pass its own guards
    (None, (Reason.NOT_REACHED, None), [PROGRAM_ON, PROGRAM]),
])
def test_copies_of_a_trial_are_made_of_the_one_that_is_there(
        kept: str | None, ends: tuple[Reason | None, ...], made_of: list[tuple[str | None, bool]]) -> None:
    trials = Trials(ends)
    assert first_decided(kept, trials) == "version"
    assert trials.made_of == made_of


@pytest.mark.parametrize(("reason", "times"), [
    (Reason.NOT_FASTER, 1), (Reason.GUARD_FAILED, UNLIKE_TRIALS), (Reason.TOO_SHORT, TRIALS)])
def test_trials_end(reason: Reason, times: int) -> None:
    trials = Trials((reason,) * 9)
    with pytest.raises(Rejected):
        first_decided("kept", trials)
    assert len(trials.made_of) == times
