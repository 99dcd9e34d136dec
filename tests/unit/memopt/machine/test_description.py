from __future__ import annotations

import re
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


@pytest.mark.parametrize(("before", "after", "key"), [
    ("xcr0 = 0xe7", 'xcr0 = "many"', "xcr0"),
    ("xcr0 = 0xe7", "xcr0 = []", "xcr0"),
    ("cores = 2", "cores = 2.5", "cores"),
    ("cores = 2", "cores = true", "cores"),
    ("page_size = 4096", "page_size = {}", "page_size"),
    ('name = "L2"', "name = 2", "name"),
    ("ways = 12", "ways = [12]", "ways"),
    ("model = ", "model = 5 # ", "model"),
    ("extensions = ", "extensions = 7 # ", "extensions"),
    ("extensions = [", "extensions = [1, ", "extensions"),
    ("[[levels]]", "levels = 3\n[caches]", "levels"),
    ("[[levels]]", "levels = [1, 2]\n[caches]", "levels"),
])
def test_a_value_of_the_wrong_type_is_named_by_its_key(before: str, after: str, key: str) -> None:
    text = ZEN5.to_toml()
    assert before in text
    if key == "levels":
        text = text[:text.index(before) + len(before)]
    with pytest.raises(ValueError, match=rf"^machine description: {key} must be"):
        parse(text.replace(before, after, 1))


def test_a_missing_key_is_named() -> None:
    for key in ("xcr0", "model", "cores", "page_size", "extensions", "ways"):
        text = re.sub(rf"^{key} = .*$", "", ZEN5.to_toml(), count=1, flags=re.MULTILINE)
        with pytest.raises(ValueError, match=rf"^machine description: the key '{key}' is missing"):
            parse(text)


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
