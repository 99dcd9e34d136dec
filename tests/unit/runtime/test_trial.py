"""Whether a trial copy stands where a version would be entered."""

from __future__ import annotations

from typing import cast

import pytest

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Region, Relation, Trips
from memopt.ir.scop import Scop
from runtime import trial
from runtime.shadow import Shadow
from runtime.trial import admitted


@pytest.mark.parametrize(("size", "passes"), [(9, True), (10, False), (None, False)])
def test_an_entry_with_other_values_is_told_before_its_arrays_are_looked_at(
        size: int | None, passes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def live_values(_region: Region, _shadow: Shadow) -> dict[str, int]:
        if size is None:
            raise Rejected(Reason.PROTECTED_MAPPING, "reading 0x10")
        return {"n": size}

    monkeypatch.setattr(trial, "live_values", live_values)
    guard = Relation(Linear.symbol("n") - 9, True, "specialised")
    region = Region(0, b"", (), Trips(Linear.of(5), 1), (guard,), (), (), Scop((), ()))
    assert admitted(region, cast(Shadow, None)) == ({"n": size} if passes else None)
