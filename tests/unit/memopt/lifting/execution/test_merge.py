"""States that ways of a branch leave: the same cells, or a refusal."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.lifting.execution.assumptions import State, slot_name
from memopt.lifting.execution.memory import MemoryModel
from memopt.lifting.execution.merge import Path, merge_paths
from memopt.lifting.values.algebra import Algebra
from memopt.lifting.values.values import Integer

WHOLE, HALF = slot_name(-64, 64), slot_name(-64, 32)


class _Stack:
    """Of a cell that a way holds as a whole, a half is found there and not kept."""

    def load_slot(self, state: State, slot: str) -> Any:
        return state.setdefault(slot, Integer(Linear.of(0), 64)) if slot == WHOLE else state[WHOLE]


@pytest.mark.parametrize("halves", [(False, True), (True, False)])
def test_a_cell_that_one_way_holds_in_part(halves: tuple[bool, bool]) -> None:
    one = Integer(Linear.of(1), 64)
    ways = [Path((condition,), (), {WHOLE: one, **({HALF: one} if half else {})})
            for half, condition in zip(halves, (Linear.symbol("rax"), -Linear.symbol("rax") - 1), strict=True)]
    with pytest.raises(Rejected) as refused:
        merge_paths(ways, cast(Algebra, SimpleNamespace(address=0)), cast(MemoryModel, _Stack()), general=True)
    assert refused.value.reason is Reason.CARRIED_VALUE
