from __future__ import annotations

from dataclasses import replace

import pytest

from memopt.ir.plan import Isa
from memopt.machine.description import Machine, has_fused_multiply_add, parse, usable_isas
from tests.support.machines import HASWELL, SMALL, ZEN5


@pytest.mark.parametrize("machine", [ZEN5, HASWELL, SMALL, replace(ZEN5, model='a "quoted" \\ name\n')])
def test_text_form_round_trips(machine: Machine) -> None:
    assert parse(machine.to_toml()) == machine


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("size = 49152", "size = 0"),
        ("size = 49152", 'size = "49152"'),
        ("ways = 12\n", ""),
        ("level = 2", "level = 1"),
        ("xcr0 = 0xe7\n", ""),
        ("cores = 2", "cores = -1"),
    ],
)
def test_malformed_descriptions_are_named(before: str, after: str) -> None:
    text = ZEN5.to_toml()
    assert before in text
    with pytest.raises(ValueError, match="machine description"):
        parse(text.replace(before, after, 1))


def test_isas_need_both_the_processor_and_the_operating_system() -> None:
    assert usable_isas(ZEN5) == (Isa.AVX512, Isa.AVX2, Isa.SSE2)
    assert usable_isas(HASWELL) == (Isa.AVX2, Isa.SSE2)
    assert usable_isas(SMALL) == (Isa.SSE2,)
    assert usable_isas(replace(ZEN5, xcr0=0x7)) == (Isa.AVX2, Isa.SSE2), "opmask and ZMM state not enabled"
    assert usable_isas(replace(ZEN5, xcr0=0x3)) == (Isa.SSE2,), "YMM state not enabled"
    assert usable_isas(replace(ZEN5, extensions=("sse2", "avx2"))) == (Isa.AVX2, Isa.SSE2)
    assert usable_isas(replace(ZEN5, extensions=("sse2", "avx2", "fma", "avx512f"))) == (Isa.AVX2, Isa.SSE2), "no BMI2"


def test_avx2_does_not_imply_fused_multiply_add() -> None:
    without = replace(HASWELL, extensions=("sse2", "avx", "avx2"))
    assert has_fused_multiply_add(HASWELL, Isa.AVX2)
    assert not has_fused_multiply_add(without, Isa.AVX2)
    assert not has_fused_multiply_add(HASWELL, Isa.SSE2)
    assert has_fused_multiply_add(ZEN5, Isa.AVX512)


def test_levels_by_number_fall_back_to_the_outermost() -> None:
    assert ZEN5.level(2).name == "L2"
    assert SMALL.level(3).name == "L1d"
    assert ZEN5.level(1).way_size == 4096
    assert ZEN5.level(3).share == 16 << 20
