"""Random statements with random loop plans, run in this process and compared with scalar code.

``python -m tests.property.test_loop_code first last`` runs more of them.
"""

from __future__ import annotations

import random
import sys

import pytest

from memopt.ir.plan import Isa
from tests.support.effort import some
from tests.support.inprocess import host_isas
from tests.support.loop_check import check
from tests.support.loop_draw import draw

SCALARS = (0x3FF8000000000000, 0x4000000000000000, 0x3FD0000000000000)


@pytest.mark.parametrize("seed", some(range(90), 15))
def test_random_plans_are_bit_exact(seed: int) -> None:
    isas = host_isas()
    run(seed, isas[seed % len(isas)])


@pytest.mark.parametrize("seed", some([101, 1005, 2052, 4111, 4132], 2))
def test_plans_that_once_went_wrong(seed: int) -> None:
    for isa in host_isas():
        run(seed, isa)


def run(seed: int, isa: Isa) -> None:
    rng = random.Random(seed)
    drawn = draw(rng, isa)
    contents = rng.choice(("plain", "specials", "poison"))
    check(drawn.region, drawn.plan, drawn.symbols, seed=seed, specials=contents == "specials",
          poison=contents == "poison", scalars=SCALARS)


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        for each in host_isas():
            run(number, each)
