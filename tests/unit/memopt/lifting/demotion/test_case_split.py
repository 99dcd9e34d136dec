"""Case splits of values: one case for each way that the conditions of selects go."""

from __future__ import annotations

from memopt.ir.linear import Linear
from memopt.lifting.demotion.case_split import cases_of
from memopt.lifting.values.values import Atom, Loaded, Node, Truth
from tests.support.towers import tower


def test_time_grows_with_the_parts_that_values_share_not_with_their_trees() -> None:
    positive = Atom(Linear.symbol("x"), False)
    chosen = tower("fadd", Node("select", (Truth(positive), Loaded(1, 64), Loaded(2, 64)), 64), 100)
    found = [case.value for case in cases_of(chosen)]
    assert all(case is tower("fadd", Loaded(n, 64), 100) for case, n in zip(found, (1, 2), strict=True))
