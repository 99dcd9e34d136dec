"""The structure of compiled functions: nothing that can run is left out, and what calls lead to has its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from memopt.cfg.dominators import dominates, immediate_dominators
from memopt.cfg.functions import intervals
from tests.support.graphs import drawn
from tests.support.structures import built


@pytest.mark.parametrize("flags", [("-O2",), ("-O2", "-fno-plt"), ("-O2", "-fcf-protection=full")], ids=" ".join)
def test_calls_of_other_files_have_names(tmp_path: Path, flags: tuple[str, ...]) -> None:
    found = {f.function.name: set(f.symbols.values()) for f in built(tmp_path, "gcc", *flags)}
    assert found["main"] == {"printf"}
    assert found["step"] & {"putc", "putchar"}


@pytest.mark.parametrize("seed", range(60))
def test_intervals_are_those_of_dominance(seed: int) -> None:
    graph = drawn(seed)
    dominators, found = immediate_dominators(graph), intervals(graph)
    for one in graph.blocks:
        for other in graph.blocks:
            inside = found[one][0] <= found[other][0] <= found[one][1]
            assert inside == dominates(dominators, one, other)
